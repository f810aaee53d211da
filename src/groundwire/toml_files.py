"""Reads a TOML file into a model; an error names the file and the key, and never a value, which may be a secret."""

from __future__ import annotations

import tomllib
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from groundwire.errors import UsageError

Model = TypeVar("Model", bound=BaseModel)


def parse_toml(model: type[Model], data: bytes, what: str) -> Model:
    """Return what the content of a file says; `what` names the file. Raises: UsageError."""
    try:
        return model.model_validate(tomllib.loads(data.decode()))
    except UnicodeDecodeError as exc:
        raise UsageError(f"{what}: not UTF-8 at byte {exc.start}") from None
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"] if part != "[key]")
        raise UsageError(f"{what}: {key}: {first['msg'].removeprefix('Value error, ')}") from None
    except RecursionError:
        raise UsageError(f"{what}: nested too deeply") from None
    except ValueError as exc:  # wrong syntax, or an integer of thousands of digits
        raise UsageError(f"{what}: not TOML: {str(exc).split(';')[0]}") from None
