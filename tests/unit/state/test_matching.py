"""Which matches are reported, and which decide."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.dedup.signature import Difference, Thresholds
from groundwire.messages.decisions import Kind, MatchClass
from groundwire.messages.identity import Subject
from groundwire.state.matching import Indexed, Match, MatchKind, choose, kind_of
from groundwire.state.model import MatchRules


@st.composite
def matches(draw) -> list[Match]:
    found = []
    for number in range(draw(st.integers(0, 12))):
        who = Subject("acme", "ada", Kind.CLAIM, draw(st.sampled_from("abcdé")))
        indexed = Indexed(number, who, draw(st.sampled_from(MatchClass)), draw(st.integers(0, 2)), 0, b"")
        inter = draw(st.integers(1, 4))
        found.append(Match(indexed, inter, draw(st.integers(inter, 5)), draw(st.sampled_from(Difference))))
    return draw(st.permutations(found))


@given(found=matches(), material=st.booleans(), data=st.data())
def test_five_are_reported_nearest_first_with_the_nearest_of_each_kind_that_decides(found, material, data):
    rules = MatchRules(Thresholds(7500, 7000, 6000), material)
    kept, best = choose(found, rules)
    assert (kept, best) == choose(data.draw(st.permutations(found)), rules), (
        "in whichever order they are found"
    )
    assert len(kept) == min(5, len(found))
    ratios = [match.inter / match.union for match in kept]
    assert ratios == sorted(ratios, reverse=True)
    for kind in MatchKind:
        of_kind = [match for match in found if kind_of(match.fact(), rules) is kind]
        assert (kind in best) == bool(of_kind)
        if of_kind:
            assert best[kind] in kept
            assert best[kind].rank == min(match.rank for match in of_kind)
    assert material or MatchKind.CONFLICT not in best
    for first, second in pairwise(kept):
        if first.inter * second.union == second.inter * first.union:
            approved = [match.indexed.match_class is MatchClass.APPROVED for match in (first, second)]
            assert approved != [False, True], "of equally near ones the approved come first"
