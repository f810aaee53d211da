"""Apache Kafka that speaks TLS and asks for a password is used like any other; wrong credentials are told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
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

PASSWORD = "gate-secret"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of the broker and of the client, who vouches for both, and the password."""
    folder = tmp_path_factory.mktemp("secured")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other-ca.pem")
    broker = authority.issue_cert(HOST)
    (folder / "broker.pem").write_bytes(_pkcs8(broker) + broker.cert_chain_pems[0].bytes())
    client = authority.issue_cert("client@groundwire.example")
    client.private_key_pem.write_to_path(folder / "client.key")
    client.cert_chain_pems[0].write_to_path(folder / "client.pem")
    (folder / "password").write_text(f"{PASSWORD}\n")
    (folder / "wrong").write_text("guess\n")
    return folder


def _pkcs8(certificate: trustme.LeafCert) -> bytes:
    """Return the private key in the one form that Kafka reads."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[KafkaCluster]:
    """One node that wants a certificate of its clients and a password."""
    user = f'{_SCRAM} username="gate" password="{PASSWORD}";'
    security = Security(
        "SASL_SSL",
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "ca.pem"),
            "ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": user,
        },
        {"gate": PASSWORD},
    )
    made = or_skip(lambda: KafkaCluster(security=security))
    with made:
        yield made


@pytest.fixture
def environment(cluster: KafkaCluster, folder: Path, redis_server: RedisServer) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GROUNDWIRE_")}
    return kept | {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "GROUNDWIRE_BROKERS": cluster.bootstrap,
        "GROUNDWIRE_REDIS_URL": redis_server.url,
        "GROUNDWIRE_TOPIC_PREFIX": "secured.",
        "GROUNDWIRE_PARTITIONS": "1",
        "GROUNDWIRE_REBUILD_WAIT": "1",
        "GROUNDWIRE_KAFKA_SECURITY": "sasl_ssl",
        "GROUNDWIRE_KAFKA_CA_FILE": str(folder / "ca.pem"),
        "GROUNDWIRE_KAFKA_CERT_FILE": str(folder / "client.pem"),
        "GROUNDWIRE_KAFKA_KEY_FILE": str(folder / "client.key"),
        "GROUNDWIRE_KAFKA_SASL_USERNAME": "gate",
        "GROUNDWIRE_KAFKA_SASL_PASSWORD_FILE": str(folder / "password"),
    }


def run(environment: Mapping[str, str], *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    options = {"cwd": ROOT, "capture_output": True, "text": True, "input": given}
    return subprocess.run([sys.executable, *arguments], env=environment, check=False, **options)


async def test_over_tls_with_a_password_topics_are_declared_claims_decided_and_decisions_read(
    environment: dict[str, str], tmp_path: Path
) -> None:
    declared = run(environment, "-m", "topics", "declare")
    assert (declared.returncode, "11 topics created" in declared.stdout + declared.stderr) == (0, True)
    worker = Worker([sys.executable, "-m", "agents", "claims"], environment, tmp_path / "worker.log", 0)
    try:
        await worker.ready()
        claim = {"claim_id": "c", "user_id": "u", "content": "Tabs over spaces", "source": "user"}
        sent = run(environment, "-c", COMMAND, "produce", "-", given=json.dumps(claim))
        assert sent.returncode == 0, sent.stderr
        read = run(
            environment,
            "-c",
            COMMAND,
            "tail",
            "approved",
            "--from",
            "earliest",
            "--limit",
            "1",
            "--format",
            "json",
        )
        assert read.returncode == 0, read.stderr
        assert json.loads(read.stdout)["subject_id"] == "c"
        assert await worker.stop() == 0
        assert PASSWORD not in worker.text
    finally:
        worker.process.kill()
        worker.process.wait()


@pytest.mark.parametrize(
    ("setting", "value"),
    [("KAFKA_SASL_PASSWORD_FILE", "wrong"), ("KAFKA_CA_FILE", "other-ca.pem")],
    ids=["password", "authority"],
)
def test_wrong_credentials_are_told_by_commands_and_workers_alike_without_the_secret(
    environment: dict[str, str], folder: Path, setting: str, value: str
) -> None:
    wrong = environment | {f"GROUNDWIRE_{setting}": str(folder / value)}
    read = run(
        wrong, "-c", COMMAND, "tail", "approved", "--from", "earliest", "--limit", "1", "--timeout", "3"
    )
    worker = run(wrong, "-m", "agents", "claims")
    for told in (read, worker):
        assert told.returncode != 0
        assert "GROUNDWIRE_KAFKA_" in told.stderr
        assert "Traceback" not in told.stderr
        assert "guess" not in told.stderr
