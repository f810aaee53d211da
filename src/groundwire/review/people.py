"""Who may see and decide what: the owner, and whoever is delegated for a tenant (S0-131, S0-132, C-28)."""

from __future__ import annotations

from dataclasses import dataclass

from groundwire.attestation import Keys


@dataclass(frozen=True, slots=True)
class Person:
    """An authenticated identity.

    Attributes:
        name: as `user_id` and the lists of delegated reviewers write it; compared character by character.
        tenants: those that the person was let in for.
        read_only: whether the person may look and not decide, whatever else holds.
    """

    name: str
    tenants: frozenset[str]
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Scope:
    """What a person sees. Everything else is, for them, as if it did not exist.

    Attributes:
        person: whose view it is.
        whole: tenants of which everything is seen.
        own: tenants of which only the person's own items are seen.
    """

    person: str
    whole: frozenset[str]
    own: frozenset[str]

    def sees(self, tenant_id: str, user_id: str) -> bool:
        """Say whether an item of this owner is seen."""
        return tenant_id in self.whole or (tenant_id in self.own and user_id == self.person)


class Permissions:
    """Derives rights from an identity and the keys file, and from nothing that a request says."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def may_decide(self, person: Person, tenant_id: str, user_id: str) -> bool:
        """Say whether a person may decide the items of `user_id`; the agent checks it again."""
        return not person.read_only and self.scope(person).sees(tenant_id, user_id)

    def scope(self, person: Person) -> Scope:
        """Return what a person sees: what they may decide, were it not for `read_only`."""
        whole = frozenset(tenant for tenant in person.tenants if self._keys.delegated(tenant, person.name))
        return Scope(person.name, whole, person.tenants - whole)
