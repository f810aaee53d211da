"""Whether a key may go to an address in clear."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

import httpx

_NEAR: Final = frozenset({"localhost", "local", "internal", "lan", "svc", "test"})
"""Last parts of names that no public server has: RFC 6761 and 6762, and what clusters and offices use."""


def may_carry_key(address: httpx.URL) -> bool:
    """Tell whether a key may be sent: over TLS anywhere, in clear only to this machine or a private network.

    Example:
        >>> [may_carry_key(httpx.URL(url)) for url in ("http://vllm:8000/v1", "http://api.openai.com/v1")]
        [True, False]
    """
    if address.scheme == "https":
        return True
    host = address.host.rstrip(".")
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        parts = host.lower().split(".")
        return len(parts) == 1 or parts[-1] in _NEAR
    return found.is_private or found.is_link_local
