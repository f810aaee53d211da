"""Claims that reach every rule of the claim gate, as lines for `groundwire check`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from tests.golden.engine import Draw, Places, packs, samples, words

Run = tuple[str, dict[str, Any], list[bytes]]
"""Name of a run, its policy, and its records."""

POLICIES: dict[str, dict[str, Any]] = samples("claim policies")
FACTS: list[str] = samples("facts")
SOURCES = [
    "user",
    "documentation",
    "adr",
    "commit",
    "manual",
    "ai_synthesis",
    "conversation",
    "chat",
    "agent-7",
]
TOLD = (
    "The {} pump of station {} writes each reading of the meter to the ledger within {} {}, {} the operators of the "
    "plant are told by the console when a reading comes late or is lost on the way"
)
HORIZONS = ("2026-01-31T11:00:00Z", "2026-01-31T12:00:20Z", "2027-01-01T00:00:00Z")
EDGES = ("2026-01-31T12:00:00.250Z", "2026-01-31T12:00:00.251Z", "2026-01-31T13:00:00+01:00")
PARENTS = (["c1"], ["c2"], ["c1", "c2", "c1"], ["c99"], ["response:r1"], ["c3"], [])


def line(number: int, content: object, **fields: Any) -> bytes:
    claim = {"claim_id": f"c{number}", "user_id": "ada", "content": content, **fields}
    return json.dumps(claim, ensure_ascii=False).encode()


def filled(name: str, places: Places) -> Iterator[str]:
    for number, template in enumerate(samples(name)):
        text = template
        for place, commit in enumerate(places.commits):
            text = text.replace(f"{{{place}}}", commit)
            for length in (7, 9, 10, 12):
                text = text.replace(f"{{{place}:{length}}}", commit[:length])
        yield text.replace("{}", FACTS[number % len(FACTS)])


def apart(texts: Iterable[str], **fields: Any) -> list[bytes]:
    return [line(number, text, user_id=f"u{number}", **fields) for number, text in enumerate(texts)]


def runs(places: Places) -> Iterator[Run]:
    for name in ("default", "lenient"):
        yield f"hedged-{name}", POLICIES[name], apart(filled("hedged", places))
    relays = (f"The relay {word} to open about 5 valves" for word in words("hedging"))
    hedges = map(". ".join, packs(list(relays), 6))
    yield "hedged-scientific", POLICIES["scientific"], apart(list(filled("hedged", places))[::3])
    yield "hedge-words", {"hedges": {"lexicon": "scientific"}}, apart(hedges)
    for name in ("default", "strict", "off", "held"):
        yield f"cited-{name}", POLICIES[name], list(_cited(places))
    yield "odd", {}, apart(filled("odd", places), source="user")
    for place in range(3):
        yield f"samples-{place}", {}, apart(samples("claims")[place::3], source=SOURCES[3 * place])
    yield "nearly", {"dedup_threshold": 0.5}, list(_nearly())
    yield "twisted", {"dedup_threshold": 0.75}, list(_twisted())
    yield "parents", {}, list(_parents())
    yield "bad", {}, list(bad())
    yield "large", POLICIES["signed"], list(large())
    for seed, (name, policy) in enumerate(POLICIES.items()):
        yield f"random-{name}", policy, [random_claim(Draw(100 * seed + n), n) for n in range(70)]


def _cited(places: Places) -> Iterator[bytes]:
    draw = Draw(7)
    for number, text in enumerate(filled("cited", places)):
        fields = {"source": draw.one(SOURCES), "source_id": draw.one((None, "wiki/7"))}
        yield line(number, text, user_id=f"u{number}", **fields)


def _twisted() -> Iterator[bytes]:
    """Words that count, negate or compare, each beside an approved claim that lacks them."""
    plain = TOLD.format("old", 7, 30, "seconds", "and")
    numbers = count()
    for user, pack in enumerate(packs(words("counting", "hedging"), 60)):
        yield line(next(numbers), plain, user_id=f"u{user}", source="user")
        for some in packs(pack, 3):
            text = TOLD.format("old", f"7 {' '.join(some)}", 30, "seconds", "and")
            yield line(next(numbers), text, user_id=f"u{user}", source="user")


def _nearly() -> Iterator[bytes]:
    for number, pair in enumerate(samples("nearly")):
        for place, text in enumerate(pair):
            yield line(2 * number + place, text, user_id=f"u{number}", source="user")


def _parents() -> Iterator[bytes]:
    yield line(1, FACTS[0], source="user")
    yield line(2, FACTS[1])
    for number, parents in enumerate(PARENTS):
        yield line(3 + number, f"{FACTS[2]} in part {number}", source="user", derived_from=parents)
    for number, horizon in enumerate(EDGES):
        yield line(20 + number, f"{FACTS[3]} by rule {number}", source="user", validity_horizon=horizon)
    for number, kind in enumerate(("fact", "preference", "decision") * 2):
        source = ("chat", "conversation")[number // 3]
        yield line(30 + number, f"I prefer the valve {number} closed", memory_type=kind, source=source)


def bad() -> Iterator[bytes]:
    yield from (b"{", b"[]", b"5", b"null", b'"a"', b"\xff", b"\xef\xbb\xbf{}", b"nul", b"{} {}", b" ")
    yield from (b'{"a": 1, "a": 2}', b'{"a": NaN}', b'{"a": 1e999}', b'{"a": -Infinity}', b'{"a": "\\ud800"}')
    yield from (b"[" * 80 + b"]" * 80, b'{"a": %s}' % (b"9" * 5000), b'{"content": "%s"}' % (b"x" * 900_000))
    long = ({"content": "x" * 20_001}, {"metadata": {"a": "x" * 17_000}})
    for fields in (*samples("wrong"), *long):
        yield json.dumps({"claim_id": "b", "user_id": "ada", "content": "The pump runs"} | fields).encode()
    yield json.dumps({"claim_id": "x"}).encode()
    response = {"response_id": "x", "anser": "x", "chunks": [{"chunk_id": 5}], "confidence": 2}
    yield json.dumps(response).encode()


def large() -> Iterator[bytes]:
    hedged = (f"Perhaps ADR-{n}, may it be, {hedge}." for n, hedge in enumerate(words("hedging")[:150]))
    yield line(1, " ".join(hedged))
    links = [f"https://docs.example.org/{'x' * 700}/{n} commit {n:07}abc" for n in range(20)]
    parents = [f"c{n}" for n in range(50)]
    yield line(2, " ".join(links), derived_from=parents, metadata={"k" * 300: "v" * 3000})
    yield line(3, "The " + " ".join(sorted(set(words("other")))[:1500]), source="user")
    yield line(4, "The " + " ".join(sorted(set(words("other")))[:1499]), source="user")


def random_claim(draw: Draw, number: int) -> bytes:
    unit = draw.one(("seconds", "seconds", "s", "ms", "min"))
    value = draw.one((30, 30, 30, "30.0", "thirty", 45))
    text = TOLD.format(draw.one(("old", "new")), draw.below(2), value, unit, draw.one(samples("twists")))
    fields: dict[str, Any] = {"user_id": draw.one(("ada", "ada", "ada", "bob")), "source": draw.one(SOURCES)}
    if draw.chance(0.3):
        fields["memory_type"] = draw.one(("fact", "preference", "decision"))
    if draw.chance(0.2):
        fields["derived_from"] = draw.some([f"c{n}" for n in range(number)] or ["none"], 3)
    if draw.chance(0.15):
        fields["validity_horizon"] = draw.one(HORIZONS)
    if draw.chance(0.2):
        fields["captured_at"] = draw.one(("2026-01-30T10:00:00.123456+02:00", "2026-01-31T10:00:00Z"))
    if draw.chance(0.2):
        fields["metadata"] = {"tool": "x", "nested": [1, 2.5, None, {"\u00e4": True}]}
    if draw.chance(0.1):
        fields["tenant_id"] = "acme"
    return line(draw.below(number + 1) if draw.chance(0.1) else number, text, **fields)
