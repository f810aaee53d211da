"""The programs of docs/reference/wire.md for Java, Kafka's own tool and kcat, run as they are there (X-07)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded import MissingServiceError
from deploy.kafka.jars import JARS_VARIABLE, find_java, tools_folder
from tests.services.brokers import BROKER_VARIABLE
from tests.services.fixtures import or_skip
from tests.stream.harness import ROOT, Deployment
from tests.unit.docs.pages import DOCS, blocks

pytestmark = [pytest.mark.stream, pytest.mark.slow]

BLOCKS = list(blocks(DOCS / "reference" / "wire.md"))


def lines(name: str) -> str:
    return next(block.text for block in BLOCKS if block.language == "sh" and name in block.text)


async def run(command: list[str], folder: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    options |= {"cwd": folder, "capture_output": True, "text": True, "check": False}
    done = await asyncio.to_thread(subprocess.run, command, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


async def run_lines(deployment: Deployment, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run lines of the page with the broker's address and the prefix of the topics replaced."""
    ours = text.replace("127.0.0.1:9092", deployment.broker.bootstrap)
    return await run(["/bin/sh", "-ec", ours.replace("groundwire.", deployment.prefix)], folder)


async def test_kafkas_own_tool_sends_a_claim_that_the_gate_decides(
    deployment: Deployment, tmp_path: Path
) -> None:
    if os.environ.get(BROKER_VARIABLE, "embedded") == "embedded":
        pytest.skip("Kafka's jars are there where tests run on Kafka: make test-kafka")
    jars = or_skip(tools_folder)
    script = tmp_path / "bin" / "kafka-console-producer.sh"  # which Kafka's archive has and its jars have not
    script.parent.mkdir()
    main = "org.apache.kafka.tools.ConsoleProducer"
    script.write_text(f"#!/bin/sh\nexec '{find_java()}' -Xmx256m -cp '{jars}/*' {main} \"$@\"\n")
    script.chmod(0o755)
    await deployment.start_worker("claims").ready()
    done = await run_lines(deployment, lines("kafka-console-producer"), tmp_path)
    assert "deprecated" not in (done.stdout + done.stderr).lower()
    decision = await deployment.decision("7")
    assert decision.key == b"default:maria"
    assert decision.json["citations"][0]["value"] == "003"


async def test_kcat_sends_a_claim_and_prints_decisions_with_their_headers(
    deployment: Deployment, tmp_path: Path
) -> None:
    def kcat() -> None:
        if shutil.which("kcat") is None:
            raise MissingServiceError("kcat is not installed: apt-get install kcat")

    if os.environ.get(BROKER_VARIABLE, "embedded") == "embedded":
        pytest.skip("kcat sends a message format that the embedded broker does not take: make test-kafka")
    or_skip(kcat)
    sending, reading = lines("kcat").split("kcat -C")
    await deployment.start_worker("claims").ready()
    claim = {"claim_id": "1", "user_id": "maria", "content": "I prefer tabs", "source": "user"}
    await deployment.produce([claim])
    await run_lines(deployment, sending, tmp_path)
    assert (await deployment.decision("8")).json["reason_code"] == "personal_speculation"
    await deployment.decision("1")
    printed = (await run_lines(deployment, f"kcat -C{reading}", tmp_path)).stdout
    key_and_headers, value, *_ = [line for line in printed.splitlines() if not line.startswith("%")]
    assert key_and_headers.startswith("default:maria ")
    assert "ce_type=groundwire.decision.v1" in key_and_headers
    assert json.loads(value)["subject_id"] == "1"


@pytest.mark.skipif(
    shutil.which("javac") is None, reason="no compiler of Java: apt-get install default-jdk-headless"
)
async def test_a_java_producer_and_consumer_work_as_the_page_shows(
    deployment: Deployment, tmp_path: Path
) -> None:
    jars = Path(os.environ.get(JARS_VARIABLE) or ROOT / ".cache" / "kafka")
    if not list(jars.glob("kafka-clients*.jar")):  # noqa: ASYNC240 - the start of the broker may just have fetched them
        pytest.skip("no jars of Kafka: `make test-kafka` fetches them")
    await deployment.start_worker("claims").ready()
    programs = [block for block in BLOCKS if block.language == "java"]
    printed = ""
    for block in programs:
        (name,) = re.findall(r"public class (\w+)", block.text)
        (tmp_path / f"{name}.java").write_text(block.text)
        classes = f"{jars}/*{os.pathsep}{tmp_path}"
        env = deployment.settings(GROUP=deployment.prefix)
        for command in (["javac", "-cp", classes, f"{name}.java"], ["java", "-cp", classes, name]):
            printed += (await run(command, tmp_path, env=env)).stdout
    assert (await deployment.decision("9")).json["verdict"] == "approved"
    assert printed == programs[-1].shown
