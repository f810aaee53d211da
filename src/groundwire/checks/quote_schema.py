"""The shape of extracted evidence: an object of domain -> list of quotes (S1-31, S1-32)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_MOST_KEYS: Final = 10  # that an error names
MAX_DOMAIN: Final = 100
"""Most characters of a domain's name in an error or an event."""


class EvidenceSchemaError(ValueError):
    """Extracted evidence has another shape than domain -> list of strings.

    Attributes:
        domains: The domains at fault, by name; empty where the whole is no object.
    """

    def __init__(self, message: str, domains: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.domains = tuple(domains)


def validate_evidence_schema(value: object, domains: Sequence[str] = ()) -> dict[str, list[str]]:
    """Read extracted evidence (S1-31, S1-32).

    Repeated quotes of a domain are dropped, the first stays, and so are blank ones. Quotes stay as written.

    Args:
        value: What a generator gave, such as parsed JSON.
        domains: Domains that the result holds even where the value does not have them, with no quotes.

    Returns:
        The quotes of each domain: those of `domains` first, in that order, then others as they came.

    Raises:
        EvidenceSchemaError: Something is not of that shape; names the domains, never a quote.
    """
    if not isinstance(value, Mapping):
        raise EvidenceSchemaError(
            f"evidence must be an object of domain -> list of strings, got {type(value).__name__}"
        )
    wrong = [key for key, quotes in value.items() if not (isinstance(key, str) and _is_list(quotes))]
    if wrong:
        names = [key[:MAX_DOMAIN] if isinstance(key, str) else type(key).__name__ for key in wrong]
        shown = ", ".join(map(repr, names[:_MOST_KEYS]))
        more = f" and {len(names) - _MOST_KEYS} more" if len(names) > _MOST_KEYS else ""
        raise EvidenceSchemaError(f"evidence must be a list of strings for each domain: {shown}{more}", names)
    found: dict[str, list[str]] = {domain: [] for domain in domains}
    found.update((key, _different(quotes)) for key, quotes in value.items())
    return found


def _is_list(quotes: object) -> bool:
    return isinstance(quotes, list | tuple) and all(isinstance(quote, str) for quote in quotes)


def _different(quotes: Sequence[str]) -> list[str]:
    kept: dict[str, str] = {}
    for quote in quotes:
        if bare := quote.strip():
            kept.setdefault(bare, quote)
    return list(kept.values())
