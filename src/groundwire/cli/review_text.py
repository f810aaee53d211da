"""The queue and its items as lines for a person at a terminal, or for a program."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from groundwire.cli.output import TEXT_CELLS, compact_json, cut, escape_lines, print_line
from groundwire.console.answer import View
from groundwire.console.words import word_diff
from groundwire.messages.base import format_time
from groundwire.messages.decisions import Kind
from groundwire.review.actions import ActionOutcome
from groundwire.review.model import Item, Nearest, Page, Related, Row
from groundwire.text.normalise import escape_controls

_WIDTHS: Final = {
    "risk": 6,
    "reason": 26,
    "age": 5,
    "tenant:user": 30,
    "id": 36,
    "decision": 36,
    "source": 20,
}
"""Most cells of a column; one that needs fewer gets fewer."""
_EXPLAINED: Final = {
    *("human_approved", "human_rejected", "review_expired", "expired", "duplicate"),
    *("unauthorized", "reserved", "not_editable", "action_id_reused"),
}
"""Codes whose sentence says everything; no command follows."""
_REWORDED: Final = {"personal_speculation", "unreadable"}
"""Codes after which another text may be sent."""
_WAITS_FOR_NOBODY: Final = "This response waits for nobody; look at where it stands."
_LEVELS: Final = {"high": "red", "medium": "yellow", "low": "default"}
_VERDICTS: Final = {"approved": "green", "review": "yellow", "blocked": "red"}
_CHANGES: Final = {
    "insert": ("green", "{+", "+}"),
    "delete": ("red strike", "[-", "-]"),
    "equal": ("", "", ""),
}


NONE: Final[Page[Related]] = Page((), 0, None)
"""Nothing rests on it."""


@dataclass(frozen=True, slots=True)
class OutcomeNotes:
    """What is printed with an outcome.

    Attributes:
        objection: quotes what the gate objects to in an edited text.
        affected: the approved claims that rest on what was retracted.
    """

    objection: str = ""
    affected: Page[Related] = NONE


NO_NOTES: Final = OutcomeNotes()


def row_json(row: Row) -> str:
    """Return a row as one line of JSON."""
    return compact_json({**asdict(row), "risk": asdict(row.risk)})


def item_json(item: Item, dependents: Page[Related] = NONE, original: View | None = None) -> str:
    """Return an item, what rests on it, and of a response what was read back, as one line of JSON."""
    fields = asdict(item)
    if not item.pending:
        fields["current"]["risk"] = None  # nobody has to look at it any more
    return compact_json({**fields, **_dependents_json("resting", dependents), "original": original})


def outcome_json(
    row: Row, action_id: str, outcome: ActionOutcome | None, notes: OutcomeNotes = NO_NOTES
) -> str:
    """Return what became of an action as one line of JSON; `applied` is null where no outcome came in time."""
    fields = asdict(outcome) | {"sentence": _sentence(row, outcome, notes)} if outcome else {"applied": None}
    affected = _dependents_json("affected", notes.affected) if notes.affected.rows else {}
    return compact_json({**fields, **affected, "item": row.decision_id, "action_id": action_id})


def print_page(console: Console, page: Page[Row], now: datetime) -> None:
    """Print the rows of a page, one line each."""
    table = [
        list(_WIDTHS),
        *(
            [cut(cell, most) for cell, most in zip(_cells(row, now), _WIDTHS.values(), strict=True)]
            for row in page.rows
        ),
    ]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    head, *lines = [
        [set_cell_size(cell, width) for cell, width in zip(line, widths, strict=True)] for line in table
    ]
    print_line(console, Text("  ".join([*head, "text"]), style="bold"))
    for row, (first, *others) in zip(page.rows, lines, strict=True):
        text = Text(first, style=_LEVELS[row.risk.level])
        print_line(
            console, text.append("  ".join(["", *others, cut(row.excerpt, TEXT_CELLS)]), style="default")
        )
    console.print(f"\n{len(page.rows)} of {page.total} waiting", soft_wrap=True)


def _cells(row: Row, now: datetime) -> list[str]:
    whose = f"{row.tenant_id}:{row.user_id}"
    named = [whose, row.subject_id, row.decision_id, row.source or "-"]
    return [row.risk.level, row.reason_code, age(now - row.since), *named]


def print_item(console: Console, item: Item, dependents: Page[Related] = NONE) -> None:
    """Print an item with all that bears on it; nothing in it reaches the terminal but as text.

    `dependents`: the approved claims that rest on it.
    """
    decision = item.decision
    for name, value in _facts(item):
        console.print(Text.assemble((f"{name:<10}", "bold"), escape_controls(value)), soft_wrap=True)
    print_section(console, "text", [_marked(decision)])
    print_section(
        console,
        "hedges",
        [Text(escape_controls(f"{h['text']} ({h['category']})")) for h in decision["hedges"]],
    )
    print_section(console, "citations", [_citation(one) for one in decision["citations"]])
    print_section(console, "checks", list(_checks(decision)))
    for number, memory in enumerate(item.memories):
        title = "another near memory" if number else "nearest memory"
        print_section(console, title, _nearest(memory, _claim(decision)))
    print_section(console, "what it rests on", [_related(one) for one in item.parents])
    print_section(console, "what rests on it", list(_dependent_lines(dependents)))
    record = item.source_record
    so_far = (
        f"{record.approved} approved ({record.human_approved} by people), {record.blocked} blocked"
        f" ({record.human_rejected} rejected by people)"
    )
    print_section(console, "source so far", [Text(so_far)] if decision["source"] else [])
    print_section(console, "history", list(_history(item)))


def print_outcome(
    console: Console, row: Row, outcome: ActionOutcome | None, notes: OutcomeNotes = NO_NOTES
) -> None:
    """Print what became of an action on an item in one line, what it affects, and what to run next."""
    name, decision_id = row.subject_id, row.decision_id
    if outcome is None:
        console.print(Text(f"sent       {escape_controls(name)}"), soft_wrap=True)
        return
    word, style = ("applied", "green") if outcome.applied else ("refused", "red")
    revision = "" if outcome.revision is None else f"revision {outcome.revision}: "
    line = Text.assemble((f"{word:<11}", style), f"{escape_controls(name)}  {decision_id}  ")
    sentence = _sentence(row, outcome, notes)
    console.print(line.append(escape_controls(f"{revision}{outcome.code}. {sentence}")), soft_wrap=True)
    for one in _dependent_lines(notes.affected):
        console.print(Text(f"{'rests on it':<13}").append_text(one), soft_wrap=True)
    following = _next(row, outcome)
    if following:
        console.print(Text(f"{'next':<11}{escape_controls(following)}"), soft_wrap=True)


def _sentence(row: Row, outcome: ActionOutcome, notes: OutcomeNotes) -> str:
    if row.kind == Kind.RESPONSE and outcome.code in ("unknown", "not_pending"):
        return _WAITS_FOR_NOBODY
    return " ".join(part for part in (outcome.sentence, notes.objection) if part)


def _next(row: Row, outcome: ActionOutcome) -> str | None:
    """Return the command to run next, where there is something to look at or to send again."""
    if outcome.code in _EXPLAINED:
        return None
    if row.kind == Kind.RESPONSE and outcome.code != "unattested":
        return f"groundwire review show {row.decision_id}"  # a response has no claim id to be found by
    if outcome.code == "unknown":
        return "groundwire review list"
    if outcome.code == "unattested":
        return "groundwire keys list"
    names = shlex.join([row.subject_id, "--tenant", row.tenant_id, "--user", row.user_id])
    if outcome.code in _REWORDED:
        return f"groundwire review edit {names} --content -"
    return f"groundwire review show {names}"


def age(span: timedelta) -> str:
    """Return an age in its largest unit: 5s, 12m, 3h, 9d."""
    seconds = max(0, int(span.total_seconds()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _facts(item: Item) -> Iterator[tuple[str, str]]:
    decision, row = item.decision, item.current
    yield "item", f"{row.tenant_id}:{row.user_id} {row.kind} {row.subject_id}"
    yield "decision", f"{decision['decision_id']} (revision {decision['revision']})"
    if row.decision_id != decision["decision_id"]:
        yield (
            "superseded",
            f"by {row.decision_id} (revision {row.revision}): {row.verdict}, {row.reason_code}",
        )
    why = f": {row.risk.why}" if item.pending else ""
    yield "status", "waits for a person" if item.pending else f"{row.verdict}, nothing to decide"
    yield "reason", f"{decision['reason_code']}{why} ({decision['reason']})"
    yield "source", f"{decision['source'] or '-'}, {decision['memory_type'] or decision['kind']}"
    yield "decided", str(decision["decided_at"])
    yield "stands at", f"{item.topic} partition {item.partition} offset {item.offset}"


def print_section(console: Console, title: str, lines: Sequence[Text]) -> None:
    """Print lines under a title, nothing where there are none."""
    if lines:
        console.print(Text(f"\n{title}", style="bold"))
        for line in lines:
            console.print(Text("  ").append_text(line), soft_wrap=True)


def difference(old: str, new: str) -> Text:
    """Return the difference of two texts, in colours and in signs."""
    shown = Text()
    for change in word_diff(old, new):
        style, before, after = _CHANGES[change.operation]
        shown.append(f"{before}{escape_lines(change.text)}{after}", style=style)
    return shown


def _claim(decision: Mapping[str, Any]) -> str:
    return str((decision["evidence"] or {}).get("claim") or "")


def _marked(decision: Mapping[str, Any]) -> Text:
    """Return the text with hedges and citations marked in place."""
    claim = _claim(decision)
    marks = [(h["start"], h["end"], "black on yellow") for h in decision["hedges"]]
    marks += [(c["start"], c["end"], "underline") for c in decision["citations"]]
    text, position = Text(), 0
    for start, end, style in sorted(marks):
        if position <= start < end <= len(claim):
            text.append(escape_lines(claim[position:start])).append(
                escape_lines(claim[start:end]), style=style
            )
            position = end
    return text.append(
        escape_lines(claim[position:]) or ("" if claim else "(a response: its answer stands below)")
    )


def _citation(citation: Mapping[str, Any]) -> Text:
    verified = citation["state"] == "verified"
    sign = Text("✓ " if verified else "✗ ", style="green" if verified else "red")
    return sign.append(
        escape_controls(f"{citation['type']} {citation['value']}: {citation['detail'] or citation['state']}")
    )


def _checks(decision: Mapping[str, Any]) -> Iterator[Text]:
    for name, style in (("failed", "red"), ("passed", "green"), ("skipped", "dim")):
        for check in decision[f"checks_{name}"]:
            yield Text.assemble((f"{name:<8}", style), escape_controls(check))


def _nearest(nearest: Nearest, claim: str) -> list[Text]:
    differs = "" if nearest.difference == "none" else f", differs in {nearest.difference}"
    head = f"{nearest.subject_id} ({nearest.since}, similarity {nearest.similarity:.2f}{differs})"
    if nearest.text is None:
        return [Text(escape_controls(head)), Text("its text is not at hand", style="dim")]
    return [Text(escape_controls(head)), difference(nearest.text, claim)]


def _dependents_json(name: str, dependents: Page[Related]) -> dict[str, object]:
    return {name: [asdict(one) for one in dependents.rows], f"{name}_total": dependents.total}


def _dependent_lines(dependents: Page[Related]) -> Iterator[Text]:
    """Yield what rests on something, one line each, and how many more there are."""
    yield from map(_related, dependents.rows)
    more = dependents.total - len(dependents.rows)
    if more:
        yield Text(f"and {more} more")


def _related(related: Related) -> Text:
    if related.decision_id is None:
        return Text(escape_controls(f"{related.name} ({related.state or 'not at hand'})"))
    excerpt = cut(related.excerpt, TEXT_CELLS)
    return Text(escape_controls(f"{related.name} ({related.state})  {related.decision_id}  {excerpt}"))


def _history(item: Item) -> Iterator[Text]:
    for revision in item.history:
        by = f" by {revision.reviewer} ({revision.action})" if revision.reviewer else ""
        reason = f", {revision.review_reason}" if revision.review_reason else ""
        line = Text(f"{revision.revision}  {format_time(revision.decided_at)}  ")
        line.append(revision.verdict, style=_VERDICTS.get(revision.verdict, ""))
        yield line.append(escape_controls(f"  {revision.reason_code}{by}{reason}"))
    for attempt in item.attempts:
        if not attempt.applied:
            what = f"-  {format_time(attempt.at)}  refused  {attempt.action} by {attempt.actor}: {attempt.outcome}"
            yield Text(escape_controls(what))
