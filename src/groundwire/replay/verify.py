"""Whether a published decision follows from its record, its policy and its facts.

It shows that the decision follows from the facts, not that the facts were true.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from groundwire.errors import RecordError
from groundwire.gate.claims import Policies
from groundwire.gate.faults import report_fault
from groundwire.messages.decisions import Decision
from groundwire.policy import Policy
from groundwire.replay.compare import differences, path_of
from groundwire.replay.derive import rederive
from groundwire.replay.inputs import Mismatch, Missing, Records, beyond_numbers, gather
from groundwire.version import __version__

MAX_PATHS: Final = 100
"""Fields that are named of one decision."""


class Status(StrEnum):
    """What came of a decision."""

    EQUAL = "equal"
    DIFFERS = "differs"
    OTHER_ENGINE = "other_engine"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one decision.

    Attributes:
        decision_id: as it says itself; None where it is no Decision.
        paths: of what differs, the fields; at most `MAX_PATHS`.
        detail: what is missing, which engine decided, or why nothing can be derived.
    """

    status: Status
    decision_id: str | None
    paths: tuple[str, ...] = ()
    detail: str = ""


class Placed(NamedTuple):
    """A finding, and where its decision stands."""

    where: str
    finding: Finding


class Verifier:
    """Derives decisions again and compares.

    Args:
        records: what was decided.
        policies: by which it was decided.
        replay: name that decisions carry in `replay`; None for those that were published live.
        exactly: whether equal values written otherwise (order of keys, spaces) differ: a topic holds what the gate
            wrote, a file may have gone through other tools.
    """

    def __init__(
        self, records: Records, policies: Policies, *, replay: str | None = None, exactly: bool = False
    ) -> None:
        self._records = records
        self._policies = policies
        self._replay = replay
        self._exactly = exactly

    async def verify(self, value: bytes) -> Finding:
        """Verify one decision, given as JSON."""
        try:
            recorded = Decision.model_validate_json(value)
        except ValidationError as exc:
            paths = dict.fromkeys(path_of(error["loc"]) for error in exc.errors(include_input=False))
            return Finding(Status.DIFFERS, None, tuple(islice(paths, MAX_PATHS)), "it is no Decision")
        name = recorded.decision_id[:100]
        if beyond := beyond_numbers(recorded):
            return Finding(Status.DIFFERS, name, tuple(beyond), "there is no such number")
        if recorded.engine != __version__:
            detail = f"engine {recorded.engine[:100]}, this is {__version__}"
            return Finding(Status.OTHER_ENGINE, name, detail=detail)
        policy = await self._policies.get(recorded.policy.sha256)
        if policy is None:
            return Finding(Status.MISSING, name, detail=f"policy {recorded.policy.sha256[:64]}")
        return self._compare(value, recorded, policy)

    def _compare(self, value: bytes, recorded: Decision, policy: Policy) -> Finding:
        name = recorded.decision_id[:100]
        try:
            derived = rederive(recorded, gather(recorded, self._records), policy)
        except Missing as exc:
            return Finding(Status.MISSING, name, detail=str(exc))
        except Mismatch as exc:
            return Finding(Status.DIFFERS, name, (exc.path,), str(exc))
        except RecordError as exc:
            return Finding(Status.DIFFERS, name, ("$.origin.sha256",), f"the record is {exc.code}")
        except Exception as exc:  # noqa: BLE001 - facts may hold anything: what cannot be derived does not follow
            report_fault("verify.underivable", exc)
            detail = f"nothing can be derived: {type(exc).__name__}"
            return Finding(Status.DIFFERS, name, ("$.facts",), detail)
        return self._finding(value, name, derived.model_copy(update={"replay": self._replay}).to_bytes())

    def _finding(self, value: bytes, name: str, derived: bytes) -> Finding:
        if value == derived:
            return Finding(Status.EQUAL, name)
        try:
            plain = json.loads(value, object_pairs_hook=_once)
        except ValueError as exc:
            return Finding(Status.DIFFERS, name, ("$",), str(exc))
        paths = tuple(islice(differences(plain, json.loads(derived)), MAX_PATHS))
        if paths:
            return Finding(Status.DIFFERS, name, paths)
        return Finding(Status.DIFFERS if self._exactly else Status.EQUAL, name, detail="written otherwise")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
