"""Responses that reach every check of an answer, as lines for `groundwire check` and `groundwire audit`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.golden.claims import TOLD, Run
from tests.golden.engine import Draw, neighbours, packs, samples, words

POLICIES: dict[str, dict[str, Any]] = samples("response policies")
REPLIES: list[str] = samples("replies")
RELATIONS: list[dict[str, Any]] = samples("relations")
OFFERS: dict[str, list[Any]] = samples("offers")
CODE, LEDGER = OFFERS["chunks"][0]


def line(number: int, answer: str | None, **fields: Any) -> bytes:
    response = {"response_id": f"r{number}", "user_id": "ada", "answer": answer, **fields}
    return json.dumps(response, ensure_ascii=False).encode()


def chunk(content: str, number: int = 1) -> dict[str, Any]:
    place = {"start_line": 1, "end_line": content.count("\n") + 1}
    return {"chunk_id": f"k{number}", "file": f"{number}.md", "content": content, **place}


def rate(value: str, of: str = "the pump") -> str:
    return f"The rate of {of} is {value} now."


def runs() -> Iterator[Run]:
    yield "values", {}, list(_values())
    for name in ("default", "quotes"):
        yield f"quoted-{name}", POLICIES[name], list(_quoted())
    for name in ("default", "strict"):
        yield f"related-{name}", POLICIES[name], list(_related())
    yield "edited", POLICIES["quotes"], list(_edited())
    yield "answers", {}, list(_answers())
    yield "large", {}, list(large())
    for seed, (name, policy) in enumerate(POLICIES.items()):
        yield f"offered-{name}", policy, [random_response(Draw(500 + 100 * seed + n), n) for n in range(60)]


def audits() -> Iterator[Run]:
    yield "values", {}, list(_values())
    yield "answers", POLICIES["strict"], list(_answers())
    yield "units", {}, list(_units())
    yield "words", {}, list(_words())
    yield "pairs", POLICIES["retry"], list(_pairs())
    odd = (b'{"claim": "x", "evidence": "y"}', b'{"answer": "x", "evidence": {"a": "b"}}')
    yield "bad", {}, [b"{", b"[]", b"5", *odd]


def _values() -> Iterator[bytes]:
    pairs = samples("values")
    for number, (answer, passage) in enumerate(pairs):
        beside = [chunk(pairs[number - 1][1], 2)] * (number % 3 == 0)
        yield line(number, answer, chunks=[chunk(passage), *beside])
    for number, (one, other) in enumerate(pairs, len(pairs)):
        if max(len(one), len(other)) < 25:
            yield line(number, rate(one), chunks=[chunk(rate(other))])


def _quoted() -> Iterator[bytes]:
    for number, (quote, transcript) in enumerate(samples("quotes")):
        evidence = {"a": [quote], "b": [quote, "x"]}
        yield line(number, "See the quotes.", evidence=evidence, transcript=transcript)
        yield line(1000 + number, "See the quotes.", evidence={"a": [transcript]}, transcript=f"So, {quote}")


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
        yield line(number, "See the quote.", evidence=evidence, transcript=" ".join(said))


def _units() -> Iterator[bytes]:
    for number, pack in enumerate(packs(samples("units"), 5)):
        answer = [rate(one, f"pump {place}") for place, (one, _) in enumerate(pack)]
        evidence = [rate(other, f"pump {place}") for place, (_, other) in enumerate(pack)]
        yield line(number, " ".join(answer), chunks=[chunk("\n".join(evidence))])


def _related() -> Iterator[bytes]:
    for number, claim in enumerate(RELATIONS):
        for place in range(0, len(RELATIONS), 2):
            at = (number + place, number + 2 * place + 1)
            truths = [RELATIONS[one % len(RELATIONS)] for one in at]
            yield line(10 * number + place, "The pump feeds it.", claims=[claim], relations=truths)


def _answers() -> Iterator[bytes]:
    for number, pack in enumerate(packs(samples("answers"), 4)):
        chunks = [chunk(text, place) for place, text in enumerate(pack[1:], 1)] + [LEDGER]
        yield line(number, "\n".join(pack), chunks=chunks, fan_out=True)


def _words() -> Iterator[bytes]:
    """Each word beside its neighbour in the alphabet: a word that decides something tells itself from the others."""
    every = sorted(set(words("counting", "other", "hedging")))
    for number, pack in enumerate(packs(every, 24)):
        evidence, answer = (
            [f"The pump {word} the valve of hall {place} for the plant." for place, word in enumerate(some)]
            for some in (pack, [*pack[1:], pack[0]])
        )
        answer += [f"Ann {word} that the plant stands, {word}." for word in pack[:12]]
        yield line(number, "\n".join(answer), context={"k": "\n".join(evidence)})


def _pairs() -> Iterator[bytes]:
    for number, pack in enumerate(packs([*neighbours("opposites"), *neighbours("synonyms")], 12)):
        evidence = [f"The {one} plant {one} the valve {place}." for place, (one, _) in enumerate(pack)]
        answer = [f"The {other} plant {one} the valve {place}." for place, (one, other) in enumerate(pack)]
        answer += [f"The {one} plant {other} the valve {place}." for place, (one, other) in enumerate(pack)]
        yield line(number, "\n".join(answer), context={"k": "\n".join(evidence)})


def large() -> Iterator[bytes]:
    many = range(130)
    names = [f"entity-{n}-{'x' * 600}" for n in many]
    relations = [RELATIONS[n % 9] | {"subject": name} for n, name in enumerate(names)]
    sources = [{"file": f"{name}.py", "snippet": "x"} for name in names]
    numbers = " ".join(f"Limit {n} of the pump is {n * 3} s, and `field_{n}` is set." for n in range(200))
    chunks = [CODE, LEDGER, *(chunk(f"Limit {n}: {n} s", n) for n in many)]
    yield line(1, numbers, chunks=chunks, sources=sources)
    entities, index = [{"id": name} for name in names], {names[0]: {"confidence": 1}}
    yield line(2, "Yes [source:9].", entities=entities, corpus_index=index)
    hops = [{"x" * 300: names}] * 3
    yield line(3, numbers[:6000], claims=relations, relations=relations[9:40], hop_results=hops)
    quotes = {f"{n}-{'d' * 200}": ["x" * 700, "I sleep well", f"{n} sheep"] for n in many}
    yield line(4, "Quotes.", evidence=quotes, transcript="I sleep well. " * 400 + "7 sheep")
    steps = [{"claim": name} for name in names]
    yield line(5, numbers[:9000], context=dict.fromkeys(names[:3], numbers), steps=steps)
    weak = {"query": "q" * 200_000, "mode": "thinking", "confidence": 0.4}
    yield line(6, numbers[:3000], fan_out=True, context={"a": numbers}, **weak)


def random_response(draw: Draw, number: int, **fields: Any) -> bytes:
    share = draw.one((0.3, 0.6, 0.9))
    offered = {name: draw.one(values) for name, values in OFFERS.items() if draw.chance(share)}
    answer = " ".join([draw.one(REPLIES), *draw.some(REPLIES, 1)]) if draw.chance(0.97) else None
    again = draw.chance(0.05)
    return line(max(1, number - 1) if again else number, answer, **(offered | fields))
