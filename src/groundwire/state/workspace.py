"""What the life cycle reads and writes of state: all of it in memory, or what one fetch brought.

`groundwire.state.lifecycle` has the rules; this has none.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any

from groundwire.messages.base import immutable
from groundwire.messages.decisions import MatchClass
from groundwire.messages.identity import Subject, digest
from groundwire.state.matching import Indexed
from groundwire.state.model import (
    MAX_AFFECTED,
    MAX_CANDIDATES,
    MAX_REJECTED,
    DedupQuery,
    Outcome,
    RecordOrigin,
    RefusedAction,
    ReviewAction,
    ReviewRequest,
    StepRequest,
    SubjectState,
)


@immutable
class StoredEntry:
    """The entry of a subject.

    Attributes:
        answered: latest timestamp of its answered records.
        outcome: None while waiting, or once its record was given up.
        joined_to: digest of the pending claim that a joined one follows.
        indexed: scope and local id in the index; rejected texts belong to no entry.
        affected: of a retracted subject: number and ids of derived claims.
    """

    fingerprint: str
    origin: RecordOrigin
    answered: int
    state: SubjectState
    revision: int
    first_origin: RecordOrigin | None
    outcome: Outcome | None = None
    joined_to: bytes | None = None
    indexed: tuple[bytes, int] | None = None
    affected: tuple[int, Sequence[str]] | None = None

    @classmethod
    def of(cls, outcome: Outcome, answered: int, **more: Any) -> StoredEntry:  # noqa: ANN401 - the other attributes
        names = (outcome.fingerprint, outcome.origin, answered, outcome.state, outcome.revision)
        return cls(*names, outcome.first_origin, outcome, **more)

    @property
    def waits(self) -> bool:
        return self.state is SubjectState.WAITING

    @property
    def history(self) -> tuple[int, RecordOrigin | None]:
        """The revision so far, and the origin of the subject's first record."""
        return self.revision, (self.first_origin or self.origin) if self.revision else None


@dataclass(frozen=True, slots=True)
class RecordedAction:
    """An action of a person or the gate: refused, or the revision and state that it created."""

    subject: bytes
    action: ReviewAction
    decisive: bytes
    origin: RecordOrigin
    refused: RefusedAction | None
    revision: int = 0
    state: SubjectState = SubjectState.BLOCKED


@dataclass(slots=True)
class ScopeIndex:
    """The index of a scope: keys to ids, ids to claims, ids of rejected texts; `version`: the highest id so far."""

    buckets: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    claims: dict[int, Indexed] = field(default_factory=dict)
    rejected: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_REJECTED))
    version: int = 0

    def sharing(self, query: DedupQuery) -> set[int]:
        """Return the ids of indexed claims that share a key, and of rejected ones."""
        shared = self.buckets.keys() & query.probed if self.buckets else ()
        if not shared and not self.rejected:  # as mostly
            return set()
        return {number for key in shared for number in self.buckets[key]}.union(
            self.rejected
        ) & self.claims.keys()


class Workspace:
    """Entries by the digest of their subject, the index, the queue, and the actions of people.

    Args:
        max_candidates: stored claims to compare one claim with.

    Attributes:
        counts: places in the queue under `total`, `t:<tenant>` and `u:<user>`; bytes of pending records under
            `b:<tenant>`; waiting subjects under `waiting`.
        waiting: number of waiting subjects of a user.
        earlier: entries before an action of a person, from revision 2 on.
    """

    def __init__(self, max_candidates: int = MAX_CANDIDATES) -> None:
        self.max_candidates = max_candidates
        self.entries: dict[bytes, StoredEntry] = {}
        self.superseded: dict[tuple[bytes, RecordOrigin], StoredEntry] = {}
        self.earlier: dict[bytes, StoredEntry] = {}
        self.actions: dict[bytes, RecordedAction] = {}
        self.counts: Counter[str] = Counter()
        self.waiting: Counter[str] = Counter()
        self.children: defaultdict[bytes, dict[bytes, str]] = defaultdict(dict)
        self.scopes: defaultdict[bytes, ScopeIndex] = defaultdict(ScopeIndex)

    def peek(self, subject: bytes) -> SubjectState | None:
        """Return the state of a subject on which nothing is decided."""
        entry = self.entries.get(subject)
        return entry.state if entry else None

    def state_of(self, subject: bytes) -> SubjectState | None:
        return self.peek(subject)

    def candidates(
        self,
        request: StepRequest | ReviewRequest,  # noqa: ARG002 - of what is fetched
        query: DedupQuery,
    ) -> Collection[Indexed] | None:
        """Return the claims to compare the claim of a request with; None if there are too many."""
        scope = self.scopes[query.scope]
        ids = scope.sharing(query)
        return None if len(ids) > self.max_candidates else [scope.claims[number] for number in ids]

    def affected_by(self, subject: Subject) -> tuple[int, Sequence[str]]:
        """Return the number of approved claims derived from a subject, and their ids by bytes."""
        own = subject.digest
        some = islice(self.children[own].items(), self.max_candidates)
        ids = [name for child, name in some if child != own and self.peek(child) is SubjectState.APPROVED]
        return len(ids), sorted(ids, key=str.encode)[:MAX_AFFECTED]

    def put(
        self,
        subject: Subject,
        entry: StoredEntry,
        parents: Iterable[bytes] = (),
        *,
        people: bool = False,  # noqa: ARG002 - of what expires
    ) -> None:
        """Replace an entry, and what of the queue and of its parents follows from it.

        `people`: a person may have blocked it, so that it is kept as long as their actions.
        """
        own, before = subject.digest, self.entries.get(subject.digest)
        self.count(subject, before, -1)
        self.count(subject, entry, 1)
        if entry.state is SubjectState.APPROVED:
            for parent in parents:
                self.children[parent][own] = subject.subject_id
        self.entries[own] = entry

    def count(self, subject: Subject, entry: StoredEntry | None, by: int) -> None:
        """Count the place of a pending or waiting entry."""
        if entry and entry.state is SubjectState.PENDING and entry.outcome:
            for name, more in zip(counter_names(subject), place_of(entry.outcome, by), strict=True):
                self.counts[name] += more
        elif entry and entry.waits:
            self.counts["waiting"] += by
            self.waiting[user_name(subject)] += by

    def supersede(self, subject: Subject, before: StoredEntry | None) -> None:
        """Keep the outcome of an earlier record, which may not be published yet."""
        if before and before.outcome:
            self.superseded[subject.digest, before.origin] = before

    def keep_earlier(self, subject: Subject, before: StoredEntry) -> None:
        self.earlier[subject.digest] = before

    def remember(self, key: bytes, action: RecordedAction) -> None:
        self.actions[key] = action

    def forget(self, key: bytes) -> None:
        """Forget an action."""
        self.actions.pop(key, None)

    def index(
        self, query: DedupQuery, subject: Subject, match_class: MatchClass, times: tuple[int, int]
    ) -> tuple[bytes, int] | None:
        """Index a claim; `times`: approval and horizon. Return `indexed` of its entry."""
        scope = self.scopes[query.scope]
        scope.version += 1
        scope.claims[scope.version] = Indexed(
            scope.version, subject.subject_id, subject.digest, match_class, *times, query.signature
        )
        ids = (scope.version,)
        shared = {key: scope.buckets[key] + ids for key in scope.buckets.keys() & query.stored}
        scope.buckets.update(dict.fromkeys(query.stored, ids))
        scope.buckets.update(shared)
        if match_class is MatchClass.REJECTED:
            scope.rejected.append(scope.version)
        return None if match_class is MatchClass.REJECTED else (query.scope, scope.version)

    def leave_index(self, entry: StoredEntry | None) -> None:
        if entry and entry.indexed:
            scope, number = entry.indexed
            self.scopes[scope].claims.pop(number, None)

    def change_class(
        self, subject: Subject, entry: StoredEntry, match_class: MatchClass, times: tuple[int, int]
    ) -> bool:
        """Change the class of an indexed claim; return whether it is indexed."""
        scope, number = entry.indexed or (b"", 0)
        claim = self.scopes[scope].claims.get(number) if entry.indexed else None
        if claim is None:
            return False
        time, horizon = times
        changed = replace(claim, match_class=match_class, time=time, horizon=horizon, digest=subject.digest)
        self.scopes[scope].claims[number] = changed
        if match_class is MatchClass.REJECTED:
            self.scopes[scope].rejected.append(number)
        return True

    def has_waiting(self, request: StepRequest) -> bool:
        """Return whether claims of the request's user wait."""
        return self.waiting[user_name(request.subject)] > 0


def place_of(outcome: Outcome, by: int) -> tuple[int, int, int, int]:
    """Return what the place of a pending outcome adds to `counter_names`."""
    return by, by, by, by * len(outcome.record)


def user_name(subject: Subject) -> str:
    """Return the name of a user in counters and keys: 22 characters, whatever the ids are."""
    return counter_names(subject)[2][2:]


def counter_names(subject: Subject) -> tuple[str, str, str, str]:
    """Return the counters of a place in the review queue: in all, of the tenant, of the user, the tenant's bytes."""
    return _counter_names(subject.tenant_id, subject.user_id)


@lru_cache(1 << 12)
def _counter_names(tenant_id: str, user_id: str) -> tuple[str, str, str, str]:
    user = urlsafe_b64encode(digest(tenant_id, user_id)).rstrip(b"=").decode()
    return "total", f"t:{tenant_id}", f"u:{user}", f"b:{tenant_id}"
