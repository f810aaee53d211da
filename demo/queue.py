"""What a reviewer of the demo decides beside the examples: answers with faults, and claims that are alike."""

from __future__ import annotations

from typing import Any, Final

from demo.examples import Example, Wave, chunk, claim
from groundwire.messages.decisions import ReasonCode as Why

POLICY: Final = """version = "demo-console"

[verification]
on_failure = "ask"   # people decide doubtful answers too
"""

_PLANS: Final = chunk(
    "plans",
    "docs/plans.md",
    "The plan Starter allows 5 users and 10 GB of storage. It costs 9 euros a month.\n"
    "The plan Team allows 50 users and 200 GB of storage. It costs 49 euros a month.\n"
    "Exports are not available in the plan Starter.",
)
_RETRY: Final = chunk(
    "retry",
    "src/retry.py",
    'def call(url, attempts=3, pause=0.5):\n    """Call a URL; the pause doubles after every attempt."""\n'
    "    return _session.send(url, attempts, pause)",
)
_INCIDENT: Final = chunk(
    "incident",
    "incidents/2026-02-11.md",
    "On 11 February 2026 the queue of the billing service was full for 40 minutes. Mara Lindqvist led the incident.\n"
    "The cause was a consumer that did not commit its offsets. No payment was lost.\n"
    "The team will raise the limit of the queue to 20,000 messages in March.",
)
_BACKUP: Final = chunk(
    "backup",
    "runbooks/backup.md",
    "A full backup is made every Sunday at 02:00 UTC and kept for 35 days.\n"
    "Restoring a full backup takes about 3 hours. Incremental backups are made every 6 hours.\n"
    "Never restore into the production cluster.",
)
_ALL: Final = (_PLANS, _RETRY, _INCIDENT, _BACKUP)


def _answer(name: str, query: str, answer: str, why: str, **fields: Any) -> Example:  # noqa: ANN401 - fields of a response
    record = {"response_id": name, "user_id": "support-bot", "query": query, "answer": answer, "chunks": _ALL}
    return Example({**record, **fields}, (why,))


_QUERY_PLANS: Final = "What do the plans offer?"
_QUERY_INCIDENT: Final = "What happened to the billing service in February?"

QUEUE: Final = Wave(
    "More for reviewers: answers with faults in tables, code and prose, and claims that are alike",
    (
        _answer(
            *("table-value", _QUERY_PLANS),
            "| plan | users | storage | price a month |\n|---|---|---|---|\n"
            "| Starter | 5 | 10 GB | 9 euros |\n| Team | 50 | 500 GB | 49 euros |",
            Why.FLAGGED_CLAIMS,
        ),
        _answer(
            *("table-unit", _QUERY_PLANS),
            "**Storage**\n\n| plan | storage |\n|---|---|\n| Starter | 10 TB |\n| Team | 200 GB |",
            Why.FLAGGED_CLAIMS,
        ),
        _answer(
            *("list-negation", _QUERY_PLANS),
            "- The plan Starter allows 5 users.\n- Exports are available in the plan Starter.",
            Why.FLAGGED_CLAIMS,
        ),
        _answer(
            *("code-default", "How do I retry a call?"),
            "The `attempts` of `call` is 8 by default:\n\n```python\ndef call(url, attempts=8, pause=0.5):\n```",
            Why.FLAGGED_CLAIMS,
        ),
        _answer(
            *("code-field", "How do I retry a call?"),
            "Pass `attempts` and `max_backoff` to `call` [source:2].",
            Why.UNVERIFIED_FIELDS,
        ),
        _answer(
            *("prose-date", _QUERY_INCIDENT),
            "On 14 February 2026 the queue of the billing service was full for 40 minutes.",
            Why.FLAGGED_CLAIMS,
        ),
        _answer(
            *("prose-name", _QUERY_INCIDENT),
            "The queue was full for 40 minutes. Jonas Weber led the incident.",
            Why.FLAGGED_CLAIMS,
        ),
        _answer(
            *("prose-negation", _QUERY_INCIDENT),
            "The cause was a consumer that did not commit its offsets. Some payments were lost.",
            Why.FLAGGED_CLAIMS,
        ),
        _answer(
            *("prose-added", "How are backups made?"),
            "A full backup is made every Sunday at 02:00 UTC. Each backup is encrypted with a hardware key and copied"
            " to a second continent.",
            Why.FLAGGED_CLAIMS,
        ),
        _answer(
            *("tag-missing", "How long are backups kept?"),
            "A full backup is kept for 35 days [source:7].",
            Why.PHANTOM_SOURCE,
        ),
        _answer(
            *("quote-negation", "May I restore a backup into production?"),
            "The runbook says that one may restore into the production cluster.",
            Why.QUOTE_POLARITY,
            chunks=(),
            transcript="The operator said: you must not restore into the production cluster. Use the staging one.",
            evidence={"runbook": ["restore into the production cluster"]},
        ),
        _answer(
            *("cited-passage", "How long does it take to restore a backup?"),
            "Restoring a full backup takes about 3 hours [source:4].",
            Why.SNIPPET_MISMATCH,
            sources=[
                {"file": "runbooks/backup.md", "snippet": "Restoring a full backup takes about 30 minutes."}
            ],
        ),
        *(
            claim(
                f"rack-{number}",
                "ops-agent",
                f"The replica in rack {number} answers within {number} ms.",
                Why.UNGROUNDED,
            )
            for number in (3, 4, 7, 8)
        ),
        claim(
            "who-pays",
            "ops-agent",
            "The billing service sends invoices on the first of each month.",
            Why.UNGROUNDED,
        ),
    ),
)
