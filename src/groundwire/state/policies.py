"""Stores effective policies by SHA-256, in a folder of the deployment and in state."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Protocol

import structlog

from groundwire.errors import StateUnavailable, UsageError
from groundwire.policy import Policy, load_policy, parse_policy

log = structlog.get_logger()


class PolicyKeeper(Protocol):
    """Stores policies besides the folder."""

    async def put_policy(self, sha256: str, policy: bytes) -> None:
        """Store a policy. Raises: StateUnavailable."""

    async def get_policy(self, sha256: str) -> bytes | None:
        """Return a policy or None. Raises: StateUnavailable."""
        ...


class PoliciesInState:
    """Reads policies that workers have stored, for a command that needs no state: one that is away has none."""

    def __init__(self, keeper: PolicyKeeper) -> None:
        self._keeper: PolicyKeeper | None = keeper

    async def put_policy(self, sha256: str, policy: bytes) -> None:
        """Store nothing."""

    async def get_policy(self, sha256: str) -> bytes | None:
        try:
            return await self._keeper.get_policy(sha256) if self._keeper else None
        except StateUnavailable as exc:
            log.warning("policy.state_away", error=str(exc), hint="--policies DIR names a folder of policies")
            self._keeper = None  # each further one would be waited for as long
            return None


class PolicyStore:
    """Finds the policies that decisions name, in a folder of `<sha256>.json` and in state."""

    def __init__(self, folder: Path | None, keeper: PolicyKeeper | None) -> None:
        self._folder = folder
        self._keeper = keeper
        self._known: dict[str, Policy] = {}

    async def put(self, policy: Policy) -> None:
        """Store a policy everywhere. Raises: UsageError: the folder is not writable; StateUnavailable."""
        self.put_in_folder(policy)
        if self._keeper is not None:
            await self._keeper.put_policy(policy.sha256, policy.canonical)

    def put_in_folder(self, policy: Policy) -> None:
        """Store a policy in the folder. Raises: UsageError: it is not writable."""
        self._known[policy.sha256] = policy
        if self._folder is not None:
            path = self._folder / f"{policy.sha256}.json"
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                if not path.exists():
                    with NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
                        file.write(policy.canonical)
                    Path(file.name).replace(path)
            except OSError as exc:
                raise UsageError(f"GROUNDWIRE_POLICIES_DIR: {exc}") from None

    async def get(self, sha256: str) -> Policy | None:
        """Return a policy, or None. Raises: StateUnavailable: its absence cannot be confirmed."""
        if sha256 in self._known or not re.fullmatch(r"[0-9a-f]{64}", sha256):
            return self._known.get(sha256)
        path = self._folder / f"{sha256}.json" if self._folder else None
        policy = None
        try:
            policy = load_policy(path, {}) if path is not None and path.exists() else None
        except UsageError as exc:
            log.warning("policy.unreadable", sha256=sha256, error=str(exc))
        if self._keeper is not None and (policy is None or policy.sha256 != sha256):
            data = await self._keeper.get_policy(sha256)
            try:
                policy = parse_policy(data) if data else None
            except UsageError as exc:
                log.warning("policy.unreadable", sha256=sha256, error=str(exc))
                return None
        if policy is None or policy.sha256 != sha256:
            return None
        self._known[sha256] = policy
        return policy


class KnownPolicies:
    """Policies in memory, then those of a store."""

    def __init__(self, policies: Iterable[Policy], others: PolicyStore) -> None:
        self._policies = {policy.sha256: policy for policy in policies}
        self._others = others

    async def get(self, sha256: str) -> Policy | None:
        return self._policies.get(sha256) or await self._others.get(sha256)
