"""What state in memory keeps, and how claims are compared in it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from groundwire.messages.decisions import MatchClass
from groundwire.messages.identity import Subject
from groundwire.state.matching import Kind, Match, Scope, choose, near_duplicates
from groundwire.state.model import (
    CANDIDATE_BYTES,
    Ask,
    DedupQuery,
    Outcome,
    RecordOrigin,
    ReviewAsk,
    SubjectState,
)

User = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept of a subject; `outcome` is None while it waits.

    Attributes:
        answered: the latest timestamp of its records that state has answered for.
        indexed: where others find the claim. What a person rejected belongs to no entry.
        affected: of a retracted subject: how many claims rest on it, and the ids that are named.
    """

    fingerprint: str
    origin: RecordOrigin
    answered: int
    state: SubjectState
    revision: int
    first_origin: RecordOrigin | None
    outcome: Outcome | None = None
    joined_to: Subject | None = None
    indexed: tuple[bytes, int] | None = None
    affected: tuple[int, Sequence[str]] | None = None


class Store:
    """Entries, the index of each scope, who waits, places that are taken, and who rests on whom.

    Args:
        max_candidates: as for `groundwire.state.redis.RedisState`.
    """

    def __init__(self, max_candidates: int) -> None:
        self.entries: dict[Subject, Entry] = {}
        self.scopes: defaultdict[bytes, Scope] = defaultdict(Scope)
        self.waiting: defaultdict[User, set[Subject]] = defaultdict(set)
        self.places: Counter[User | str] = Counter()
        self.children: defaultdict[Subject, set[Subject]] = defaultdict(set)
        self.max_candidates = max_candidates

    def put(self, subject: Subject, entry: Entry, parents: Sequence[Subject] = ()) -> None:
        """Put an entry in the place of the one before, with all that it holds beside itself but the index."""
        before, user = self.entries.get(subject), user_of(subject)
        self.waiting[user].discard(subject)
        if before and before.state is SubjectState.PENDING:
            self.places.subtract((user, subject.tenant_id, ""))
        if entry.state is SubjectState.PENDING:
            self.places.update((user, subject.tenant_id, ""))
        elif entry.state is SubjectState.WAITING:
            self.waiting[user].add(subject)
        elif entry.state is SubjectState.APPROVED:
            for parent in parents:
                self.children[parent].add(subject)
        self.entries[subject] = entry

    def index(
        self, query: DedupQuery, subject: Subject, match_class: MatchClass, times: tuple[int, int]
    ) -> tuple[bytes, int] | None:
        """Make a claim findable; return what its entry is to say of it. `times`: of its approval, its horizon."""
        number = self.scopes[query.scope].add(query, subject, match_class, times)
        return None if match_class is MatchClass.REJECTED else (query.scope, number)

    def leave_index(self, entry: Entry | None) -> None:
        """Have the claim of an entry found no more."""
        if entry and entry.indexed:
            scope, number = entry.indexed
            self.scopes[scope].claims.pop(number)

    def change_class(self, entry: Entry, match_class: MatchClass, times: tuple[int, int]) -> bool:
        """Have the claim of an entry found as of another class; tell whether it is found at all."""
        if entry.indexed is None:
            return False
        scope, number = entry.indexed
        claims, (time, horizon) = self.scopes[scope].claims, times
        claims[number] = replace(claims[number], match_class=match_class, time=time, horizon=horizon)
        return True

    def deduplicate(self, ask: Ask | ReviewAsk) -> tuple[str, Sequence[Match], dict[Kind, Match]]:
        """Compare a claim: the status, the matches to report, and the best of each kind that decides."""
        if ask.dedup_failed or ask.dedup is None:
            return "failed" if ask.dedup_failed else "disabled", (), {}
        query = ask.dedup
        candidates = self.scopes[query.scope].candidates(query)
        compared = sum(len(indexed.signature) for indexed in candidates)
        if len(candidates) > self.max_candidates or compared > CANDIDATE_BYTES * self.max_candidates:
            return "failed", (), {}
        near = near_duplicates(
            query, [c for c in candidates if not c.hides(ask.subject.subject_id, ask.origin.timestamp)]
        )
        return "ok", *choose(near, material_difference=query.material_difference)

    def state_of(self, subject: Subject) -> str:
        """Return the state of a parent as facts name it."""
        entry = self.entries.get(subject)
        return entry.state.name.lower() if entry else "unknown"


def user_of(subject: Subject) -> User:
    """Return whose places and waiting claims a subject counts among."""
    return subject.tenant_id, subject.user_id


def history(before: Entry | None) -> tuple[int, RecordOrigin | None]:
    """Return the revision so far and, where there was one, the origin of the subject's first record."""
    if before is None or before.revision == 0:
        return 0, None
    return before.revision, before.first_origin or before.origin
