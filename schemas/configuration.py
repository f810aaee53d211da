"""The page that lists every setting and every key of the policy, made from the classes that read them.

python -m schemas.configuration write|check FILE
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from groundwire.config import PREFIX as KAFKA
from groundwire.config import REGISTRY, KafkaSecurity, RegistrySettings, Settings
from groundwire.console.settings import ConsoleSettings
from groundwire.epistemic.types import VerificationConfig
from groundwire.policy import ENV_PREFIX, Hedges, Limits, Policy
from groundwire.verify.models import PREFIX as MODEL
from groundwire.verify.models import ModelSettings

_TOP: Final = """# Configuration

Generated from the code: `make generate` writes this page, `make lint` compares it. Each row shows the default; of
choices it comes first, of numbers the range follows.

## Settings

Where things are and how a process behaves. All commands read them from the environment; an empty variable counts as
unset. Unknown `GROUNDWIRE_` variables are reported at start with the nearest known name.

"""
_KAFKA: Final = """
## Kafka, encrypted and authenticated

For workers and all commands.

"""
_REGISTRY: Final = """
## The schema registry

For workers and commands that read Avro and Protobuf: `pip install 'groundwire[registry]'`.

"""
_CONSOLE: Final = """
## The console

For `groundwire console`.

"""
_MODEL: Final = """
## The language model

See [Language models](../use/models.md).

"""
_POLICY: Final = """
## Policy

What decides: a TOML file named by `GROUNDWIRE_POLICY_FILE` or `--policy`. Unknown keys and values out of range are
errors. `GROUNDWIRE_<KEY IN CAPITALS>` overrides a key; lists are separated by commas. Decisions name the policy by
`version` and SHA-256.

"""
_ROW: Final = re.compile(r" \([SC]\d?-\d+\)")
"""Where a rule comes from; of use to those who read the code."""
_SECTIONS: Final = (
    ("hedges", Hedges, "Additional words and phrases that count as hedges."),
    (
        "limits",
        Limits,
        "Places in the review queue, beyond which claims are blocked. Claims fanned out of one response.",
    ),
    (
        "verification",
        VerificationConfig,
        "How an answer is compared with its evidence. Environment: `GROUNDWIRE_VERIFICATION_<KEY>`.",
    ),
)


def page() -> str:
    texts = _attributes(Policy)
    keys = [(name, field, texts[name]) for name, field in Policy.model_fields.items() if name in texts]
    parts = [
        _TOP,
        *_variables(ENV_PREFIX, Settings),
        _KAFKA,
        *_variables(KAFKA, KafkaSecurity),
        _REGISTRY,
        *_variables(REGISTRY, RegistrySettings),
        _CONSOLE,
        *_variables(f"{ENV_PREFIX}CONSOLE_", ConsoleSettings),
        _MODEL,
        *_variables(MODEL, ModelSettings),
        _POLICY,
        *_table("key", keys),
    ]
    for section, model, text in _SECTIONS:
        meanings = _attributes(model)
        rows = [(name, field, meanings.get(name, "")) for name, field in model.model_fields.items()]
        parts += [f"\n### `[{section}]`\n\n{text}\n\n", *_table("key", rows)]
    return "".join(parts)


def _variables(prefix: str, model: type[BaseModel]) -> Iterator[str]:
    fields = model.model_fields.items()
    rows = [(f"{prefix}{name.upper()}", field, field.description or "") for name, field in fields]
    return _table("variable", rows)


def _table(first: str, rows: Sequence[tuple[str, FieldInfo, str]]) -> Iterator[str]:
    explained = any(text for *_, text in rows)
    yield f"| {first} | default |{' meaning |' if explained else ''}\n"
    yield f"|---|---|{'---|' if explained else ''}\n"
    for name, field, text in rows:
        cells = [f"`{name}`", _value(field), *([text] if explained else [])]
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, frozenset):
        return "`" + ", ".join(sorted(value)) + "`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`"  # as TOML writes it


def _value(field: FieldInfo) -> str:
    """Return the default, then the other choices or the range."""
    schema, default = _schema(field), _default(field)
    schema = next((part for part in schema.get("anyOf", ()) if part.get("type") != "null"), schema)
    if "enum" in schema:
        return ", ".join([default, *(f"`{choice}`" for choice in schema["enum"] if f"`{choice}`" != default)])
    if "minimum" in schema and "maximum" in schema:
        return f"{default}, {_number(schema['minimum'])} to {_number(schema['maximum'])}"
    return default


def _number(value: float) -> str:
    return f"{value:,}".removesuffix(".0")


def _schema(field: FieldInfo) -> dict[str, Any]:
    schema: dict[str, Any] = TypeAdapter(field.rebuild_annotation()).json_schema()
    return schema


def _attributes(model: type) -> dict[str, str]:
    """Return what the docstring of a class says of each attribute."""
    section = inspect.cleandoc(model.__doc__ or "").partition("Attributes:\n")[2]
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        start = re.match(r"    (\w+): (.*)", line)
        if start:
            name, found[start[1]] = start[1], start[2]
        elif name and line.strip():
            found[name] += " " + line.strip()
    return {key: _ROW.sub("", text[0].upper() + text[1:]) for key, text in found.items()}


def write_or_check(prog: str, about: str, page: Callable[[], str], arguments: Sequence[str] | None) -> int:
    """Write a generated page, or compare the file with it; return the exit status.

    Args:
        prog: what is run, for its help.
        about: its help.
        page: makes the page.
        arguments: `write` or `check`, and the file; None: those of the process.
    """
    parser = argparse.ArgumentParser(prog=prog, description=about)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("action", choices=["write", "check"])
    parser.add_argument("file", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    if given.action == "write":
        given.file.write_text(page(), encoding="utf-8", newline="\n")
    elif not given.file.exists() or given.file.read_text(encoding="utf-8") != page():
        sys.stderr.write(f"{given.file} is not what the classes say: make generate\n")
        return 1
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    return write_or_check("python -m schemas.configuration", __doc__ or "", page, arguments)


if __name__ == "__main__":
    sys.exit(main())
