"""Who sees and decides what: the owner, and reviewers delegated for a tenant (S0-131, S0-132, C-28)."""

from __future__ import annotations

from dataclasses import dataclass

from groundwire.keys.attestation import Keys


@dataclass(frozen=True, slots=True)
class Person:
    """An authenticated identity.

    `name`: compared character by character with `user_id` and the delegated reviewers. `read_only`: the console refuses
    the person's actions before any handler runs.
    """

    name: str
    tenants: frozenset[str]
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ViewScope:
    """What a person sees and, unless read-only, decides: `whole` tenants, and their own items in `own` tenants."""

    person: str
    whole: frozenset[str]
    own: frozenset[str]

    def sees(self, tenant_id: str, user_id: str) -> bool:
        return tenant_id in self.whole or (tenant_id in self.own and user_id == self.person)


class Permissions:
    """Derives rights from an identity and the keys file, never from what a request says."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def scope(self, person: Person) -> ViewScope:
        """Return what a person sees now; the reviews agent checks the right to decide again by its own keys file."""
        whole = frozenset(tenant for tenant in person.tenants if self._keys.delegated(tenant, person.name))
        return ViewScope(person.name, whole, person.tenants - whole)
