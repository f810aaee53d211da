"""Matches of claims: which are reported, which decide, and the index of state in memory; as near.lua."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from groundwire.checks.dedup.signature import Difference, compare, is_near
from groundwire.messages.decisions import DedupMatch, MatchClass
from groundwire.messages.identity import Subject
from groundwire.state.model import (
    CANDIDATE_BYTES,
    MAX_MATCHES,
    MAX_REJECTED,
    DedupQuery,
    MatchRules,
    Outcome,
    RecordOrigin,
    ReviewRequest,
    StepRequest,
    SubjectState,
)


class MatchKind(StrEnum):
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    REJECTED = "rejected"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Indexed:
    """An indexed claim; times in milliseconds since 1970, horizon 0: none."""

    number: int
    subject: Subject
    match_class: MatchClass
    time: int
    horizon: int
    signature: bytes

    def hides(self, subject_id: str, clock: int) -> bool:
        """Return whether it is ignored: the same claim, or one past its horizon.

        A rejected text outlives its subject, and counts against the same id too.
        """
        if self.match_class is MatchClass.APPROVED and self.horizon and self.horizon <= clock:
            return True
        return self.subject.subject_id == subject_id and self.match_class is not MatchClass.REJECTED


@dataclass(frozen=True, slots=True)
class Match:
    indexed: Indexed
    inter: int
    union: int
    difference: Difference

    @property
    def rank(self) -> tuple[Fraction, bool, int, bytes, int]:
        """Sort key: higher similarity, approved first, earlier, then by id."""
        indexed = self.indexed
        ratio = Fraction(self.inter, self.union)
        waits = indexed.match_class is not MatchClass.APPROVED
        return -ratio, waits, indexed.time, indexed.subject.subject_id.encode(), indexed.number

    def fact(self) -> DedupMatch:
        return DedupMatch(
            subject_id=self.indexed.subject.subject_id,
            inter=self.inter,
            union=self.union,
            difference=self.difference.value,
            match_class=self.indexed.match_class,
        )


def kind_of(match: DedupMatch, rules: MatchRules) -> MatchKind | None:
    """Return what a match decides, if anything."""
    if match.match_class is MatchClass.REJECTED:
        return MatchKind.REJECTED
    approved = match.match_class is MatchClass.APPROVED
    ignored = {Difference.NONE, *(() if rules.word_difference else (Difference.WORD,))}
    differs = rules.material_difference and match.difference not in ignored
    if not differs and is_near(match.inter, match.union, rules.thresholds.duplicate):
        return MatchKind.DUPLICATE if approved else MatchKind.PENDING
    return MatchKind.CONFLICT if differs and approved else None


@dataclass(slots=True)
class ScopeIndex:
    """The index of a scope: keys to ids, ids to claims, ids of rejected texts."""

    buckets: defaultdict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))
    claims: dict[int, Indexed] = field(default_factory=dict)
    rejected: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_REJECTED))
    last: int = 0

    def add(
        self, query: DedupQuery, subject: Subject, match_class: MatchClass, times: tuple[int, int]
    ) -> int:
        """Index a claim; `times`: approval and horizon."""
        self.last += 1
        self.claims[self.last] = Indexed(self.last, subject, match_class, *times, query.signature)
        for key in query.stored:
            self.buckets[key].append(self.last)
        if match_class is MatchClass.REJECTED:
            self.rejected.append(self.last)
        return self.last

    def candidates(self, query: DedupQuery) -> list[Indexed]:
        """Return the claims that share a key, and the rejected ones."""
        ids = {number for key in query.probed for number in self.buckets.get(key, ())}.union(self.rejected)
        return [self.claims[number] for number in ids if number in self.claims]


def choose(matches: Iterable[Match], rules: MatchRules) -> tuple[Sequence[Match], dict[MatchKind, Match]]:
    """Return at most five matches to report, nearest first, deciding ones included, and the best of each kind."""
    ranked = sorted(matches, key=lambda match: match.rank)
    best: dict[MatchKind, Match] = {}
    for match in ranked:
        kind = kind_of(match.fact(), rules)
        if kind is not None:
            best.setdefault(kind, match)
    chosen = list(best.values())
    others = [match for match in ranked if match not in chosen]
    chosen += others[: MAX_MATCHES - len(chosen)]
    return sorted(chosen, key=lambda match: match.rank), best


User = tuple[str, str]


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """The entry of a subject.

    Attributes:
        answered: latest timestamp of its answered records.
        outcome: None while waiting.
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
    joined_to: Subject | None = None
    indexed: tuple[bytes, int] | None = None
    affected: tuple[int, Sequence[str]] | None = None

    @classmethod
    def of(cls, outcome: Outcome, answered: int, **more: Any) -> StoredEntry:  # noqa: ANN401 - the other attributes
        names = (outcome.fingerprint, outcome.origin, answered, outcome.state, outcome.revision)
        return cls(*names, outcome.first_origin, outcome, **more)


class EntryStore:
    def __init__(self, max_candidates: int) -> None:
        self.entries: dict[Subject, StoredEntry] = {}
        self.scopes: defaultdict[bytes, ScopeIndex] = defaultdict(ScopeIndex)
        self.waiting: defaultdict[User, set[Subject]] = defaultdict(set)
        self.places: Counter[User | str] = Counter()
        self.bytes: Counter[str] = Counter()  # of pending records, by tenant
        self.children: defaultdict[Subject, set[Subject]] = defaultdict(set)
        self.max_candidates = max_candidates

    def put(self, subject: Subject, entry: StoredEntry, parents: Sequence[Subject] = ()) -> None:
        """Replace an entry with everything but its index."""
        before, user = self.entries.get(subject), user_of(subject)
        self.waiting[user].discard(subject)
        if before and before.state is SubjectState.PENDING:
            self.places.subtract((user, subject.tenant_id, ""))
            self.bytes[subject.tenant_id] -= _record_bytes(before)
        if entry.state is SubjectState.PENDING:
            self.places.update((user, subject.tenant_id, ""))
            self.bytes[subject.tenant_id] += _record_bytes(entry)
        elif entry.state is SubjectState.WAITING:
            self.waiting[user].add(subject)
        elif entry.state is SubjectState.APPROVED:
            for parent in parents:
                self.children[parent].add(subject)
        self.entries[subject] = entry

    def index(
        self, query: DedupQuery, subject: Subject, match_class: MatchClass, times: tuple[int, int]
    ) -> tuple[bytes, int] | None:
        """Index a claim; return `indexed` of its entry."""
        number = self.scopes[query.scope].add(query, subject, match_class, times)
        return None if match_class is MatchClass.REJECTED else (query.scope, number)

    def leave_index(self, entry: StoredEntry | None) -> None:
        if entry and entry.indexed:
            scope, number = entry.indexed
            self.scopes[scope].claims.pop(number)

    def change_class(self, entry: StoredEntry, match_class: MatchClass, times: tuple[int, int]) -> bool:
        """Change the class of an indexed claim; return whether it is indexed."""
        if entry.indexed is None:
            return False
        scope, number = entry.indexed
        claims, (time, horizon) = self.scopes[scope].claims, times
        claims[number] = replace(claims[number], match_class=match_class, time=time, horizon=horizon)
        if match_class is MatchClass.REJECTED:
            self.scopes[scope].rejected.append(number)
        return True

    def deduplicate(
        self, request: StepRequest | ReviewRequest
    ) -> tuple[str, Sequence[Match], dict[MatchKind, Match]]:
        """Compare a claim; return the status, the matches to report, and the best of each kind that decides."""
        if request.dedup_failed or request.dedup is None:
            return "failed" if request.dedup_failed else "disabled", (), {}
        query = request.dedup
        candidates = self.scopes[query.scope].candidates(query)
        compared = sum(len(indexed.signature) for indexed in candidates)
        if len(candidates) > self.max_candidates or compared > CANDIDATE_BYTES * self.max_candidates:
            return "failed", (), {}
        found = []
        for indexed in candidates:
            if not indexed.hides(request.subject.subject_id, request.origin.timestamp):
                rejected = indexed.match_class is MatchClass.REJECTED
                thresholds = query.rules.thresholds
                if match := compare(query.signature, indexed.signature, thresholds, rejected=rejected):
                    found.append(Match(indexed, *match))
        return "ok", *choose(found, query.rules)

    def state_of(self, subject: Subject) -> str:
        entry = self.entries.get(subject)
        return entry.state.name.lower() if entry else "unknown"


def _record_bytes(entry: StoredEntry) -> int:
    return len(entry.outcome.record) if entry.outcome else 0


def user_of(subject: Subject) -> User:
    return subject.tenant_id, subject.user_id


def history(before: StoredEntry | None) -> tuple[int, RecordOrigin | None]:
    """Return the revision so far, and the origin of the subject's first record."""
    if before is None or before.revision == 0:
        return 0, None
    return before.revision, before.first_origin or before.origin
