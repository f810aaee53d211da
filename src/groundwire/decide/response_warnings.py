"""The warnings of a response's report, in the order of its checks; each can only lower the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from groundwire.checks.fields import FieldCheckResult
from groundwire.checks.quotes import QuoteGrounding
from groundwire.checks.relations import RelationPreservation
from groundwire.checks.warnings import ReportWarning, WarningType
from groundwire.decide.response_reading import ResponseReading, found


def list_warnings(reading: ResponseReading) -> list[ReportWarning]:
    """Return every warning that the checks give."""
    return list(_warnings(reading))


def _warnings(reading: ResponseReading) -> Iterator[ReportWarning]:
    if sources := found(reading.sources):
        yield from sources.warnings
    if index := found(reading.index):
        yield from index.warnings
    if fields := found(reading.fields):
        yield from _unverified(fields)
    if tags := found(reading.source_tags):
        yield from tags.warnings
    if quotes := found(reading.quotes):
        yield from _polarity(quotes)
    if relations := found(reading.relations):
        yield from _unspecified(relations)
    if values := found(reading.values):
        yield from values.warnings
    if versions := found(reading.versions):
        yield from versions.warnings


def _unverified(fields: FieldCheckResult) -> Iterator[ReportWarning]:
    if fields.unverified:
        names = ", ".join(fields.unverified)
        details = {"fields": list(fields.unverified)}
        yield ReportWarning(WarningType.UNVERIFIED_FIELDS, f"Unverified fields: [{names}]", details)


def _polarity(quotes: QuoteGrounding) -> Iterator[ReportWarning]:
    for note in quotes.polarity:
        message = f"A quote of {note.domain} stands behind a negation in the transcript"
        details = {"domain": note.domain, "index": note.index}
        yield ReportWarning(WarningType.QUOTE_POLARITY, message, details)


def _unspecified(relations: RelationPreservation) -> Iterator[ReportWarning]:
    for index in relations.unspecified:
        message = f"Relation {index} names no version, and its source has one"
        yield ReportWarning(WarningType.VERSION_UNSPECIFIED, message, {"index": index})
