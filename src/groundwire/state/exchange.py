"""What a batch fetches from Redis, and what it commits: lua/fetch.lua reads, lua/commit.lua writes.

A commit names for each request what it was decided from, and writes nothing of a request where that has changed; such a
request is fetched and decided again.
"""

from __future__ import annotations

import hashlib
import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from groundwire.messages.decisions import MatchClass, Place
from groundwire.messages.identity import Subject
from groundwire.state.codec import (
    action_digest,
    fingerprint_of,
    index_keys,
    pack,
    read_action,
    read_digest,
    read_member,
    read_stored,
    short_bytes,
    write_action,
    write_entry,
    write_member,
    write_place,
)
from groundwire.state.matching import Indexed
from groundwire.state.model import (
    DedupQuery,
    QueueLimits,
    ReviewAction,
    ReviewRequest,
    StepRequest,
    StoredOutcome,
    SubjectState,
)
from groundwire.state.workspace import (
    RecordedAction,
    StoredEntry,
    Workspace,
    counter_names,
    place_of,
    user_name,
)


@dataclass(frozen=True, slots=True)
class Named:
    """A subject that is looked up."""

    subject: Subject
    dedup: DedupQuery | None = None


Request = StepRequest | ReviewRequest | StoredOutcome | Named

_ID: Final = struct.Struct("<I")
_LENGTHS: Final = struct.Struct("<11I")
_CANDIDATE: Final = struct.Struct("<I22s4s")
_KEPT: Final = {SubjectState.APPROVED, SubjectState.PENDING, SubjectState.WAITING}
_GRANTED: Final = {Place.NOT_NEEDED, Place.FREE}
_TOO_MANY: Final = b"!"


class Contexts:
    """Prefixes of payloads up to a tab, by name: state stores each once. A name is a hash of its prefix."""

    def __init__(self) -> None:
        self._names: dict[bytes, bytes] = {}
        self._texts: dict[bytes, bytes] = {}

    def shorten(self, payload: bytes) -> tuple[bytes, tuple[bytes, bytes] | None]:
        """Return a payload with the name of its prefix, and name and prefix."""
        text, tab, rest = payload.partition(b"\t")
        if not tab:
            return payload, None
        name = self._names.get(text) or hashlib.sha1(text, usedforsecurity=False).hexdigest()[:12].encode()
        self.learn(name, text)
        return name + tab + rest, (name, text)

    def learn(self, name: bytes, text: bytes) -> None:
        self._names[text], self._texts[name] = name, text

    def forget(self) -> None:
        self._names.clear()
        self._texts.clear()

    def missing(self, values: Iterable[bytes]) -> set[bytes]:
        """Return the names in entries whose prefixes are not known."""
        return {name for name in map(_name_in, values) if name and name not in self._texts}

    def in_full(self, value: bytes) -> bytes:
        """Return the text of an entry with its whole payload. Raises: LookupError: its prefix is not known."""
        name = _name_in(value)
        if not name:
            return value
        head, facts, rest = value.split(b"\n", 2)
        return b"\n".join((head, facts, self._texts[name] + rest[len(name) :]))


def _name_in(value: bytes) -> bytes:
    """Return the name of the prefix in an entry's payload, if it has one."""
    line = value.split(b"\n", 3)[2:3]
    name, tab, _ = line[0].partition(b"\t") if line else (b"", b"", b"")
    return name if tab else b""


def wanted(request: Request) -> bytes:
    """Encode for fetch.lua what to read for a request."""
    query, record, parents, probed, action, derived = request.dedup, b"", b"", b"", b"", b""
    failed = True  # what is loaded is compared with nothing
    if isinstance(request, StepRequest):
        record = write_place(request.origin)
        parents = b"".join([short_bytes(parent.digest) for _, parent in request.parents])
        failed = request.dedup_failed
    elif isinstance(request, ReviewRequest):
        action = short_bytes(action_digest(request))
        derived = b"1" if request.action is ReviewAction.RETRACT else b""
        failed = request.dedup_failed
    if query and not failed:
        probed = index_keys(query.probed)
    scope = short_bytes(query.scope) if query else b""
    digest = short_bytes(request.subject.digest)
    return pack((digest, record, parents, scope, probed, action, derived))


class Fetched:
    """An answer of fetch.lua. Raises: ValueError: it cannot be read."""

    def __init__(self, answer: Sequence[bytes]) -> None:
        requests, candidates, counters, waiting = answer
        self.counters = counters.split(b",")
        self.waiting = waiting.split(b",") if waiting else []
        self.requests: list[list[bytes]] = []
        at = 0
        while at < len(requests):
            lengths = _LENGTHS.unpack_from(requests, at)
            at += _LENGTHS.size
            fields = []
            for length in lengths:
                fields.append(requests[at : at + length])
                at += length
            self.requests.append(fields)
        self.candidates: list[tuple[bytes, int, bytes]] = []
        at = 0
        while at < len(candidates):
            length, scope, number = _CANDIDATE.unpack_from(candidates, at)
            at += _CANDIDATE.size
            self.candidates.append((read_digest(scope), *_ID.unpack(number), candidates[at : at + length]))
            at += length

    @property
    def entries(self) -> list[bytes]:
        """Values of the entries, and of what was kept of earlier ones."""
        return [value for fields in self.requests for value in (fields[0], fields[1], fields[8]) if value]


class Batch(Workspace):
    """What one fetch brought, and the writes that follow from each request.

    Args:
        max_candidates: stored claims to compare one claim with.
        lifetimes: seconds of outcomes without a place in index or queue; of actions and what people blocked.
        contexts: the prefixes of payloads.
        remote: of a cluster, what the other partitions hold, by counter.
        limits: of the queue; None where what is loaded has its places.
    """

    def __init__(
        self,
        max_candidates: int,
        lifetimes: tuple[int, int],
        contexts: Contexts,
        remote: Mapping[str, int] | None = None,
        limits: QueueLimits | None = None,
    ) -> None:
        super().__init__(max_candidates)
        self._lifetime, self._action_lifetime = lifetimes
        self._contexts = contexts
        self._remote = remote or {}
        self._limits = limits
        self._values: dict[bytes, bytes] = {}  # text of entries, by digest
        self._heads: dict[bytes, bytes] = {}  # state, tier and revision of subjects, by digest
        self._ids: dict[int, set[int] | None] = {}  # candidates, by identity of the request
        self._derived: dict[bytes, bytes] = {}  # number of claims derived from a subject, by digest
        self._gone: defaultdict[bytes, set[int]] = defaultdict(set)  # ids that left the index, by scope
        self.compared = 0
        self.granted = 0  # places of the queue
        self._changed = False
        self._letters: list[str] = []
        self._fields: list[bytes] = []
        self._checked: set[tuple[str, bytes]] = set()
        self._unsent_checks: list[tuple[str, bytes]] = []
        self._has_writes = False
        self._contexts_written: set[bytes] = set()

    # What was fetched

    def take_in(
        self, requests: Sequence[Request], answer: Fetched, names: Sequence[str], users: Sequence[str]
    ) -> None:
        """Take in an answer to some requests. Raises: ValueError, LookupError."""
        for name, count in zip(names, answer.counters, strict=True):
            self.counts[name] = int(count or 0) + self._remote.get(name, 0)
        self.waiting.update(dict(zip(users, map(int, answer.waiting), strict=False)))
        for scope, number, member in answer.candidates:
            self.take_candidate(scope, number, member)
        for request, found in zip(requests, answer.requests, strict=True):
            self._take_request(request, found)

    def take_candidate(self, scope: bytes, number: int, member: bytes | None) -> None:
        if member:
            self.scopes[scope].claims[number] = read_member(number, member)
        else:
            self._gone[scope].add(number)

    def _take_request(self, request: Request, found: Sequence[bytes]) -> None:
        value, superseded, leader, heads, version, ids, indexed, recorded, approval, derived, children = found
        subject, query = request.subject, request.dedup
        digest = subject.digest
        names = _parents_of(request, value)
        if value and (names is not None or digest not in self._values):
            entry = self.entries[digest] = read_stored(self._contexts.in_full(value), names)
            if entry.joined_to:
                self._heads.setdefault(entry.joined_to, head_of(leader))
            if entry.indexed:
                self.scopes[entry.indexed[0]].version = int(indexed)
        self._values[digest], self._heads[digest] = value, head_of(value)
        if superseded and isinstance(request, StepRequest):
            self.superseded[digest, request.origin] = read_stored(self._contexts.in_full(superseded), names)
        if isinstance(request, StepRequest) and request.parents:
            for (_, parent), head in zip(request.parents, heads.split(b"\n"), strict=True):
                self._heads.setdefault(parent.digest, head_of(head))
        if query and version:  # else it has its outcome
            self.scopes[query.scope].version = int(version)
            numbers = None if ids == _TOO_MANY else {n for (n,) in _ID.iter_unpack(ids)} if ids else set()
            self._ids[id(request)] = numbers
        if isinstance(request, ReviewRequest):
            if recorded:
                self.actions[action_digest(request)] = read_action(recorded)
            self._derived[digest] = derived
            if approval:
                self.earlier[digest] = read_stored(self._contexts.in_full(approval), names)
            for child in filter(None, children.split(b"\0")):
                of = read_digest(child[:22])
                self.children[digest][of] = child[22:].decode()
                self._heads.setdefault(of, b"A ")

    def unsent(self, requests: Iterable[Request]) -> dict[bytes, list[int]]:
        """Return the candidates that the answer had no room for, by scope."""
        left: defaultdict[bytes, set[int]] = defaultdict(set)
        for request in requests:
            if (query := request.dedup) and (numbers := self._ids.get(id(request))):
                scope = self.scopes[query.scope].claims
                left[query.scope] |= numbers - scope.keys() - self._gone[query.scope]
        return {scope: sorted(numbers) for scope, numbers in left.items() if numbers}

    # What the life cycle reads

    def peek(self, subject: bytes) -> SubjectState | None:
        head = self._heads.get(subject)
        return SubjectState(chr(head[0])) if head else None

    def state_of(self, subject: bytes) -> SubjectState | None:
        if subject in self._values:
            self._check_entry(subject)
        elif subject in self._heads:
            self._check("e", short_bytes(subject), self._heads[subject])
        return self.peek(subject)

    def has_waiting(self, request: StepRequest) -> bool:
        found = super().has_waiting(request)
        if not found:  # a claim that waits in vain is decided from `deferred`
            self._check("k", b"w:" + user_name(request.subject).encode(), b"0")
        return found

    def affected_by(self, subject: Subject) -> tuple[int, Sequence[str]]:
        key = short_bytes(subject.digest)
        self._check("k", b"d:" + key, self._derived[subject.digest])
        return super().affected_by(subject)

    def candidates(
        self, request: StepRequest | ReviewRequest, query: DedupQuery
    ) -> Collection[Indexed] | None:
        fetched = self._ids[id(request)]
        scope = self.scopes[query.scope]
        self._check_version(query.scope)
        if fetched is None:
            return None  # too many
        ids = scope.sharing(query)  # of this batch
        if fetched:
            if fetched - scope.claims.keys() - self._gone[query.scope]:
                return None  # too long together to be fetched
            ids |= fetched & scope.claims.keys()
        self.compared += len(ids)
        return None if len(ids) > self.max_candidates else [scope.claims[number] for number in ids]

    # What it writes

    def begin(self, request: Request) -> None:
        """Begin the checks and writes of a request: what is read of state is checked, once a batch."""
        self._letters, self._fields = [], []
        self._unsent_checks = []
        self._has_writes = False
        self._check_entry(request.subject.digest)
        if isinstance(request, ReviewRequest):
            key = action_digest(request)
            recorded = self.actions.get(key)
            self._check("v", b"a:" + short_bytes(key), write_action(recorded) if recorded else b"")

    def end(self, request: Request) -> tuple[str, bytes] | None:
        """Return the letters and the packed fields of a request for commit.lua.

        None, if no request up to this one changes anything: then its answer is that of the fetch.
        """
        if not (self._has_writes or self._changed):
            self._checked.difference_update(self._unsent_checks)
            return None
        self._changed = True
        query = request.dedup
        stale = self._gone[query.scope] & (self._ids.get(id(request)) or set()) if query else set()
        if query and stale:
            ids = b"".join(map(_ID.pack, stale))
            self._write("G", short_bytes(query.scope), index_keys(query.probed), ids)
        return "".join(self._letters), pack(self._fields)

    def _check(self, letter: str, key: bytes, value: bytes) -> None:
        """Have this request's commit check what it is decided from, unless an earlier one of the batch does.

        All checks of a key are equally strong.
        """
        check = letter, key
        if check not in self._checked:
            self._checked.add(check)
            self._unsent_checks.append(check)
            self._letters.append(letter)
            self._fields += key, value

    def _write(self, letter: str, *fields: bytes) -> None:
        self._has_writes = True
        self._letters.append(letter)
        self._fields += fields

    def _check_entry(self, subject: bytes) -> None:
        value = self._values[subject]
        self._check("e", short_bytes(subject), value[: value.find(b"\n") + 1])

    def _check_version(self, scope: bytes) -> None:
        self._check("n", short_bytes(scope), b"%d" % self.scopes[scope].version)

    def _set(self, key: bytes, value: bytes, seconds: int | None) -> None:
        self._write("S", key, value, b"" if seconds is None else b"%d" % seconds)

    def put(
        self, subject: Subject, entry: StoredEntry, parents: Iterable[bytes] = (), *, people: bool = False
    ) -> None:
        digest = subject.digest
        super().put(subject, entry, parents)
        payload, context = self._contexts.shorten(entry.outcome.payload) if entry.outcome else (b"", None)
        if context and context[0] not in self._contexts_written:  # who lost its state must find it again
            self._write("X", *context)
            self._contexts_written.add(context[0])
        if entry.outcome and entry.outcome.place not in _GRANTED and self._limits:
            for name in _full(subject, entry.outcome.place):
                self._write("f", name.encode(), b"%d" % (self.counts[name] - self._remote.get(name, 0)))
        value = write_entry(entry, payload)
        if entry.joined_to:  # found by its text; read by itself only where it was joined before
            self._heads.setdefault(entry.joined_to, b"P ")
        self._values[digest], self._heads[digest] = value, head_of(value)
        lifetime = self._action_lifetime if people else self._lifetime
        self._set(b"s:" + short_bytes(digest), value, None if entry.state in _KEPT else lifetime)
        if entry.state is SubjectState.APPROVED:
            for parent in parents:
                self._write(
                    "A", b"d:" + short_bytes(parent), short_bytes(digest) + subject.subject_id.encode()
                )

    def count(self, subject: Subject, entry: StoredEntry | None, by: int) -> None:
        super().count(subject, entry, by)
        if entry and entry.state is SubjectState.PENDING and entry.outcome:
            self.granted += by > 0
            most = self._most(subject, self._limits) if by > 0 and self._limits else (None,) * 4
            added = place_of(entry.outcome, by)
            for name, more, limit in zip(counter_names(subject), added, most, strict=True):
                self._count(name, more, None if limit is None else limit - self._remote.get(name, 0))
        elif entry and entry.waits:
            user = b"w:" + user_name(subject).encode()
            self._write("A" if by > 0 else "R", user, short_bytes(subject.digest))
            self._count("waiting", by)

    def _most(self, subject: Subject, limits: QueueLimits) -> tuple[int | None, ...]:
        """Return what each counter may come to at most with the place that a subject takes; None: anything."""
        of_tenant = limits.of_tenant(subject.tenant_id)
        if self.counts["total"] > limits.total:  # the place is one of the reserved
            return None, min(of_tenant, limits.reserved), limits.per_user, limits.tenant_bytes
        return limits.total, of_tenant, limits.per_user, limits.tenant_bytes

    def _count(self, name: str, by: int, most: int | None = None) -> None:
        """Add to a counter of this partition, which must not exceed `most` then."""
        if by:
            self._write("C", name.encode(), b"%d" % by, b"" if most is None else b"%d" % most)

    def supersede(self, subject: Subject, before: StoredEntry | None) -> None:
        super().supersede(subject, before)
        if before and before.outcome:
            place = write_place(before.origin)
            key = b"r:" + short_bytes(subject.digest) + b"," + place
            self._set(key, self._values[subject.digest], self._lifetime)

    def keep_earlier(self, subject: Subject, before: StoredEntry) -> None:
        super().keep_earlier(subject, before)
        digest = subject.digest
        self._set(b"o:" + short_bytes(digest), self._values[digest], self._action_lifetime)

    def remember(self, key: bytes, action: RecordedAction) -> None:
        super().remember(key, action)
        self._set(b"a:" + short_bytes(key), write_action(action), self._action_lifetime)

    def forget(self, key: bytes) -> None:
        super().forget(key)
        self._write("D", b"a:" + short_bytes(key))

    def index(
        self, query: DedupQuery, subject: Subject, match_class: MatchClass, times: tuple[int, int]
    ) -> tuple[bytes, int] | None:
        self._check_version(query.scope)
        indexed = super().index(query, subject, match_class, times)
        scope, number = short_bytes(query.scope), self.scopes[query.scope].version
        self._write_member(query.scope, number)
        self._write("P", scope, index_keys(query.stored), _ID.pack(number))
        if match_class is MatchClass.REJECTED:
            self._write("J", scope, _ID.pack(number))
        return indexed

    def leave_index(self, entry: StoredEntry | None) -> None:
        super().leave_index(entry)
        if entry and entry.indexed:
            scope, number = entry.indexed
            self._check_version(scope)
            self.scopes[scope].version += 1
            self._write("M", short_bytes(scope), b"%d" % self.scopes[scope].version, _ID.pack(number), b"")
            self._gone[scope].add(number)

    def change_class(
        self, subject: Subject, entry: StoredEntry, match_class: MatchClass, times: tuple[int, int]
    ) -> bool:
        if not super().change_class(subject, entry, match_class, times) or entry.indexed is None:
            return False
        scope, number = entry.indexed
        self._check_version(scope)
        self.scopes[scope].version += 1
        self._write_member(scope, number)
        if match_class is MatchClass.REJECTED:
            self._write("J", short_bytes(scope), _ID.pack(number))
        return True

    def _write_member(self, scope: bytes, number: int) -> None:
        index = self.scopes[scope]
        member = write_member(index.claims[number])
        self._write("M", short_bytes(scope), b"%d" % index.version, _ID.pack(number), member)


def _full(subject: Subject, place: Place) -> tuple[str, ...]:
    """Return the counters for which a place was refused."""
    total, tenant, user, in_bytes = counter_names(subject)
    full = {
        Place.USER_FULL: (user,),
        Place.TENANT_FULL: (tenant, in_bytes),
        Place.TOTAL_FULL: (total, tenant),
    }
    return full[place]


def _parents_of(request: Request, value: bytes) -> list[str] | None:
    """Return the ids of a subject's parents, which its entry does not name; a conflicting record has others."""
    if isinstance(request, ReviewRequest) or (
        isinstance(request, StepRequest) and value and fingerprint_of(value) == request.fingerprint
    ):
        return [name for name, _ in request.parents]
    return None


def head_of(value: bytes) -> bytes:
    """Return state, tier and revision of an entry with the space behind them; nothing if there is none."""
    return b" ".join([*value.split(b" ", 3)[:3], b""]) if value else b""
