"""How long a service asks to be left alone."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_SECONDS: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def asked_wait(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date; None without one that can be read.

    Example:
        >>> asked_wait({"retry-after": "2"}), asked_wait({"retry-after": "soon"}), asked_wait({})
        (2.0, None, None)
    """
    value = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    wait = (then - (now or datetime.now(UTC))).total_seconds()
    return max(0.0, wait) if math.isfinite(wait) else None
