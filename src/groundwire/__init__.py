"""Groundwire: the streaming gate between AI agents and the knowledge base they write to.

The public names stand in `__init__.pyi` alone, which type checkers read too. Each is imported on first use, so that a
program loads only what it uses.
"""

import lazy_loader

__version__ = "0.2.0"
"""The package's, and the engine that decisions name."""

_get, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]


def __getattr__(name: str) -> object:
    """Import a public name. Raises: ModuleNotFoundError, which names the extra that has what it needs."""
    try:
        return _get(name)
    except ModuleNotFoundError as exc:
        from groundwire.errors import naming_extra  # noqa: PLC0415 - most programs never need it

        raise naming_extra(exc, name) from None


def __dir__() -> list[str]:
    """List the public names, whether or not they were imported yet."""
    return __all__
