"""Runs a command as its container would: nothing can be written but a folder for temporary files, and no privileges."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

_SEAL = """
mount --make-rprivate / && mount --bind / / && cd "$PWD" && mount -o remount,bind,ro / \
&& mount -t tmpfs -o mode=1777 tmpfs "$TMPDIR" \
&& exec setpriv --no-new-privs --bounding-set -all --inh-caps -all "$@"
"""


@cache
def can_seal() -> bool:
    """Whether this machine lets us: it takes root, and a kernel that gives namespaces away."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))):
        return False
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "--make-rprivate", "/"], capture_output=True, check=False
    )
    return tried.returncode == 0


def sealed(
    command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> tuple[list[str], dict[str, str]]:
    """Return command and environment under which it is sealed; as they are where this machine does not allow it.

    Args:
        folder: becomes the command's own folder for temporary files.
    """
    folder.mkdir()
    if not can_seal():
        return list(command), {**environment, "TMPDIR": str(folder)}
    wrapped = ["unshare", "--mount", "sh", "-ec", _SEAL, "sh", *command]
    return wrapped, {**environment, "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
