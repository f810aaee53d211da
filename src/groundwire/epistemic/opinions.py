"""Asks a model about claims: with the evidence, and without it to see whether the evidence matters (S4-20)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from groundwire.epistemic.claims import UNAVAILABLE, UNPARSEABLE, Draft, Opinion
from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.model import Client, Reply, ask
from groundwire.epistemic.prompts import parse_score, prior_prompt, support_prompt
from groundwire.epistemic.types import ModelCall

_T = TypeVar("_T")


class Asked(NamedTuple):
    """What a model said of a claim, and what that cost."""

    opinion: Opinion
    calls: tuple[ModelCall, ...]


async def opinions(
    drafts: Sequence[Draft], evidence: Sequence[Mapping[str, str]], client: Client, config: VerificationConfig
) -> dict[str, Asked]:
    """Return claim id -> what a model said of it, in the order of the claims (S4-34).

    Args:
        drafts: the claims to ask about.
        evidence: for each, id -> text.
        client: the model.
        config: model, time limit, whether to ask at the same time.
    """
    jobs = [_opinion(draft, texts, client, config) for draft, texts in zip(drafts, evidence, strict=True)]
    found = await _all(jobs, config)
    return {draft.claim_id: asked for draft, asked in zip(drafts, found, strict=True)}


async def _opinion(
    draft: Draft, evidence: Mapping[str, str], client: Client, config: VerificationConfig
) -> Asked:
    jobs = [
        ask(client, support_prompt(draft.text, evidence), config, claim_id=draft.claim_id, kind="support")
    ]
    if config.evidence_scrubbing:
        jobs.append(ask(client, prior_prompt(draft.text), config, claim_id=draft.claim_id, kind="prior"))
    replies = await _all(jobs, config)
    scores = [parse_score(reply.text) for reply in replies]
    support, prior = scores[0], scores[1] if len(scores) > 1 else None
    fault = next((_fault(reply) for reply, score in zip(replies, scores, strict=True) if score is None), "")
    return Asked(Opinion(support, prior, fault), tuple(reply.call for reply in replies))


async def _all(jobs: Sequence[Coroutine[Any, Any, _T]], config: VerificationConfig) -> list[_T]:
    if config.parallel_verification:
        return list(await asyncio.gather(*jobs))
    return [await job for job in jobs]


def _fault(reply: Reply) -> str:
    return UNAVAILABLE if reply.text is None else UNPARSEABLE
