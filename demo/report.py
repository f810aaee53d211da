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
    """One line a record, under the title of its wave; `answers` of responses, which their decisions do not repeat."""

    def __init__(self, out: TextIO, answers: Mapping[tuple[str, str], str]) -> None:
        self._answers = answers
        self._printer = DecisionPrinter(out)
        self._console = Console(file=out, highlight=False)

    def wave(self, title: str) -> None:
        self._printer.section(title)

    def record(self, record: InboundRecord, topic: TopicName) -> None:
        if topic is not TopicName.DEAD_LETTER:
            decision = Decision.model_validate_json(record.value or b"")
            self._printer.decision(decision, self._answers.get((decision.user_id, decision.subject_id)))
            return
        message = header(record.headers, "__connect.errors.exception.message") or ""
        code = ErrorCode(header(record.headers, "gw-error") or "")
        value = "(no value)" if record.value is None else record.value[:200].decode(errors="replace")
        self._printer.error(value, RecordError(code, message))

    def summary(self, ledger: Ledger, seconds: float) -> None:
        totals, records = ledger.totals, ledger.records
        counted = [(name, totals[name]) for name in STYLES]
        parts = " + ".join(
            f"{count} {name}{'s' if name == 'dead letter' and count != 1 else ''}" for name, count in counted
        )
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
        progress(title)

    def record(self, record: InboundRecord, topic: TopicName) -> None:
        self._line(as_json(record, topic))

    def summary(self, ledger: Ledger, seconds: float) -> None:
        totals = ledger.totals
        counts = {name.replace(" ", "_"): totals[name] for name in STYLES}
        records = ledger.records
        summary: dict[str, float] = {
            "sent": records["sent"],
            "repeated": ledger.repeats,
            "sent_on": records["gate"],
        }
        summary |= {
            "by_people": records["people"],
            "in": totals.total(),
            **counts,
            "seconds": round(seconds, 1),
        }
        self._line(json.dumps({"summary": summary}))

    def _line(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


def progress(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
