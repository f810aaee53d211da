"""The request for another answer that a weak one brings: a grounded prompt, at most one mode lower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from groundwire.checks.prompts import grounded_prompt
from groundwire.decide.responses import ResponseCase
from groundwire.messages.audit import RegenerateRequest
from groundwire.messages.decisions import Decision
from groundwire.messages.identity import request_id
from groundwire.messages.responses import Chunk

MAX_BYTES: Final = 950_000
"""Of a request: it has to fit on its topic whatever characters the chunks hold."""

_MAX_FLAGGED: Final = 100


def regenerate_request(case: ResponseCase, decision: Decision) -> RegenerateRequest | None:
    """Return the request that a response's decision brings, if any; the same decision gives the same one.

    Where the chunks do not fit, the last of them are left out.
    """
    asked = case.regeneration
    if asked is None:
        return None
    query = case.response.query
    chunks: Sequence[Chunk] = case.response.chunks or ()
    while True:
        request = RegenerateRequest(
            request_id=request_id(decision.decision_id),
            response_id=decision.subject_id,
            decision_id=decision.decision_id,
            tenant_id=decision.tenant_id,
            user_id=decision.user_id,
            query=query,
            mode=asked.mode,
            attempt=asked.attempt,
            why=asked.why,
            prompt=grounded_prompt(query or "", chunks),
            flagged=[warning.message[:500] for warning in case.warnings[:_MAX_FLAGGED]],
        )
        if not chunks or len(request.model_dump_json().encode()) <= MAX_BYTES:
            return request
        chunks = chunks[: len(chunks) * 3 // 4]
