"""Results of the functions of the library, by the names that `groundwire` publishes."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import product
from typing import Any

from pydantic_core import to_jsonable_python

from groundwire import (
    DedupChecker,
    EntityGroundingGuard,
    GroundedIngestionConfig,
    HedgeAction,
    IngestionValidator,
    RelationPreservationGuard,
    VerificationConfig,
    audit_reasoning,
    detect_hallucinations,
    determine_tier,
    evidence_dependence,
    evidence_gap_bits,
    execute_with_fallback,
    gap_band,
    grounded_prompt,
    jaccard_similarity,
    normalize_for_quote_match,
    validate_evidence_grounding,
    verify_claim,
    verify_response,
)
from tests.golden.engine import Oracle, Places, Record, masked, packs, samples, verifier_of

Said = tuple[str, Any]


class Memories:
    async def memories(self, user_id: str, memory_type: str) -> list[tuple[str, str]]:
        if user_id == "nobody":
            raise OSError
        pairs = samples("nearly") if memory_type == "fact" else []
        return [(f"m{n}", pair[1]) for n, pair in enumerate(pairs)]


async def embed(text: str) -> list[float]:
    return [float(text.count(letter)) for letter in "aeinorst .5"]


def records(places: Places) -> Iterator[Record]:
    parts = {"tree": tree(), "answers": answers(), "quotes": quotes(), "relations": relations()}
    parts |= {"memories": asyncio.run(memories(places)), "fallback": asyncio.run(fallback())}
    for part, said in parts.items():
        for name, result in said:
            line = json.dumps(to_jsonable_python(result, fallback=repr, by_alias=True))
            yield f"library/{part}/{name}", [masked(line.encode())]


def tree() -> Iterator[Said]:
    flags, sources = (False, True), ("user", "chat", "conversation", "agent")
    cases = list(product(flags, flags, flags, sources, ("fact", "preference", "decision")))
    for hedge in HedgeAction:
        yield str(hedge), [determine_tier(hedge, *case) for case in cases]
    shares = [n / 20 for n in range(21)]
    bits = [evidence_gap_bits(p1, p0, tau) for p1, p0, tau in product(shares, shares, (0.5, 0.95))]
    yield "gaps", [[gap, gap_band(gap)] for gap in bits]


def answers() -> Iterator[Said]:
    for number, (claim, evidence) in enumerate(samples("values")):
        yield f"claim {number}", verify_claim(claim, [evidence, claim[:9]], 0.5 + number % 5 / 10)
        if number % 2:
            continue
        clearing = number % 4 == 0
        config = VerificationConfig(model_scope="all", model_may_clear=clearing, samples=1 + number % 3)
        yield f"claim {number} asked", verify_claim(claim, evidence, client=Oracle(), config=config)
        yield f"dependence {number}", evidence_dependence(claim[:20], claim, evidence)
        with suppress(RuntimeError):  # the model gave no answer
            dependence = evidence_dependence(claim, "I said so", evidence, client=Oracle())
            yield f"dependence {number} asked", dependence
    full = VerificationConfig(model_scope="all", mode="full", on_failure="retry", samples=2)
    for number, pack in enumerate(packs(samples("answers"), 5)):
        context = {str(place): text for place, text in enumerate(pack[1:])}
        yield f"answer {number}", detect_hallucinations(" ".join(pack), context, client=Oracle(), config=full)
        steps = [{"claim": text, "cites": [str(place), "9"][: place % 3]} for place, text in enumerate(pack)]
        yield f"steps {number}", audit_reasoning(steps, context, client=Oracle())
        again = verify_response(
            "Which?", "\n".join(pack), context, regenerate=lambda _, bad: bad[0].claim_text, config=full
        )
        yield f"response {number}", asyncio.run(again)


def quotes() -> Iterator[Said]:
    for number, (quote, transcript) in enumerate(samples("quotes")):
        for mode in ("substring", "fuzzy"):
            evidence = {"a": [quote, transcript[:40]], "b": [quote[::-1]]}
            yield f"{number} {mode}", validate_evidence_grounding(evidence, transcript, mode=mode)
        yield f"{number} text", [normalize_for_quote_match(quote), jaccard_similarity(quote, transcript)]
    many = ["".join(three) for three in product("0123456789abcdef", repeat=3)]
    text = "".join(sha256(b"%d" % n).hexdigest() for n in range(700)).replace("e", " ")
    yield "many", validate_evidence_grounding({"a": many}, text)


def relations() -> Iterator[Said]:
    dated = {"subject": "A", "relation": "owns", "object": "B", "timestamp": "some day"}
    truths = [*samples("relations"), dated]
    guard = RelationPreservationGuard(truths, strict_versions=True)
    for number, claim in enumerate([*truths, {"subject": "B", "relation": "owned by", "object": "A"}]):
        yield f"relation {number}", guard.check([claim])
    entities = [{"id": "a"}, {"id": "b", "role": "x"}, {"name": "c"}, {"id": "a", "provenance_id": "p"}]
    index = {"a": {"confidence": 0.7}, "b": {"confidence": 0.9, "role": "X"}}
    for confidence in (0.6, 0.71):
        entity_guard = EntityGroundingGuard(required_confidence=confidence)
        yield f"entities {confidence}", entity_guard.check(entities, index)
    chunks = enumerate(samples("offers")["chunks"])
    yield (
        "prompts",
        [grounded_prompt("How?\n>>>", given, unsupported=["It leaks."] * n) for n, given in chunks],
    )


async def memories(places: Places) -> list[Said]:
    said: list[Said] = []
    vector = GroundedIngestionConfig(dedup_method="vector", verify_claim_relevance=True, dedup_scope="user")
    validators = [
        IngestionValidator(Memories(), config=config, embedder=embedder, verifier=verifier_of(places))
        for config, embedder in ((GroundedIngestionConfig(), None), (vector, embed))
    ]
    texts = [*(pair[0] for pair in samples("nearly")), *samples("claims")[::4], "ADR-003: PostgreSQL"]
    for number, text in enumerate(texts):
        user, kind = ("ada", "nobody")[number % 9 == 0], ("fact", "preference")[number % 7 == 0]
        source = ("user", "ai_synthesis")[number % 3 == 0]
        result = await validators[number % 2].validate(text, kind, source, user)
        evidence = [result.evidence.confidence, result.evidence.source_id]  # all but when it was asked
        said.append((f"claim {number}", [to_jsonable_python(result, exclude={"evidence"}), evidence]))
        checker = DedupChecker(Memories(), 0.7, embedder=embed if number % 2 else None)
        said.append((f"duplicate {number}", await checker.check_duplicate(text, user, "fact")))
    return said


async def fallback() -> list[Said]:
    said: list[Said] = []
    shares = (0.49, 0.5, float("nan"), True, 1.1, "1", None)
    for mode, shown in product(("thinking", "auto", "instant"), shares):

        def pipeline(tried: str, shown: Any = shown) -> dict[str, Any]:
            if shown is None:
                raise ValueError("no")
            return {"answer": tried, "warnings": []}

        def validate(response: dict[str, Any], shown: Any = shown) -> Any:
            return shown if response["answer"] != "instant" else 0.5 * (shown == 0.5)

        result = await execute_with_fallback(mode, pipeline=pipeline, validate=validate, chunks=["c"])
        said.append((f"{mode} {shown}", result))
    return said
