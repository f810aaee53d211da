"""The set of seeded edits: what it makes of a passage, and that the verifier tells quote from edit."""

from bench.quality.edits import edits
from groundwire.checks.support.verify import check_answer

PASSAGES = [
    (
        "The bridge over the Liffey was opened in 1816 by the city. It is not closed at night for walkers. "
        "The toll of the bridge, said Watson, was dropped after 103 years."
    ),
    (
        "The railway to Howth was built by the company between 1846 and 1847. Its director, Mr. Dargan, is buried in "
        "Dublin. The trains are painted green and they leave the station every hour."
    ),
    (
        "The lighthouse on the rock is tended by keepers called Murphy and Doyle. The lamp can reach ships 28 miles "
        "away. No keeper was lost there in the storm of February."
    ),
]


def test_a_quote_stands_in_its_passage_and_its_edit_does_not():
    made = list(edits(PASSAGES))
    assert made
    assert all(edit.quote in edit.passage and edit.edited not in edit.passage for edit in made)
    assert len({edit.kind for edit in made}) > 2


def test_the_same_passages_make_the_same_edits_in_any_order():
    assert list(edits(PASSAGES)) == list(edits(reversed(PASSAGES)))


def test_the_verifier_gives_every_edit_less_support_than_its_quote():
    for edit in edits(PASSAGES):
        quote, edited = (check_answer(text, [edit.passage]).support for text in (edit.quote, edit.edited))
        assert quote == 1.0 > edited
