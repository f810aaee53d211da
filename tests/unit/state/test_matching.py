"""Which matches are reported, and which decide."""

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.difference import Difference
from groundwire.messages.decisions import Kind as SubjectKind
from groundwire.messages.decisions import MatchClass
from groundwire.messages.identity import Subject
from groundwire.state.matching import Indexed, Kind, Match, choose


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
    kept, _ = choose(found, material_difference=material)
    assert len(kept) == min(5, len(found))
    ratios = [match.inter / match.union for match in kept]
    assert ratios == sorted(ratios, reverse=True)


@given(found=matches(), material=st.booleans())
def test_the_nearest_of_each_kind_decides_and_is_reported(found, material):
    kept, best = choose(found, material_difference=material)
    for kind in Kind:
        of_kind = [match for match in found if match.kind(material_difference=material) is kind]
        assert (kind in best) == bool(of_kind)
        if of_kind:
            assert best[kind] in kept
            assert best[kind].rank == min(match.rank for match in of_kind)


@given(found=matches(), material=st.booleans(), data=st.data())
def test_the_order_in_which_matches_were_found_makes_no_difference(found, material, data):
    shuffled = data.draw(st.permutations(found))
    assert choose(found, material_difference=material) == choose(shuffled, material_difference=material)


@given(found=matches())
def test_without_material_difference_nothing_is_a_conflict(found):
    _, best = choose(found, material_difference=False)
    assert Kind.CONFLICT not in best
