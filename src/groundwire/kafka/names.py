"""How this process is called at the brokers."""

from __future__ import annotations

from typing import Final

_names: Final = {"client": "groundwire"}


def name_client(deployment: str, role: str) -> str:
    """Name this process's connections, as brokers' logs, metrics and quotas show them; return the name.

    Args:
        deployment: prefix of its topics.
        role: a worker's, or the command.
    """
    _names["client"] = f"{deployment.rstrip('.-')}.{role}".lstrip(".")
    return client_name()


def client_name() -> str:
    """Return what `name_client` chose."""
    return _names["client"]
