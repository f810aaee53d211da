"""Fetches the jars of Apache Kafka by Maven, once, into a cache folder."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path

from deploy.embedded.process import ServiceError, find_program

#: Names a folder that already holds the jars, or is to hold them.
JARS_VARIABLE = "GROUNDWIRE_KAFKA_JARS"

_ROOT = Path(__file__).resolve().parents[2]
_BROKER = Path(__file__).with_name("pom.xml")
_TOOLS = Path(__file__).with_name("tools.pom.xml")
_FETCH_SECONDS = 600.0


def find_java() -> str:
    """Return the path of the Java program.

    Raises:
        MissingServiceError: there is none.
    """
    return find_program("java", "Java 17 or later, for example apt-get install default-jre-headless")


def jars_folder() -> Path:
    """Return the folder that holds the jars of the broker, after fetching them if they are not there.

    Raises:
        MissingServiceError: there are no jars and no Maven to fetch them with.
        ServiceError: Maven failed; the message is its own.
    """
    return _fetched(Path(os.environ.get(JARS_VARIABLE) or _ROOT / ".cache" / "kafka"), _BROKER, "kafka_*.jar")


def tools_folder() -> Path:
    """Return the folder that holds the jars of Kafka's command-line tools. Raises: as `jars_folder`."""
    return _fetched(_ROOT / ".cache" / "kafka-tools", _TOOLS, "kafka-tools-*.jar")


def _fetched(folder: Path, pom: Path, wanted: str) -> Path:
    """Return a folder of jars, after fetching what a project depends on if those that are wanted are not there."""
    if any(folder.glob(wanted)):
        return folder
    maven = find_program("mvn", f"Maven (apt-get install maven), or set {JARS_VARIABLE} to a folder of jars")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # fetched into a temporary folder and renamed when complete: an interrupted fetch leaves nothing
    with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        arguments = ["-DincludeScope=runtime", f"-DoutputDirectory={beside}/jars"]
        fetched = subprocess.run(  # noqa: S603 - the command is built here
            [
                maven,
                "--batch-mode",
                "--quiet",
                "--file",
                str(pom),
                "dependency:copy-dependencies",
                *arguments,
            ],
            capture_output=True,
            text=True,
            timeout=_FETCH_SECONDS,
            check=False,
        )
        if fetched.returncode:
            raise ServiceError(
                f"Maven could not fetch Apache Kafka:\n{(fetched.stdout + fetched.stderr)[-4000:]}"
            )
        with contextlib.suppress(OSError):  # another process fetched them meanwhile
            Path(beside, "jars").replace(folder)
    if not any(folder.glob(wanted)):
        raise ServiceError(
            f"{folder} is not empty and holds no jars of Kafka: remove it, or set {JARS_VARIABLE}"
        )
    return folder
