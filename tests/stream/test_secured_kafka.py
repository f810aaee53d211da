"""Apache Kafka that speaks TLS and asks for a password is used like any other; wrong credentials are reported."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
import time
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
from tests.services.serving import serving
from tests.stream.harness import COMMAND, PATIENCE, ROOT, Worker

pytestmark = [pytest.mark.stream, pytest.mark.slow]


def environment_of(cluster: KafkaCluster, redis: RedisServer, **security: object) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GROUNDWIRE")}
    return kept | {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "GROUNDWIRE_BROKERS": cluster.bootstrap,
        "GROUNDWIRE_REDIS_URL": redis.url,
        "GROUNDWIRE_TOPIC_PREFIX": "secured.",
        "GROUNDWIRE_PARTITIONS": "1",
        "GROUNDWIRE_REBUILD_WAIT": "1",
        **{f"GROUNDWIRE_KAFKA_{name}": str(value) for name, value in security.items()},
    }


async def run(
    environment: dict[str, str], *arguments: str, given: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    options = {"cwd": ROOT, "capture_output": True, "text": True, "check": False, "input": given}
    command = [sys.executable, *arguments]
    return await asyncio.to_thread(subprocess.run, command, env=environment | more, **options)


async def decides(environment: dict[str, str], claim_id: str) -> None:
    """Produce a claim, and read its decision: each command signs in anew."""
    claim = {"claim_id": claim_id, "user_id": claim_id, "content": "Tabs over spaces", "source": "user"}
    sent = await run(environment, "-c", COMMAND, "produce", "-", given=json.dumps(claim))
    assert sent.returncode == 0, sent.stderr
    async with asyncio.timeout(PATIENCE):
        while True:
            read = await run(
                environment, "-c", COMMAND, "tail", "approved", "--until-end", "--format", "json"
            )
            assert read.returncode == 0, read.stderr
            if claim_id in [json.loads(line)["subject_id"] for line in read.stdout.splitlines()]:
                return


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
        environment = environment_of(
            cluster,
            redis_server,
            SECURITY="sasl_ssl",
            CA_FILE=tmp_path / "ca.pem",
            CERT_FILE=tmp_path / "client.pem",
            KEY_FILE=tmp_path / "client.key",
            SASL_USERNAME="gate",
            SASL_PASSWORD_FILE=tmp_path / "password",
        )
        reading = ("-c", COMMAND, "tail", "approved", "--from", "earliest", "--limit", "1")
        declared = await run(environment, "-m", "topics", "declare")
        assert (declared.returncode, "12 topics created" in declared.stdout + declared.stderr) == (0, True)
        worker = Worker([sys.executable, "-m", "agents", "claims"], environment, tmp_path / "worker.log", 0)
        try:
            await worker.ready()
            await decides(environment, "c")
            assert await worker.stop() == 0
            assert password not in worker.text
        finally:
            worker.process.kill()
            worker.process.wait()

        for setting, value in (("SASL_PASSWORD_FILE", "wrong"), ("CA_FILE", "other-ca.pem")):
            wrong = {f"GROUNDWIRE_KAFKA_{setting}": str(tmp_path / value)}
            for refused in (
                await run(environment, *reading, "--timeout", "3", **wrong),
                await run(environment, "-m", "agents", "claims", **wrong),
            ):
                assert refused.returncode != 0
                assert "GROUNDWIRE_KAFKA_" in refused.stderr
                assert "Traceback" not in refused.stderr
                assert "guess" not in refused.stderr


async def test_with_tokens_of_an_oidc_provider_a_worker_signs_in_again_when_its_session_ends(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("gate-secret\n")
    bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    security = Security(
        "SASL_PLAINTEXT",
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
                f'{bearer} unsecuredLoginStringClaim_sub="broker";'
            ),
            "connections.max.reauth.ms": "5000",
        },
    )
    refusing, asked = asyncio.Event(), 0

    def part(fields: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")

    async def provide(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(re.search(rb"content-length: (\d+)", head.lower())[1]))
        asked += 1
        now = time.time()
        claims = {"sub": "gate", "iat": now, "exp": now + 20}
        token = f"{part({'alg': 'none'})}.{part(claims)}."
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": 20}
        status, found = ("401 No", {"error": "invalid_client"}) if refusing.is_set() else ("200 OK", answer)
        body = json.dumps(found).encode()
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        )
        writer.write(body)
        await writer.drain()
        writer.close()

    with or_skip(lambda: KafkaCluster(security=security)) as cluster:
        async with serving(provide) as port:
            environment = environment_of(
                cluster,
                redis_server,
                SECURITY="sasl_plaintext",
                SASL_MECHANISM="OAUTHBEARER",
                OAUTH_TOKEN_URL=f"http://127.0.0.1:{port}/token",
                OAUTH_CLIENT_ID="gate",
                OAUTH_CLIENT_SECRET_FILE=tmp_path / "secret",
            )
            declared = await run(environment, "-m", "topics", "declare")
            assert declared.returncode == 0, declared.stderr
            worker = Worker(
                [sys.executable, "-m", "agents", "claims"], environment, tmp_path / "worker.log", 0
            )
            try:
                await worker.ready()
                for number in range(4):  # sessions of the worker's end meanwhile, and its token
                    await decides(environment, f"c{number}")
                    await asyncio.sleep(6)
                assert await worker.stop() == 0
                assert "gate-secret" not in worker.text
                assert "Traceback" not in worker.text
            finally:
                worker.process.kill()
                worker.process.wait()
            refusing.set()
            for refused in (
                await run(environment, "-c", COMMAND, "tail", "approved", "--until-end", "--timeout", "3"),
                await run(environment, "-m", "agents", "claims"),
            ):
                assert refused.returncode == 2
                assert "GROUNDWIRE_KAFKA_" in refused.stderr
                assert "invalid_client" in refused.stderr
                assert "Traceback" not in refused.stderr
                assert "gate-secret" not in refused.stderr
