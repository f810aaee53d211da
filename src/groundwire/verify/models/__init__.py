"""Language models over HTTP: any service that speaks the API of OpenAI or that of Anthropic.

async with OpenAIModel("http://127.0.0.1:8000/v1") as model:
    verified = await verify_response(query, answer, context, client=model)

Here also the settings of the model that the environment names, prefix `GROUNDWIRE_MODEL_`.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from groundwire.config import setting_error
from groundwire.errors import UsageError
from groundwire.verify.models.http import AnthropicModel, HttpModel, ModelLimits, OpenAIModel

__all__ = ["AnthropicModel", "HttpModel", "ModelLimits", "ModelSettings", "OpenAIModel", "load_model"]

PREFIX: Final = "GROUNDWIRE_MODEL_"
_URLS: Final = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
_NAMES: Final = {"openai": {}, "anthropic": {"haiku": "claude-haiku-4-5"}}


class ModelSettings(BaseSettings):
    """How to reach the language model that verifies claims; the policy holds what it decides."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="ignore",
        frozen=True,
        env_ignore_empty=True,
        hide_input_in_errors=True,
        protected_namespaces=(),
    )

    api: Literal["none", "openai", "anthropic"] = Field(
        "none", description="API of the service; `none`: rules only."
    )
    url: str | None = Field(
        None,
        description="Base of the API, such as `http://127.0.0.1:8000/v1`, for `anthropic` without `/v1`; "
        "none: that of the company.",
    )
    key: SecretStr | None = Field(None, description="Key for the service. A file is better.")
    key_file: Path | None = Field(None, description="File with the key only.")
    ca_file: Path | None = Field(None, description="PEM file of the service's CA; none: the system's.")
    names: dict[str, str] = Field(
        default={}, description="JSON: model name in the policy to that of the service."
    )
    options: dict[str, Any] = Field(
        default={}, description="JSON: extra members of the request; null removes one."
    )
    logprobs: bool = Field(
        default=False, description="`1`: ask for log-probabilities (`openai`, where the service offers them)."
    )
    concurrency: Annotated[int, Field(ge=1, le=1_000)] = Field(4, description="Concurrent requests.")
    attempts: Annotated[int, Field(ge=1, le=10)] = Field(3, description="Most requests for one question.")
    failures: Annotated[int, Field(ge=1, le=1_000)] = Field(
        5, description="Failures in a row before a pause."
    )
    pause: Annotated[float, Field(gt=0, le=3_600)] = Field(30, description="Seconds of the pause.")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.key and self.key_file:
            raise ValueError(f"{PREFIX}KEY and {PREFIX}KEY_FILE: set one of them")
        if self.logprobs and self.api != "openai":
            raise ValueError(f"{PREFIX}LOGPROBS needs {PREFIX}API=openai")
        return self

    def secret(self) -> str | None:
        """Return the key; None without one. Raises: UsageError, the file cannot be read or is empty."""
        if self.key_file is None:
            return self.key.get_secret_value() if self.key else None
        try:
            key = self.key_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as exc:
            # the message of a decoding error would quote the key
            why = exc.strerror if isinstance(exc, OSError) else None
            raise UsageError(f"{PREFIX}KEY_FILE: {self.key_file}: {why or type(exc).__name__}") from None
        if not key:
            raise UsageError(f"{PREFIX}KEY_FILE: {self.key_file}: holds no key")
        return key

    def tls(self) -> ssl.SSLContext | None:
        """Return whom to trust; None for whom the system does. Raises: UsageError naming the file."""
        if self.ca_file is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as exc:
            raise UsageError(
                f"{PREFIX}CA_FILE: {self.ca_file}: {exc.strerror or type(exc).__name__}"
            ) from None


def load_model(*, network: bool = True) -> HttpModel | None:
    """Return the model that the environment names; None where it names none.

    Args:
        network: whether anything may be asked at all; off, the settings are read, and the result is None.

    Raises:
        UsageError: names the variable at fault, never its value.
    """
    try:
        settings = ModelSettings()
    except ValidationError as exc:
        raise setting_error(ModelSettings, exc) from None
    except SettingsError as exc:  # no JSON
        name = next((name for name in ("names", "options") if f'"{name}"' in str(exc)), "names")
        raise UsageError(f"{PREFIX}{name.upper()}: must be a JSON object") from None
    if settings.api == "none":
        return None
    limits = ModelLimits(settings.concurrency, settings.attempts, settings.failures, settings.pause)
    others: dict[str, Any] = {"logprobs": True} if settings.logprobs else {}
    kind = OpenAIModel if settings.api == "openai" else AnthropicModel
    key = settings.secret()
    names = {**_NAMES[settings.api], **settings.names}
    try:
        model = kind(
            settings.url or _URLS[settings.api],
            key,
            names=names,
            options=settings.options,
            limits=limits,
            tls=settings.tls(),
            **others,
        )
    except ValueError as exc:
        argument, _, why = str(exc).partition(": ")
        raise UsageError(f"{PREFIX}{argument.upper()}: {why}") from None
    if key is None and settings.url is None:
        where = f"{_URLS[settings.api]} answers nobody without a key"
        raise UsageError(f"{PREFIX}KEY_FILE: {where}; {PREFIX}URL names another service")
    return model if network else None
