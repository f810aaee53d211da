"""The report of a replay as a page of HTML: totals first, then what changed, as far as a browser opens it at once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from groundwire.errors import UsageError
from groundwire.gate.claims import Policies
from groundwire.policy import Policy
from groundwire.replay.job import Job
from groundwire.replay.report import Change, Summary, changes_of

MAX_BYTES: Final = 2_000_000
"""Of a page; what does not fit goes to a file beside it."""

_ROOM: Final = 2_000
"""Of these, for what follows the details."""
_POLICIES: Final = 5
"""Recorded policies that are compared with the one that decides instead: those of most decisions."""


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """How a recorded policy differs from the one that decides instead.

    Attributes:
        name: its version and the first digits of its hash.
        decisions: how many it decided.
        rows: key, recorded value, value now; None where the recorded policy is not at hand.
    """

    name: str
    decisions: int
    rows: list[tuple[str, Any, Any]] | None


async def policy_changes(summary: Summary, policies: Policies, policy: Policy | None) -> list[PolicyChange]:
    """Compare the policies of most recorded decisions with the one that decides instead; nothing without one."""
    if policy is None:
        return []
    changes = []
    for sha256, count in summary.policies.most_common(_POLICIES):
        known = await policies.get(sha256)
        old, new = (each.model_dump(mode="json") if each else {} for each in (known, policy))
        rows = [(key, old[key], new[key]) for key in new if key in old and old[key] != new[key]]
        name = f"{known.version if known else 'not at hand'} ({sha256[:12]})"
        changes.append(PolicyChange(name, count, rows if known else None))
    return changes


def write_page(path: Path, job: Job, summary: Summary, policies: list[PolicyChange]) -> None:
    """Write the page; details that do not fit go to `<name>.rest.jsonl` beside it, one JSON object a line.

    Raises:
        UsageError: a file cannot be written.
        ImportError: Jinja2 is not installed.
    """
    rest = path.with_suffix(".rest.jsonl")
    parts, left = _page(job, summary, policies, rest.name)
    try:
        with path.open("w", encoding="utf-8") as page:
            page.writelines(parts)
        if left_out := next(left, None):
            with rest.open("w", encoding="utf-8") as file:
                for change in (left_out, *left):
                    file.write(json.dumps(change, ensure_ascii=False) + "\n")
    except OSError as exc:
        raise UsageError(f"--html: {exc.filename}: {exc.strerror}") from None


def _page(
    job: Job, summary: Summary, policies: list[PolicyChange], rest: str
) -> tuple[Iterator[str], Iterator[Change]]:
    """Return the parts of the page, and the changes that are left once they are all taken; everything is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - an extra of its own

    environment = Environment(
        loader=PackageLoader("groundwire.replay"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    head, detail, foot = (environment.get_template(f"{name}.html") for name in ("report", "change", "foot"))
    counts = summary.as_json()
    changes = changes_of(job)
    left: list[Change] = []

    def parts() -> Iterator[str]:
        top = head.render(order=job.order, summary=counts, totals=_totals(summary), policies=policies)
        size, shown = len(top.encode()) + _ROOM, 0
        yield top
        for change in changes:
            part = detail.render(change=change)
            size += len(part.encode())
            if size > MAX_BYTES:
                left.append(change)
                break
            shown += 1
            yield part
        yield foot.render(shown=shown, left=summary.changes - shown, rest=rest)

    def others() -> Iterator[Change]:
        yield from left
        yield from changes

    return parts(), others()


def _totals(summary: Summary) -> list[tuple[str, str, int]]:
    """Return decisions from verdict to verdict: what changed first, of that the most."""
    totals: Counter[tuple[str, str]] = Counter()
    for (old, new), count in summary.reasons.items():
        totals[old.split()[0], new.split()[0]] += count
    return sorted(
        ((*pair, n) for pair, n in totals.items()), key=lambda row: (row[0] == row[1], -row[2], row)
    )
