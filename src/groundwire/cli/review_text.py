"""The queue and its items as lines for a person at a terminal, or for a program.

An item's parts are those of its page in the console (`item_parts`, `show_original`); none of them acts on a terminal.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from groundwire.cli.output import TEXT_CELLS, compact_json, cut, escape_lines, print_line
from groundwire.console.answer import View
from groundwire.console.evidence import item_parts, memory_row
from groundwire.console.words import label
from groundwire.messages.decisions import Kind
from groundwire.review.actions import ActionOutcome
from groundwire.review.model import Item, Page, Related, Row
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
_STYLES: Final = {
    "value": "bold white on red",
    "hard": "red",
    "soft": "yellow",
    "uncovered": "underline",
    "name": "red underline",
    "hedge-block": "black on yellow",
    "hedge-review": "black on yellow",
    "citation": "underline",
    "high": "red",
    "medium": "yellow",
    "approved": "green",
    "review": "yellow",
    "blocked": "red",
    "failed": "red",
    "passed": "green",
    "skipped": "dim",
    "refused": "red",
    "applied": "green",
}
"""Of marks, risks, verdicts and results; of several marks on a word the first of these."""
_CHANGES: Final = {
    "insert": ("green", "{+", "+}"),
    "delete": ("red strike", "[-", "-]"),
    "equal": ("", "", ""),
}
NONE: Final[Page[Related]] = Page((), 0, None)


@dataclass(frozen=True, slots=True)
class OutcomeNotes:
    """What the gate objects to in an edited text, and the approved claims that rest on what was retracted."""

    objection: str = ""
    affected: Page[Related] = NONE


NO_NOTES: Final = OutcomeNotes()


def row_json(row: Row) -> str:
    return compact_json({**asdict(row), "risk": asdict(row.risk)})


def item_json(item: Item, dependents: Page[Related] = NONE, original: View | None = None) -> str:
    fields = asdict(item)
    if not item.pending:
        fields["current"]["risk"] = None
    return compact_json({**fields, **_dependents_json("resting", dependents), "original": original})


def outcome_json(
    row: Row, action_id: str, outcome: ActionOutcome | None, notes: OutcomeNotes = NO_NOTES
) -> str:
    fields = asdict(outcome) | {"sentence": _sentence(row, outcome, notes)} if outcome else {"applied": None}
    affected = _dependents_json("affected", notes.affected) if notes.affected.rows else {}
    return compact_json({**fields, **affected, "item": row.decision_id, "action_id": action_id})


def _dependents_json(name: str, dependents: Page[Related]) -> dict[str, object]:
    return {name: [asdict(one) for one in dependents.rows], f"{name}_total": dependents.total}


def print_page(console: Console, page: Page[Row], now: datetime) -> None:
    table = [list(_WIDTHS)]
    for row in page.rows:
        named = [f"{row.tenant_id}:{row.user_id}", row.subject_id, row.decision_id, row.source or "-"]
        cells = [row.risk.level, row.headline, age(now - row.since), *named]
        table.append([cut(cell, most) for cell, most in zip(cells, _WIDTHS.values(), strict=True)])
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    head, *lines = [
        [set_cell_size(cell, width) for cell, width in zip(line, widths, strict=True)] for line in table
    ]
    print_line(console, Text("  ".join([*head, "text"]), style="bold"))
    for row, (first, *others) in zip(page.rows, lines, strict=True):
        rest = "  ".join(["", *others, cut(row.excerpt, TEXT_CELLS)])
        print_line(
            console, Text(first, style=_STYLES.get(row.risk.level, "default")).append(rest, style="default")
        )
    console.print(f"\n{len(page.rows)} of {page.total} waiting", soft_wrap=True)


def age(span: timedelta) -> str:
    """Return an age in its largest unit: 5s, 12m, 3h, 9d."""
    seconds = max(0, int(span.total_seconds()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def print_item(console: Console, item: Item, dependents: Page[Related] = NONE) -> None:
    memories = [memory_row(one, item.decision) for one in item.memories]
    parts = item_parts(item, memories, dependents)
    for name, value in _facts(item):
        console.print(Text.assemble((f"{name:<11}", "bold"), escape_controls(value)), soft_wrap=True)
    text = _marked(parts["segments"] or ({"kinds": (), "text": "(a response: its answer is below)"},))
    _section(console, "text", [text])
    hedges = [one for one in parts["legend"] if one["kind"].startswith("hedge")]
    _section(
        console, "hedges", [_plain(f"{one['text']} ({one['title'].partition(': ')[2]})") for one in hedges]
    )
    citations = []
    for one in parts["citations"]:
        said = f"{one['type']} {one['value']}: {one['detail'] or one['state']}"
        sign = ("✓ ", "green") if one["state"] == "verified" else ("✗ ", "red")
        citations.append(Text.assemble(sign, escape_controls(said)))
    _section(console, "citations", citations)
    checks = (
        (one["result"], ": ".join(filter(None, (one["name"], one["detail"])))) for one in parts["checks"]
    )
    _section(console, "checks", [_styled(result, 8, check) for result, check in checks])
    for number, memory in enumerate(memories):
        differs = f", {label('differs_' + memory['difference'])}" if memory["difference"] else ""
        said = f"{memory['since']}, {memory['similarity']} of the words in common{differs}"
        changes = memory["changes"]
        shown = Text("its text is not available", style="dim") if changes is None else _difference(changes)
        lines = [_plain(f"{memory['subject_id']} ({said})"), shown]
        _section(console, "another near memory" if number else "nearest memory", lines)
    _section(console, "this claim is based on", map(_related, parts["rests_on"]))
    _section(console, "claims based on this one", _related_lines(parts["resting"], parts["resting_total"]))
    facts = parts["source"]["facts"] if parts["source"] else ()
    _section(
        console,
        "source",
        [_plain(", ".join(f"{one['value']} {one['name']}" for one in facts))] if facts else (),
    )
    history = []
    for step in parts["history"]:
        by = f" by {step['actor']}" if step["actor"] else ""
        note = f": {step['note']}" if step["note"] else ""
        line = Text(f"{'-' if step['revision'] is None else step['revision']}  {step['at']}  ")
        line.append(step["verdict"], style=_STYLES.get(step["verdict"], ""))
        history.append(line.append(escape_controls(f"  {step['reason_code']}{by}{note}")))
        history.extend(_plain(f"   {said}") for said in (step["text"] or "").splitlines())
    _section(console, "history", history)


def _facts(item: Item) -> Iterator[tuple[str, str]]:
    decision, row = item.decision, item.current
    yield "item", f"{row.tenant_id}:{row.user_id} {row.kind} {row.subject_id}"
    yield "decision", f"{decision['decision_id']} (revision {decision['revision']})"
    if not item.is_current:
        newer = f"{row.decision_id} (revision {row.revision}): {row.verdict}, {row.reason_code}"
        yield "superseded", f"by {newer}"
    why = f": {row.risk.why}" if item.pending else ""
    yield "status", "waiting for a review" if item.pending else f"{row.verdict}, nothing to decide"
    yield "reason", f"{decision['reason_code']}{why} ({decision['reason']})"
    yield "source", f"{decision['source'] or '-'}, {decision['memory_type'] or decision['kind']}"
    yield "decided", str(decision["decided_at"])
    yield "published", f"{item.topic} partition {item.partition} offset {item.offset}"


def print_original(console: Console, original: View | None) -> None:
    """Print a response as it came in; nothing of a claim, whose decision has its text."""
    if original is None:
        return
    if original["note"]:
        _section(console, "answer", [Text(escape_controls(original["note"]), style="dim")])
    if original["state"] != "read":
        return
    if original["question"]:
        _section(console, "question", [Text(escape_lines(original["question"]))])
    runs = original["answer"] or ()
    _section(console, "answer", [_marked(part for run in runs for part in run["segments"])] if runs else ())
    faults, quotes = [], []
    for fault in original["faults"]:
        sign = Text("wrong     ", style="red") if fault["hard"] else Text("doubtful  ", style="yellow")
        faults.append(
            sign.append(
                f"{fault['note'] or label(fault['why'])}: {escape_controls(fault['text'])}", style="default"
            )
        )
        if fault["says"]:
            instead = f"{', '.join(fault['instead'])}: " if fault["instead"] else ""
            says = f"          {fault['source']}: {instead}{fault['says']}"
            faults.append(Text(escape_controls(says), style="dim"))
    if original["faults_left"]:
        faults.append(Text(f"and {original['faults_left']} more"))
    _section(console, "wrong or doubtful", faults)
    for quote in original["quotes"]:
        quotes.append(_plain(f"{quote['domain']}: {label(quote['why'])}: {quote['quote']}"))
        if quote["segments"]:
            quotes.append(Text("  ").append_text(_marked(quote["segments"])))
        elif quote["changes"]:
            quotes.append(Text("  ").append_text(_difference(quote["changes"])))
    _section(console, "wrong quotes", quotes)
    cited = []
    for one in original["cited"]:
        said = ", ".join(filter(None, (one["file"], one["lines"], one["snippet"])))
        cited += [_plain(said), Text("  ").append_text(_difference(one["changes"]))]
    _section(console, "cited passages that differ", cited)
    stale = (f"{one['file']}: used {one['indexed']}, current {one['current']}" for one in original["stale"])
    _section(console, "outdated sources", map(_plain, stale))
    for name, none in (("entities", "nothing of it"), ("relations", "nothing of the two")):
        held = []
        for row in original[name]:  # an entity or a relation of the answer, and what the corpus holds of it
            named = row.get("says") or " ".join(str(part) for part in (row["id"], row["name"]) if part)
            whys = row["why"] if isinstance(row["why"], list) else [row["why"]] if row["why"] else []
            holds = "; ".join(row["holds"]) if isinstance(row["holds"], list) else row["holds"]
            why = "".join(f"{label(why)}; " for why in whys)
            held.append(_plain(f"{named}: {why}the corpus holds {holds or none}"))
        _section(console, name, held)


def print_outcome(
    console: Console, row: Row, outcome: ActionOutcome | None, notes: OutcomeNotes = NO_NOTES
) -> None:
    """Print the outcome of an action on an item in one line, what it affects, and what to run next."""
    name, decision_id = row.subject_id, row.decision_id
    if outcome is None:
        console.print(Text(f"sent       {escape_controls(name)}"), soft_wrap=True)
        return
    revision = "" if outcome.revision is None else f"revision {outcome.revision}: "
    said = f"{name}  {decision_id}  {revision}{outcome.code}. {_sentence(row, outcome, notes)}"
    console.print(_styled("applied" if outcome.applied else "refused", 11, said), soft_wrap=True)
    affected = [asdict(one) | {"id": one.decision_id} for one in notes.affected.rows]
    for line in _related_lines(affected, notes.affected.total):
        console.print(Text(f"{'rests on it':<13}").append_text(line), soft_wrap=True)
    following = _next(row, outcome)
    if following:
        console.print(Text(f"{'next':<11}{escape_controls(following)}"), soft_wrap=True)


def _sentence(row: Row, outcome: ActionOutcome, notes: OutcomeNotes) -> str:
    if row.kind == Kind.RESPONSE and outcome.code in ("unknown", "not_pending"):
        return "This response is not pending; look at its state."
    return " ".join(part for part in (outcome.sentence, notes.objection) if part)


def _next(row: Row, outcome: ActionOutcome) -> str | None:
    code = outcome.code
    if code in {"human_approved", "human_rejected", "review_expired", "expired", "duplicate"}:
        return None
    if code in {"commented", "passed", "unauthorized", "reserved", "not_editable", "action_id_reused"}:
        return None
    if row.kind == Kind.RESPONSE and code != "unattested":
        return f"groundwire review show {row.decision_id}"  # a response has no claim id to be found by
    if code in ("unknown", "unattested"):
        return "groundwire review list" if code == "unknown" else "groundwire keys list"
    names = shlex.join([row.subject_id, "--tenant", row.tenant_id, "--user", row.user_id])
    if code in {"hidden_text", "personal_speculation", "unreadable"}:
        return f"groundwire review edit {names} --content -"
    return f"groundwire review show {names}"


def _section(console: Console, title: str, lines: Iterable[Text]) -> None:
    for number, line in enumerate(lines):
        if not number:
            console.print(Text(f"\n{title}", style="bold"))
        console.print(Text("  ").append_text(line), soft_wrap=True)


def _plain(text: str) -> Text:
    return Text(escape_controls(text))


def _styled(word: str, width: int, text: str) -> Text:
    return Text.assemble((f"{word:<{width}}", _STYLES.get(word, "")), escape_controls(text))


def _marked(segments: Iterable[Mapping[str, Any]]) -> Text:
    shown = Text()
    for segment in segments:
        kinds = {kind if kind in _STYLES else kind.partition("-")[0] for kind in segment["kinds"]}
        shown.append(
            escape_lines(segment["text"]),
            style=next((_STYLES[kind] for kind in _STYLES if kind in kinds), ""),
        )
    return shown


def _difference(changes: Sequence[Mapping[str, str]]) -> Text:
    shown = Text()
    for change in changes:
        style, before, after = _CHANGES[change["operation"]]
        shown.append(f"{before}{escape_lines(change['text'])}{after}", style=style)
    return shown


def _related(one: Mapping[str, Any]) -> Text:
    state = one["state"] or "not available"
    more = f"  {one['id']}  {cut(one['excerpt'], TEXT_CELLS)}" if one["id"] else ""
    return _plain(f"{one['name']} ({state}){more}")


def _related_lines(rows: Sequence[Mapping[str, Any]], total: int) -> Iterator[Text]:
    yield from map(_related, rows)
    if total > len(rows):
        yield Text(f"and {total - len(rows)} more")
