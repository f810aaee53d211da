"""`python -m tests.golden write|check`: writes the golden set anew, or compares with it.

It is written anew only where a rule is changed on purpose, and the change says so.
"""

import asyncio
import difflib
import gzip
import io
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.golden import inputs, library
from tests.golden.engine import NOW, Places, Record, run_command
from tests.golden.scenes import scenes

EXPECTED = Path(__file__).parent / "expected"
Parts = dict[str, dict[str, list[str]]]
"""Name of a file -> name of a record -> its outputs."""


def make() -> Parts:
    log = io.StringIO()  # what is logged is no decision
    with TemporaryDirectory() as folder, redirect_stdout(log), redirect_stderr(log):
        places = Places.make(Path(folder))
        sources = ["--adr-dir", str(places.adrs), "--repo", str(places.repo), "--now", NOW.isoformat()]
        return {
            "claims": dict(run_command(places, "check", inputs.claim_runs(places), *sources)),
            "responses": dict(run_command(places, "check", inputs.response_runs(), *sources)),
            "audit": dict(run_command(places, "audit", inputs.audit_runs(), "--format", "json")),
            "gate": dict(asyncio.run(_gate_records(places))),
            "library": dict(library.records(places)),
        }


async def _gate_records(places: Places) -> list[Record]:
    records = []
    for world, scene in scenes(places):
        await scene(world)
        await world.close()
        records += world.records
    return records


def write(parts: Parts) -> None:
    EXPECTED.mkdir(exist_ok=True)
    for name, records in parts.items():
        lines = "".join(json.dumps(record) + "\n" for record in records.items())
        (EXPECTED / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 9, mtime=0))


def read() -> Parts:
    return {
        path.name.removesuffix(".jsonl.gz"): dict(
            map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
        )
        for path in sorted(EXPECTED.glob("*.jsonl.gz"))
    }


def differences(expected: Mapping[str, list[str]], made: Mapping[str, list[str]]) -> Iterator[str]:
    for name in dict.fromkeys([*expected, *made]):
        if expected.get(name) != made.get(name):
            one, other = (
                json.dumps(_parsed(each.get(name)), indent=1).splitlines() for each in (expected, made)
            )
            changed = [
                line for line in difflib.unified_diff(one, other, n=0, lineterm="") if line[:2] != "@@"
            ]
            yield f"{name}: {' '.join(changed[2:])[:2000]}"


def _parsed(value: object) -> object:
    """Read JSON in strings, too."""
    if isinstance(value, str) and value[:1] in {"{", "["}:
        with suppress(ValueError):
            return _parsed(json.loads(value))
    if isinstance(value, dict):
        return {key: _parsed(item) for key, item in value.items()}
    return [_parsed(item) for item in value] if isinstance(value, list) else value


def main(arguments: list[str]) -> str | None:
    if arguments == ["write"]:
        write(make())
    elif arguments == ["check"]:
        expected, made = read(), make()
        found = [line for name in made for line in differences(expected.get(name, {}), made[name])]
        sys.stdout.writelines(f"{line}\n" for line in found)
        return f"{len(found)} records differ" if found else None
    else:
        return "usage: python -m tests.golden write|check"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
