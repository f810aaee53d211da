"""When Python looks for cycles: hardly ever, where a batch's objects go with it."""

from __future__ import annotations

import gc
from typing import Final

_YOUNG: Final = 50_000
"""New objects after which cycles are looked for; after 700, as by default, each batch was looked at 40 times."""


def rest_collector() -> None:
    """Leave alone what is there by now, and look seldom: a full collection of a worker's modules takes 0.1 s."""
    gc.freeze()
    gc.set_threshold(_YOUNG, 10, 10)
