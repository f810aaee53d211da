"""The checkpoint behind a generator: skip, flag, retry, ask (S4-26..S4-42, S4-60, C-60)."""

import pytest

from groundwire.epistemic.types import VerificationConfig
from groundwire.library.epistemic import verify_response

CONTEXT = {"a": "The gateway retries failed requests 3 times and waits 30 seconds between attempts."}
GOOD = (
    "The gateway retries failed requests 3 times and waits 30 seconds between attempts. It waits 30 seconds."
)
BAD = (
    "The gateway retries failed requests 9 times and waits 30 seconds between attempts. It waits 30 seconds."
)


class Counting:
    def __init__(self):
        self.calls = 0

    async def complete(self, prompt, *, model):  # noqa: ARG002 - the port names its arguments
        self.calls += 1
        return "0.9"


class Generator:
    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def __call__(self, query, flagged):
        self.asked.append((query, [claim.claim_text for claim in flagged]))
        return self.answers.pop(0)


async def test_what_is_skipped_comes_back_as_it_is_without_a_model_call():
    for query, answer, context, options, why in [
        ("q", None, CONTEXT, {}, "no_answer"),
        ("q", " ", CONTEXT, {}, "no_answer"),
        ("q", BAD, CONTEXT, {"enabled": False}, "disabled"),
        ("/simple q", BAD, CONTEXT, {}, "bypassed"),
        ("q", BAD, {}, {}, "no_evidence"),
    ]:
        client, generator = Counting(), Generator()
        config = VerificationConfig(model_scope="all", mode="full", on_failure="retry", **options)
        found = await verify_response(
            query, answer, context, client=client, config=config, regenerate=generator
        )
        assert (found.answer, found.report, found.retries, found.skipped) == (answer, None, 0, why)
        assert (client.calls, generator.asked) == (0, [])


async def test_a_short_answer_is_checked_by_the_rules_alone():
    client = Counting()
    found = await verify_response(
        "q",
        "It retries 9 times.",
        CONTEXT,
        client=client,
        config=VerificationConfig(model_scope="all", mode="full"),
    )
    assert (found.skipped, client.calls, found.report.flagged_claims) == ("too_short", 0, 1)


async def test_flagged_claims_are_annotated_where_they_stand():
    found = await verify_response("q", BAD, CONTEXT)
    first, rest = BAD.split(". ", 1)
    assert found.answer == f"{first}. [contradicted] {rest}"
    assert (await verify_response("q", GOOD, CONTEXT)).answer == GOOD


async def test_another_answer_is_asked_for_with_the_flagged_claims_until_one_holds():
    generator = Generator(BAD, GOOD)
    config = VerificationConfig(on_failure="retry")
    found = await verify_response("q", BAD, CONTEXT, config=config, regenerate=generator)
    assert (found.answer, found.retries, found.report.has_critical_gaps) == (GOOD, 2, False)
    assert generator.asked == [("q", [BAD[: BAD.index(" It")]])] * 2


async def test_retries_end_at_their_limit_and_the_last_answer_is_annotated():
    """S4-31."""
    generator = Generator(BAD, BAD, GOOD)
    found = await verify_response(
        "q", BAD, CONTEXT, config=VerificationConfig(on_failure="retry"), regenerate=generator
    )
    assert (found.retries, len(generator.answers)) == (2, 1)
    assert "[contradicted]" in found.answer


async def test_under_ask_the_answer_is_left_to_a_person():
    found = await verify_response("q", BAD, CONTEXT, config=VerificationConfig(on_failure="ask"))
    assert (found.answer, found.report.flagged_claims) == (BAD, 1)


def test_defaults_are_the_published_ones():
    config = VerificationConfig()
    assert (config.enabled, config.support_threshold, config.dependence_threshold) == (True, 0.7, 0.3)
    assert (config.gap_threshold_bits, config.on_failure, config.max_retries) == (2.0, "flag", 2)
    assert (config.verification_model, config.max_claims_per_response) == ("haiku", 10)
    assert (config.parallel_verification, config.mode, config.sample_rate) == (True, "sample", 0.3)


def test_a_setting_out_of_range_or_unknown_is_refused():
    for wrong in [{"support_threshold": 1.1}, {"on_failure": "block"}, {"sample_rate": -1}, {"unknown": 1}]:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            VerificationConfig(**wrong)
