"""Print how well right and wrong answers are distinguished: `python -m bench.quality --data DIR`.

By method, on the rows of the split named; with `--gate`, by the whole gate as it is; with `--claims`, how labelled
claims are judged; with `--cases`, cases of several records. `--page FILE` writes it into a page instead, between the
marks that stand there.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.quality.cases import case_table, read_cases
from bench.quality.claims import TELLING, claim_table
from bench.quality.data import SETS, SPLITS, Row
from bench.quality.gate import gate_table
from bench.quality.methods import METHODS
from bench.quality.points import points_table
from bench.quality.tables import method_table
from groundwire import __version__
from groundwire.library.evaluate import BadRow, read_labelled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the public sets")
    parser.add_argument("--file", type=Path, help="own labelled rows, as `groundwire evaluate` reads them")
    parser.add_argument("--set", action="append", choices=list(SETS), help="only these sets")
    parser.add_argument("--method", action="append", choices=list(METHODS), help="only these methods")
    parser.add_argument("--split", choices=(*SPLITS, "all"), default="validation")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--gate", action="store_true", help="leak, over-block and review of the whole gate")
    parser.add_argument("--points", action="store_true", help="over-review and leak at each operating point")
    parser.add_argument("--pictures", type=Path, help="with --points: draw each set into this folder")
    parser.add_argument("--page", type=Path, help="write the tables into this page")
    parser.add_argument("--claims", action="store_true", help="leak and over-hold of labelled claims only")
    parser.add_argument("--cases", type=Path, help="cases of several records, by set and class")
    parser.add_argument("--wrong", action="store_true", help="with --cases: name what was judged wrongly")
    parser.add_argument("--adr-dir", type=Path, help="the decision records that labelled claims cite")
    args = parser.parse_args()
    if args.cases:
        print("\n".join(case_table(read_cases(args.cases, args.adr_dir), wrong=args.wrong)))
        return
    if not (args.data or args.file):
        parser.error("give --data, --file or --cases")
    if args.split == "all" and not args.points:
        parser.error("--split all goes with --points")
    if args.claims:
        least = TELLING if args.page else 1
        _print_or_write(list(claim_table(args.data, args.adr_dir, least)), args.page)
        return
    sets = {name: list(SETS[name](args.data)) for name in args.set or SETS} if args.data else {}
    if args.file:
        sets["own"] = list(_own(args.file))
    chosen = {name: [row for row in rows if row.split == args.split] for name, rows in sets.items()}
    if args.page:
        tables = {
            "methods": method_table(sets, args.method or list(METHODS), args.split, args.draws),
            "gate": gate_table(chosen),
        }
        command = f"python -m bench.quality --data DIR --split {args.split}"
        write(args.page, {name: [*_head(name, command), *lines] for name, lines in tables.items()})
        return
    if args.points:
        for line in points_table(sets if args.split == "all" else chosen, args.pictures):
            print(line, flush=True)
        return
    lines = (
        gate_table(chosen)
        if args.gate
        else method_table(sets, args.method or list(METHODS), args.split, args.draws)
    )
    for line in lines:
        print(line, flush=True)


def _print_or_write(lines: Sequence[str], page: Path | None) -> None:
    if page is None:
        print("\n".join(lines), flush=True)
    else:
        command = "python -m bench.quality --data DIR --claims --adr-dir DIR"
        write(page, {"claims": [*_head("claims", command), *lines]})


def write(page: Path, tables: Mapping[str, Sequence[str]]) -> None:
    """Put tables into a page, each between `<!-- table: NAME -->` and `<!-- end -->`."""
    text = page.read_text("utf-8")
    for name, lines in tables.items():
        mark = re.compile(rf"(?<=<!-- table: {name} -->\n).*?(?=<!-- end -->)", re.DOTALL)
        if not mark.search(text):
            raise SystemExit(f"{page}: has no place for the table {name}")
        written = "\n".join([*lines, "", ""]).replace("\\", r"\\")
        text = mark.sub(written, text, count=1)
    page.write_text(text, "utf-8")


def _head(name: str, command: str) -> Iterator[str]:
    yield f"Groundwire {__version__}, `{command}{' --gate' if name == 'gate' else ''}`:"
    yield ""


def _own(path: Path) -> Iterator[Row]:
    for row in read_labelled(path.read_bytes()):
        if isinstance(row, BadRow):
            raise SystemExit(f"{path}, line {row.line}: {row.error.message}")
        yield Row(str(row.line), row.group, row.text, tuple(row.evidence.values()), row.supported)


if __name__ == "__main__":
    main()
