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


NOT_ASKED: Final = "not (time_grows or work_grows or checks_grows or event_loop or huge or worst)"
"""What is about time and size, as pytest's `-k`: it takes long, and the rest notices as much."""

GROUPS: Final = {
    "tree": Group(
        tests=("tests/unit/decide/test_tree.py", "tests/unit/decide/test_recorded_standing.py"),
        inside=("decide/tree.py", "decide/people.py", "decide/recorded.py"),
    ),
    "responses": Group(
        tests=(
            "tests/unit/decide/test_fan_out.py",
            "tests/unit/decide/test_response_again.py",
            "tests/unit/decide/test_response_case.py",
            "tests/unit/decide/test_response_limits.py",
            "tests/unit/decide/test_response_outcome.py",
            "tests/unit/decide/test_response_reading.py",
            "tests/unit/decide/test_response_told.py",
            "tests/unit/epistemic/test_cited_in_text.py",
            "tests/unit/gate/test_claims_held.py",
            "tests/unit/gate/test_models_asked.py",
            "tests/unit/gate/test_response_gate.py",
            "tests/unit/gate/test_response_hostile.py",
        ),
        inside=("decide/response*.py", "decide/report.py", "decide/regenerate.py", "decide/fan_out.py"),
    ),
    "claims": Group(
        tests=(
            "tests/unit/decide",
            "tests/unit/gate/test_claim_gate.py",
            "tests/unit/gate/test_review_gate.py",
            "tests/unit/gate/test_review_limits.py",
        ),
        inside=("decide/*.py",),
    ),
    "messages": Group(
        tests=("tests/unit/messages",),
        inside=("messages/decode.py", "messages/headers.py"),
    ),
    "policy": Group(
        tests=(
            "tests/unit/test_policy.py",
            "tests/unit/test_policy_store.py",
            "tests/unit/test_environment.py",
        ),
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
        tests=("tests/unit/epistemic", "tests/unit/verify/test_model_assess.py"),
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
