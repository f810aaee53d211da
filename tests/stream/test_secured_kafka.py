"""Apache Kafka that speaks TLS and asks for a password is used like any other; wrong credentials are reported."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from deploy.embedded import RedisServer
from deploy.embedded.process import HOST
from deploy.kafka.cluster import KafkaCluster
from deploy.kafka.node import Security
from tests.services.fixtures import or_skip
from tests.stream.harness import COMMAND, ROOT, Worker

pytestmark = [pytest.mark.stream, pytest.mark.slow]


async def test_over_tls_with_a_password_claims_are_decided_and_wrong_credentials_are_told_without_the_secret(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    password = "gate-secret"
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other-ca.pem")
    issued = authority.issue_cert(HOST)
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    readable = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # the one form for Kafka
    (tmp_path / "broker.pem").write_bytes(readable + issued.cert_chain_pems[0].bytes())
    client = authority.issue_cert("client@groundwire.example")
    client.private_key_pem.write_to_path(tmp_path / "client.key")
    client.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    (tmp_path / "password").write_text(f"{password}\n")
    (tmp_path / "wrong").write_text("guess\n")
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    security = Security(
        "SASL_SSL",
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(tmp_path / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
            "ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                f'{scram} username="gate" password="{password}";'
            ),
        },
        {"gate": password},
    )

    with or_skip(lambda: KafkaCluster(security=security)) as cluster:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GROUNDWIRE_")}
        environment = kept | {
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "GROUNDWIRE_BROKERS": cluster.bootstrap,
            "GROUNDWIRE_REDIS_URL": redis_server.url,
            "GROUNDWIRE_TOPIC_PREFIX": "secured.",
            "GROUNDWIRE_PARTITIONS": "1",
            "GROUNDWIRE_REBUILD_WAIT": "1",
            "GROUNDWIRE_KAFKA_SECURITY": "sasl_ssl",
            "GROUNDWIRE_KAFKA_CA_FILE": str(tmp_path / "ca.pem"),
            "GROUNDWIRE_KAFKA_CERT_FILE": str(tmp_path / "client.pem"),
            "GROUNDWIRE_KAFKA_KEY_FILE": str(tmp_path / "client.key"),
            "GROUNDWIRE_KAFKA_SASL_USERNAME": "gate",
            "GROUNDWIRE_KAFKA_SASL_PASSWORD_FILE": str(tmp_path / "password"),
        }

        async def run(*arguments: str, given: str = "", **more: str) -> subprocess.CompletedProcess[str]:
            options = {"cwd": ROOT, "capture_output": True, "text": True, "check": False, "input": given}
            command = [sys.executable, *arguments]
            return await asyncio.to_thread(subprocess.run, command, env=environment | more, **options)

        reading = ("-c", COMMAND, "tail", "approved", "--from", "earliest", "--limit", "1")
        declared = await run("-m", "topics", "declare")
        assert (declared.returncode, "11 topics created" in declared.stdout + declared.stderr) == (0, True)
        worker = Worker([sys.executable, "-m", "agents", "claims"], environment, tmp_path / "worker.log", 0)
        try:
            await worker.ready()
            claim = {"claim_id": "c", "user_id": "u", "content": "Tabs over spaces", "source": "user"}
            sent = await run("-c", COMMAND, "produce", "-", given=json.dumps(claim))
            assert sent.returncode == 0, sent.stderr
            read = await run(*reading, "--format", "json")
            assert read.returncode == 0, read.stderr
            assert json.loads(read.stdout)["subject_id"] == "c"
            assert await worker.stop() == 0
            assert password not in worker.text
        finally:
            worker.process.kill()
            worker.process.wait()

        for setting, value in (("SASL_PASSWORD_FILE", "wrong"), ("CA_FILE", "other-ca.pem")):
            wrong = {f"GROUNDWIRE_KAFKA_{setting}": str(tmp_path / value)}
            for refused in (
                await run(*reading, "--timeout", "3", **wrong),
                await run("-m", "agents", "claims", **wrong),
            ):
                assert refused.returncode != 0
                assert "GROUNDWIRE_KAFKA_" in refused.stderr
                assert "Traceback" not in refused.stderr
                assert "guess" not in refused.stderr
