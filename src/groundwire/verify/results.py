"""What a verification answers: the state of a citation, why, and when it was looked at.

A state proves that the cited thing exists, never that it says what the claim says (S0-71, S0-72).
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from groundwire.messages.decisions import CitationState as CitationState  # noqa: PLC0414 - part of the answer

MAX_DETAIL = 500  # characters, the contract's limit for strings in a Decision's lists
MAX_TEXT = 20_000  # characters of a source that relevance looks at

Clock = Callable[[], datetime]
"""Returns the present time with an offset; injected so that results can be reproduced."""

OnResult = Callable[[str, str, float], None]
"""Called with (citation type, state, seconds) for each answer that was looked up, for metrics."""


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class CitationCheck:
    """One answer about one citation.

    Attributes:
        state: Verified, not found, unknown (could not be settled) or not checked.
        detail: Why, in one line of at most 500 characters.
        checked_at: When the source was asked, in UTC.
        text: An excerpt of the source, only where relevance was asked for. It is never cached and never put
            into a decision.

    Raises:
        ValueError: If `checked_at` has no offset.
    """

    state: CitationState
    detail: str
    checked_at: datetime
    text: str | None = None

    def __post_init__(self) -> None:
        """Put detail, time and text into their bounds."""
        if self.checked_at.tzinfo is None:
            raise ValueError("checked_at needs an offset")
        object.__setattr__(self, "detail", one_line(self.detail))
        object.__setattr__(self, "checked_at", self.checked_at.astimezone(UTC))
        if self.text is not None:
            object.__setattr__(self, "text", self.text[:MAX_TEXT])

    @property
    def valid(self) -> bool:
        """Whether the citation was shown to exist."""
        return self.state is CitationState.VERIFIED


class VerificationResult(NamedTuple):
    """The public answer of `verify_citation`: (valid, reason), S0-64."""

    valid: bool
    reason: str

    @property
    def kind(self) -> Literal["existence"]:
        """What the result proves: existence only, not content (S0-71)."""
        return "existence"


def one_line(text: str) -> str:
    """Return `text` on one line without control characters, cut at 500 characters."""
    printable = "".join(c if c.isprintable() else " " for c in text[: 4 * MAX_DETAIL])
    return " ".join(printable.split())[:MAX_DETAIL]
