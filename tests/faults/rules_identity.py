"""Nothing is lost, no id has two contents, and approvals of a key keep their order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from groundwire.errors import RecordError
from groundwire.messages.decode import decode_claim, decode_response
from groundwire.messages.identity import decision_id, fingerprint
from groundwire.messages.records import Claim, LlmResponse
from tests.faults.history import (
    CLAIMS,
    RESPONSES,
    History,
    Place,
    Violation,
    name,
    place_of,
    subject_in,
    subject_of,
)
from tests.stream.harness import Seen

ID_HEADERS = ("approved", "review", "blocked", "retractions", "regenerate", "audit")
READABLE_LETTERS = {"claim_id_conflict", "worker_crash"}
"""Why a record that can be read may become a dead letter: another one had its id, or it killed its workers."""


def sent_inputs_remain(history: History) -> Iterator[Violation]:
    """What the broker acknowledged is on its topic, unchanged: else the run proves nothing."""
    stored = {
        place_of(seen): seen.value
        for topic in (CLAIMS, RESPONSES, "review-decisions")
        for seen in history.of(topic)
    }
    for sent in history.sent:
        if sent.place not in stored:
            yield Violation("broker_lost", name(sent.place), "acknowledged, and not on its topic")
        elif stored[sent.place] != sent.value:
            yield Violation("broker_lost", name(sent.place), "other bytes than were sent")


def every_input_ends(history: History) -> Iterator[Violation]:
    """Every input is decided under its subject's one identity, or is a dead letter (X-01)."""
    bad = {sent.place for sent in history.sent if sent.bad}
    for topic, decode in ((CLAIMS, decode_claim), (RESPONSES, decode_response)):
        for seen in history.of(topic):
            try:
                record = decode(seen.value)
            except RecordError as error:
                yield from _unreadable(history, seen, error.code)
                continue
            if place_of(seen) in bad:
                yield Violation("loss", name(seen), "sent as unreadable, and read")
            yield from _readable(history, seen, record)


def _unreadable(history: History, seen: Seen, code: str) -> Iterator[Violation]:
    codes = {letter.header("gw-error") for letter in history.letters.get(place_of(seen), ())}
    if not codes:
        yield Violation("loss", name(seen), f"no dead letter, {code} expected")
    elif codes - {code, "worker_crash"}:
        yield Violation("loss", name(seen), f"dead letters say {sorted(map(str, codes))}, not {code}")


def _readable(history: History, seen: Seen, record: Claim | LlmResponse) -> Iterator[Violation]:
    subject = subject_in(record)
    decided = history.subjects.get(subject, {}).get(1)
    same = decided is not None and decided.json["fingerprint"] == fingerprint(record)
    letters = history.letters.get(place_of(seen), ())
    for code in {letter.header("gw-error") or "" for letter in letters}:
        if code not in READABLE_LETTERS:
            yield Violation("loss", name(seen), f"a record that can be read is a dead letter: {code}")
        elif code == "claim_id_conflict" and (same or decided is None):
            yield Violation("loss", name(seen), "refused for the id of another record that is not there")
    if letters:
        return
    if decided is None:
        yield Violation("loss", name(seen), f"no decision of {subject.subject_id} and no dead letter")
    elif not same:
        yield Violation("loss", name(seen), "another text was decided under its id, and it is no dead letter")


def one_end(history: History) -> Iterator[Violation]:
    """No record is a dead letter and the origin of its subject's decision."""
    for subject, revision, seen in history.revisions():
        if history.origin(seen.json) in history.letters:
            detail = f"revision {revision} of {subject.subject_id} is of a dead letter"
            yield Violation("two_ends", name(seen), detail)


def bytes_stay(history: History) -> Iterator[Violation]:
    """A record repeated under its id has the same topic, key and bytes (X-09); so has a dead letter."""
    first: dict[tuple[str, str], Seen] = {}
    for topic in ID_HEADERS:
        for seen in history.of(topic):
            kind = "decision" if topic in {"approved", "review", "blocked"} else topic
            other = first.setdefault((kind, seen.header("ce_id") or ""), seen)
            if (other.topic, other.key, other.value) != (seen.topic, seen.key, seen.value):
                detail = (
                    f"differs from {name(other)} under the id {seen.header('ce_id')}{_fields(other, seen)}"
                )
                yield Violation("bytes", name(seen), detail)
    inputs = {place_of(seen): seen for topic in (CLAIMS, RESPONSES) for seen in history.of(topic)}
    for place, letters in history.letters.items():
        for letter in letters:
            original = inputs.get(place, letter)
            if (original.key, original.value) != (letter.key, letter.value):
                yield Violation("bytes", name(letter), f"is not what is at {name(place)}")


def _fields(one: Seen, other: Seen) -> str:
    """Name the fields that differ, never what they say."""
    if not (isinstance(one.json, dict) and isinstance(other.json, dict)):
        return ""
    names = sorted({*one.json, *other.json})
    return ": " + ", ".join(key for key in names if one.json.get(key) != other.json.get(key))


def identities(history: History) -> Iterator[Violation]:
    """Ids follow from the subject, revisions have no gaps, and each supersedes the one before."""
    for subject, revision, seen in history.revisions():
        decision = seen.json
        if decision["decision_id"] != decision_id(subject, revision):
            yield Violation("identity", name(seen), "its id is not that of its subject and revision")
        if seen.header("ce_id") != decision["decision_id"]:
            yield Violation("identity", name(seen), "its header names another id")
        if seen.topic != decision["verdict"]:
            yield Violation("identity", name(seen), f"{decision['verdict']}, on another topic")
        before = decision_id(subject, revision - 1) if revision > 1 else None
        if decision["supersedes"] != before:
            yield Violation("identity", name(seen), "supersedes another decision than the one before")
        if revision > 1 and revision - 1 not in history.subjects[subject]:
            yield Violation("identity", name(seen), f"revision {revision - 1} was never published")
    for seen in history.decisions:
        if seen.json["revision"] == 0 and (seen.json["approved"] or seen.topic == "approved"):
            yield Violation("unchecked", name(seen), "a provisional decision approves")


Lane = tuple[bytes | None, str, int]
"""Key, and the topic and partition that a worker reads."""


def order(history: History) -> Iterator[Violation]:
    """Of two records of a key in one partition, the first is published first on `approved`.

    A worker reads a partition from front to back, decides and publishes in that order, and commits behind it; who
    reads it again begins at what was committed. Nothing is promised between two topics or partitions: what was put on
    `deferred`, because something had to be asked or state was out of reach, is overtaken by what was not, and a repeat
    of a claim may publish what people decided about it before their own record does. The `traceparent` of a decision
    names the record for which it was published.
    """
    tellings = _Tellings(history)
    latest: dict[Lane, tuple[int, Seen]] = {}
    for seen in sorted(history.of("approved"), key=place_of):
        cause = history.cause(seen)
        if cause is None:
            yield Violation("order", name(seen), "its traceparent is that of no record of its subject")
            continue
        topic, partition, offset = history.deferred.get(cause, cause)
        lane = (seen.key, topic, partition)
        before = latest.get(lane)
        if before and offset < before[0] and tellings.in_its_turn(cause, seen):
            places = f"{topic}/{partition}@{offset} and @{before[0]}"
            detail = f"comes after {name(before[1])}, whose record came later: {places}"
            yield Violation("order", name(seen), detail)
        if (before is None or offset > before[0]) and tellings.of_its_lane(cause, seen):
            latest[lane] = offset, seen


class _Tellings:
    """Decisions, by the record for which they were published; without the provisional ones."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._of: dict[Place | None, list[Seen]] = {}
        for seen in history.decisions:
            if seen.json["revision"] > 0:
                self._of.setdefault(history.cause(seen), []).append(seen)

    @cached_property
    def _waited(self) -> set[object]:
        history = self._history
        return {subject for (_, subject), place in history.causes.items() if place in history.deferred}

    def in_its_turn(self, cause: Place, seen: Seen) -> bool:
        """Whether a record was answered this when it was read for the first time.

        One that is read again gets its subject's latest decision. A repeat of what waits gets none
        until then.
        """
        tellings = self._of[cause]
        again = self._history.origin(seen.json) != cause and cause not in self._history.deferred
        if again and subject_of(seen.json) in self._waited:
            return False
        first = min(tellings, key=lambda each: each.json["revision"])
        return first.json["revision"] == seen.json["revision"] and _first(tellings) is seen

    def of_its_lane(self, cause: Place, seen: Seen) -> bool:
        """Whether the worker that reads the record's partition published this, and not one before it.

        Records on `deferred` may be read on their input topic once more, and published from there too. From
        `deferred` they are published in any case: the last time at the latest, or elsewhere by a later revision.
        """
        if cause not in self._history.deferred:
            return True
        tellings = self._of[cause]
        return all(each.topic == "approved" for each in tellings) and max(tellings, key=place_of) is seen


def _first(tellings: list[Seen]) -> Seen:
    return min((each for each in tellings if each.topic == "approved"), key=place_of)
