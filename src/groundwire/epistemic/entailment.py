"""Asks an entailment model about claims: does this evidence state this claim (S4-16, S4-47)?

Such a model scores pairs of texts and generates none. It runs within the process: what the rules align gives the window
of evidence, pairs of all records that are being asked about are scored together on the model's own thread, and scores
are kept by claim and window. A score is rounded and recorded; the policy's head makes support of it when the decision
is derived, so that a calibrated head can be replayed over recorded scores.
"""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from typing import Final, NamedTuple, Self

from cachetools import LRUCache

from groundwire.checks.support.score import ClaimCheck, SupportVerdict
from groundwire.epistemic.claims import UNAVAILABLE, ModelOpinion
from groundwire.epistemic.model import Model, ModelAnswer, ModelFault, ModelRequest
from groundwire.epistemic.plan import OVER_BUDGET, VerifierFacts
from groundwire.epistemic.prompts import MAX_CLAIM, clean
from groundwire.epistemic.types import ModelCall, VerificationConfig
from groundwire.text.sentences import sentences

BATCH: Final = 32
"""Pairs scored in one run."""
KNOWN: Final = 16_384
"""Scores that a process keeps."""

_WHOLE: Final = 1_500  # characters of a passage that is taken whole
_WINDOW: Final = 3_000  # characters of a window, about 700 tokens: the sentences behind are the worst aligned
_DIGITS: Final = 4


class Pair(NamedTuple):
    window: str
    claim: str


class Entailed(NamedTuple):
    """What a model says of a pair: the probability that the window states the claim."""

    support: float
    contradicted: bool = False  # "contradiction" is the likeliest of its outputs
    tokens: int = 0  # of the pair


Scored = Entailed | ModelFault


class EntailmentModel(Model):
    """A model by its `name@revision`; safe to use from several event loops and threads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.trouble = ""  # the last failure, for a person
        self._known: LRUCache[bytes, Entailed] = LRUCache(KNOWN)
        self._waiting: deque[tuple[Pair, Future[Entailed]]] = deque()
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "groundwire-entailment")

    @abstractmethod
    def run(self, pairs: Sequence[Pair]) -> Sequence[Scored]:
        """Score pairs, on the thread of the model."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Do nothing: it is loaded when it is made."""

    async def close(self) -> None:
        """Do nothing: its thread ends with the process."""

    async def answer(self, request: ModelRequest) -> ModelAnswer:  # noqa: ARG002 - as a client is asked
        """Refuse to generate. Raises: ModelFault."""
        raise ModelFault("rejected", f"{self.name} scores claims and answers no questions")

    async def score(self, pair: Pair) -> tuple[Entailed, bool]:
        """Return what the model says of a pair, and whether that was known. Raises: ModelFault."""
        key = blake2b(
            f"{pair.claim}\0{pair.window}".encode("utf-8", "surrogatepass"), digest_size=16
        ).digest()
        with self._lock:
            if (known := self._known.get(key)) is not None:
                return known, True
            future: Future[Entailed] = Future()
            self._waiting.append((pair, future))
        self._thread.submit(self._run_waiting)
        found = await asyncio.wrap_future(future)  # a cancelled question is not asked any more
        with self._lock:
            self._known[key] = found
        return found, False

    def _run_waiting(self) -> None:
        batch: list[tuple[Pair, Future[Entailed]]] = []
        with self._lock:
            while self._waiting and len(batch) < BATCH:
                pair, future = self._waiting.popleft()
                if future.set_running_or_notify_cancel():
                    batch.append((pair, future))
        if not batch:
            return  # an earlier run took them
        try:
            results = self.run([pair for pair, _ in batch])
            for (_, future), found in zip(batch, results, strict=True):
                if isinstance(found, ModelFault):
                    future.set_exception(found)
                else:
                    future.set_result(found)
        except Exception as exc:  # noqa: BLE001 - a model that fails is unavailable
            self.trouble = type(exc).__name__
            for _, future in batch:
                if not future.done():
                    future.set_exception(ModelFault("failed", type(exc).__name__))


def window(claim: ClaimCheck, evidence: Mapping[str, str]) -> str:
    """Return the evidence that a claim is held against: the sentences that bind its words, and those beside them.

    Short passages are taken whole; where nothing binds the claim, all of them are, from their beginning.
    """
    chosen: dict[str, list[tuple[int, int]]] = {}
    room = _WINDOW
    places = [place for place in claim.places if place[0] in evidence]
    for name, start, end in places or [(name, 0, 0) for name in evidence]:
        spans = chosen.setdefault(name, [])
        if room > 0 and not any(first <= start and end <= last for first, last in spans):
            first, last = _around(evidence[name], start, end, room)
            spans.append((first, last))
            room -= last - first
    pieces = []
    for name, spans in chosen.items():
        done = 0
        for first, last in sorted(spans):
            pieces.append(evidence[name][max(first, done) : last])
            done = max(done, last)
    return clean("\n".join(piece.strip() for piece in pieces if piece.strip()))


def _around(text: str, start: int, end: int, room: int) -> tuple[int, int]:
    if len(text) <= _WHOLE:
        return 0, min(len(text), room)
    spans = sentences(text)
    starts = [span.start for span in spans]
    before = max(0, bisect_right(starts, start) - 2)
    behind = min(len(spans), bisect_right(starts, max(start, end - 1)) + 1)
    first, last = (spans[before].start, spans[behind - 1].end) if spans else (start, end)
    return first, min(max(last, end), first + room)


async def ask_entailment(
    claims: Sequence[ClaimCheck],
    evidence: Sequence[Mapping[str, str]],
    model: EntailmentModel,
    config: VerificationConfig,
) -> VerifierFacts:
    """Ask a model about claims; those without a score at the end of the budget have a fault."""
    until = asyncio.get_running_loop().time() + config.budget_seconds
    asked = await asyncio.gather(
        *(_opinion(claim, texts, model, until) for claim, texts in zip(claims, evidence, strict=True))
    )
    return VerifierFacts(
        model=model.name, opinions=[opinion for opinion, _ in asked], calls=[call for _, call in asked]
    )


async def _opinion(
    claim: ClaimCheck, evidence: Mapping[str, str], model: EntailmentModel, until: float
) -> tuple[ModelOpinion, ModelCall]:
    name = claim.claim_id
    try:
        text = clean(claim.text)
        if len(text) > MAX_CLAIM:
            raise ModelFault("too_long", requests=0)  # noqa: TRY301 - a fault like those of the model
        async with asyncio.timeout_at(until):
            found, known = await model.score(Pair(window(claim, evidence), text))
    except TimeoutError:
        fault = OVER_BUDGET
    except ModelFault as exc:
        fault = exc.code
    else:
        support = round(found.support, _DIGITS)
        call = ModelCall(
            claim_id=name,
            kind="support",
            cached=known,
            input_tokens=0 if known else found.tokens,
            requests=not known,
        )
        return ModelOpinion(claim_id=name, support=support, verdict=_verdict(found)), call
    call = ModelCall(claim_id=name, kind="support", requests=0, fault=fault)
    return ModelOpinion(claim_id=name, fault=UNAVAILABLE), call


def _verdict(found: Entailed) -> SupportVerdict:
    if found.contradicted:
        return SupportVerdict.CONTRADICTED
    return SupportVerdict.SUPPORTED if found.support >= 0.5 else SupportVerdict.UNSUPPORTED
