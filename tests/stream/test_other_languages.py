"""The Java programs of docs/reference/wire.md, compiled and run as they stand there (X-07)."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.kafka.jars import JARS_VARIABLE
from tests.stream.harness import ROOT, Deployment
from tests.unit.docs.pages import DOCS, blocks

pytestmark = [pytest.mark.stream, pytest.mark.slow]

JARS = Path(os.environ.get(JARS_VARIABLE) or ROOT / ".cache" / "kafka")
PROGRAMS = [block for block in blocks(DOCS / "reference" / "wire.md") if block.language == "java"]


@pytest.mark.skipif(
    shutil.which("javac") is None, reason="no compiler of Java: apt-get install default-jdk-headless"
)
async def test_a_java_producer_and_consumer_work_as_the_page_shows(
    deployment: Deployment, tmp_path: Path
) -> None:
    if not have_jars():
        pytest.skip("no jars of Kafka: `make test-kafka` fetches them")
    await deployment.start_worker("claims").ready()
    printed = ""
    for block in PROGRAMS:
        printed += await asyncio.to_thread(
            run, block.text, deployment.settings(GROUP=deployment.prefix), tmp_path
        )
    decision = await deployment.decision("9")
    assert decision.json["verdict"] == "approved"
    assert printed == PROGRAMS[-1].shown


def have_jars() -> bool:
    """Whether Kafka's jars are there now: the start of the broker may just have fetched them."""
    return any(JARS.glob("kafka-clients*.jar"))


def run(program: str, environment: dict[str, str], folder: Path) -> str:
    """Compile and run a program; returns what it prints."""
    (name,) = re.findall(r"public class (\w+)", program)
    (folder / f"{name}.java").write_text(program)
    classes = f"{JARS}/*{os.pathsep}{folder}"
    for command in (["javac", "-cp", classes, f"{name}.java"], ["java", "-cp", classes, name]):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
    return done.stdout
