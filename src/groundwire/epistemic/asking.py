"""Asks a model about claims: bounded in time and cost, cached, counted (S4-20, S4-46, S4-47, S4-65).

A question is asked only where the most that it can cost still fits; afterwards its actual cost is booked instead.
Whatever a client does wrong is a fault of that question, never a pass and never an exception.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from cachetools import LRUCache

from groundwire.checks.support.score import ClaimCheck
from groundwire.epistemic.claims import UNAVAILABLE, UNPARSEABLE, ModelOpinion
from groundwire.epistemic.entailment import EntailmentModel, ask_entailment
from groundwire.epistemic.model import Client, Fault, Model, ModelAnswer, ModelFault, ModelRequest
from groundwire.epistemic.plan import Plan, VerifierFacts
from groundwire.epistemic.prompts import Prompt, consensus, prior_prompt, read_reply, support_prompt
from groundwire.epistemic.types import ModelCall, VerificationConfig

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_GRACE: Final = 1.0  # seconds beyond its time limit after which a Model is cancelled


@dataclass(slots=True)
class BudgetEntry:
    at: float
    tokens: int
    usd: float


@dataclass(slots=True)
class Ledger:
    """Sums what was spent within the last seconds; safe to use from several threads."""

    window: float = math.inf
    clock: Callable[[], float] = time.monotonic
    _entries: deque[BudgetEntry] = field(default_factory=deque, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def reserve(self, tokens: int, usd: float, *, most_tokens: int, most_usd: float) -> BudgetEntry | None:
        with self._lock:
            now = self.clock()
            while self._entries and self._entries[0].at <= now - self.window:
                self._entries.popleft()
            spent = sum(entry.tokens for entry in self._entries)
            paid = sum(entry.usd for entry in self._entries)
            if spent + tokens > most_tokens or paid + usd > most_usd:
                return None
            entry = BudgetEntry(now, tokens, usd)
            self._entries.append(entry)
            return entry


class Budget:
    """What one response may still cost, in tokens, dollars and seconds; belongs to one event loop."""

    def __init__(self, config: VerificationConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._deadline = clock() + config.budget_seconds
        self._ledger = Ledger(clock=clock)
        self._locks: defaultdict[Hashable, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def seconds(self) -> float:
        return min(self._config.timeout_seconds, self._deadline - self._clock())

    def lock(self, key: Hashable) -> asyncio.Lock:
        return self._locks[key]

    def reserve(self, minute: Ledger, tokens: int, usd: float) -> list[BudgetEntry] | None:
        """Return the entries of a question, here and in the minute's ledger; None where one has no room."""
        config = self._config
        limits = (
            (self._ledger, config.budget_tokens, config.budget_usd),
            (minute, config.budget_tokens_per_minute, config.budget_usd_per_minute),
        )
        entries: list[BudgetEntry] = []
        for ledger, most_tokens, most_usd in limits:
            entry = ledger.reserve(tokens, usd, most_tokens=most_tokens, most_usd=most_usd)
            if entry is None:
                book(entries, 0, 0.0)
                return None
            entries.append(entry)
        return entries


def book(entries: Sequence[BudgetEntry], tokens: int, usd: float) -> None:
    for entry in entries:
        entry.tokens, entry.usd = tokens, usd


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a question: an opinion, or a text to an open question; neither where there is a fault."""

    call: ModelCall
    opinion: ModelOpinion | None = None
    text: str | None = None


@dataclass(slots=True)
class ClientMemory:
    """Replies and recent costs of one client; safe to use from several threads."""

    minute: Ledger = field(default_factory=lambda: Ledger(60.0))
    _replies: LRUCache[Hashable, Reply] = field(default_factory=lambda: LRUCache(1_024))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self, key: Hashable) -> Reply | None:
        with self._lock:
            return self._replies.get(key)

    def keep(self, key: Hashable, reply: Reply) -> None:
        with self._lock:
            self._replies[key] = reply


class Memories:
    """The memory of each client, for as long as the client lives.

    Clients are compared by identity: equal ones may have different keys, and a dataclass may have no hash. Of clients
    that take no weak reference the last 16 are held here.
    """

    def __init__(self) -> None:
        self._alive: dict[int, ClientMemory] = {}
        self._held: LRUCache[int, tuple[object, ClientMemory]] = LRUCache(16)
        self._lock = threading.Lock()

    def of(self, client: object) -> ClientMemory:
        name = id(client)
        with self._lock:
            memory = self._alive.get(name) or self._held.get(name, (None, None))[1]
            if memory is None:
                memory = ClientMemory()
                try:
                    # `dict.pop` takes no lock: a client may die, and be forgotten, while this one is held
                    weakref.finalize(client, self._alive.pop, name, None).atexit = False
                    self._alive[name] = memory
                except TypeError:
                    self._held[name] = client, memory
            return memory


_memories: Final = Memories()


async def ask(
    client: Client,
    prompt: Prompt,
    config: VerificationConfig,
    *,
    claim_id: str,
    budget: Budget | None = None,
    sample: int = 0,
) -> Reply:
    budget = budget or Budget(config)
    key = (config.verification_model, prompt.key, config.samples > 1, sample)
    memory = _memories.of(client)
    async with budget.lock(key):
        known = memory.known(key)
        if known is not None:
            call = _call(prompt, claim_id, cached=True, requests=0)
            return Reply(call, known.opinion, known.text)
        reply = await _put(client, prompt, config, claim_id, budget, memory.minute)
    if reply.call.fault is None:
        memory.keep(key, reply)
    else:
        logger.warning("verification model: %s", reply.call.fault)
    return reply


async def _put(
    client: Client,
    prompt: Prompt,
    config: VerificationConfig,
    claim_id: str,
    budget: Budget,
    minute: Ledger,
) -> Reply:
    sent = _tokens(str(prompt))
    most = _price(config, sent, config.max_output_tokens)
    entries = budget.reserve(minute, sent + config.max_output_tokens, most)
    if entries is None or budget.seconds <= 0:
        book(entries or [], 0, 0.0)
        return Reply(_call(prompt, claim_id, requests=0, fault="over_budget"))
    try:
        answer = await _answer(client, prompt, config, budget.seconds)
        used = (_or(answer.input_tokens, sent), _or(answer.output_tokens, _tokens(answer.text)))
        requests = _or(answer.requests, 1)
        if prompt.kind == "answer":
            reply = Reply(_call(prompt, claim_id, used, config, requests=requests), text=answer.text)
        else:
            opinion = read_reply(prompt.kind, answer)
            fault: Fault | None = "unparseable" if opinion is None else None
            reply = Reply(_call(prompt, claim_id, used, config, requests=requests, fault=fault), opinion)
    except ModelFault as exc:
        used = (_or(exc.input_tokens, sent), _or(exc.output_tokens, 0))
        code = exc.code if isinstance(exc.code, str) and exc.code else "failed"
        reply = Reply(_call(prompt, claim_id, used, config, requests=_or(exc.requests, 1), fault=code))
    # any failure of a client makes it unavailable
    except (Exception, SystemExit, asyncio.CancelledError) as exc:
        # the client may raise CancelledError by itself, without a cancellation of this task
        task = asyncio.current_task()
        if isinstance(exc, asyncio.CancelledError) and (task is None or task.cancelling() > 0):
            raise  # the entries stay: the cost is unknown
        reply = Reply(_call(prompt, claim_id, (sent, 0), config, fault="failed"))
    book(entries, reply.call.input_tokens + reply.call.output_tokens, reply.call.cost_usd)
    return reply


async def _answer(client: Client, prompt: Prompt, config: VerificationConfig, seconds: float) -> ModelAnswer:
    if isinstance(client, Model):
        request = ModelRequest(
            prompt.user,
            config.verification_model,
            prompt.system,
            config.max_output_tokens,
            1.0 if config.samples > 1 else 0.0,
            seconds,
        )
        given: object = await _in_time(client.answer(request), seconds + _GRACE)
    else:
        given = await _in_time(client.complete(str(prompt), model=config.verification_model), seconds)
    if isinstance(given, str):
        return ModelAnswer(given)
    if not isinstance(given, ModelAnswer) or not isinstance(given.text, str):
        raise ModelFault("failed", requests=1, input_tokens=None)
    return given


async def _in_time(answer: Awaitable[object], seconds: float) -> object:
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise ModelFault("timeout", requests=1, input_tokens=None) from None


def _call(
    prompt: Prompt,
    claim_id: str,
    used: tuple[int, int] = (0, 0),
    config: VerificationConfig | None = None,
    *,
    cached: bool = False,
    requests: int = 1,
    fault: Fault | None = None,
) -> ModelCall:
    return ModelCall(
        claim_id=claim_id,
        kind=prompt.kind,
        cached=cached,
        input_tokens=used[0],
        output_tokens=used[1],
        cost_usd=_price(config, *used) if config else 0.0,
        requests=requests,
        fault=fault,
    )


def _price(config: VerificationConfig, sent: int, received: int) -> float:
    return (sent * config.input_price + received * config.output_price) / 1_000_000


def _tokens(text: str) -> int:
    """Return about how many tokens a text has, for a client that does not count: one for four bytes."""
    return -(-len(text.encode("utf-8", "replace")) // 4)


def _or(counted: object, about: int) -> int:
    """Return a count of the client, or an estimate where it is no number, or too large to be one."""
    return counted if type(counted) is int and 0 <= counted <= 10**9 else about


async def assess(plan: Plan, client: Client, config: VerificationConfig) -> VerifierFacts | None:
    """Ask a model about a response; None where there is nothing to ask (S4-20, S4-42).

    It never raises for what a model or its service does: a claim without an answer that counts has a `fault`, and is
    flagged. It takes `config.budget_seconds` at most, and a second.
    """
    if not plan.due and not plan.truncated:
        return None
    facts = await ask_about(plan.due, plan.evidence, client, config)
    return facts.model_copy(update={"truncated": plan.truncated})


async def ask_about(
    claims: Sequence[ClaimCheck],
    evidence: Sequence[Mapping[str, str]],
    client: Client,
    config: VerificationConfig,
) -> VerifierFacts:
    if isinstance(client, EntailmentModel):
        return await ask_entailment(claims, evidence, client, config)
    budget = Budget(config)
    asked = await _all(
        [
            _opinion(claim, texts, client, config, budget)
            for claim, texts in zip(claims, evidence, strict=True)
        ],
        config,
    )
    return VerifierFacts(
        model=config.verification_model,
        opinions=[opinion for opinion, _ in asked],
        calls=[call for _, calls in asked for call in calls],
    )


async def _opinion(
    claim: ClaimCheck, evidence: Mapping[str, str], client: Client, config: VerificationConfig, budget: Budget
) -> tuple[ModelOpinion, list[ModelCall]]:
    try:
        prompts = [support_prompt(claim.text, evidence)]
        if config.evidence_scrubbing:
            prompts.append(prior_prompt(claim.text))
    except ModelFault as fault:
        none = ModelCall(claim_id=claim.claim_id, kind="support", requests=0, fault=fault.code)
        return ModelOpinion(claim_id=claim.claim_id, fault=UNAVAILABLE), [none]
    jobs = [
        ask(client, prompt, config, claim_id=claim.claim_id, budget=budget, sample=sample)
        for prompt in prompts
        for sample in range(config.samples)
    ]
    replies = await _all(jobs, config)
    calls = [reply.call for reply in replies]
    # the first ones with the evidence, the others without it
    said = consensus([reply.opinion for reply in replies[: config.samples]])
    prior = consensus([reply.opinion for reply in replies[config.samples :]])
    faults = [
        UNPARSEABLE if call.fault in {"unparseable", "truncated"} else UNAVAILABLE
        for call in calls
        if call.fault
    ]
    found = said or ModelOpinion(claim_id="")
    support = found.support
    if support is not None and prompts[0].is_cut:
        # a model that has not seen all of the evidence can only lower a verdict
        support = min(support, claim.support)
    own = {
        "claim_id": claim.claim_id,
        "support": support,
        "prior": prior.support if prior else None,
        "fault": next(iter(faults), "" if said else UNAVAILABLE),
    }
    return found.model_copy(update=own), calls


async def _all(jobs: Sequence[Coroutine[Any, Any, _T]], config: VerificationConfig) -> list[_T]:
    if config.parallel_verification:
        return list(await asyncio.gather(*jobs))
    return [await job for job in jobs]
