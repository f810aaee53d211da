"""Models: language models over HTTP, any that speak the API of OpenAI or Anthropic, and entailment models in ONNX.

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
from groundwire.epistemic.entailment import EntailmentModel
from groundwire.epistemic.types import VerificationConfig
from groundwire.errors import UsageError, naming
from groundwire.verify.models.http import AnthropicModel, HttpModel, ModelLimits, OpenAIModel

__all__ = [
    "AnthropicModel",
    "AnyModel",
    "HttpModel",
    "ModelLimits",
    "ModelSettings",
    "OpenAIModel",
    "load_model",
]

PREFIX: Final = "GROUNDWIRE_MODEL_"
_URLS: Final = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
_NAMES: Final = {"openai": {}, "anthropic": {"haiku": "claude-haiku-4-5"}}


class ModelSettings(BaseSettings):
    """How to reach the model that verifies claims; the policy holds what it decides."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="ignore",
        frozen=True,
        env_ignore_empty=True,
        hide_input_in_errors=True,
        protected_namespaces=(),
    )

    api: Literal["none", "openai", "anthropic", "entailment"] = Field(
        "none",
        description="API of the service; `entailment`: a model in this process; `none`: rules only.",
    )
    folder: Path | None = Field(
        None, description="With `entailment`: folder of the model that the policy names."
    )
    threads: Annotated[int, Field(ge=1, le=256)] = Field(
        1, description="With `entailment`: threads of the processor."
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
        if (self.folder is None) == (self.api == "entailment"):
            raise ValueError(f"{PREFIX}FOLDER and {PREFIX}API=entailment: set both or none of them")
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


AnyModel = HttpModel | EntailmentModel


def load_model(
    config: VerificationConfig | None = None, *, network: bool = True
) -> HttpModel | EntailmentModel | None:
    """Return the model that the environment names; None where it names none.

    Args:
        config: that of the policy, which names an entailment model.
        network: whether a service may be asked; off, the settings are read, and of services the result is None.

    Raises:
        UsageError: names the variable at fault, never the value of a key; the policy names an entailment model, and
            the environment no folder that holds it.
    """
    named = config.entailment_model if config else ""
    try:
        settings = ModelSettings()
    except ValidationError as exc:
        raise setting_error(ModelSettings, exc) from None
    except SettingsError as exc:  # no JSON
        name = next((name for name in ("names", "options") if f'"{name}"' in str(exc)), "names")
        raise UsageError(f"{PREFIX}{name.upper()}: must be a JSON object") from None
    if settings.folder is not None:
        if not named:
            raise UsageError(
                f"{PREFIX}API: the policy names no entailment model (entailment_model); "
                "`groundwire entailment FOLDER --policy FILE` writes it"
            )
        from groundwire.verify.models.onnx import load_entailment  # noqa: PLC0415 - the other models do without

        with naming(f"{PREFIX}FOLDER"):
            return load_entailment(settings.folder, named, threads=settings.threads)
    if named:
        raise UsageError(
            f"entailment_model: the policy names {named}: set {PREFIX}API=entailment and {PREFIX}FOLDER"
        )
    if settings.api in {"none", "entailment"}:
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
