"""Measure how fast the gate is: `python -m bench`, or parts of it by name: `python -m bench gate redis`.

Everything stands beside a baseline of the same run, in turns. Seconds depend on the machine; ratios much less.

    python -m bench --list
    python -m bench process quotes --quick
    python -m bench --json bench/results.json --page docs/run/speed.md
"""

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvloop

from agents.app import tune_gc
from bench import guard
from bench.machine import machine, processor_times, sentence, stolen_since
from bench.measure import Options, Part, Size
from bench.parts import PARTS
from bench.plot import targets_svg
from bench.report import merge, table, targets, write_page
from groundwire.logs import configure_logs


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", help="only these (default: all)")
    parser.add_argument("--list", action="store_true", help="name the parts")
    parser.add_argument("--rounds", type=int, default=5, help="of which the median counts (default 5)")
    parser.add_argument("--quick", action="store_true", help="a look: less of everything, two rounds")
    parser.add_argument("--full", action="store_true", help="up to ten million remembered claims")
    parser.add_argument("--broker", choices=["auto", "kafka", "embedded"], default="auto")
    parser.add_argument("--redis", choices=["auto", "real", "embedded"], default="auto")
    parser.add_argument("--json", type=Path, help="file of results; those of other parts stay in it")
    parser.add_argument(
        "--page", type=Path, help="page that takes the table of targets, with its picture beside it"
    )
    parser.add_argument(
        "--no-run", action="store_true", help="write the page from the file of results as it is"
    )
    parser.add_argument("--guard", action="store_true", help="only compare a few ratios with what is stated")
    args = parser.parse_args()
    if args.list:
        for part in PARTS.values():
            print(f"{part.name:10} {part.title} ({part.needs or 'no servers'})")
        return
    if args.guard:
        sys.exit(1 if list(guard.failures()) else 0)
    if unknown := [name for name in args.part if name not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    size: Size = "quick" if args.quick else "full" if args.full else "normal"
    rounds = min(2, args.rounds) if args.quick else args.rounds
    options = Options(rounds=rounds, size=size, broker=args.broker, redis=args.redis)
    chosen = [] if args.no_run else [PARTS[name] for name in args.part or PARTS]
    results: dict[str, Any] = merge(args.json, {})
    configure_logs("console", "error")
    for name in (
        "aiokafka",
        "faust",
        "mode",
    ):  # they log that a broker which has just started leads no partition
        logging.getLogger(name).setLevel(logging.CRITICAL)
    tune_gc()  # as in a worker; it is the same for all contenders of this process
    for part in chosen:  # what is measured is kept, however the next one ends
        results |= merge(args.json, {part.name: uvloop.run(_measure(part, options))})
    if args.page:
        _write(args.page, {name: results[name] for name in PARTS if name in results})


async def _measure(part: Part, options: Options) -> dict[str, Any]:
    here = machine()
    print(f"\n{part.name}: {part.title}\n{sentence(here)}", flush=True)
    figures, before = [], processor_times()
    async for figure in part.run(options):
        figures.append(figure)
        print(list(table([figure], here["cores"]))[-1], flush=True)
    here["stolen"] = stolen_since(before)  # time that other machines took, which the load does not show
    return {
        "machine": here,
        "rounds": options.rounds,
        "size": options.size,
        "figures": [asdict(figure) for figure in figures],
    }


def _write(page: Path, results: dict[str, Any]) -> None:
    """Write the table of targets into a page, and the picture beside it."""
    for name in write_page(page, {"targets": list(targets(results))}):
        print(f"{page}: has no place for the table {name}", file=sys.stderr)
    page.with_suffix(".svg").write_text(targets_svg(results), "utf-8")


if __name__ == "__main__":
    main()
