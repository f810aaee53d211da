"""Ids and fingerprints, computed here from the contract's words and not with the code's functions."""

import hashlib
import json
import uuid

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from groundwire.messages.base import canonical_json
from groundwire.messages.decisions import Kind
from groundwire.messages.decode import decode_claim
from groundwire.messages.identity import (
    Subject,
    decision_id,
    event_id,
    fingerprint,
    provisional_id,
    request_id,
    retraction_id,
)
from groundwire.messages.topics import TopicName, record_key
from tests.unit.gate.world import claim_bytes

IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(IDS, IDS, IDS, st.integers(1, 1000))
def test_ids_are_name_based_uuids_of_the_contracts_lists_and_fixed_for_ever(tenant, user, name, revision):
    namespace = uuid.uuid5(uuid.NAMESPACE_URL, "urn:groundwire:decision")

    def uuid_of(*parts):
        return str(uuid.uuid5(namespace, rfc8785.dumps(list(parts)).decode()))

    for kind in Kind:
        subject = Subject(tenant, user, kind, name)
        found = decision_id(subject, revision)
        assert found == uuid_of(tenant, user, kind.value, name, revision)
        assert retraction_id(found) == uuid_of(found, "retraction")
        assert request_id(found) == uuid_of(found, "regenerate")
        provisional = provisional_id(subject, ("t.claims", 3, 42), "ab" * 32, "0.1.0")
        place = (0, "t.claims", 3, 42, "ab" * 32, "0.1.0")
        assert provisional == uuid_of(tenant, user, kind.value, name, *place)
        assert event_id("dead_letter", ["t.claims", 3, 42]) == uuid_of("dead_letter", ["t.claims", 3, 42])
    who = Subject("acme", "ada", Kind.CLAIM, "c1")
    assert decision_id(who, 1) == "1b7f7b9c-68a6-5de3-8ba6-13c46b31aa38"


@given(st.lists(IDS, min_size=6, max_size=6))
def test_no_choice_of_ids_imitates_another_subject(names):
    one, other = Subject(names[0], names[1], Kind.CLAIM, names[2]), Subject(*names[3:5], Kind.CLAIM, names[5])
    assert (one == other) == (one.digest == other.digest)
    assert Subject("a", "bc", Kind.CLAIM, "d").digest != Subject("ab", "c", Kind.CLAIM, "d").digest


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**54), 2**54) | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    )
)
@example({"\ue000": 1, "\U0001f600": 2, 'a\x7f\x1f\u2028"\\/': "\x00\b\f\n\r\t\x1f\x7f\u2028é漢😀"})
@example([2**53 - 1, 1 - 2**53, True, 1.0, -0.0, 1e21])
@example([2**53])
def test_the_canonical_form_is_that_of_rfc_8785(value):
    try:
        expected = rfc8785.dumps(value)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011 - its words are the library's
            canonical_json(value)
    else:
        assert canonical_json(value) == expected


def test_a_fingerprint_is_the_hash_of_the_canonical_json_of_what_decides():
    def print_of(**fields):
        return fingerprint(decode_claim(claim_bytes(**fields)))

    decisive = {
        "claim_id": "c1",
        "tenant_id": "default",
        "user_id": "ada",
        "content": "Größe 漢",
        "memory_type": "fact",
        "source": "ai_synthesis",
        "source_id": None,
        "validity_horizon": "2026-01-01T00:00:00Z",
        "derived_from": ["p"],
    }
    expected = hashlib.sha256(
        json.dumps(decisive, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    ).hexdigest()
    sent = {"content": "Größe 漢", "validity_horizon": "2026-01-01T01:00:00+01:00", "derived_from": ["p"]}
    assert print_of(**sent) == expected
    # metadata, times of sending and spelt-out defaults do not decide
    for fields in [
        {"metadata": {"try": 2}, "captured_at": "2026-01-01T00:00:00Z", "schema_version": "1.0"},
        {"tenant_id": "default", "source": "ai_synthesis", "derived_from": [], "source_id": None},
        {"memory_type": "fact"},
    ]:
        assert print_of(**fields) == print_of()
    every_other = [
        {"claim_id": "c2"},
        {"tenant_id": "acme"},
        {"user_id": "bob"},
        {"content": "The API returns JSON "},
        {"memory_type": "decision"},
        {"source": "user"},
        {"source_id": ""},
        {"validity_horizon": "2027-01-01T00:00:00Z"},
        {"derived_from": ["a", "b"]},
        {"derived_from": ["b", "a"]},
    ]
    assert len({print_of(**fields) for fields in [{}, *every_other]}) == 1 + len(every_other)


def test_keys_are_tenant_and_user_and_topics_are_the_contracts():
    assert record_key("acme", "ada") == b"acme:ada"
    topics = """
    claims llm-responses review-decisions deferred approved review blocked retractions regenerate audit heads
    dead-letter
    """
    assert {str(name) for name in TopicName} == set(topics.split())
