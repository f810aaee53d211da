"""Settings of the console from environment variables, prefix `GROUNDWIRE_CONSOLE_`."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from groundwire.config import NetworkList, setting_error
from groundwire.messages.base import comma_separated

Network = IPv4Network | IPv6Network
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, word: str) -> ScrapeTarget:
        try:
            parts = urlsplit(f"//{word}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or not port or parts.netloc != word or "@" in word:
            raise ValueError("must be host:port, several separated by commas, for example claims:9100")
        return cls(host, port)


class ConsoleSettings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="GROUNDWIRE_CONSOLE_", extra="ignore", frozen=True, env_ignore_empty=True
    )

    host: str = Field("127.0.0.1", description="Address to bind.")
    port: int = Field(8700, ge=0, le=65535, description="Port; 0: any free one.")
    public_url: str | None = Field(
        None,
        description="Public address, `https://review.acme.example`; sets host check, cookies, HSTS.",
    )
    source_url: str | None = Field(
        None,
        description="Link for a `source_id`, `https://wiki.acme.example/{source_id}`.",
    )
    key: str | None = Field(None, description="Key id, role reviewer, that signs actions; required.")
    secret: SecretStr | None = Field(
        None,
        description="Signs session cookies; 32 characters or more; none: one for each start.",
    )
    guidelines: Path | None = Field(
        None, description="Folder with a Markdown file of guidelines for each tenant, `<tenant>.md`."
    )
    notify_file: Path | None = Field(None, description="Webhooks of tenants for what waits too long, TOML.")
    board: Path | None = Field(
        None, description="SQLite mirror of the topics; none: in the user's cache folder, else temporary."
    )

    oidc_issuer: str | None = Field(None, description="OpenID Connect issuer; none: no OIDC sign-in.")
    oidc_client_id: str | None = Field(None, description="Client id at the issuer.")
    oidc_client_secret: SecretStr | None = Field(None, description="Client secret at the issuer.")
    oidc_scope: str = Field("openid email profile", description="Scopes requested.")
    oidc_name_claim: str = Field(
        "email", description="Claim that names the person; `email` counts only with `email_verified`."
    )
    oidc_tenants_claim: str = Field("groundwire_tenants", description="Claim that lists the tenants.")
    oidc_tenants: str = Field("", description="Tenants of everybody if no claim lists them, `acme,...`.")

    proxy_header: str | None = Field(
        None, description="Header with the person's name from a trusted proxy; none: no proxy sign-in."
    )
    proxy_tenants_header: str | None = Field(None, description="Header with the tenants.")
    proxy_tenants: str = Field("", description="Tenants of everybody if no header lists them, `acme,...`.")
    proxy_addresses: NetworkList = Field(
        "", description="Networks of the proxy, `10.0.0.7/32,...`; required with it."
    )

    tour: bool = Field(
        default=False, description="`1`: show people a tour of four steps until they close it."
    )
    session_hours: float = Field(8, gt=0, le=24 * 30, description="Hours until sign-in expires.")
    undo_seconds: float = Field(
        5, ge=0, le=60, description="Seconds to undo an action before it is published."
    )
    lock_seconds: float = Field(
        45, ge=5, le=3600, description="Seconds an item stays locked after its page goes silent."
    )
    workers: str = Field(
        "",
        description="Metrics ports of all workers, `host:port,...`, for the status page; a name may resolve to"
        " several.",
    )
    grafana_url: str | None = Field(
        None,
        description="Link to the dashboard, `https://grafana.acme.example/d/groundwire`.",
    )

    rate_identity: int = Field(600, ge=1, description="Requests a minute of one person.")
    rate_address: int = Field(1200, ge=1, description="Requests a minute of one address.")
    rate_signin: int = Field(20, ge=1, description="Sign-in attempts a minute of one address.")

    @field_validator("public_url")
    @classmethod
    def _is_origin(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "http://x")
        if not _is_web(parts) or parts.path.rstrip("/") or parts.query:
            raise ValueError("must be a scheme and a host, for example https://review.acme.example")
        if parts.scheme == "http" and value and parts.hostname not in LOOPBACK:
            raise ValueError("must be https, but for a loopback address: sessions would travel in the clear")
        return value.rstrip("/") if value else None

    @field_validator("source_url", "grafana_url")
    @classmethod
    def _is_page(cls, value: str | None, info: ValidationInfo) -> str | None:
        parts, of_source = urlsplit(value or "https://x/{source_id}"), info.field_name == "source_url"
        if not _is_web(parts) or (of_source and "{source_id}" in parts.netloc):
            example = (
                "https://wiki.acme.example/{source_id}"
                if of_source
                else "https://grafana.acme.example/d/groundwire"
            )
            raise ValueError(f"must be an http or https address, for example {example}")
        if of_source and "{source_id}" not in (value or "{source_id}"):
            raise ValueError("must hold {source_id} where the id of the source goes")
        return value

    @field_validator("secret")
    @classmethod
    def _is_long(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < 32:
            raise ValueError("must have 32 characters or more")
        return value

    @field_validator("guidelines")
    @classmethod
    def _is_folder(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_dir():
            raise ValueError("must be a folder with a file <tenant>.md for each tenant that has guidelines")
        return value

    @field_validator("workers")
    @classmethod
    def _are_targets(cls, value: str) -> str:
        for word in comma_separated(value):
            ScrapeTarget.parse(word)
        return value

    @model_validator(mode="after")
    def _whole(self) -> ConsoleSettings:
        if self.host not in LOOPBACK and not self.public_url:
            raise ValueError(
                "GROUNDWIRE_CONSOLE_HOST is not a loopback address: set GROUNDWIRE_CONSOLE_PUBLIC_URL to where"
                " people reach the console"
            )
        if self.oidc_issuer and not (self.oidc_client_id and self.oidc_client_secret):
            raise ValueError(
                "GROUNDWIRE_CONSOLE_OIDC_ISSUER needs GROUNDWIRE_CONSOLE_OIDC_CLIENT_ID and"
                " GROUNDWIRE_CONSOLE_OIDC_CLIENT_SECRET beside it"
            )
        if self.proxy_header and not comma_separated(self.proxy_addresses):
            raise ValueError(
                "GROUNDWIRE_CONSOLE_PROXY_HEADER needs GROUNDWIRE_CONSOLE_PROXY_ADDRESSES: from whom the header may"
                " come"
            )
        if self.proxy_header and not (self.proxy_tenants_header or comma_separated(self.proxy_tenants)):
            raise ValueError(
                "GROUNDWIRE_CONSOLE_PROXY_HEADER needs GROUNDWIRE_CONSOLE_PROXY_TENANTS_HEADER or"
                " GROUNDWIRE_CONSOLE_PROXY_TENANTS"
            )
        return self

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.public_url or f"http://{host}:{self.port}"

    @property
    def secure(self) -> bool:
        """Whether people reach it by https, as anywhere but on loopback: cookies are Secure, HSTS is sent."""
        return self.origin.startswith("https:")

    @property
    def origins(self) -> frozenset[str]:
        """Origins whose pages may write; on loopback, every name of it."""
        parts = urlsplit(self.origin)
        names = ("127.0.0.1", "[::1]", "localhost") if parts.hostname in LOOPBACK else ()
        port = f":{parts.port}" if parts.port else ""
        return frozenset({self.origin.lower(), *(f"{parts.scheme}://{name}{port}" for name in names)})

    @property
    def proxies(self) -> tuple[Network, ...]:
        return tuple(ip_network(network) for network in comma_separated(self.proxy_addresses))

    @property
    def targets(self) -> tuple[ScrapeTarget, ...]:
        return tuple(dict.fromkeys(ScrapeTarget.parse(word) for word in comma_separated(self.workers)))


def _is_web(parts: SplitResult) -> bool:
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def load_console_settings() -> ConsoleSettings:
    """Read the environment. Raises: UsageError naming the variable at fault, never what may be a secret."""
    try:
        return ConsoleSettings()
    except ValidationError as exc:
        raise setting_error(ConsoleSettings, exc) from None
