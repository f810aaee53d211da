"""Hashes of texts in events."""

import pytest

from groundwire.messages.events import text_hash, use_hash_key


@pytest.fixture
def key():
    use_hash_key("a secret")
    yield
    use_hash_key("")


def test_a_hash_is_the_first_twelve_digits_of_sha256():
    """S1-37."""
    assert text_hash("I feel hopeless") == "8fcb07baa023"


def test_a_key_makes_other_hashes_which_nobody_can_look_up(key):
    assert text_hash("I feel hopeless") != "8fcb07baa023"
    assert len(text_hash("I feel hopeless")) == 12
