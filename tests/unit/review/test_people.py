"""Who may see and decide what."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from groundwire.attestation import Keys
from groundwire.review.people import Permissions, Person

KEYS = Keys.parse(b'[reviewers]\nacme = ["lead"]\nglobex = ["lead", "ann"]\n', Path("keys.toml"))
PERMISSIONS = Permissions(KEYS)
people = st.builds(
    lambda name, tenants: Person(name, frozenset(tenants)),
    st.sampled_from(["ann", "lead", "Lead", "eve", ""]),
    st.sets(st.sampled_from(["acme", "globex", "initech"])),
)


@given(
    people, st.sampled_from(["acme", "globex", "initech", "other"]), st.sampled_from(["ann", "lead", "bob"])
)
def test_only_the_owner_or_who_is_delegated_decides_and_only_in_the_persons_tenants(
    person, tenant, user
) -> None:
    expected = tenant in person.tenants and (user == person.name or KEYS.delegated(tenant, person.name))
    assert PERMISSIONS.may_decide(person, tenant, user) == expected
    assert PERMISSIONS.scope(person).sees(tenant, user) == expected


def test_who_may_only_look_sees_as_much_and_decides_nothing() -> None:
    person = Person("lead", frozenset({"acme"}))
    looking = Person("lead", frozenset({"acme"}), read_only=True)
    assert PERMISSIONS.scope(looking) == PERMISSIONS.scope(person)
    assert PERMISSIONS.may_decide(person, "acme", "bob")
    assert not PERMISSIONS.may_decide(looking, "acme", "bob")
    assert not PERMISSIONS.may_decide(looking, "acme", "lead")


def test_delegation_in_one_tenant_is_none_in_another() -> None:
    scope = PERMISSIONS.scope(Person("ann", frozenset({"acme", "globex"})))
    assert (scope.whole, scope.own) == ({"globex"}, {"acme"})
