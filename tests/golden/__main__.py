"""`python -m tests.golden write|check`: writes the golden set anew, or compares with it.

It is written anew only where a rule is changed on purpose, and the change says so.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.golden import claims, library, responses
from tests.golden.engine import Places, Record, audit, check
from tests.golden.scenes import scenes

EXPECTED = Path(__file__).parent / "expected"
Parts = dict[str, dict[str, list[str]]]
"""Name of a file -> name of a record -> what came of it."""


def make() -> Parts:
    log = io.StringIO()  # what is logged is no decision
    with TemporaryDirectory() as folder, redirect_stdout(log), redirect_stderr(log):
        places = Places.make(Path(folder))
        return {
            "claims": dict(_checked(places, claims.runs(places))),
            "responses": dict(_checked(places, responses.runs())),
            "audit": dict(record for run in responses.audits() for record in audit(places, *run)),
            "gate": dict(asyncio.run(_played(places))),
            "library": dict(library.records(places)),
        }


def _checked(places: Places, runs: Iterator[claims.Run]) -> Iterator[Record]:
    for run in runs:
        yield from check(places, *run)


async def _played(places: Places) -> list[Record]:
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
            yield f"{name}: {'; '.join(_fields(_parsed(expected.get(name)), _parsed(made.get(name)), ''))[:2000]}"


def _parsed(value: object) -> object:
    if isinstance(value, str) and value[:1] in {"{", "["}:
        try:
            return _parsed(json.loads(value))
        except ValueError:
            return value
    if isinstance(value, dict):
        return {key: _parsed(item) for key, item in value.items()}
    return [_parsed(item) for item in value] if isinstance(value, list) else value


def _fields(expected: object, made: object, path: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(made, dict):
        for key in dict.fromkeys([*expected, *made]):
            yield from _fields(expected.get(key), made.get(key), f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(made, list) and len(expected) == len(made):
        for place, (one, other) in enumerate(zip(expected, made, strict=True)):
            yield from _fields(one, other, f"{path}[{place}]")
    elif expected != made:
        yield f"{path or 'record'}: expected {json.dumps(expected)[:300]}, made {json.dumps(made)[:300]}"


def main(arguments: list[str]) -> str | None:
    match arguments:
        case ["write"]:
            write(make())
        case ["check"]:
            expected, made = read(), make()
            found = [told for name in made for told in differences(expected.get(name, {}), made[name])]
            for told in found:
                sys.stdout.write(f"{told}\n")
            return f"{len(found)} records differ" if found else None
        case _:
            return "usage: python -m tests.golden write|check"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
