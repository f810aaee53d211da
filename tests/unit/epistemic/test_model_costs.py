"""What verification costs beside the response (S4-66, S4-69, C-66)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.epistemic.model import Model, ModelAnswer, cost_report
from groundwire.epistemic.types import ModelCall, VerificationConfig
from groundwire.library.epistemic import detect_hallucinations

calls = st.builds(
    ModelCall,
    claim_id=st.just("c"),
    kind=st.sampled_from(["support", "prior", "answer"]),
    cached=st.booleans(),
    input_tokens=st.integers(0, 10_000),
    output_tokens=st.integers(0, 10_000),
    cost_usd=st.floats(0, 1),
    requests=st.integers(0, 9),
    fault=st.sampled_from([None, "timeout"]),
)


class Judge(Model):
    async def answer(self, request):
        verdict = "supported" if "evidence" in request.prompt else "true"
        return ModelAnswer(
            f'{{"verdict": "{verdict}", "probability": 0.9, "reason": "{"it is stated there " * 3}"}}'
        )


@given(st.lists(calls, max_size=20))
def test_lines_add_up_to_the_total_and_name_each_kind_once(made):
    report = cost_report(made, base_usd=1)
    for place, total in enumerate(report.total[1:], start=1):
        assert sum(line[place] for line in report.lines) == pytest.approx(total)
    assert sorted({call.kind for call in made}) == sorted(line.kind for line in report.lines)
    assert report.share == report.total.cost_usd


def test_a_response_that_cost_nothing_has_no_share_and_less_than_nothing_is_refused():
    assert cost_report([], base_usd=0).share is None
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="base_usd"):
            cost_report([], base_usd=wrong)


def test_in_sample_mode_a_small_model_costs_less_than_a_tenth_of_a_response_of_a_large_one():
    """The response: 5 chunks of 1,500 characters and 10 sentences of 100, at 3 and 15 dollars a million tokens.

    Of its prompt only the chunks are counted (S4-66).
    """
    said = "The part {} of the gateway waits {} seconds before it asks again, and gives up after the third answer."
    chunks = {f"chunk {part}": "\n".join([said.format(part, part)] * 15) for part in range(5)}
    answer = " ".join(said.format(number % 5, number % 5) for number in range(10))
    base = (sum(map(len, chunks.values())) / 4 * 3 + len(answer) / 4 * 15) / 1e6
    made = []
    for seed in range(20):
        config = VerificationConfig(model_scope="all", sample_seed=str(seed))
        made += detect_hallucinations(answer, chunks, client=Judge(), config=config).calls
    report = cost_report(made, base_usd=base * 20)
    assert report.total.questions > 60
    assert 0 < report.share < 0.1
