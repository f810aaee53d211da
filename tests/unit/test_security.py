"""How Kafka is spoken to is told whole, and what is wrong with it by the name of its variable."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from agents.app import build_app
from groundwire.config import Settings, kafka_security
from groundwire.errors import UsageError


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.environ", {})
    kafka_security.cache_clear()
    yield
    kafka_security.cache_clear()


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
