"""Reasoning traces: claims, their evidence, and what verification made of them (S4-48..S4-54, S4-59, C-69)."""

import sqlite3

import pytest

from groundwire.library.traces import STEPS, ReasoningTraces, migrate, version

FACT = "The gateway retries failed requests 3 times."


@pytest.fixture
def traces():
    made = ReasoningTraces()
    yield made
    made.close()


def test_types_and_labels_are_the_published_ones_and_a_node_or_claim_of_which_a_part_is_wrong_leaves_no_trace(
    traces,
):
    assert {"goal", "claim", "verification", "observation"} < traces.VALID_DECISION_TYPES
    assert len(traces.VALID_DECISION_TYPES) == 8
    assert frozenset({"cites", "verifies", "refutes"}) == traces.EDGE_LABELS
    with pytest.raises(ValueError, match="decision_type"):
        traces.add_node("thought", "x")
    with pytest.raises(KeyError):
        traces.add_node("goal", "x", "nowhere")
    assert traces.nodes() == []
    goal = traces.add_node("goal", "find out")
    for confidence in [-0.1, 1.1, True, float("nan")]:
        with pytest.raises(ValueError, match="confidence"):
            traces.add_claim(goal, "x", [], confidence)
    with pytest.raises(KeyError):
        traces.add_claim("nowhere", "x", [])
    assert len(traces.nodes()) == 1


def test_a_claim_hangs_below_its_decision_and_cites_its_evidence(traces):
    goal = traces.add_node("goal", "find out")
    fact = traces.add_node("observation", FACT, goal)
    claim = traces.add_claim(goal, "It retries 3 times.", [fact, "nowhere", fact], confidence=0.8)
    assert [node["type"] for node in traces.nodes()] == ["goal", "observation", "claim"]
    assert traces.edges() == [
        {"source": claim, "target": fact, "label": "cites"},
        {"source": claim, "target": "nowhere", "label": "cites"},
    ]


def test_a_verification_verifies_or_refutes_its_claim_and_asks_the_model_by_the_name_given(traces):
    goal = traces.add_node("goal", "find out")
    fact = traces.add_node("observation", FACT, goal)
    wrong = FACT.replace("3", "5"), "contradicted", "refutes"
    for claim, reason, label in [(FACT, None, "verifies"), wrong]:
        made = traces.add_claim(goal, claim, [fact])
        found = traces.verify_claim(made)
        assert (found.claim_id, found.flag_reason) == (made, reason)
        last = traces.nodes()[-1]
        assert last["type"] == "verification"
        assert traces.edges()[-1] == {"source": last["id"], "target": made, "label": label}
    with pytest.raises(KeyError):
        traces.verify_claim(fact)
    asked = []

    class Client:
        async def complete(self, prompt, *, model):  # noqa: ARG002 - the port names its arguments
            asked.append(model)
            return "0.1"

    with_model = ReasoningTraces(client=Client())
    goal = with_model.add_node("goal", "find out")
    claim = with_model.add_claim(goal, FACT, [with_model.add_node("observation", FACT, goal)])
    assert with_model.verify_claim(claim, "large").evidence_support == 0.1
    assert asked == ["large", "large"]
    with_model.close()


def test_gaps_and_report_of_a_goal_hold_the_claims_below_it_and_no_others(traces):
    goal, other = traces.add_node("goal", "one"), traces.add_node("goal", "two")
    fact = traces.add_node("observation", FACT, goal)
    decision = traces.add_node("decision", "retry", traces.add_node("option", "retry", goal))
    wrong = traces.add_claim(decision, "The gateway retries failed requests 5 times.", [fact])
    phantom = traces.add_claim(decision, FACT, [decision])
    good = traces.add_claim(goal, FACT, [fact])
    traces.add_claim(other, "The moon is made of cheese.", [])
    traces.verify_claim(wrong)
    gaps = traces.get_epistemic_gaps(goal)
    found = [(gap.claim_id, gap.gap_type) for gap in gaps]
    assert found == [(wrong, "contradicted"), (phantom, "phantom_citation")]
    report = traces.get_verification_report(goal)
    assert (report.response_id, report.total_claims, report.flagged_claims) == (goal, 3, 2)
    assert [claim.claim_id for claim in report.claims] == [wrong, phantom, good]
    with pytest.raises(KeyError):
        traces.get_epistemic_gaps("nowhere")


def test_traces_survive_in_a_file(tmp_path):
    first = ReasoningTraces(tmp_path / "traces.db")
    goal = first.add_node("goal", "find out")
    claim = first.add_claim(goal, FACT, [])
    first.verify_claim(claim)
    report = first.get_verification_report(goal)
    first.close()
    again = ReasoningTraces(tmp_path / "traces.db")
    assert again.get_verification_report(goal) == report
    again.close()


def test_every_step_of_the_tables_goes_up_and_down_again():
    connection = sqlite3.connect(":memory:", isolation_level=None)

    def shape(target):
        migrate(connection, target)
        assert version(connection) == target
        return sorted(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL"))

    shapes = [shape(target) for target in range(len(STEPS) + 1)]
    assert [shape(target) for target in reversed(range(len(STEPS) + 1))] == shapes[::-1]
    assert shapes[0] == []
    connection.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    with pytest.raises(ValueError, match="newer"):
        migrate(connection)
    connection.close()
