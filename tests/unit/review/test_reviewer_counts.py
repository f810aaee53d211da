"""What each reviewer decided, and how far they agree with others, as counting everything by hand gives it."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from groundwire.review.permissions import ViewScope
from tests.unit.review.world import ADMIN, NOW, decision, filled, reviewed

PEOPLE = ("ann", "ben", "eve")
ACTIONS = ("approve", "edit", "reject", "expire")
SINCE_MINUTES = 60
done = st.tuples(st.sampled_from(PEOPLE), st.sampled_from(ACTIONS), st.integers(1, 120))
opinions = st.dictionaries(st.sampled_from(PEOPLE), st.sampled_from(["approve", "reject"]))


@settings(max_examples=60, deadline=None)
@given(st.lists(done, max_size=12), st.lists(opinions, max_size=5))
def test_decided_and_agreement_are_what_counting_by_hand_gives(decisions, judged) -> None:
    made = []
    for number, (person, action, age) in enumerate(decisions):
        made += [decision(f"c{number}", age=200), reviewed(f"c{number}", action, reviewer=person, age=age)]
    samples = [decision(f"s{number}", verdict="approved") for number in range(len(judged))]
    board = filled(*made, *samples)
    for sample, said in zip(samples, judged, strict=True):
        for person, opinion in said.items():
            scope = ViewScope(person, ADMIN.whole, ADMIN.own)
            assert board.record_opinion(scope, sample.decision_id, opinion)
    since = NOW.replace(hour=NOW.hour - SINCE_MINUTES // 60)
    found = {one.name: one for one in board.by_reviewer(ADMIN, since)}

    counted = Counter(
        person for person, action, age in decisions if action != "expire" and age <= SINCE_MINUTES
    )
    pairs = [(said[one] == said[other], one) for said in judged for one, other in permutations(said, 2)]
    for name in PEOPLE:
        by_hand = (
            counted[name],
            sum(same for same, one in pairs if one == name),
            sum(one == name for _, one in pairs),
        )
        one = found.get(name)
        assert by_hand == ((one.decided, one.agreed, one.compared) if one else (0, 0, 0))
