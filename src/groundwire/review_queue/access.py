"""Who may decide beside the owner: nobody, unless a tenant's delegated reviewers are named (C-28)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping

Grants = Mapping[str, Collection[str]]
"""Tenant id -> ids of its delegated reviewers."""

Delegates = Grants | Callable[[str, str], bool | Awaitable[bool]]
"""Grants, or a function of tenant id and reviewer that says whether the role is theirs."""


class DelegatedReviewers:
    """Says who has the role.

    Args:
        delegates: None: nobody. A mapping is copied; where roles change, give a function.

    Raises:
        ValueError: it is neither, or a mapping whose values are no collections of ids.
    """

    def __init__(self, delegates: Delegates | None) -> None:
        self._ask = delegates if callable(delegates) else None
        self._grants: dict[str, frozenset[str]] = {}
        if delegates is None or self._ask:
            return
        if not isinstance(delegates, Mapping):
            raise ValueError("delegates: must be a mapping of tenants to reviewers, or a function")  # noqa: TRY004 - every bad value is a ValueError
        for tenant, reviewers in delegates.items():
            if isinstance(reviewers, (str, bytes)) or not isinstance(reviewers, Collection):
                raise ValueError(f"delegates: the reviewers of {tenant!r} must be a collection of ids")  # noqa: TRY004 - as above
            self._grants[tenant] = frozenset(reviewers)

    async def has(self, tenant_id: str, reviewer: str) -> bool:
        """Say whether a reviewer may decide every item of a tenant; only a plain True counts.

        Raises:
            Exception: whatever the function raises; then nothing is decided.
        """
        if self._ask is None:
            return reviewer in self._grants.get(tenant_id, ())
        answer = self._ask(tenant_id, reviewer)
        return (await answer if inspect.isawaitable(answer) else answer) is True
