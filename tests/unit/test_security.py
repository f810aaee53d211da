"""How Kafka is spoken to is told whole, and what is wrong with it by the name of its variable."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme

from agents.app import build_app
from groundwire.config import Settings, kafka_security
from groundwire.errors import UsageError
from groundwire.kafka.sign_in import advice, client_options, tokens
from tests.services.serving import serving


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.environ", {})
    for kept in (kafka_security, tokens):
        kept.cache_clear()
    yield
    for kept in (kafka_security, tokens):
        kept.cache_clear()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    made = authority.issue_cert("client@groundwire.example")
    made.private_key_pem.write_to_path(tmp_path / "client.key")
    made.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    (tmp_path / "password").write_text("  s p a c e s  \n")
    (tmp_path / "empty").write_text("\n")
    return tmp_path


def environment(monkeypatch: pytest.MonkeyPatch, **values: object) -> None:
    monkeypatch.setattr(
        "os.environ", {f"GROUNDWIRE_KAFKA_{name}": str(value) for name, value in values.items()}
    )


def test_clients_and_workers_are_given_the_same(monkeypatch, files: Path) -> None:
    """Without settings the brokers are spoken to in the clear, with TLS alone without a user."""
    assert kafka_security().options() == {}
    assert build_app("claims", Settings()).conf.broker_credentials is None
    kafka_security.cache_clear()
    environment(monkeypatch, SECURITY="ssl")
    assert set(kafka_security().options()) == {"security_protocol", "ssl_context"}
    assert build_app("claims", Settings()).conf.broker_credentials.protocol.value == "SSL"
    kafka_security.cache_clear()
    environment(
        monkeypatch,
        SECURITY="sasl_ssl",
        CA_FILE=files / "ca.pem",
        CERT_FILE=files / "client.pem",
        KEY_FILE=files / "client.key",
        SASL_USERNAME="gate",
        SASL_PASSWORD_FILE=files / "password",
        SASL_MECHANISM="SCRAM-SHA-256",
    )
    options = kafka_security().options()
    context = options.pop("ssl_context")
    assert options == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "gate",
        "sasl_plain_password": "  s p a c e s  ",
    }
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    told = build_app("claims", Settings()).conf.broker_credentials
    assert (told.protocol.value, told.mechanism.value, told.username, told.password) == tuple(
        options.values()
    )
    assert told.ssl_context.verify_mode is ssl.CERT_REQUIRED
    assert "s p a c e s" not in repr(kafka_security())


def test_a_password_that_every_user_of_the_machine_can_read_is_warned_of(
    monkeypatch, files: Path, caplog
) -> None:
    own = {"SECURITY": "sasl_ssl", "SASL_USERNAME": "gate", "SASL_PASSWORD_FILE": files / "password"}
    environment(monkeypatch, **own)
    for mode, warned in ((0o600, False), (0o640, False), (0o644, True)):
        (files / "password").chmod(mode)
        caplog.clear()
        kafka_security().password()
        assert ("SASL_PASSWORD_FILE" in caplog.text) is warned, oct(mode)
        assert "s p a c e s" not in caplog.text


def test_what_is_wrong_is_named_before_a_connection_is_made(monkeypatch, files: Path) -> None:
    monkeypatch.chdir(files)
    sasl = {"SECURITY": "sasl_ssl", "SASL_USERNAME": "gate"}
    for values, named in [
        ({"SECURITY": "tls"}, "SECURITY"),
        ({"SECURITY": "sasl_ssl"}, "SASL_USERNAME"),
        (sasl, "SASL_PASSWORD_FILE"),
        ({"SASL_USERNAME": "gate"}, "SECURITY=sasl_ssl"),
        ({"CA_FILE": "ca.pem"}, "SECURITY=ssl"),
        ({"SECURITY": "ssl", "CERT_FILE": "client.pem"}, "KEY_FILE"),
        ({"SECURITY": "ssl", "SASL_MECHANISM": "GSSAPI"}, "SASL_MECHANISM"),
        ({"SECURITY": "ssl", "CA_FILE": "absent.pem"}, "CA_FILE"),
        ({"SECURITY": "ssl", "CA_FILE": "password"}, "CA_FILE"),
        ({"SECURITY": "ssl", "CERT_FILE": "client.pem", "KEY_FILE": "ca.pem"}, "KEY_FILE"),
        ({**sasl, "SASL_PASSWORD_FILE": "absent"}, "SASL_PASSWORD_FILE"),
        ({**sasl, "SASL_PASSWORD_FILE": "empty"}, "SASL_PASSWORD_FILE"),
    ]:
        environment(monkeypatch, **values)
        kafka_security.cache_clear()
        with pytest.raises(UsageError, match=f"GROUNDWIRE_KAFKA_{named}"):
            kafka_security().options()


OIDC = {"SECURITY": "sasl_plaintext", "SASL_MECHANISM": "OAUTHBEARER", "OAUTH_CLIENT_ID": "gate"}


async def test_one_token_of_an_oidc_provider_serves_all_clients_until_it_is_about_to_expire(
    monkeypatch, files: Path
) -> None:
    given: list[str] = []
    refusing = False

    async def provide(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(re.search(rb"content-length: (\d+)", head.lower())[1])
        given.append((head + await reader.readexactly(size)).decode())
        token = {"access_token": f"token-{len(given)}", "token_type": "Bearer", "expires_in": 100}
        body = json.dumps({"error": "invalid_client"} if refusing else token).encode()
        status = b"401 Unauthorized" if refusing else b"200 OK"
        kind = b"Content-Type: application/json"
        writer.write(b"HTTP/1.1 %b\r\n%b\r\nContent-Length: %d\r\n\r\n%b" % (status, kind, len(body), body))
        await writer.drain()
        writer.close()

    async with serving(provide) as port:
        environment(
            monkeypatch,
            **OIDC,
            OAUTH_TOKEN_URL=f"http://127.0.0.1:{port}/token",
            OAUTH_CLIENT_SECRET_FILE=files / "password",
            OAUTH_SCOPE="kafka",
            OAUTH_EXTENSIONS="logicalCluster=lkc-1,identityPoolId=pool-2",
        )
        provider = client_options()["sasl_oauth_token_provider"]
        assert build_app("claims", Settings()).conf.broker_credentials.oauth_cb is provider
        assert client_options() == {
            "security_protocol": "SASL_PLAINTEXT",
            "ssl_context": None,
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": provider,
        }
        clock = [time.time()]
        monkeypatch.setattr(provider, "_clock", lambda: clock[0])
        assert [await provider.token() for _ in range(3)] == ["token-1"] * 3
        clock[0] += 85
        refusing = True
        assert await provider.token() == "token-1", "it is still valid"
        assert "no token" in advice()
        clock[0] += 10
        with pytest.raises(ConnectionError, match="no token: OAuthError: invalid_client"):
            await provider.token()
        refusing = False
        assert await provider.token() == "token-4"
        assert advice() == ""
    assert provider.extensions() == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}
    assert "grant_type=client_credentials&scope=kafka" in given[0]
    secret = base64.b64encode(b"gate:  s p a c e s  ").decode()
    assert f"authorization: Basic {secret}".lower() in given[0].lower()
    assert "s p a c e s" not in repr(kafka_security())


async def test_aws_signs_in_with_tokens_of_its_own_signer_off_the_event_loop(monkeypatch) -> None:
    asked: list[tuple[str, bool]] = []

    class Signer:
        @staticmethod
        def generate_auth_token(region: str) -> tuple[str, int]:
            asked.append((region, threading.current_thread() is threading.main_thread()))
            return f"signed-{len(asked)}", int((time.time() + 900) * 1000)

    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", SimpleNamespace(MSKAuthTokenProvider=Signer))
    environment(monkeypatch, SECURITY="sasl_ssl", SASL_MECHANISM="AWS_MSK_IAM", AWS_REGION="eu-west-1")
    options = client_options()
    assert options["sasl_mechanism"] == "OAUTHBEARER"
    assert [await options["sasl_oauth_token_provider"].token() for _ in range(2)] == ["signed-1"] * 2
    assert asked == [("eu-west-1", False)]


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (OIDC, "OAUTHBEARER needs .*OAUTH_TOKEN_URL and .*OAUTH_CLIENT_SECRET_FILE"),
        ({"SECURITY": "sasl_ssl", "SASL_MECHANISM": "AWS_MSK_IAM"}, "AWS_MSK_IAM needs .*AWS_REGION"),
        (
            {"SECURITY": "sasl_plaintext", "SASL_MECHANISM": "AWS_MSK_IAM", "AWS_REGION": "eu-west-1"},
            "AWS_MSK_IAM needs .*SECURITY=sasl_ssl",
        ),
        (
            {
                "SECURITY": "sasl_ssl",
                "SASL_MECHANISM": "AWS_MSK_IAM",
                "AWS_REGION": "x",
                "SASL_USERNAME": "a",
            },
            "SASL_USERNAME does not go with AWS_MSK_IAM",
        ),
        ({**OIDC, "OAUTH_TOKEN_URL": "idp/token"}, "OAUTH_TOKEN_URL"),
    ],
)
def test_what_a_token_needs_is_named_before_a_connection_is_made(monkeypatch, variables, said) -> None:
    environment(monkeypatch, **variables)
    with pytest.raises(UsageError, match=said):
        client_options()


def test_without_the_extra_of_a_mechanism_it_is_named(monkeypatch, files: Path) -> None:
    environment(
        monkeypatch, **OIDC, OAUTH_TOKEN_URL="http://idp", OAUTH_CLIENT_SECRET_FILE=files / "password"
    )
    monkeypatch.setitem(sys.modules, "authlib.integrations.httpx_client", None)
    with pytest.raises(UsageError, match=r"pip install 'groundwire\[oauth\]'"):
        client_options()
    kafka_security.cache_clear()
    environment(monkeypatch, SECURITY="sasl_ssl", SASL_MECHANISM="AWS_MSK_IAM", AWS_REGION="eu-west-1")
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(UsageError, match=r"pip install 'groundwire\[msk\]'"):
        client_options()
