"""One item: its text with what the gate found in it, the memories nearest to it, and what may be done with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import structlog
from starlette.exceptions import HTTPException

from groundwire.console import evidence, queue
from groundwire.console.answer import show_original
from groundwire.console.lists import FINAL
from groundwire.console.outbox import NOT_DONE, OrderState, Outbox, OutboxEntry, doing, done_to, undo_left
from groundwire.console.site import Call, PageAnswer
from groundwire.console.words import NONE, label, moment
from groundwire.gate.claims import OVERRULABLE
from groundwire.library.dedup import DedupChecker
from groundwire.messages.base import format_time
from groundwire.messages.decisions import Kind, Verdict
from groundwire.policy import Policy
from groundwire.review.actions import SENTENCES, RejectReason, speculation_in
from groundwire.review.model import Item, Nearest, Query, Standing
from groundwire.text.visible import hidden

logger = structlog.get_logger(__name__)

_FEW: Final = 3
_CANDIDATES: Final = 10  # approved claims with words in common that are compared, of which `_FEW` are shown
_LEAST: Final = 0.3  # share of words in common from which on a memory is worth a look
_GUIDELINES: Final = 50_000  # bytes of a file that are shown
NO_ITEM: Final = "There is no such item, or it is not yours to see."
Problem = dict[str, Any]  # why an action was refused, as the item's page shows it: title, text, changes, code


def find(call: Call, decision_id: str) -> Item:
    """Return an item that the person sees. Raises: HTTPException 404, the same for none and for another's."""
    item = call.site.board.item(call.scope, decision_id)
    if item is None:
        raise HTTPException(404, NO_ITEM)
    return item


def find_standing(call: Call, decision_id: str) -> Standing:
    """Return an item's standing, without its context. Raises: HTTPException 404, as `find`."""
    found = call.site.board.standings(call.scope, [decision_id])
    if decision_id not in found:
        raise HTTPException(404, NO_ITEM)
    return found[decision_id]


async def show(call: Call) -> PageAnswer:
    """One item; opening its page shows others that you look at it."""
    item = find(call, call.request.path_params["decision_id"])
    draft, problem = unfinished(call, item)
    seen = call.request.query_params.get("seen", "")
    if seen.isascii() and seen.isdigit() and seen != str(item.current.revision) and len(seen) < 10:
        problem = changed(item, int(seen))
    return PageAnswer(await describe(call, item, problem, draft), "item.html")


async def standing(call: Call) -> PageAnswer:
    """A value that changes with the item's revision, state and pending action: `standing`."""
    item = find_standing(call, call.request.path_params["decision_id"])
    return PageAnswer({"id": item.current.decision_id, "standing": _standing(call, item)})


async def lock(call: Call) -> PageAnswer:
    """Refresh the viewer's lock on an item."""
    item = find_standing(call, call.request.path_params["decision_id"])
    holder = await call.site.locks.claim(queue.subject_of(item.current), call.identity.person.name)
    return PageAnswer({"reviewing": holder}, location=f"/items/{item.current.decision_id}")


async def describe(
    call: Call, item: Item, problem: Problem | None = None, draft: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return all that page and API show of an item; `draft` is what the person typed for a refused action."""
    decision, row = item.decision, item.current
    given = decision.get("evidence") or {}
    source_id, metadata = given.get("source_id"), evidence.leaves(given.get("metadata") or {})
    template = call.site.settings.source_url
    url = template.replace("{source_id}", quote(str(source_id), safe="")) if template and source_id else None
    rows = [{"name": name, "value": value} for name, value in metadata]
    origin = {"source_id": source_id, "url": url, "metadata": rows, "captured_at": given.get("capture_time")}
    first = decision.get("subject_origin") or decision["origin"]
    places = {
        "published on": f"{item.topic}, partition {item.partition}, offset {item.offset}",
        "came in on": f"{first['topic'] or NONE}, partition {first['partition']}, offset {first['offset']}",
        "decision": decision["decision_id"],
        "revision": str(decision["revision"]),
        "policy": f"{decision['policy']['version']} {decision['policy']['sha256'][:12]}",
        "engine": decision["engine"],
    }
    text = evidence.text_of(decision)
    memories = await memory_rows(call, item, text)
    parts = evidence.item_parts(item, memories, call.site.board.dependents(call.scope, item.current))
    seen = await call.site.cited.of(decision)
    for cited in parts["citations"]:
        cited["seen"] = seen.get(f"{cited['type']}:{cited['value']}")
    return {
        "id": decision["decision_id"],
        "revision": decision["revision"],
        **{name: decision[name] for name in ("subject_id", "kind", "tenant_id", "user_id", "verdict")},
        **{name: decision[name] for name in ("reason", "reason_code", "memory_type", "decided_at")},
        "headline": row.headline if item.is_current else decision["reason_code"],
        "risk": row.risk.level if item.pending else None,
        "age_seconds": max(0, round((call.site.clock() - row.since).total_seconds())),
        **parts,
        "similar": await similar_rows(call, item, text, memories),
        "original": await show_original(call.site.read, decision, call.site.policy),
        "content": text or "",
        "checks": with_conflicts(parts["checks"], memories),
        "places": [{"name": name, "value": value} for name, value in places.items()],
        "origin": origin if given else None,
        "guidelines": await asyncio.to_thread(
            guidelines_of, call.site.settings.guidelines, decision["tenant_id"]
        ),
        **decision_form(call, item, memories),
        **await surroundings(call, item),
        "problem": problem,
        "draft": draft,
        "address": None,
    }


def guidelines_of(folder: Path | None, tenant: str) -> str | None:
    """Return the Markdown of a tenant, `<tenant>.md` of a folder; None where it has no file that can be read."""
    # whatever tenant a record names, none leads out of the folder
    if folder is None or Path(tenant).name != tenant:
        return None
    try:
        with (folder / f"{tenant}.md").open("rb") as file:
            found = file.read(_GUIDELINES + 1)
    except FileNotFoundError:
        return None
    except OSError as exc:
        logger.warning("guidelines.unreadable", tenant=tenant, error=str(exc))
        return None
    return found[:_GUIDELINES].decode("utf-8", "replace") + "\u2026" * (len(found) > _GUIDELINES)


def _standing(call: Call, item: Standing) -> str:
    state = "pending" if item.pending else str(item.current.verdict)
    way = "acted on" if call.site.outbox.on(item.current.decision_id) else "free"
    return f"{item.current.decision_id} {state} {way}"


def decision_form(call: Call, item: Item, memories: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    row, read_only = item.current, call.identity.person.read_only
    entry = call.site.outbox.on(row.decision_id)
    follows = item.decision["reason_code"] == "pending_duplicate"
    possible = [] if read_only else allowed(item, entry)
    if possible and any(memory["replaceable"] for memory in memories):
        possible.append("replace")
    return {
        "allowed": possible,
        "why_not": "You have read-only access." if read_only else why_not(item, entry),
        "standing": _standing(call, item),
        "newer": None if item.is_current else row.decision_id,
        "follows": item.decision["conflicting_memory_id"] if follows else None,
        "reasons": [str(reason) for reason in RejectReason],
        "opened": call.request.query_params.get("do", ""),
        "undo_seconds": round(call.site.settings.undo_seconds),
        "undo_left": undo_left(entry, call.site.clock()),
        "lock_url": f"/api/items/{row.decision_id}/lock" if item.pending else "",
        "lock_seconds": round(call.site.settings.lock_seconds),
    }


async def surroundings(call: Call, item: Item) -> dict[str, Any]:
    """Return who looks at it, and where a page leads: on in the queue, or back to the list it was opened from."""
    reviewing, me, row = None, call.identity.person, item.current
    if item.pending and call.page and not me.read_only:
        call.site.look()
        reviewing = await call.site.locks.claim(queue.subject_of(item.current), me.name)
    elif item.pending:
        holder = (await call.site.locks.held()).get(queue.subject_of(item.current))
        reviewing = holder if holder != me.name else None
    listed = queue.came_from(call)
    if listed is not None:
        asked = Query(sort="newest", text=listed.search)
        near = await asyncio.to_thread(
            call.site.board.neighbours, call.scope, asked, row.decision_id, lambda _: True, FINAL[listed.name]
        )
        query, back, title = listed.query, listed.address, listed.title
    else:
        view = queue.view_of(call)
        near = await queue.neighbours(call, view, item.current.decision_id)
        query, title = view.encoded(), "Queue"
        back = queue.with_query("/", query)
    return {
        "reviewing": reviewing,
        "unshared_since": queue.unshared_since(call),
        "previous": near.before,
        "next": near.after,
        "then": near.then,
        "place": near.place,
        "total": near.total,
        "back": back,
        "back_title": title,
        "query": queue.with_query("", query),
        "query_text": query,
    }


def typed_fields(sent: Mapping[str, Any]) -> dict[str, str]:
    found = {name: sent.get(name) for name in ("action", "content", "note", "reason", "replaces")}
    return {name: value if isinstance(value, str) else "" for name, value in found.items()}


def allowed(item: Standing, entry: OutboxEntry | None) -> list[str]:
    """Return the actions that are possible on an item now; `entry` is the one on its way."""
    if entry is not None or not item.is_current:
        return []
    if item.pending:
        return [
            "approve",
            "reject",
            *(["edit"] if item.current.kind == Kind.CLAIM else []),
            "comment",
            "pass",
        ]
    if item.current.verdict == Verdict.BLOCKED and item.current.reason_code in OVERRULABLE:
        return ["overrule"]
    if item.current.verdict == Verdict.APPROVED:
        return ["retract"]
    return []


def why_not(item: Item, entry: OutboxEntry | None) -> str | None:
    if entry is not None:
        return f"This was {doing(entry)}."
    if not item.is_current:
        return f"This is revision {item.decision['revision']}. A newer decision exists."
    if item.decision["reason_code"] == "pending_duplicate":
        words = ", which has other words" if (item.decision["similarity_score"] or 1) < 1 else ""
        return f"This item repeats one that is waiting{words}: decide that one."
    if not allowed(item, entry):
        return "Nothing to decide."
    return None


def conflict(call: Call, item: Item, action: str, revision: int) -> Problem | None:
    if is_free(call, item, action, revision):
        return None
    if not item.is_current or item.current.revision != revision:
        return changed(item, revision)
    entry = call.site.outbox.on(item.decision_id)
    if entry is not None:
        return problem(
            f"{entry.order.person.name} already {done_to(entry)} this.", "Your decision was not sent."
        )
    return problem("You cannot do that with this item.", "Refresh the page to see its state.")


def is_free(call: Call, item: Standing, action: str, revision: int) -> bool:
    """Say whether an action is possible; what can be edited can replace a memory, too."""
    possible = allowed(item, call.site.outbox.on(item.decision_id))
    return item.current.revision == revision and ("edit" if action == "replace" else action) in possible


def changed(item: Item, revision: int) -> Problem:
    row = item.current
    before = next((step for step in item.history if step.revision == revision), None)
    latest = next((step for step in item.history if step.revision == row.revision), None)
    changes = [{"what": "revision", "was": str(revision), "now": str(row.revision)}]
    if before is not None:
        changes.append({"what": "verdict", "was": str(before.verdict), "now": str(row.verdict)})
        changes.append({"what": "reason", "was": label(before.reason_code), "now": label(row.reason_code)})
    if latest is not None:
        at = moment(format_time(latest.decided_at))
        changes.append({"what": "decided", "was": "", "now": f"by {latest.reviewer or 'the gate'}, {at}"})
    return problem("This item has changed.", "See what is new, then decide.", changes)


def speculation(content: str, policy: Policy) -> Problem | None:
    """Return why an edited text cannot be approved, or None: it hides something or speculates (S0-78, C-02).

    The gate checks it again, under its own policy.
    """
    if hidden(content):
        return problem("This text cannot be approved.", SENTENCES["hidden_text"], code="hidden_text")
    try:
        sentence = speculation_in(content, policy)
    except Exception:  # noqa: BLE001 - the gate refuses what it cannot read, whatever the reason
        return problem("This text cannot be approved.", SENTENCES["unreadable"], code="unreadable")
    if not sentence:
        return None
    text = f"{SENTENCES['personal_speculation']} {sentence}"
    return problem("This text cannot be approved.", text, code="personal_speculation")


def problem(
    title: str, text: str, changes: list[dict[str, str]] | None = None, code: str = "conflict"
) -> Problem:
    return {"title": title, "text": text, "changes": changes or [], "code": code}


def unfinished(call: Call, item: Item) -> tuple[dict[str, str] | None, Problem | None]:
    person = call.identity.person
    entry = call.site.outbox.last(person, item.decision["decision_id"])
    if entry is None or entry.state not in NOT_DONE or entry.order.record.content is None:
        return None, None
    record = entry.order.record
    draft = typed_fields({"action": "edit", "content": record.content, "note": record.note})
    if entry.state is not OrderState.REFUSED or entry.outcome is None:
        return draft, None
    call.site.outbox.dismiss(person, entry.order.action_id)  # the page shows it beside what was typed
    return draft, problem("Refused by the gate.", entry.outcome.sentence, code=entry.outcome.code)


@dataclass(frozen=True, slots=True)
class _Given:
    """Memories at hand, as a provider of them."""

    stored: Sequence[tuple[str, str]]

    async def memories(self, user_id: str, memory_type: str) -> Sequence[tuple[str, str]]:  # noqa: ARG002 - its interface
        return self.stored


async def memory_rows(call: Call, item: Item, text: str | None) -> list[dict[str, Any]]:
    """Return the memories nearest to a claim, each with its difference, source and age; none for a response.

    Those below the gate's threshold decided nothing. They are shown since people know what words in common do not say,
    and no page says "fine: new" beside an approved memory that gives another value.
    """
    if item.current.kind != Kind.CLAIM:
        return []
    below = await memories_below(call, item, text) if item.pending and text else []
    compared = ((one, True) for one in item.memories)
    return [memory_row(call, item, *one) for one in (*compared, *((one, False) for one in below))]


def memory_row(call: Call, item: Item, memory: Nearest, compared: bool) -> dict[str, Any]:  # noqa: FBT001 - see `memory_rows`
    age = (call.site.clock() - memory.decided_at).total_seconds() if memory.decided_at else None
    return {
        **evidence.memory_row(memory, item.decision),
        "age_seconds": None if age is None else max(0, round(age)),
        "compared": compared,
        "replaceable": is_replaceable(call.site.outbox, item, memory),
    }


def conflicts(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["subject_id"] for row in rows if row["difference"] and row["state"] == "approved"]


def with_conflicts(checks: Sequence[dict[str, str]], rows: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the checks, of which none calls a claim new that differs from something approved: people look at that."""
    found = ", ".join(conflicts(rows))
    return [
        {"name": "near_approved", "result": "look", "detail": found}
        if found and (check["name"], check["result"]) == ("not_duplicate", "passed")
        else dict(check)
        for check in checks
    ]


async def memories_below(call: Call, item: Item, text: str, *, by_people: bool = False) -> list[Nearest]:
    """Return claims with words in common that the gate did not compare; see `BoardReads.sharing_words`."""
    known = {one.decision_id for one in item.memories}
    found = {
        one.decision_id: one
        for one in call.site.board.sharing_words(call.scope, item, _CANDIDATES, by_people=by_people)
        if one.decision_id not in known and one.text is not None
    }
    given = _Given([(str(name), one.text or "") for name, one in found.items()])
    matches = [match.fact() for match in await DedupChecker(given).matches(text, "", [""])]
    shares = {match.subject_id: match.inter / match.union for match in matches if match.union}
    differing = {match.subject_id: str(match.difference) for match in matches}
    near = sorted((name for name in shares if shares[name] >= _LEAST), key=lambda name: (-shares[name], name))
    return [replace(found[name], similarity=shares[name], difference=differing[name]) for name in near[:_FEW]]


async def similar_rows(
    call: Call, item: Item, text: str | None, shown: Sequence[Any]
) -> list[dict[str, Any]]:
    """Return similar claims of the tenant that people decided, beside those that the page shows as memories."""
    if not text or not item.pending:
        return []
    known = {one["id"] for one in shown}
    near = await memories_below(call, item, text, by_people=True)
    rows = [memory_row(call, item, one, compared=False) for one in near if one.decision_id not in known]
    return [row | {"replaceable": False} for row in rows]


def is_replaceable(outbox: Outbox, item: Item, memory: Nearest) -> bool:
    """Say whether a pending claim may take a memory's place: one that is approved, with no action on its way."""
    free = memory.decision_id is not None and outbox.on(memory.decision_id) is None
    return item.pending and free and memory.verdict == Verdict.APPROVED
