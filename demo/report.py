"""Shows what comes: a table for people, JSON lines for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TextIO

from rich.console import Console

from demo.ledger import Ledger
from groundwire.cli.check import STYLES, DecisionPrinter
from groundwire.cli.tail import as_json
from groundwire.errors import ErrorCode, RecordError
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import InboundRecord, header
from groundwire.messages.topics import TopicName


class TableReport:
    """One line a record, under the title of its wave."""

    def __init__(self, out: TextIO, answers: Mapping[tuple[str, str], str]) -> None:
        """`answers`: what responses say, by user and id; their decisions do not repeat it."""
        self._answers = answers
        self._printer = DecisionPrinter(out)
        self._console = Console(file=out, highlight=False)

    def wave(self, title: str) -> None:
        """Begin a wave."""
        self._printer.section(title)

    def record(self, record: InboundRecord, topic: TopicName) -> None:
        """Show a decision or a dead letter."""
        if topic is not TopicName.DEAD_LETTER:
            decision = Decision.model_validate_json(record.value or b"")
            self._printer.decision(decision, self._answers.get((decision.user_id, decision.subject_id)))
            return
        message = header(record.headers, "__connect.errors.exception.message") or ""
        code = ErrorCode(header(record.headers, "gw-error") or "")
        value = "(no value)" if record.value is None else record.value[:200].decode(errors="replace")
        self._printer.error(value, RecordError(code, message))

    def summary(self, ledger: Ledger, seconds: float) -> None:
        """Show how many records came to what."""
        totals, records = ledger.totals, ledger.records
        parts = " + ".join(f"{totals[name]} {_plural(name, totals[name])}" for name in STYLES)
        text = (
            f"\n{records['sent']} records sent, {ledger.repeats} of them a claim sent again, {records['gate']} sent on "
            f"by the gate, {records['people']} decided by people: {totals.total()} = {parts}. {seconds:.0f} s."
        )
        self._console.print(text, soft_wrap=True)


class JsonReport:
    """One line of JSON a record: the decision as it was published, or the dead letter with its error."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def wave(self, title: str) -> None:
        """Print the wave's title on standard error: standard output has records only."""
        progress(title)

    def record(self, record: InboundRecord, topic: TopicName) -> None:
        """Print a decision or a dead letter."""
        self._line(as_json(record, topic))

    def summary(self, ledger: Ledger, seconds: float) -> None:
        """Print how many records came to what."""
        totals = ledger.totals
        counts = {name.replace(" ", "_"): totals[name] for name in STYLES}
        records = ledger.records
        sent = {
            "sent": records["sent"],
            "repeated": ledger.repeats,
            "sent_on": records["gate"],
            "by_people": records["people"],
        }
        summary = {**sent, "in": totals.total(), **counts}
        self._line(json.dumps({"summary": summary | {"seconds": round(seconds, 1)}}))

    def _line(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


def progress(text: str) -> None:
    """Report progress on standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _plural(name: str, count: int) -> str:
    return f"{name}s" if name == "dead letter" and count != 1 else name
