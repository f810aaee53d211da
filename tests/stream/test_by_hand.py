"""The lines of docs/reference/wire.md for Kafka's own tool and for kcat, run as they stand there (X-07)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.embedded import MissingServiceError
from deploy.kafka.jars import find_java, tools_folder
from tests.services.brokers import BROKER_VARIABLE
from tests.services.fixtures import or_skip
from tests.stream.harness import Deployment
from tests.unit.docs.pages import DOCS, blocks

pytestmark = [pytest.mark.stream, pytest.mark.slow]

TOOL, KCAT = (
    next(
        block.text
        for block in blocks(DOCS / "reference" / "wire.md")
        if block.language == "sh" and name in block.text
    )
    for name in ("kafka-console-producer", "kcat")
)


def kafkas_tool(folder: Path) -> None:
    """Write bin/kafka-console-producer.sh, which Kafka's archive has and its jars have not."""
    if os.environ.get(BROKER_VARIABLE, "embedded") == "embedded":
        pytest.skip("Kafka's jars are there where tests run on Kafka: make test-kafka")
    jars = tools_folder()
    (folder / "bin").mkdir()
    script = folder / "bin" / "kafka-console-producer.sh"
    main = "org.apache.kafka.tools.ConsoleProducer"
    script.write_text(f"#!/bin/sh\nexec '{find_java()}' -Xmx256m -cp '{jars}/*' {main} \"$@\"\n")
    script.chmod(0o755)


def kcat() -> None:
    if shutil.which("kcat") is None:
        raise MissingServiceError("kcat is not installed: apt-get install kcat")


async def run(deployment: Deployment, lines: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run lines of the page, but for the broker's address and the prefix of the topics."""
    ours = lines.replace("127.0.0.1:9092", deployment.broker.bootstrap)
    ours = ours.replace("groundwire.", deployment.prefix)
    done = await asyncio.to_thread(
        subprocess.run,
        ["/bin/sh", "-ec", ours],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


async def test_kafkas_own_tool_sends_a_claim_that_the_gate_decides(
    deployment: Deployment, tmp_path: Path
) -> None:
    or_skip(lambda: kafkas_tool(tmp_path))
    await deployment.start_worker("claims").ready()
    done = await run(deployment, TOOL, tmp_path)
    assert "deprecated" not in (done.stdout + done.stderr).lower(), "the line is one that will go on working"
    decision = await deployment.decision("7")
    assert decision.key == b"default:maria"
    assert decision.json["citations"][0]["value"] == "003"


async def test_kcat_sends_a_claim_and_prints_decisions_with_their_headers(
    deployment: Deployment, tmp_path: Path
) -> None:
    or_skip(kcat)
    sending, reading = KCAT.split("kcat -C")
    await deployment.start_worker("claims").ready()
    claim = {"claim_id": "1", "user_id": "maria", "content": "I prefer tabs", "source": "user"}
    await deployment.produce([claim])
    await run(deployment, sending, tmp_path)
    assert (await deployment.decision("8")).json["reason_code"] == "personal_speculation"
    await deployment.decision("1")
    printed = (await run(deployment, f"kcat -C{reading}", tmp_path)).stdout
    key_and_headers, value, *_ = [line for line in printed.splitlines() if not line.startswith("%")]
    assert key_and_headers.startswith("default:maria ")
    assert "ce_type=groundwire.decision.v1" in key_and_headers
    assert json.loads(value)["subject_id"] == "1"
