"""How Kafka is spoken to: encrypted or not, and as whom."""

from __future__ import annotations

import ssl
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from groundwire.errors import UsageError
from groundwire.settings import setting_error

PREFIX = "GROUNDWIRE_KAFKA_"


class KafkaSecurity(BaseSettings):
    """What every connection to the brokers needs beside their addresses.

    The secrets stand in files, which a process's list of variables does not show.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, env_ignore_empty=True, hide_input_in_errors=True
    )

    security: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = Field(
        "plaintext", description="How the brokers' listener is spoken to."
    )
    ca_file: Path | None = Field(
        None, description="PEM file of who vouches for the brokers; none: whom the system trusts."
    )
    cert_file: Path | None = Field(None, description="PEM file of the client's certificate, for mutual TLS.")
    key_file: Path | None = Field(None, description="PEM file of its private key, unencrypted.")
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="How the password is proved."
    )
    sasl_username: str | None = Field(None, description="Whom the brokers know.")
    sasl_password_file: Path | None = Field(
        None, description="File that holds the password and nothing else."
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        sasl = self.security.startswith("sasl_")
        if sasl and (self.sasl_username is None or self.sasl_password_file is None):
            raise ValueError(f"{self.security} needs {PREFIX}SASL_USERNAME and {PREFIX}SASL_PASSWORD_FILE")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError(f"{PREFIX}CERT_FILE and {PREFIX}KEY_FILE go together")
        if not self.encrypted and (self.ca_file or self.cert_file):
            raise ValueError(f"{PREFIX}CA_FILE and {PREFIX}CERT_FILE need {PREFIX}SECURITY=ssl or sasl_ssl")
        if not sasl and self.sasl_username is not None:
            raise ValueError(f"{PREFIX}SASL_USERNAME needs {PREFIX}SECURITY=sasl_ssl or sasl_plaintext")
        return self

    @property
    def encrypted(self) -> bool:
        """Whether connections are encrypted, and the brokers' certificates checked."""
        return self.security.endswith("ssl")

    @property
    def variables(self) -> str:
        """What else to look at where a broker does not answer: it may be the credentials."""
        return "" if self.security == "plaintext" else f" and {PREFIX}... ({self.security})"

    def context(self) -> ssl.SSLContext | None:
        """Return what encrypts; None where nothing does. Raises: UsageError naming the file at fault."""
        if not self.encrypted:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as exc:
            raise UsageError(f"{PREFIX}CA_FILE: {self.ca_file}: {_why(exc)}") from None
        if self.cert_file:
            try:
                context.load_cert_chain(self.cert_file, self.key_file, password=_none)
            except (OSError, ssl.SSLError) as exc:
                raise UsageError(
                    f"{PREFIX}CERT_FILE, {PREFIX}KEY_FILE: {self.cert_file}: {_why(exc)}"
                ) from None
        return context

    def password(self) -> str | None:
        """Return the password; None without SASL. Raises: UsageError, the file cannot be read or is empty."""
        if self.sasl_password_file is None:
            return None
        try:
            password = self.sasl_password_file.read_text("utf-8").strip("\r\n")
        except (OSError, UnicodeDecodeError) as exc:
            raise UsageError(f"{PREFIX}SASL_PASSWORD_FILE: {self.sasl_password_file}: {_why(exc)}") from None
        if not password:
            raise UsageError(f"{PREFIX}SASL_PASSWORD_FILE: {self.sasl_password_file}: holds no password")
        return password

    def options(self) -> dict[str, Any]:
        """Return the arguments for aiokafka's clients. Raises: UsageError."""
        if self.security == "plaintext":
            return {}
        found: dict[str, Any] = {"security_protocol": self.security.upper(), "ssl_context": self.context()}
        if self.sasl_username is not None:
            found |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.sasl_username,
                "sasl_plain_password": self.password(),
            }
        return found


@cache
def kafka_security() -> KafkaSecurity:
    """Read the environment, once. Raises: UsageError naming the variable at fault."""
    try:
        return KafkaSecurity()
    except ValidationError as exc:
        raise setting_error(KafkaSecurity, exc) from None


def _none() -> str:
    """Keep OpenSSL from asking the terminal for the password of an encrypted key."""
    return ""


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"is no readable PEM file ({error.reason or 'not decoded'})"
    return getattr(error, "strerror", None) or type(error).__name__
