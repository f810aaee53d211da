"""Settings from the environment, prefix `GROUNDWIRE_`, and those of the connections to Kafka."""

from __future__ import annotations

import logging
import shlex
import ssl
import stat
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from groundwire.errors import UsageError
from groundwire.messages.base import comma_separated

logger = logging.getLogger(__name__)


def _are_networks(value: str) -> str:
    for network in comma_separated(value):
        ip_network(network)
    return value


def _is_command(value: str) -> str:
    shlex.split(value)
    return value


NetworkList = Annotated[str, AfterValidator(_are_networks)]
"""Networks, separated by commas."""


class Settings(BaseSettings):
    """Settings shared by workers and client tools; the policy holds what decides, these only where and how."""

    model_config = SettingsConfigDict(
        env_prefix="GROUNDWIRE_", extra="ignore", frozen=True, env_ignore_empty=True
    )

    brokers: str = Field("127.0.0.1:9092", description="Kafka bootstrap servers, `host:port,...`.")
    redis_url: str = Field(
        "redis://127.0.0.1:6379/0",
        description="Redis primary that holds state, or cluster nodes: `redis+cluster://host:port,...`.",
    )
    topic_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,100}$")] = Field(
        "groundwire.", description="Prefix of topics and state keys."
    )
    group_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,100}$")] = Field(
        "groundwire-", description="Prefix of consumer groups."
    )
    partitions: Annotated[int, Field(ge=1, le=10_000)] = Field(
        8, description="Partitions of each topic, in every process; `topics declare` creates them."
    )
    replication: Annotated[int, Field(ge=1, le=10)] = Field(1, description="Their replicas; 3 in production.")
    policy_file: Path | None = Field(None, description="Policy file, TOML.")
    policies_dir: Path | None = Field(None, description="Folder for effective policies, `<sha256>.json`.")
    keys_file: Path | None = Field(None, description="Signing keys and delegated reviewers, TOML.")
    seal_key: Path | None = Field(None, description="Keys file with the private seal key; none: no seals.")
    seal_keys: Path | None = Field(None, description="Keys file with workers' public seal keys.")
    heads_file: Path | None = Field(
        None, description="File to which workers append heads of their seals, beside the topic `heads`."
    )
    heads_command: Annotated[str, AfterValidator(_is_command)] = Field(
        "", description="Program that keeps what it reads, heads, e.g. in an object store."
    )
    require_seals: bool = Field(
        default=False, description="`1`: rebuilds load only records sealed by GROUNDWIRE_SEAL_KEYS."
    )
    tokens_file: Path | None = Field(None, description="Hashes of the console's API tokens.")
    tenants_file: Path | None = Field(
        None, description="Repositories, ADR folders and trackers by tenant, TOML."
    )
    adr_dir: Path | None = Field(
        None, description="Folder of ADR files (`ADR-12-title.md`, `0012-title.md`) for citations."
    )
    decision_log: Path | None = Field(
        None, description="File of decisions under headings or dates (`decisionLog.md`) for citations."
    )
    repo: Path | None = Field(None, description="Git repository for commit citations.")
    corpus: str = Field("", description="Tenants with a corpus in Redis, `acme,...`; `*`: all.")
    no_network: bool = Field(default=False, description="`1`: URLs and issues are not looked up.")
    allow_networks: NetworkList = Field(
        "", description="Private networks that lookups may reach, `10.0.0.0/8,...`."
    )
    allow_ports: str = Field("80,443", description="Ports that lookups may reach.")
    redirect_hosts: str = Field(
        "", description="Other hosts that redirects may end at, `dl.acm.org,.example.org,...`."
    )
    resolvers: str = Field(
        "",
        description="Where else to look up `doi`, `arxiv`, `pmid`, `rfc`, `cve`, `issue`: `doi=https://x.org/{id},...`.",
    )
    session_timeout: Annotated[float, Field(ge=1, le=300)] = Field(
        15, description="Seconds until a silent worker loses its partitions."
    )
    state_grace: Annotated[float, Field(ge=0, le=3600)] = Field(
        10, description="Seconds to wait for state before a provisional decision."
    )
    instance_id: str | None = Field(
        None, description="Static group membership: a restarted worker keeps its partitions."
    )
    rebuild_wait: Annotated[float, Field(ge=0, le=600)] = Field(
        60, description="Seconds without records in flight before a rebuild."
    )
    citation_patience: Annotated[float, Field(ge=0, le=3600)] = Field(
        600, description="Seconds to retry lookups at a failing host before review."
    )
    rebuild_derives: bool = Field(
        default=True,
        description="`0`: rebuilds load decisions without deriving them, as where seals are required.",
    )
    review_ttl: Annotated[float, Field(gt=0, le=85)] = Field(
        60, description="Days until an unreviewed item expires."
    )
    review_key: str | None = Field(None, description="Key id that signs expiries; none: nothing expires.")
    tracing: bool = Field(
        default=False, description="`1`: workers send OpenTelemetry spans, configured by its own variables."
    )
    shutdown_deadline: Annotated[float, Field(ge=1, le=600)] = Field(
        45, description="Seconds from SIGTERM to a forced exit."
    )
    hash_key: str = Field("", description="Secret for hashes of texts in events; else plain SHA-256.")
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        0, description="Port of /metrics, /live and /ready; 0: none."
    )
    metrics_host: str = Field("127.0.0.1", description="Address of the metrics port.")
    log_format: Literal["console", "json"] = Field("console", description="Log format.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Log level.")

    @property
    def bootstrap(self) -> list[str]:
        """The brokers as a list."""
        return comma_separated(self.brokers)

    @property
    def corpus_tenants(self) -> list[str]:
        """`corpus` as a list."""
        return comma_separated(self.corpus)

    @property
    def networks(self) -> list[str]:
        """`allow_networks` as a list."""
        return comma_separated(self.allow_networks)

    @property
    def ports(self) -> list[int]:
        """`allow_ports` as a list."""
        return [int(port) for port in comma_separated(self.allow_ports)]

    @property
    def redirecting(self) -> list[str]:
        """`redirect_hosts` as a list."""
        return comma_separated(self.redirect_hosts)

    @field_validator("allow_ports")
    @classmethod
    def _are_ports(cls, value: str) -> str:
        if not all(
            port.isascii() and port.isdigit() and 0 < int(port) < 65536 for port in comma_separated(value)
        ):
            raise ValueError("must be ports from 1 to 65535, separated by commas")
        return value


def load_settings() -> Settings:
    """Read the environment. Raises: UsageError naming the variable at fault."""
    try:
        return Settings()
    except ValidationError as exc:
        raise setting_error(Settings, exc) from None


def setting_error(model: type[BaseSettings], exc: ValidationError) -> UsageError:
    """Return the error that names the variable at fault, with its value where that is a number or a choice.

    Text is never repeated: it may be a secret.
    """
    first = exc.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:  # of several settings together: it names them itself
        return UsageError(message)
    variable = f"{model.model_config['env_prefix']}{first['loc'][0]}".upper()
    kinds = ("int_", "float_", "bool_", "finite_", "literal_", "greater_", "less_")
    given = f", not {first['input']!r:.100}" if first["type"].startswith(kinds) else ""
    return UsageError(f"{variable}: {message}{given}")


PREFIX = "GROUNDWIRE_KAFKA_"


class KafkaSecurity(BaseSettings):
    """What every connection to the brokers needs beside their addresses.

    The secrets stand in files, which a process's list of variables does not show.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, env_ignore_empty=True, hide_input_in_errors=True
    )

    security: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = Field(
        "plaintext", description="Protocol of the brokers' listener."
    )
    ca_file: Path | None = Field(None, description="PEM file of the brokers' CA; none: the system's.")
    cert_file: Path | None = Field(None, description="PEM client certificate, for mutual TLS.")
    key_file: Path | None = Field(None, description="Its PEM private key, unencrypted.")
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"] = Field(
        "SCRAM-SHA-512", description="SASL mechanism."
    )
    sasl_username: str | None = Field(None, description="SASL user, of PLAIN and SCRAM.")
    sasl_password_file: Path | None = Field(None, description="File with the password only.")
    oauth_token_url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$")] | None = Field(
        None, description="OAUTHBEARER: token endpoint of the OIDC provider (client credentials)."
    )
    oauth_client_id: str | None = Field(None, description="OAUTHBEARER: client id.")
    oauth_client_secret_file: Path | None = Field(None, description="OAUTHBEARER: file with the secret only.")
    oauth_scope: str | None = Field(None, description="OAUTHBEARER: scopes, separated by spaces.")
    oauth_extensions: Annotated[str, Field(pattern=r"^([A-Za-z]+=[^,]+(,|$))*$")] = Field(
        "", description="OAUTHBEARER: SASL extensions, `logicalCluster=lkc-1,...`."
    )
    oauth_ca_file: Path | None = Field(None, description="PEM file of the provider's CA; none: the system's.")
    aws_region: str | None = Field(
        None, description="AWS_MSK_IAM: region; credentials as AWS SDKs find them."
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        sasl = self.security.startswith("sasl_")
        needed = {
            "OAUTHBEARER": ("oauth_token_url", "oauth_client_id", "oauth_client_secret_file"),
            "AWS_MSK_IAM": ("aws_region",),
        }.get(self.sasl_mechanism, ("sasl_username", "sasl_password_file"))
        if sasl and None in [getattr(self, name) for name in needed]:
            names = " and ".join(f"{PREFIX}{name.upper()}" for name in needed)
            raise ValueError(f"{self.security} with {self.sasl_mechanism} needs {names}")
        if self.by_token and self.sasl_username is not None:
            raise ValueError(f"{PREFIX}SASL_USERNAME does not go with {self.sasl_mechanism}")
        if sasl and self.sasl_mechanism == "AWS_MSK_IAM" and not self.encrypted:
            raise ValueError(f"AWS_MSK_IAM needs {PREFIX}SECURITY=sasl_ssl")
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
    def by_token(self) -> bool:
        """Whether clients sign in with tokens."""
        return self.security.startswith("sasl_") and self.sasl_mechanism in ("OAUTHBEARER", "AWS_MSK_IAM")

    @property
    def variables(self) -> str:
        """What else to look at where a broker does not answer: it may be the credentials."""
        return "" if self.security == "plaintext" else f" and {PREFIX}... ({self.security})"

    def context(self) -> ssl.SSLContext | None:
        """Return what encrypts; None where nothing does. Raises: UsageError naming the file at fault."""
        if not self.encrypted:
            return None
        context = _trusting(self.ca_file, f"{PREFIX}CA_FILE")
        if self.cert_file:
            try:
                # empty: else OpenSSL asks the terminal for the password of an encrypted key
                context.load_cert_chain(self.cert_file, self.key_file, password=lambda: "")
            except (OSError, ssl.SSLError) as exc:
                raise UsageError(
                    f"{PREFIX}CERT_FILE, {PREFIX}KEY_FILE: {self.cert_file}: {_why(exc)}"
                ) from None
        return context

    def password(self) -> str | None:
        """Return the password; None without SASL. Raises: UsageError, the file cannot be read or is empty."""
        return _password(self.sasl_password_file, f"{PREFIX}SASL_PASSWORD_FILE")

    def oauth_context(self) -> ssl.SSLContext:
        """Return how the OIDC provider's certificate is checked. Raises: UsageError."""
        return _trusting(self.oauth_ca_file, f"{PREFIX}OAUTH_CA_FILE")

    def client_secret(self) -> str | None:
        """Return the secret for the OIDC provider. Raises: UsageError."""
        return _password(self.oauth_client_secret_file, f"{PREFIX}OAUTH_CLIENT_SECRET_FILE")

    def options(self) -> dict[str, Any]:
        """Return the arguments for aiokafka's clients, but for tokens. Raises: UsageError."""
        if self.security == "plaintext":
            return {}
        found: dict[str, Any] = {"security_protocol": self.security.upper(), "ssl_context": self.context()}
        if self.by_token:
            found["sasl_mechanism"] = "OAUTHBEARER"  # which carries AWS's tokens too
        elif self.sasl_username is not None:
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


REGISTRY = "GROUNDWIRE_SCHEMA_REGISTRY_"


class RegistrySettings(BaseSettings):
    """Where the schema registry is by which producers write Avro and Protobuf."""

    model_config = SettingsConfigDict(
        env_prefix=REGISTRY, extra="ignore", frozen=True, env_ignore_empty=True, hide_input_in_errors=True
    )

    url: Annotated[str, Field(pattern=r"^(https?://[^\s@]+(,|$))*$")] = Field(
        "", description="URLs of the registry, `https://...,...`; none: Avro and Protobuf are refused."
    )
    username: str | None = Field(None, description="User, where it asks for one.")
    password_file: Path | None = Field(None, description="File with the password only.")
    ca_file: Path | None = Field(None, description="PEM file of its CA; none: the system's.")
    cert_file: Path | None = Field(None, description="PEM client certificate, for mutual TLS.")
    key_file: Path | None = Field(None, description="Its PEM private key, unencrypted.")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        for one, other in (("username", "password_file"), ("cert_file", "key_file")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise ValueError(f"{REGISTRY}{one.upper()} and {REGISTRY}{other.upper()} go together")
        return self

    @classmethod
    def load(cls) -> Self:
        """Read the environment. Raises: UsageError naming the variable at fault."""
        try:
            return cls()
        except ValidationError as exc:
            raise setting_error(cls, exc) from None

    def options(self, seconds: float) -> dict[str, Any]:
        """Return the configuration of Confluent's client. Raises: UsageError, an unreadable file."""
        for name in ("ca_file", "cert_file", "key_file"):
            file = getattr(self, name)
            if file is not None and not file.is_file():
                raise UsageError(f"{REGISTRY}{name.upper()}: {file}: is no file")
        password = _password(self.password_file, f"{REGISTRY}PASSWORD_FILE")
        found = {
            "url": self.url,
            "timeout": seconds,
            "max.retries": 0,  # who waits asks again, and says so
            "basic.auth.user.info": f"{self.username}:{password}" if self.username else None,
            "ssl.ca.location": self.ca_file and str(self.ca_file),
            "ssl.certificate.location": self.cert_file and str(self.cert_file),
            "ssl.key.location": self.key_file and str(self.key_file),
        }
        return {name: value for name, value in found.items() if value is not None}


def _trusting(ca_file: Path | None, variable: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as exc:
        raise UsageError(f"{variable}: {ca_file}: {_why(exc)}") from None


def _password(file: Path | None, variable: str) -> str | None:
    """Read the file that a variable names; None for none. Raises: UsageError, it cannot be read or is empty."""
    if file is None:
        return None
    try:
        if file.stat().st_mode & stat.S_IROTH:
            who = "can be read by every user of this machine: chmod 600"
            logger.warning("%s: %s %s", variable, file, who)
        password = file.read_text("utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{variable}: {file}: {_why(exc)}") from None
    if not password:
        raise UsageError(f"{variable}: {file}: holds no password")
    return password


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"is no readable PEM file ({error.reason or 'not decoded'})"
    return getattr(error, "strerror", None) or type(error).__name__
