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
_POM = Path(__file__).with_name("pom.xml")
_FETCH_SECONDS = 600.0


def find_java() -> str:
    """Return the path of the Java program.

    Raises:
        MissingServiceError: there is none.
    """
    return find_program("java", "Java 17 or later, for example apt-get install default-jre-headless")


def jars_folder() -> Path:
    """Return the folder that holds the jars, after fetching them if they are not there.

    Raises:
        MissingServiceError: there are no jars and no Maven to fetch them with.
        ServiceError: Maven failed; the message is its own.
    """
    folder = Path(os.environ.get(JARS_VARIABLE) or _ROOT / ".cache" / "kafka")
    if not any(folder.glob("kafka_*.jar")):
        _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    maven = find_program("mvn", f"Maven (apt-get install maven), or set {JARS_VARIABLE} to a folder of jars")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # fetched beside it and moved when complete: a fetch that was broken off leaves no half of it
    with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        arguments = ["-DincludeScope=runtime", f"-DoutputDirectory={beside}/jars"]
        fetched = subprocess.run(  # noqa: S603 - the command is built here
            [
                maven,
                "--batch-mode",
                "--quiet",
                "--file",
                str(_POM),
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
        with contextlib.suppress(OSError):  # another process was quicker
            Path(beside, "jars").replace(folder)
    if not any(folder.glob("kafka_*.jar")):
        raise ServiceError(
            f"{folder} is not empty and holds no jars of Kafka: remove it, or set {JARS_VARIABLE}"
        )
