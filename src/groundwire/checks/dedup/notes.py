"""Short notes, as agents keep them: "Default branch: main", "[2025-04-01] Added tests", "Phase 2: in progress".

A **label** says what its value is of; of most a thing has but one value, not of those that each entry of a log or list
has ("Purpose:", "Location:"). Numbers and versions of a release, a phase, a ticket or a test tell which one is meant,
and so do those in what was done, and counts of what passed. A **stage** is where a piece of work stands, whatever the
word for it: who finished it has it no longer in progress.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from groundwire.text.clauses import AUXILIARIES, FUNCTION_WORDS, Clause, is_past, role_of
from groundwire.text.lists import tables, words_in
from groundwire.text.tokens import tokenize

_LABEL: Final = re.compile(
    r"[\W_]{0,12}(?:[xX]\]\s{1,2})?(?P<label>[^\W_][^:=.!?;\n]{0,70}?)[*_`'\")\]]{0,5}(?::|\s=)[*_`]{0,3}\s+(?=\S)|"
    # a date in front of an entry
    r"[\W_]{0,12}(?P<date>\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?Z?)?)(?:\]|\)|\s[-\u2013\u2014|])|"
    r"\s{0,3}#{1,6}\s(?P<heading>\d{4}-\d\d-\d\d)\s"
)
_TASK: Final = re.compile(r"\s*(?:[-*+]\s)?\s*(\[[xX ]\]|[\u2705\u2b1c\u274c\u2714\u2611])")
_HEADING: Final = re.compile(r".{1,80}:[*_`]{0,3}|(?:\*\*|__)[^*_]{1,80}(?:\*\*|__)")
_FAR: Final = 100  # characters in which a label ends
_MOST: Final = 7  # words of a label
_ENTRY_LABELS: Final = words_in(__package__, "entry_labels")
LABELS: Final = words_in(__package__, "labels")
_ENTRY_SUBJECTS: Final = words_in(__package__, "entry_subjects")
_IN_CLAUSE: Final = AUXILIARIES | {"we", "i", "he", "she", "they", "it"}
_NO_LABEL: Final = _IN_CLAUSE | {"you", "if", "when", "that", "because"}
_OPENING: Final = frozenset(("the", "a", "an", "our", "my", "this", "all", "every", "no"))
_ACTIONS: Final = words_in("groundwire.checks", "commands")
_WHEN: Final = frozenset(("when", "if", "after", "before", "only", "until", "once", "during", "see", "not"))
_LONGEST: Final = 6  # content words of a value
_SHORT: Final = 2
_NAMING: Final = words_in(__package__, "naming")
_RELEASING: Final = words_in(__package__, "releasing")
_COUNTED: Final = [[word] for word in words_in(__package__, "counted")]
RECENT: Final = words_in(__package__, "recent")
_SOLE: Final = words_in(__package__, "sole")
_VERSION: Final = re.compile(r"v?\d+(?:\.\d+){2,5}(?:[-+][\w.]+)?|v\d+(?:\.\d+){0,5}|#\d+")
_KEY: Final = re.compile(r"[a-z]{2,10}-\d+")
_RATIO: Final = re.compile(r"\d+/\d+")
_LINK: Final = re.compile(r"[^\s()]*\]?\(?(?:https?://|[\w.-]+/|\]\()\S*|#\d+")
_STAGES: Final = {
    word: group.split()[0] for group in tables(__package__)["stages"].split(";") for word in group.split()
}
_BEFORE_STAGE: Final = frozenset(
    ("in", "on", "under", "not", "yet", "now", "still", "already", "fully", "currently", "been")
)


def label_of(shown: str) -> int:
    """Return how many words of a text label the rest; 0 for none."""
    head = shown[:_FAR]
    found = _LABEL.match(shown) if ":" in head or " =" in head or "-" in head[:20] else None
    if found is None or shown.lstrip()[:1] in {'"', "{"}:  # a line of JSON
        return 0
    words = tokenize(shown[: max(found.end("label"), found.end("date"), found.end("heading"))])
    labels = 0 < len(words) <= _MOST and _NO_LABEL.isdisjoint(words) and not role_of(words[-1])
    return len(words) if labels else 0


def task_mark(shown: str) -> str:
    """Return the mark in front of a task of a list, "[ ]" where it is not done; empty for other texts."""
    found = _TASK.match(shown) if not shown[:1].isalnum() else None
    return found[1].lower() if found else ""


def is_heading(shown: str) -> bool:
    return shown[-3:].strip()[-1:] in {":", "*", "_", "`"} and _HEADING.fullmatch(shown.strip()) is not None


def is_of_entry(label: Sequence[str]) -> bool:
    """Return whether each entry has a value of its own for a label: "Date:", "Last updated:", "Tested on:"."""
    said = [word for word in label if word not in RECENT]
    alone = len(said) == 1 and (said[0] in _ENTRY_SUBJECTS or is_past(said[0]))
    return alone or _ENTRY_LABELS.issuperset(said)


def head_at(label: Sequence[str]) -> int:
    """Return the place of the noun that a label is about: "port" of "port of the API"."""
    return next((place for place, word in enumerate(label) if place and role_of(word)), len(label)) - 1


def is_value(value: Sequence[str], *, of_one: bool) -> bool:
    """Return whether words behind a label are a value of it; `of_one`: it is known to have but one.

    They are none where they tell what was done, is to be done or is the case when.
    """
    said = [word for word in value if word not in FUNCTION_WORDS]
    done = any(is_past(word) or word in _ACTIONS for word in value[:1])
    return not done and 0 < len(said) <= (_LONGEST if of_one else _SHORT) and value[0] not in _WHEN


def has_clause(value: Sequence[str]) -> bool:
    """Return whether words behind a label may be a clause of their own: "we use Kafka", "the job runs at 5"."""
    return not (_IN_CLAUSE.isdisjoint(value) and _OPENING.isdisjoint(value[:1]))


def names_sole(subject: Sequence[str]) -> bool:
    """Return whether a subject is of a kind of which there is one: "the primary database"."""
    return not _SOLE.isdisjoint(subject)


def is_link(tokens: Sequence[str]) -> bool:
    return len(tokens) == 1 and _LINK.fullmatch(tokens[0]) is not None


def is_done(tokens: Sequence[str], clause: Clause) -> bool:
    """Return whether a claim tells what was done, or is to be done once: "Created tag v1.2.2", "Bump lib to 1.3"."""
    verb = clause.verb
    return is_past(tokens[verb]) or tokens[0] in _RELEASING or (not verb and is_past(tokens[0]))


def names_one(tokens: Sequence[str], place: int, *, done: bool) -> bool:
    """Return whether a number of what was done, or of a note without a verb, tells which thing is meant."""
    token = tokens[place]
    if done and (_VERSION.fullmatch(token) or tokens[0] in _RELEASING):
        return True
    named = tokens[place - 1] in _NAMING if place else _KEY.fullmatch(token) is not None
    return named or ("/" in token and not token[0].isdigit())


def tallies(tokens: Sequence[str], place: int) -> bool:
    """Return whether a number is a tally of a moment: "13/13", "120 tests pass"."""
    return _RATIO.fullmatch(tokens[place]) is not None or tokens[place + 1 : place + 2] in _COUNTED


def stage_at(tokens: Sequence[str], start: int) -> int:
    """Return the place of the word that says how far something is: "completed", "in progress"; 0 where none does."""
    while start < len(tokens) and tokens[start] in _BEFORE_STAGE:
        start += 1
    return start if start < len(tokens) and tokens[start] in _STAGES else 0


def stage_of(token: str) -> str:
    return _STAGES.get(token, "")
