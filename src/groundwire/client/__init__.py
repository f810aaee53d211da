"""Sends claims and answers to the gate, waits for decisions, and keeps a table of what is approved (X-16).

The names stand in `__init__.pyi`, as those of the package; only `Producer` needs a Kafka client.
"""

import lazy_loader

from groundwire.errors import naming_extra

_get, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Import a public name. Raises: ModuleNotFoundError, which names the extra that has what it needs."""
    try:
        return _get(name)
    except ModuleNotFoundError as exc:
        raise naming_extra(exc, name) from None
