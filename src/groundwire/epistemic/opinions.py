"""Asks a model about claims: with the evidence, and without it to see whether the evidence matters (S4-20)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from groundwire.epistemic.asking import Reply, ask
from groundwire.epistemic.budget import Purse
from groundwire.epistemic.claims import UNAVAILABLE, UNPARSEABLE, Draft, Opinion
from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.facts import Asked
from groundwire.epistemic.model import Client, ModelFault
from groundwire.epistemic.prompts import Prompt, prior_prompt, support_prompt
from groundwire.epistemic.replies import Judgement, together
from groundwire.epistemic.types import ModelCall

__all__ = ["Asked", "opinions"]

_T = TypeVar("_T")
_CUT_SHORT: Final = frozenset({"unparseable", "truncated"})


async def opinions(
    drafts: Sequence[Draft], evidence: Sequence[Mapping[str, str]], client: Client, config: VerificationConfig
) -> dict[str, Asked]:
    """Return claim id -> what a model said of it, in the order of the claims (S4-34).

    Args:
        drafts: the claims of one response to ask about.
        evidence: for each, id -> text.
        client: the model.
        config: model, limits, whether to ask at the same time.
    """
    purse = Purse(config)
    jobs = [
        _opinion(draft, texts, client, config, purse) for draft, texts in zip(drafts, evidence, strict=True)
    ]
    found = await _all(jobs, config)
    return {draft.claim_id: asked for draft, asked in zip(drafts, found, strict=True)}


async def _opinion(
    draft: Draft, evidence: Mapping[str, str], client: Client, config: VerificationConfig, purse: Purse
) -> Asked:
    try:
        prompts = [support_prompt(draft.text, evidence)]
        if config.evidence_scrubbing:
            prompts.append(prior_prompt(draft.text))
    except ModelFault as fault:
        none = ModelCall(claim_id=draft.claim_id, kind="support", requests=0, fault=fault.code)
        return Asked(Opinion(fault=UNAVAILABLE), (none,))
    jobs = [
        ask(client, prompt, config, claim_id=draft.claim_id, purse=purse, sample=sample)
        for prompt in prompts
        for sample in range(config.samples)
    ]
    replies = await _all(jobs, config)
    support = _agreed(replies[: config.samples])
    prior = _agreed(replies[config.samples :])
    return Asked(_read(draft, prompts[0], support, prior, replies), tuple(reply.call for reply in replies))


def _agreed(replies: Sequence[Reply]) -> Judgement | None:
    """Return what several answers to a question say together; those that do not count say nothing."""
    judgements = [reply.judgement for reply in replies if reply.judgement is not None]
    return together(judgements) if judgements else None


def _read(
    draft: Draft, prompt: Prompt, said: Judgement | None, prior: Judgement | None, replies: Sequence[Reply]
) -> Opinion:
    fault = next((_fault(reply) for reply in replies if reply.call.fault is not None), "")
    before = prior.support if prior else None
    if said is None:
        return Opinion(None, before, fault or UNAVAILABLE)
    # one that has not seen all of the evidence can only lower a verdict
    support = min(said.support, draft.support) if prompt.is_cut else said.support
    return Opinion(support, before, fault, said.verdict, said.reason)


async def _all(jobs: Sequence[Coroutine[Any, Any, _T]], config: VerificationConfig) -> list[_T]:
    if config.parallel_verification:
        return list(await asyncio.gather(*jobs))
    return [await job for job in jobs]


def _fault(reply: Reply) -> str:
    return UNPARSEABLE if reply.call.fault in _CUT_SHORT else UNAVAILABLE
