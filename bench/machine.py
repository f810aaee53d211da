"""What measured: machine, load and versions, for the head of every result."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from groundwire import __version__

PACKAGES = ("aiokafka", "datasketch", "faust-streaming", "numpy", "pydantic", "rapidfuzz", "redis", "uvloop")


def machine() -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "groundwire": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "load": round(os.getloadavg()[0], 1),
        "packages": {name: version(name) for name in PACKAGES},
    }


def processor_times() -> tuple[int, int]:
    """Return the time of all processors so far, and how much of it went to other machines on the same hardware.

    In ticks; nothing where the system does not tell (Linux does).
    """
    try:
        fields = Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[1:9]
    except OSError:
        return 0, 0
    return sum(map(int, fields)), int(fields[7])


def stolen_since(before: tuple[int, int]) -> float:
    """Return the share of processor time that went to other machines since `processor_times` was asked."""
    (total, stolen), (first, taken) = processor_times(), before
    return round((stolen - taken) / (total - first), 2) if total > first else 0.0


def sentence(found: dict[str, Any], *, briefly: bool = False) -> str:
    """Say it in one line; briefly: without load and hour, in which the parts of one run differ."""
    if briefly:
        versions = f"Python {found['python']}, Groundwire {found['groundwire']}"
        return f"{found['processor']}, {found['cores']} cores; {versions}, {found['at'].partition(' ')[0]}"
    stolen = f", {found['stolen']:.0%} of its time taken by other machines" if found.get("stolen") else ""
    return (
        f"{found['processor']}, {found['cores']} cores, load {found['load']} at the start{stolen}; "
        f"{found['system']}, Python {found['python']}, Groundwire {found['groundwire']}, {found['at']} UTC"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
