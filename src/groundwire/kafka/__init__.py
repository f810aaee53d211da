"""Plain Kafka clients: connections, producing records, following topics; and this process's name at the brokers."""

from __future__ import annotations

from typing import Final

_names: Final = {"client": "groundwire"}


def name_client(deployment: str, role: str) -> str:
    """Name this process's connections, as brokers' logs, metrics and quotas show them; return the name."""
    _names["client"] = f"{deployment.rstrip('.-')}.{role}".lstrip(".")
    return client_name()


def client_name() -> str:
    return _names["client"]
