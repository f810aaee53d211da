"""Lists of hedges for a field, which add to what is built in (S0-103); none is used unless it is asked for."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final, Literal

Lexicon = Literal["none", "scientific"]
LEXICONS: Final[dict[Lexicon, str]] = {"scientific": "hedges_scientific.txt"}
"""Name -> the file beside this one: a phrase to a line, comments behind "#"."""


@cache
def hedge_lexicon(name: Lexicon) -> tuple[str, ...]:
    """Return the phrases of a lexicon, for `HedgeDetector(review=...)`; of "none", none.

    Raises:
        ValueError: there is no lexicon of that name.
    """
    if name == "none":
        return ()
    if name not in LEXICONS:
        raise ValueError(f"hedge_lexicon must be none or {', '.join(LEXICONS)}, got {name!r}")
    lines = (files("groundwire.checks") / LEXICONS[name]).read_text("utf-8").splitlines()
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
