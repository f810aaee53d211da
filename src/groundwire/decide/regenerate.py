"""The request for another answer that a weak one brings: a grounded prompt, at most one mode lower."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from groundwire.checks.prompts import grounded_prompt
from groundwire.decide.response_claims import evidence_of
from groundwire.decide.response_reading import found
from groundwire.decide.responses import ResponseCase
from groundwire.messages.audit import RegenerateRequest
from groundwire.messages.decisions import Decision
from groundwire.messages.identity import request_id
from groundwire.messages.responses import Chunk, LlmResponse

MAX_BYTES: Final = 950_000
"""Of a request: it has to fit on its topic whatever characters the chunks hold."""

_MAX_FLAGGED: Final = 100
_MAX_CHARACTERS: Final = 500


def regenerate_request(case: ResponseCase, decision: Decision) -> RegenerateRequest | None:
    """Return the request that a response's decision brings, if any; the same decision gives the same one.

    Where the chunks and claims do not fit into the prompt, the last of them are left out.
    """
    asked = case.regeneration
    if asked is None:
        return None
    query = case.response.query
    claims = found(case.reading.claims)
    unsupported = [claim.claim_text[:_MAX_CHARACTERS] for claim in claims.flagged] if claims else []
    warnings = (warning.message[:_MAX_CHARACTERS] for warning in case.warnings)
    flagged = [*islice((*unsupported, *warnings), _MAX_FLAGGED)]
    chunks, named = _sources(case.response), unsupported[:_MAX_FLAGGED]
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
            prompt=grounded_prompt(query or "", chunks, unsupported=named),
            flagged=flagged,
        )
        if not (chunks or named) or len(request.model_dump_json().encode()) <= MAX_BYTES:
            return request
        chunks, named = chunks[: len(chunks) * 3 // 4], named[: len(named) * 3 // 4]


def _sources(response: LlmResponse) -> Sequence[Chunk]:
    """Return what an answer can be grounded on: the chunks; where there are none, the spans of the context."""
    if response.chunks is not None:
        return response.chunks
    return [
        Chunk(chunk_id=name, file=name, content=text, start_line=1, end_line=text.count("\n") + 1)
        for name, text in evidence_of(response).items()
    ]
