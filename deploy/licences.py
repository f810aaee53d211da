"""Under which licence each package is that workers install: `python -m deploy.licences`.

It reads `requirements/worker.txt` and what is installed, prints a line for each package, and ends with 1 where one
names no licence, or one that puts duties on those who run or ship Groundwire.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import PackageMetadata

LOCK: Final = Path(__file__).parents[1] / "requirements" / "worker.txt"

#: Words of licences that ask for no more than to be named (MPL: and for what one changes in it, which nobody does
#: here); of several, `A OR B`, one is enough.
ALLOWED: Final = re.compile(
    r"\b(MIT|MIT-0|0BSD|BSD|Apache|ISC|PSF|Python Software Foundation|Zlib|CC0|Repoze|MPL)\b"
)
_REFUSED: Final = re.compile(
    r"\b(A?GPL|General Public|SSPL|BUSL|Commons Clause|Proprietary|Commercial)", re.IGNORECASE
)
_TITLE_CHARACTERS: Final = 60  # a longer one is the licence's text; its classifier has the name


def licence(package: PackageMetadata) -> str:
    """Return the licence that a package declares: an SPDX expression, a name, or its classifier; empty where none."""
    classifiers = package.get_all("Classifier", [])
    classified = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License")]
    named = [
        *package.get_all("License-Expression", []),
        *package.get_all("License", []),
        " AND ".join(classified),
    ]
    return next((name for name in named if 0 < len(name) <= _TITLE_CHARACTERS), "")


def permissive(name: str) -> bool:
    """Tell whether a licence asks for no more than to be named, in one of its alternatives at least."""
    return any(ALLOWED.search(choice) and not _REFUSED.search(choice) for choice in re.split(r"\bOR\b", name))


def locked(lock: Path = LOCK) -> Iterator[str]:
    """Yield the names of the packages that a lock installs on this machine."""
    for line in re.findall(r"^[a-z0-9][^\s;]*==[^\n\\]*", lock.read_text(encoding="utf-8"), re.MULTILINE):
        requirement = Requirement(line.strip())
        if requirement.marker is None or requirement.marker.evaluate():
            yield requirement.name


@click.command(help=__doc__)
def main() -> None:
    """Print the licences; end with 1 where one cannot be accepted."""
    refused = 0
    for name in locked():
        try:
            found = licence(metadata(name))
        except PackageNotFoundError:
            found = ""
        accepted = permissive(found)
        refused += not accepted
        click.echo(f"{name:<40} {found or 'names no licence'}{'' if accepted else '   <- refused'}")
    if refused:
        raise click.ClickException(f"{refused} packages: choose others, or allow them in deploy/licences.py")


if __name__ == "__main__":
    main()
