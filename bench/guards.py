"""How long entity grounding and relation preservation take, by the number of entities and claims.

    .venv/bin/python bench/guards.py --sizes 1000 10000 100000

One run in one process, processor time, the best of several rounds. Half of what is looked up holds. Beside the
smallest size stands the plain way in the same run: for each entity or claim a walk over all there is.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from groundwire.checks.entities import comparable, ground_entities
from groundwire.checks.relations import RelationIndex, preserve_relations

Records = Sequence[dict[str, Any]]
WORDS = (
    "Acme",
    "Globex",
    "Initech",
    "Northbank",
    "Meridian",
    "Umbrella",
    "Directive",
    "Act",
    "Study",
    "Board",
)


def corpus(rng: random.Random, count: int) -> tuple[Records, dict[str, dict[str, Any]]]:
    """Return entities and an index that holds half of them."""
    entities = [{"id": f"e{n}", "name": _name(rng, n), "role": rng.choice(WORDS)} for n in range(count)]
    known = {
        entity["id"]: {"confidence": rng.uniform(0.6, 1), "role": entity["role"]} for entity in entities[::2]
    }
    return entities, known


def relations(rng: random.Random, count: int) -> tuple[Records, Records]:
    """Return claims and ground truth; of the claims half hold, the others are stale, turned round or unknown."""
    truths = [
        {
            "subject": _name(rng, n),
            "relation": rng.choice(("sued", "acquired", "cites")),
            "object": _name(rng, count + n),
            "version": f"v{rng.randint(2, 9)}",
        }
        for n in range(count)
    ]
    wrong: list[Callable[[dict[str, Any]], dict[str, Any]]] = [
        lambda truth: truth | {"version": "v1"},
        lambda truth: truth | {"subject": truth["object"], "object": truth["subject"]},
        lambda truth: truth | {"object": "nobody"},
    ]
    claims = [truth if rng.random() < 0.5 else rng.choice(wrong)(truth) for truth in truths]
    return claims, truths


def walk_entities(entities: Records, index: dict[str, dict[str, Any]]) -> int:
    """Count grounded entities the plain way."""
    entries = list(index.items())
    return sum(
        any(name == entity["id"] and entry["confidence"] >= 0.6 for name, entry in entries)
        for entity in entities
    )


def walk_relations(claims: Records, truths: Records) -> int:
    """Count claims that hold the plain way."""
    read = [_read(truth) for truth in truths]
    return sum(any(_read(claim) == truth for truth in read) for claim in claims)


def _read(relation: dict[str, Any]) -> list[str]:
    return [comparable(relation[part]) for part in ("subject", "relation", "object", "version")]


def _name(rng: random.Random, number: int) -> str:
    return f"{rng.choice(WORDS)} {rng.choice(WORDS)} {number}"


def best(rounds: int, run: Callable[[], object]) -> float:
    """Return the least processor time of several rounds, in seconds."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[1000, 10_000, 100_000],
        help="entities, and claims, of each run",
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the best counts (default 3)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the records (default 1)")
    options = parser.parse_args()
    if min(*options.sizes, options.rounds, 2) < 1:
        parser.error("--sizes and --rounds must be at least 1")
    print(f"{'check':12}{'size':>9}{'ms':>10}{'us each':>9}{'growth':>8}{'holds':>9}{'plain way':>11}")
    entities = [corpus(random.Random(options.seed), size) for size in options.sizes]
    compare("entities", entities, options.rounds, _ground, walk_entities)
    claims = [relations(random.Random(options.seed), size) for size in options.sizes]
    compare("relations", claims, options.rounds, _preserve, walk_relations)


def compare(
    name: str,
    cases: Sequence[tuple[Any, Any]],
    rounds: int,
    check: Callable[[Any, Any], int],
    plain: Callable[[Any, Any], int],
) -> None:
    """Print a line for each size; `growth` is the time for one record against that of the smallest size."""
    first = 0.0
    smallest = min(len(case[0]) for case in cases)
    for given in cases:
        count = len(given[0])
        took = best(rounds, partial(check, *given))
        first = first or took / count
        walked = ""
        if count == smallest:
            walked = f"{best(1, partial(plain, *given)) / took:10.0f}x"
            if plain(*given) != check(*given):
                raise SystemExit("the two ways disagree")
        each = took / count
        print(
            f"{name:12}{count:9}{took * 1e3:10.1f}{each * 1e6:9.2f}{each / first:8.2f}{check(*given):9}{walked:>11}"
        )


def _ground(entities: Records, index: dict[str, dict[str, Any]]) -> int:
    return len(ground_entities(entities, index).grounded)


def _preserve(claims: Records, truths: Records) -> int:
    return preserve_relations(claims, RelationIndex(truths)).grounded_claims


if __name__ == "__main__":
    main()
