"""What every process is told by its environment: one class, prefix `GROUNDWIRE_`."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from groundwire.errors import UsageError

_PLAIN: Final = frozenset(
    {
        *("int_parsing", "int_from_float", "float_parsing", "bool_parsing", "finite_number", "literal_error"),
        *("greater_than", "greater_than_equal", "less_than", "less_than_equal"),
    }
)
"""Kinds of errors of fields that hold a number, a switch or one of a few words."""


class Settings(BaseSettings):
    """Settings shared by workers and client tools; the policy holds what decides, these only where and how."""

    model_config = SettingsConfigDict(
        env_prefix="GROUNDWIRE_", extra="ignore", frozen=True, env_ignore_empty=True
    )

    brokers: str = Field("127.0.0.1:9092", description="Kafka bootstrap servers, `host:port,...`.")
    redis_url: str = Field("redis://127.0.0.1:6379/0", description="The one primary Redis that holds state.")
    topic_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,100}$")] = Field(
        "groundwire.", description="Before every topic's name and every state key."
    )
    group_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,100}$")] = Field(
        "groundwire-", description="Before every consumer group's name."
    )
    partitions: Annotated[int, Field(ge=1, le=10_000)] = Field(
        8, description="Partitions of a topic that `topics declare` creates."
    )
    replication: Annotated[int, Field(ge=1, le=10)] = Field(
        1, description="Replicas of a topic that `topics declare` creates; 3 in production."
    )
    policy_file: Path | None = Field(None, description="The policy, TOML; the defaults where none.")
    policies_dir: Path | None = Field(
        None, description="Where effective policies are kept as `<sha256>.json`."
    )
    keys_file: Path | None = Field(None, description="Keys that sign records, and delegated reviewers.")
    tokens_file: Path | None = Field(None, description="API tokens of the console: hashes, never the tokens.")
    tenants_file: Path | None = Field(
        None, description="Repositories, ADR folders and issue trackers of single tenants, TOML."
    )
    adr_dir: Path | None = Field(None, description="Folder of ADR files; none: ADR citations are unknown.")
    repo: Path | None = Field(None, description="Git repository; none: commit citations are unknown.")
    corpus: str = Field(
        "",
        description="Tenants whose responses are checked against the corpus in Redis, `acme,...`; `*`: all.",
    )
    no_network: bool = Field(default=False, description="`1`: URLs and issues are unknown, nothing is asked.")
    allow_networks: str = Field(
        "", description="Networks that URL checks may reach although they are not public, `10.0.0.0/8,...`."
    )
    allow_ports: str = Field("80,443", description="Ports that URL checks may reach.")
    session_timeout: Annotated[float, Field(ge=1, le=300)] = Field(
        15, description="Seconds until the group gives a silent worker's partitions away."
    )
    state_grace: Annotated[float, Field(ge=0, le=3600)] = Field(
        10, description="Seconds that a claim waits for state before it is decided provisionally."
    )
    instance_id: str | None = Field(
        None, description="Static group membership: a restarted worker gets its partitions back at once."
    )
    rebuild_wait: Annotated[float, Field(ge=0, le=600)] = Field(
        60, description="Seconds that nothing may be in flight any more before lost state is rebuilt."
    )
    review_ttl: Annotated[float, Field(gt=0, le=85)] = Field(
        60, description="Days after which what nobody reviewed expires; `review` keeps its records for 90."
    )
    review_key: str | None = Field(
        None,
        description="Id of the key with which the reviews agent signs what it expires; none: nothing expires.",
    )
    tracing: bool = Field(
        default=False,
        description="`1`: workers send OpenTelemetry spans; where to, and how many, say OpenTelemetry's own variables.",
    )
    shutdown_deadline: Annotated[float, Field(ge=1, le=600)] = Field(
        45, description="Seconds from SIGTERM after which a worker exits whatever it does."
    )
    hash_key: str = Field(
        "", description="Secret that keys the hashes of texts in events; without it they are plain SHA-256."
    )
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        0, description="Port of /metrics, /live and /ready; 0: none."
    )
    metrics_host: str = Field("127.0.0.1", description="Address that the metrics port is bound to.")
    log_format: Literal["console", "json"] = Field("console", description="How logs are written.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level logged.")

    @property
    def bootstrap(self) -> list[str]:
        """The brokers as a list."""
        return _words(self.brokers)

    @property
    def corpus_tenants(self) -> list[str]:
        """`corpus` as a list."""
        return _words(self.corpus)

    @property
    def networks(self) -> list[str]:
        """`allow_networks` as a list."""
        return _words(self.allow_networks)

    @property
    def ports(self) -> list[int]:
        """`allow_ports` as a list."""
        return [int(port) for port in _words(self.allow_ports)]

    @field_validator("allow_networks")
    @classmethod
    def _are_networks(cls, value: str) -> str:
        for network in _words(value):
            ip_network(network)
        return value

    @field_validator("allow_ports")
    @classmethod
    def _are_ports(cls, value: str) -> str:
        if not all(port.isascii() and port.isdigit() and 0 < int(port) < 65536 for port in _words(value)):
            raise ValueError("must be ports from 1 to 65535, separated by commas")
        return value


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]


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
    given = f", not {first['input']!r:.100}" if first["type"] in _PLAIN else ""
    return UsageError(f"{variable}: {message}{given}")
