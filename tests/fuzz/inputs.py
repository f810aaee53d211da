"""Hostile input made from seeds: odd texts, valid records with all their fields, and mutations of them."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

CANARY: Final = "Kanarienvogel"
"""Part of the texts of records, which no log may contain."""
USER: Final = "ada"
TABLES: Final = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))
"""Words, numbers, times and addresses, most of them odd, that inputs are made of."""
ODD, WORDS = TABLES["odd"], TABLES["words"]
HANGS: Final = 30  # seconds of processor time for one input


def feed(share: int, case: Callable[[Dice], Awaitable[None]]) -> None:
    """Run a case on so many inputs, times a factor of the profile; Hypothesis prints the seed of one that fails."""

    def hangs(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    @settings(
        max_examples=max(1, share * settings().max_examples // 20),
        phases=(Phase.reuse, Phase.generate),  # a seed has nothing to shrink
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(min_size=8, max_size=8))
    def fed(seed: bytes) -> None:
        signal.setitimer(signal.ITIMER_PROF, HANGS)
        try:
            asyncio.run(case(Dice(seed)))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    before = signal.signal(signal.SIGPROF, hangs)
    try:
        fed()
    finally:
        signal.signal(signal.SIGPROF, before)


class Dice(Random):
    """A seed's draws."""

    def one(self, *choices: Any) -> Any:
        return self.choice(choices)

    def chance(self, share: float) -> bool:
        return self.random() < share

    def said(self, longest: int = 400) -> bytes:
        return text(self)[:longest].encode("utf-8", "replace")


def text(rng: Dice, longest: int = 400) -> str:
    """Make a text of words and oddities; now and then one that says the same thing over and over."""
    kind = rng.random()
    if kind < 0.25:
        return rng.choice(ODD)
    if kind < 0.33:
        unit = rng.one(*ODD, *WORDS, rng.choice("()[]{}<>.,:;-_*~`'\"#|/\\ 0a1e"))
        return unit * length(rng, 20 * longest, per=len(unit))
    pieces = [rng.choice(WORDS if rng.chance(0.85) else ODD) for _ in range(rng.randint(1, 12))]
    return rng.one("", " ", ". ", " ").join(pieces)[: 10 * longest]


def length(rng: Dice, longest: int, *, per: int = 1) -> int:
    """Return how often something is repeated: mostly a few times, seldom until the longest is reached."""
    return int(longest ** (rng.random() ** 2)) // max(1, per) + 1


def scratched(rng: Dice, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(5):
            case 0:
                out[at:at] = rng.one(
                    b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\x00", b'"', b"{", b"[", b",", b"\\u"
                )
            case 1:
                del out[at : at + rng.randint(1, 8)]
            case 2:
                out[at:at] = out[at : at + rng.randint(1, 40)]
            case 3:
                out[at : at + 1] = bytes([rng.randrange(256)])
            case _:
                del out[at:]
    return bytes(out)


def content(rng: Dice) -> str:
    said = rng.choice(TABLES["contents"]) if rng.chance(0.6) else text(rng)
    return f"{said} {CANARY}" if rng.chance(0.8) else said


def claim(rng: Dice, number: int = 1) -> dict[str, Any]:
    whole = {
        "claim_id": f"c{number}",
        "tenant_id": "default",
        "user_id": USER,
        "content": content(rng),
        "memory_type": rng.one("fact", "preference", "decision"),
        "source": rng.choice(TABLES["sources"]),
        "source_id": "wiki/12",
        "captured_at": "2026-01-31T11:00:00+01:00",
        "validity_horizon": rng.one(None, "2026-12-31T00:00:00Z", "2026-01-31T11:30:00Z"),
        "derived_from": rng.one([], [], ["c1"], ["c0", "response:r1"]),
        "metadata": {"tool": "x", "note": CANARY, "nested": {"a": [1, 2.5, None]}},
        "schema_version": "1.0",
    }
    needed = {"claim_id", "user_id", "content"}
    return {name: value for name, value in whole.items() if name in needed or rng.chance(0.7)}


def response(rng: Dice, number: int = 1) -> dict[str, Any]:
    code = "def search(query, top_k):\n    timeout = 30 s\n    return index.find(query)"
    grounded = "Call `search` with `top_k` [source:1]. The timeout is 30 s [source:1]."
    chunk = {"chunk_id": "a", "file": "src/search.py", "content": code, "start_line": 1, "end_line": 3}
    more = {"revision": "a1", "indexed_at": "2026-01-01T00:00:00Z", "version": "1.2", "document_id": "d1"}
    index = {"e1": {"confidence": 0.9, "role": "service"}}
    relation = {"subject": "search", "relation": "calls", "object": "index", "qualifiers": {"unit": "s"}}
    relation |= {"timestamp": "2026-01-01T00:00:00Z", "version": rng.one("1", "2.0", None)}
    whole = {
        "response_id": f"r{number}",
        "tenant_id": "default",
        "user_id": USER,
        "schema_version": "1.0",
        "metadata": {"note": CANARY},
        "query": f"How is search called? {CANARY}",
        "mode": rng.one("instant", "auto", "thinking"),
        "scope": "docs",
        "in_reply_to": rng.one(None, "r0", "r1"),
        "answer": grounded if rng.chance(0.4) else f"{grounded} {content(rng)}",
        "confidence": rng.one(1.0, 0.9, 0.69, 0.1),
        "chunks": [
            chunk | (more if rng.chance(0.5) else {}),
            {**chunk, "chunk_id": "b", "file": "docs/a.md"},
        ],
        "sources": [{"file": "src/search.py", "snippet": "timeout = 30 s", "start_line": 1, "end_line": 3}],
        "current_revisions": {"src/search.py": rng.one("a1", "b2")},
        "transcript": f"I said that I sleep well. {CANARY}",
        "evidence": {"sleep": ["I sleep well"], "mood": [rng.one("I said", "I wept")]},
        "entities": [{"id": "e1", "name": "search", "role": "service", "provenance_id": "p1"}],
        "corpus_index": index,
        "claims": [relation],
        "relations": [relation | {"version": rng.one("1", "2.0", None)}],
        "hop_results": [{"hop": 1, "found": ["a"]}],
        "steps": [{"claim": "The timeout is 30 s", "cites": ["a"]}],
        "context": {"a": code, "b": f"The search retries 5 times. {CANARY}"},
        "verify": rng.chance(0.9),
        "fan_out": rng.chance(0.3),
    }
    needed = {"response_id", "user_id", "answer"}
    kept = rng.one(0.2, 0.5, 1.0)
    return {name: value for name, value in whole.items() if name in needed or rng.random() < kept}


def action(rng: Dice, subject_id: str, revision: int, number: int) -> dict[str, Any]:
    kind = rng.one("approve", "reject", "edit", "retract", "expire")
    whole = {
        "action_id": rng.one(f"a{number}", "a1", "00000000-0000-4000-8000-000000000000"),
        "tenant_id": "default",
        "user_id": USER,
        "kind": rng.one("claim", "claim", "claim", "response"),
        "subject_id": subject_id,
        "expected_revision": revision,
        "action": kind,
        "reviewer": rng.one(USER, USER, "lead", "mallory", "groundwire"),
        "reason": rng.one(None, "incorrect", f"no code {CANARY}"),
        "note": rng.one(None, f"a note {CANARY}"),
        "at": "2026-01-31T12:00:00Z",
    }
    return whole | ({"content": content(rng)} if kind == "edit" else {})


_LITERALS: Final = (
    *TABLES["json_literals"],
    *("1" * 4_000, "9" * 5_000, "0." + "1" * 5_000, "[" * 63 + "]" * 63, "[" * 500 + "]" * 500, "[" * 20_000),
    '{"a":' * 70 + "1" + "}" * 70,
)
"""JSON, or what is none; a value `@literal N@` is written as the Nth."""
_AGAIN: Final = "@again@"
"""Ends a key that is written without it, and so twice."""


def mutated(rng: Dice, value: Any, least: int = 0, most: int = 4) -> Any:
    root = [copy.deepcopy(value)]
    for _ in range(rng.randint(least, most)):
        places: list[tuple[Any, Any]] = []  # containers, with a key or index in each
        todo: list[Any] = [root]
        while todo and len(places) <= 500:  # a wide value has no need of more
            container = todo.pop()
            for key, each in container.items() if isinstance(container, dict) else enumerate(container):
                places.append((container, key))
                if isinstance(each, dict | list):
                    todo.append(each)
        if places:
            _change(rng, *rng.choice(places))
    return root[0] if root else None


def written(rng: Dice, value: Any) -> bytes:
    """Write a value as JSON; now and then with bytes broken, or in another encoding."""
    plain = json.dumps(value, ensure_ascii=rng.chance(0.5)).replace(_AGAIN, "")
    plain = re.sub(r'"@literal (\d{1,3})@"', lambda at: _LITERALS[int(at[1]) % len(_LITERALS)], plain)
    data = plain.encode("utf-8", "surrogatepass")
    kind = rng.random()
    if kind < 0.05:
        return scratched(rng, data)
    if kind < 0.06:
        encoding = rng.one("utf-16", "utf-32", "utf-8-sig", "utf-7", "latin-1")
        return data.decode("utf-8", "replace").encode(encoding, "replace")
    return data


def any_value(rng: Dice, depth: int = 2) -> Any:
    match rng.randrange(8 if depth else 6):
        case 0:
            return None
        case 1:
            return rng.choice(TABLES["numbers"])
        case 2 | 3:
            return text(rng)
        case 4:
            return rng.choice(TABLES["times"])
        case 5:
            return f"@literal {rng.randrange(len(_LITERALS))}@"
        case 6:
            return [any_value(rng, depth - 1) for _ in range(rng.randrange(4))]
        case _:
            return {text(rng)[:50]: any_value(rng, depth - 1) for _ in range(rng.randrange(4))}


def _change(rng: Dice, container: Any, key: Any) -> None:
    """Change one place; nothing where a change does not apply to what is there."""
    value = container[key]
    match rng.one(
        *("set", "set", "delete", "rename", "add", "repeat", "wrap", "shorten", "double", "swap"),
        *("spell", "spell", "spell", "spell"),
    ):
        case "set":
            container[key] = any_value(rng)
        case "delete":
            del container[key]
        case "rename" if isinstance(container, dict):
            name = str(key)
            odd = (f"{name} ", f"{name}\u200b", rng.choice(ODD), text(rng)[:300])
            container[rng.one(name.upper(), name[:-1], *odd)] = container.pop(key)
        case "add" if isinstance(container, dict):
            container[text(rng)[:100]] = any_value(rng)
        case "add":
            container.insert(rng.randint(0, len(container)), any_value(rng))
        case "repeat":
            times = length(rng, 3_000)
            if isinstance(value, str):
                container[key] = value * min(times, 30_000 // max(1, len(value)) + 1)
            elif isinstance(value, list):
                container[key] = (value * (times // max(1, len(value)) + 1))[:500]
            elif isinstance(value, dict) and len(value) < 200:
                container[key] = {**value, **{f"k{n}": any_value(rng, 0) for n in range(times % 300)}}
        case "wrap":
            for _ in range(rng.one(1, 1, 3, 62, 70, 100)):
                container[key] = [container[key]] if rng.chance(0.5) else {"a": container[key]}
        case "shorten" if isinstance(value, str | list):
            container[key] = value[: rng.one(0, 1, 3)]
        case "double" if isinstance(value, dict) and value:
            name = next(iter(value))
            container[key] = {**value, f"{name}{_AGAIN}": value[name]}
        case "swap":
            other = rng.choice(list(container) if isinstance(container, dict) else range(len(container)))
            container[key], container[other] = container[other], container[key]
        case "spell" if isinstance(value, str):
            at = rng.randint(0, len(value))
            container[key] = value[:at] + text(rng) + value[at:]
        case "spell" if isinstance(value, int | float):
            container[key] = rng.choice(TABLES["numbers"])
