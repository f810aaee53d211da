"""What is broken, in groups, and which tests each group is shown to."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Final


@dataclass(frozen=True, slots=True)
class Group:
    """Files that are broken, and the tests that are asked.

    Args:
        tests: files and folders, without services, that are quick.
        inside: files, below `src/groundwire/`, in which each condition, bound, limit, refusal and function is broken.
        whole: files in which each function as a whole is broken: it looks at nothing, or always finds.
    """

    tests: tuple[str, ...]
    inside: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()

    def how(self, path: str) -> str | None:
        """Return `inside`, `whole`, or None where a file below `src/` is not of this group."""
        name = path.removeprefix("groundwire/")
        if any(fnmatch(name, pattern) for pattern in self.inside):
            return "inside"
        return "whole" if any(fnmatch(name, pattern) for pattern in self.whole) else None


GROUPS: Final = {
    "responses": Group(
        tests=("tests/unit/decide", "tests/unit/gate"),
        inside=("decide/response*.py", "decide/report.py", "decide/regenerate.py"),
    ),
    "claims": Group(
        tests=("tests/unit/decide", "tests/unit/gate", "tests/unit/replay"),
        inside=("decide/*.py",),
    ),
    "messages": Group(
        tests=("tests/unit/messages", "tests/unit/decide"),
        inside=("messages/decode.py", "messages/headers.py"),
    ),
    "policy": Group(
        tests=("tests/unit/test_policy.py", "tests/unit/test_configuration.py", "tests/unit/decide"),
        inside=("policy.py", "policies.py"),
    ),
    "attestation": Group(
        tests=("tests/unit/test_attestation.py", "tests/unit/test_refused_by_guards.py"),
        inside=("attestation.py",),
    ),
    "guards": Group(
        tests=("tests/unit/test_guards.py", "tests/unit/test_refused_by_guards.py"), inside=("guards/*.py",)
    ),
    "fetching": Group(tests=("tests/unit/verify",), inside=("verify/ssrf.py",)),
    "replies": Group(
        tests=("tests/unit/epistemic", "tests/unit/verify"),
        inside=("epistemic/facts.py", "epistemic/replies.py"),
    ),
    "verification": Group(
        tests=("tests/unit/epistemic", "tests/unit/checks/epistemic", "tests/unit/verify"),
        whole=("epistemic/*.py", "checks/epistemic/*.py"),
    ),
    "checks": Group(
        tests=("tests/unit/checks", "tests/unit/test_quotes.py", "tests/unit/test_check.py"),
        whole=("checks/*.py",),
    ),
}
"""The first group that names a file has it."""


def group_of(path: str) -> tuple[str, str] | None:
    """Return the name of the group of a file below `src/`, and how the file is broken."""
    for name, group in GROUPS.items():
        how = group.how(path)
        if how is not None:
            return name, how
    return None
