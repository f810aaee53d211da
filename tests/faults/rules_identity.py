"""Nothing is lost, and nothing is said twice in different words."""

from __future__ import annotations

from collections.abc import Iterator

from groundwire.errors import RecordError
from groundwire.messages.claims import Claim
from groundwire.messages.decode import decode_claim, decode_response
from groundwire.messages.identity import decision_id, fingerprint
from groundwire.messages.responses import LlmResponse
from tests.faults.history import CLAIMS, RESPONSES, History, Violation, name, place_of, subject_in
from tests.stream.harness import Seen

ID_HEADERS = ("approved", "review", "blocked", "retractions", "regenerate", "audit")
NOTICED = {"state_lost": {"at"}}
"""Audit events that several workers may tell under one id, and what may differ: when each of them noticed."""
READABLE_LETTERS = {"claim_id_conflict", "worker_crash"}
"""Why a record that can be read may become a dead letter: another one had its id, or it killed its workers."""


def sent_inputs_stand(history: History) -> Iterator[Violation]:
    """What the broker acknowledged stands on its topic, unchanged: else the run proves nothing."""
    stands = {
        place_of(seen): seen.value
        for topic in (CLAIMS, RESPONSES, "review-decisions")
        for seen in history.of(topic)
    }
    for sent in history.sent:
        if sent.place not in stands:
            yield Violation("broker_lost", name(sent.place), "acknowledged, and not on its topic")
        elif stands[sent.place] != sent.value:
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
            if (other.topic, other.key, _told(other)) != (seen.topic, seen.key, _told(seen)):
                detail = (
                    f"differs from {name(other)} under the id {seen.header('ce_id')}{_fields(other, seen)}"
                )
                yield Violation("bytes", name(seen), detail)
    inputs = {place_of(seen): seen for topic in (CLAIMS, RESPONSES) for seen in history.of(topic)}
    for place, letters in history.letters.items():
        for letter in letters:
            original = inputs.get(place, letter)
            if (original.key, original.value) != (letter.key, letter.value):
                yield Violation("bytes", name(letter), f"is not what stands at {name(place)}")


def _told(seen: Seen) -> object:
    """What a record has to say again: its bytes, but for the time at which a worker noticed what all notice."""
    own = NOTICED.get(seen.json["type"], set()) if seen.topic == "audit" else set()
    return {key: value for key, value in seen.json.items() if key not in own} if own else seen.value


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
