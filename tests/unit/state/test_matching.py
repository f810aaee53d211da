"""Which matches are reported, and which decide."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.dedup.signature import Difference, Thresholds
from groundwire.messages.decisions import Kind as SubjectKind
from groundwire.messages.decisions import MatchClass
from groundwire.messages.identity import Subject
from groundwire.state.matching import Indexed, Match, MatchKind, choose, kind_of
from groundwire.state.model import MatchRules


def rules(material) -> MatchRules:
    return MatchRules(Thresholds(7500, 7000, 6000), material)


@st.composite
def matches(draw) -> list[Match]:
    found = []
    for number in range(draw(st.integers(0, 12))):
        who = Subject("acme", "ada", SubjectKind.CLAIM, draw(st.sampled_from("abcdé")))
        indexed = Indexed(number, who, draw(st.sampled_from(MatchClass)), draw(st.integers(0, 2)), 0, b"")
        inter = draw(st.integers(1, 4))
        found.append(Match(indexed, inter, draw(st.integers(inter, 5)), draw(st.sampled_from(Difference))))
    return draw(st.permutations(found))


@given(found=matches(), material=st.booleans())
def test_at_most_five_are_reported_nearest_first(found, material):
    kept, _ = choose(found, rules(material))
    assert len(kept) == min(5, len(found))
    ratios = [match.inter / match.union for match in kept]
    assert ratios == sorted(ratios, reverse=True)


@given(found=matches(), material=st.booleans())
def test_the_nearest_of_each_kind_decides_and_is_reported(found, material):
    kept, best = choose(found, rules(material))
    for kind in MatchKind:
        of_kind = [match for match in found if kind_of(match.fact(), rules(material)) is kind]
        assert (kind in best) == bool(of_kind)
        if of_kind:
            assert best[kind] in kept
            assert best[kind].rank == min(match.rank for match in of_kind)


@given(found=matches(), material=st.booleans(), data=st.data())
def test_the_order_in_which_matches_were_found_makes_no_difference(found, material, data):
    shuffled = data.draw(st.permutations(found))
    assert choose(found, rules(material)) == choose(shuffled, rules(material))


@given(found=matches())
def test_without_material_difference_nothing_is_a_conflict(found):
    _, best = choose(found, MatchRules(Thresholds(7500), material_difference=False))
    assert MatchKind.CONFLICT not in best


@given(found=matches())
def test_of_matches_equally_near_the_approved_stand_first(found):
    kept, _ = choose(found, rules(material=True))
    for first, second in pairwise(kept):
        if first.inter * second.union == second.inter * first.union:
            approved = [match.indexed.match_class is MatchClass.APPROVED for match in (first, second)]
            assert approved != [False, True]
