"""Which of many quotes stand in a source: two ways, one answer (S1-16)."""

import time

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks import quote_search
from groundwire.checks.quote_search import standing

words = st.text(alphabet="aab\u0301𝟗", min_size=1, max_size=6)


@given(st.lists(words), st.text(alphabet="aab\u0301𝟗", max_size=40))
def test_looking_for_all_at_once_finds_what_looking_for_each_finds(quotes, source):
    at_once = quote_search._at_once(list(dict.fromkeys(quotes)), source)
    assert at_once == {quote for quote in quotes if quote in source}
    assert dict(standing(quotes, source)) == {quote: quote in source for quote in quotes}


def test_each_different_quote_is_told_once():
    assert list(standing(["a", "b", "a"], "a")) == [("a", True), ("b", False)]


def test_very_many_quotes_take_time_in_proportion_to_the_text():
    def seconds(count):
        quotes, source = [f"1{number * 7919 + 10**6:x}" for number in range(count)], "1" * 6 * count
        start = time.process_time()
        found = dict(standing(quotes, source))
        assert not any(found.values())
        return time.process_time() - start

    assert seconds(40_000) < 8 * 3 * max(seconds(5_000), 0.01)
