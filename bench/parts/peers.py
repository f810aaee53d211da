"""Two libraries that do a part of the job, on that part: `pip install groundgate==0.11.0 factgate==0.3.0`.

groundgate's `admit` says whether the value that was read from a document stands where its quote says; beside it stand
the gate's quotes and its check of an answer against the same document. factgate's `gate_claim` compares a value with a
declared fact; beside it stand relations held against ground truth. Half of what is asked is wrong, in one digit. Each
side has to approve what is right and nothing else, or nothing is measured. Both peers do what the gate does not, and
the other way round: receipts, units and scales there; decoding, state and decisions here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from bench.measure import Contender, Figure, Options, Part, Race
from groundwire.checks.quotes import QuoteRules, ground_quotes
from groundwire.checks.relations import RelationIndex, preserve_relations
from groundwire.checks.support.verify import check_answer
from groundwire.checks.values.statements import read_statements
from groundwire.policy import Policy


class Fact(NamedTuple):
    """A value of something, as a document states it and as it was read."""

    name: str
    stated: int
    read: int

    @property
    def right(self) -> bool:
        """Whether it was read as it is stated."""
        return self.stated == self.read

    def sentence(self, value: int) -> str:
        """Say it as the document does."""
        return f"The {self.name} limit is {value} ms."


def facts(count: int) -> list[Fact]:
    """Return facts of which every second one was misread in one digit."""
    names = ("search", "login", "billing", "export", "import", "report", "audit", "mail")
    kinds = ("read", "write", "queue", "retry", "session")
    made = [f"{name} {kind}" for name in names for kind in kinds][:count]
    return [Fact(name, 1203 + 17 * n, 1203 + 17 * n + (n % 2) * 100) for n, name in enumerate(made)]


async def run(options: Options) -> AsyncIterator[Figure]:
    """Race each peer that is installed."""
    given = facts(40)
    for name, make in (("groundgate", _groundgate), ("factgate", _factgate)):
        try:
            contenders = dict(make(given))
        except ImportError:
            print(f"{name} is not installed: left out", file=sys.stderr)
            continue
        race = Race("facts/s")
        for what, contender in contenders.items():
            race.add(what, contender)
        for figure in await race.figures(options.rounds):
            yield figure


def _groundgate(given: Sequence[Fact]) -> Iterator[tuple[str, Contender]]:
    admit = import_module("groundgate").admit
    document = " ".join(fact.sentence(fact.stated) for fact in given)
    schema = {"fields": {_field(fact): {"type": "integer", "unit": "ms"} for fact in given}}
    candidates = [
        {
            "field": _field(fact),
            "value": str(fact.read),
            "unit": "ms",
            "evidence": [{"text": f"{fact.stated} ms"}],
        }
        for fact in given
    ]

    def theirs() -> list[bool]:
        admitted = {d.field for d in admit(document, schema, candidates).decisions if d.outcome == "admitted"}
        return [_field(fact) in admitted for fact in given]

    enough = Policy().verification.support_threshold

    def ours() -> list[bool]:
        quotes = [fact.sentence(fact.stated) for fact in given]
        found = ground_quotes({"facts": quotes}, document, QuoteRules())
        if found.stats.validated_count != len(quotes):
            raise SystemExit("a quote that stands in the document was not found")
        read = cache(read_statements)  # one document is read once, as for the answers of one response
        answers = [check_answer(fact.sentence(fact.read), [document], read=read) for fact in given]
        return [answer.support >= enough for answer in answers]

    yield "groundgate: admit", _timed(theirs, given)
    yield "gate: quotes and values of an answer", _timed(ours, given)


def _factgate(given: Sequence[Fact]) -> Iterator[tuple[str, Contender]]:
    domain, gate = import_module("factgate.domain.factset"), import_module("factgate.domain.gate")
    declared = domain.FactSet(
        "limits",
        {fact.name: [] for fact in given},
        {"limit": {"kind": "quantity"}},
        [domain.Fact(fact.name, "limit", f"{fact.stated} ms", fact.sentence(fact.stated)) for fact in given],
    )

    def theirs() -> list[bool]:
        verdicts = [gate.gate_claim(declared, fact.name, "limit", f"{fact.read} ms") for fact in given]
        return [verdict.status == gate.VERIFIED for verdict in verdicts]

    truths = RelationIndex([_relation(fact, fact.stated) for fact in given])

    def ours() -> list[bool]:
        found = preserve_relations([_relation(fact, fact.read) for fact in given], truths)
        wrong = {violation.index for violation in found.violations}
        return [place not in wrong for place in range(len(given))]

    yield "factgate: gate_claim", _timed(theirs, given)
    yield "gate: relations against ground truth", _timed(ours, given)


def _field(fact: Fact) -> str:
    return f"{fact.name.replace(' ', '_')}_limit"


def _relation(fact: Fact, value: int) -> dict[str, Any]:
    return {"subject": fact.name, "relation": "limit", "object": f"{value} ms"}


def _timed(work: Callable[[], list[bool]], given: Sequence[Fact], times: int = 20) -> Contender:
    """Return what runs a work so many times and gives facts a second; its verdicts have to be right."""
    expected = [fact.right for fact in given]
    if (found := work()) != expected:
        differ = sum(a != b for a, b in zip(found, expected, strict=True))
        raise SystemExit(f"{differ} of {len(given)} verdicts are wrong: nothing to compare")

    def run() -> float:
        began = time.process_time()
        for _ in range(times):
            work()
        return times * len(given) / (time.process_time() - began)

    return run


PART = Part("peers", "groundgate and factgate, on the part of the job that they do", run)
