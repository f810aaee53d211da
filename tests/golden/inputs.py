"""Claims that reach every rule of the claim gate, and responses that reach every check of an answer."""

import json
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from tests.golden.engine import Draw, Places, Run, neighbours, packs, samples, words

CLAIM_POLICIES: dict[str, dict[str, Any]] = samples("claim policies")
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


def claim_line(number: int, content: object, **fields: Any) -> bytes:
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
    return [claim_line(number, text, user_id=f"u{number}", **fields) for number, text in enumerate(texts)]


def claim_runs(places: Places) -> Iterator[Run]:
    for name in ("default", "lenient"):
        yield f"hedged-{name}", CLAIM_POLICIES[name], apart(filled("hedged", places))
    relays = (f"The relay {word} to open about 5 valves" for word in words("hedging"))
    hedges = map(". ".join, packs(list(relays), 6))
    yield "hedged-scientific", CLAIM_POLICIES["scientific"], apart(list(filled("hedged", places))[::3])
    yield "hedge-words", {"hedges": {"lexicon": "scientific"}}, apart(hedges)
    for name in ("default", "strict", "off", "held"):
        yield f"cited-{name}", CLAIM_POLICIES[name], list(_cited(places))
    yield "odd", {}, apart(filled("odd", places), source="user")
    for place in range(3):
        yield f"samples-{place}", {}, apart(samples("claims")[place::3], source=SOURCES[3 * place])
    yield "nearly", {"dedup_threshold": 0.5}, list(_nearly())
    yield "twisted", {"dedup_threshold": 0.75}, list(_twisted())
    yield "parents", {}, list(_parents())
    yield "bad", {}, list(bad())
    yield "large", CLAIM_POLICIES["signed"], list(large_claims())
    for seed, (name, policy) in enumerate(CLAIM_POLICIES.items()):
        yield f"random-{name}", policy, [random_claim(Draw(100 * seed + n), n) for n in range(70)]


def _cited(places: Places) -> Iterator[bytes]:
    draw = Draw(7)
    for number, text in enumerate(filled("cited", places)):
        fields = {"source": draw.one(SOURCES), "source_id": draw.one((None, "wiki/7"))}
        yield claim_line(number, text, user_id=f"u{number}", **fields)


def _twisted() -> Iterator[bytes]:
    """Words that count, negate or compare, each beside an approved claim that lacks them."""
    plain = TOLD.format("old", 7, 30, "seconds", "and")
    numbers = count()
    for user, pack in enumerate(packs(words("counting", "hedging"), 60)):
        yield claim_line(next(numbers), plain, user_id=f"u{user}", source="user")
        for some in packs(pack, 3):
            text = TOLD.format("old", f"7 {' '.join(some)}", 30, "seconds", "and")
            yield claim_line(next(numbers), text, user_id=f"u{user}", source="user")


def _nearly() -> Iterator[bytes]:
    for number, pair in enumerate(samples("nearly")):
        for place, text in enumerate(pair):
            yield claim_line(2 * number + place, text, user_id=f"u{number}", source="user")


def _parents() -> Iterator[bytes]:
    yield claim_line(1, FACTS[0], source="user")
    yield claim_line(2, FACTS[1])
    for number, parents in enumerate(PARENTS):
        yield claim_line(3 + number, f"{FACTS[2]} in part {number}", source="user", derived_from=parents)
    for number, horizon in enumerate(EDGES):
        yield claim_line(20 + number, f"{FACTS[3]} by rule {number}", source="user", validity_horizon=horizon)
    for number, kind in enumerate(("fact", "preference", "decision") * 2):
        source = ("chat", "conversation")[number // 3]
        yield claim_line(30 + number, f"I prefer the valve {number} closed", memory_type=kind, source=source)


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


def large_claims() -> Iterator[bytes]:
    hedged = (f"Perhaps ADR-{n}, may it be, {hedge}." for n, hedge in enumerate(words("hedging")[:150]))
    yield claim_line(1, " ".join(hedged))
    links = [f"https://docs.example.org/{'x' * 700}/{n} commit {n:07}abc" for n in range(20)]
    parents = [f"c{n}" for n in range(50)]
    yield claim_line(2, " ".join(links), derived_from=parents, metadata={"k" * 300: "v" * 3000})
    yield claim_line(3, "The " + " ".join(sorted(set(words("other")))[:1500]), source="user")
    yield claim_line(4, "The " + " ".join(sorted(set(words("other")))[:1499]), source="user")


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
    return claim_line(draw.below(number + 1) if draw.chance(0.1) else number, text, **fields)


# responses

RESPONSE_POLICIES: dict[str, dict[str, Any]] = samples("response policies")
REPLIES: list[str] = samples("replies")
RELATIONS: list[dict[str, Any]] = samples("relations")
OFFERS: dict[str, list[Any]] = samples("offers")
CODE, LEDGER = OFFERS["chunks"][0]


def response_line(number: int, answer: str | None, **fields: Any) -> bytes:
    response = {"response_id": f"r{number}", "user_id": "ada", "answer": answer, **fields}
    return json.dumps(response, ensure_ascii=False).encode()


def chunk(content: str, number: int = 1) -> dict[str, Any]:
    place = {"start_line": 1, "end_line": content.count("\n") + 1}
    return {"chunk_id": f"k{number}", "file": f"{number}.md", "content": content, **place}


def rate(value: str, of: str = "the pump") -> str:
    return f"The rate of {of} is {value} now."


def response_runs() -> Iterator[Run]:
    yield "values", {}, list(_values())
    for name in ("default", "quotes"):
        yield f"quoted-{name}", RESPONSE_POLICIES[name], list(_quoted())
    for name in ("default", "strict"):
        yield f"related-{name}", RESPONSE_POLICIES[name], list(_related())
    yield "edited", RESPONSE_POLICIES["quotes"], list(_edited())
    yield "answers", {}, list(_answers())
    yield "large", {}, list(large_responses())
    for seed, (name, policy) in enumerate(RESPONSE_POLICIES.items()):
        yield f"offered-{name}", policy, [random_response(Draw(500 + 100 * seed + n), n) for n in range(60)]


def audit_runs() -> Iterator[Run]:
    yield "values", {}, list(_values())
    yield "answers", RESPONSE_POLICIES["strict"], list(_answers())
    yield "units", {}, list(_units())
    yield "words", {}, list(_words())
    yield "pairs", RESPONSE_POLICIES["retry"], list(_pairs())
    odd = (b'{"claim": "x", "evidence": "y"}', b'{"answer": "x", "evidence": {"a": "b"}}')
    yield "bad", {}, [b"{", b"[]", b"5", *odd]


def _values() -> Iterator[bytes]:
    pairs = samples("values")
    for number, (answer, passage) in enumerate(pairs):
        beside = [chunk(pairs[number - 1][1], 2)] * (number % 3 == 0)
        yield response_line(number, answer, chunks=[chunk(passage), *beside])
    for number, (one, other) in enumerate(pairs, len(pairs)):
        if max(len(one), len(other)) < 25:
            yield response_line(number, rate(one), chunks=[chunk(rate(other))])


def _quoted() -> Iterator[bytes]:
    for number, (quote, transcript) in enumerate(samples("quotes")):
        evidence = {"a": [quote], "b": [quote, "x"]}
        yield response_line(number, "See the quotes.", evidence=evidence, transcript=transcript)
        yield response_line(
            1000 + number, "See the quotes.", evidence={"a": [transcript]}, transcript=f"So, {quote}"
        )


def _edited() -> Iterator[bytes]:
    """Quotes with words and marks left out, put in and changed, at their edges above all."""
    words_of_it = TOLD.format("old", 7, 30, "seconds", "and not").split()
    for number in range(90):
        draw = Draw(1700 + number)
        said, quote = list(words_of_it), words_of_it[draw.below(20) :][: 5 + draw.below(25)]
        for _ in range(1 + draw.below(3)):
            for text in (said, quote):
                place = draw.one((0, len(text) - 1, draw.below(len(text))))
                word = text[place]
                text[place] = draw.one(("", f"{word}.", "not", "9", f"never {word},", word[1:]))
        evidence = {"a": [" ".join(" ".join(quote).split())]}
        yield response_line(number, "See the quote.", evidence=evidence, transcript=" ".join(said))


def _units() -> Iterator[bytes]:
    for number, pack in enumerate(packs(samples("units"), 5)):
        answer = [rate(one, f"pump {place}") for place, (one, _) in enumerate(pack)]
        evidence = [rate(other, f"pump {place}") for place, (_, other) in enumerate(pack)]
        yield response_line(number, " ".join(answer), chunks=[chunk("\n".join(evidence))])


def _related() -> Iterator[bytes]:
    for number, claim in enumerate(RELATIONS):
        for place in range(0, len(RELATIONS), 2):
            at = (number + place, number + 2 * place + 1)
            truths = [RELATIONS[one % len(RELATIONS)] for one in at]
            yield response_line(10 * number + place, "The pump feeds it.", claims=[claim], relations=truths)


def _answers() -> Iterator[bytes]:
    for number, pack in enumerate(packs(samples("answers"), 4)):
        chunks = [chunk(text, place) for place, text in enumerate(pack[1:], 1)] + [LEDGER]
        yield response_line(number, "\n".join(pack), chunks=chunks, fan_out=True)


def _words() -> Iterator[bytes]:
    """Each word beside its neighbour in the alphabet: a word that decides something tells itself from the others."""
    every = sorted(set(words("counting", "other", "hedging")))
    for number, pack in enumerate(packs(every, 24)):
        evidence, answer = (
            [f"The pump {word} the valve of hall {place} for the plant." for place, word in enumerate(some)]
            for some in (pack, [*pack[1:], pack[0]])
        )
        answer += [f"Ann {word} that the plant stands, {word}." for word in pack[:12]]
        yield response_line(number, "\n".join(answer), context={"k": "\n".join(evidence)})


def _pairs() -> Iterator[bytes]:
    for number, pack in enumerate(packs([*neighbours("opposites"), *neighbours("synonyms")], 12)):
        evidence = [f"The {one} plant {one} the valve {place}." for place, (one, _) in enumerate(pack)]
        answer = [f"The {other} plant {one} the valve {place}." for place, (one, other) in enumerate(pack)]
        answer += [f"The {one} plant {other} the valve {place}." for place, (one, other) in enumerate(pack)]
        yield response_line(number, "\n".join(answer), context={"k": "\n".join(evidence)})


def large_responses() -> Iterator[bytes]:
    many = range(130)
    names = [f"entity-{n}-{'x' * 600}" for n in many]
    relations = [RELATIONS[n % 9] | {"subject": name} for n, name in enumerate(names)]
    sources = [{"file": f"{name}.py", "snippet": "x"} for name in names]
    numbers = " ".join(f"Limit {n} of the pump is {n * 3} s, and `field_{n}` is set." for n in range(200))
    chunks = [CODE, LEDGER, *(chunk(f"Limit {n}: {n} s", n) for n in many)]
    yield response_line(1, numbers, chunks=chunks, sources=sources)
    entities, index = [{"id": name} for name in names], {names[0]: {"confidence": 1}}
    yield response_line(2, "Yes [source:9].", entities=entities, corpus_index=index)
    hops = [{"x" * 300: names}] * 3
    yield response_line(3, numbers[:6000], claims=relations, relations=relations[9:40], hop_results=hops)
    quotes = {f"{n}-{'d' * 200}": ["x" * 700, "I sleep well", f"{n} sheep"] for n in many}
    yield response_line(4, "Quotes.", evidence=quotes, transcript="I sleep well. " * 400 + "7 sheep")
    steps = [{"claim": name} for name in names]
    yield response_line(5, numbers[:9000], context=dict.fromkeys(names[:3], numbers), steps=steps)
    weak = {"query": "q" * 200_000, "mode": "thinking", "confidence": 0.4}
    yield response_line(6, numbers[:3000], fan_out=True, context={"a": numbers}, **weak)


def random_response(draw: Draw, number: int, **fields: Any) -> bytes:
    share = draw.one((0.3, 0.6, 0.9))
    offered = {name: draw.one(values) for name, values in OFFERS.items() if draw.chance(share)}
    answer = " ".join([draw.one(REPLIES), *draw.some(REPLIES, 1)]) if draw.chance(0.97) else None
    again = draw.chance(0.05)
    return response_line(max(1, number - 1) if again else number, answer, **(offered | fields))
