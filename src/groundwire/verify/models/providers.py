"""The APIs of Anthropic (messages) and of OpenAI (chat completions), which many other services speak too."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from groundwire.epistemic.model import Fault, LogprobToken, ModelRequest
from groundwire.verify.models.http import HttpModel, count, usage_of

_VERSION: Final = "2023-06-01"
_GOOD: Final = frozenset({"end_turn", "stop_sequence"})
_ANTHROPIC_ENDS: Final[dict[object, Fault]] = {
    "max_tokens": "truncated",
    "model_context_window_exceeded": "truncated",
    "refusal": "refused",
}
_CACHED: Final = ("cache_creation_input_tokens", "cache_read_input_tokens")
_OPENAI_ENDS: Final[dict[object, Fault]] = {"length": "truncated", "content_filter": "refused"}
_ALTERNATIVES: Final = 10


class AnthropicModel(HttpModel):
    """A model behind `<url>/v1/messages`. It offers no log-probabilities."""

    path: ClassVar[str] = "/v1/messages"

    def _authority(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": _VERSION, **({"x-api-key": key} if key else {})}

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        return {
            "system": request.system or None,
            "messages": [{"role": "user", "content": request.prompt}],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
        }

    def _text(self, document: Any) -> tuple[str, Fault | None]:  # noqa: ANN401 - any JSON value
        end = document["stop_reason"]
        if end not in _GOOD:
            return "", _ANTHROPIC_ENDS.get(end, "malformed")
        parts = [block["text"] for block in document["content"] if block["type"] == "text"]
        return ("".join(parts), None) if parts else ("", "malformed")

    def _usage(self, document: Any) -> tuple[int | None, int | None]:  # noqa: ANN401 - any JSON value
        usage = usage_of(document)
        sent = count(usage.get("input_tokens"))
        cached = sum(count(usage.get(name)) or 0 for name in _CACHED)
        return (None if sent is None else sent + cached), count(usage.get("output_tokens"))


class OpenAIModel(HttpModel):
    """A model behind `<url>/chat/completions`.

    `logprobs=True` asks for log-probabilities, where the service offers them. A model that wants other members in the
    body gets them by `options`, such as `{"max_tokens": None, "temperature": None, "max_completion_tokens": 2000}`.
    """

    path: ClassVar[str] = "/chat/completions"

    def __init__(self, url: str, key: str | None = None, *, logprobs: bool = False, **others: Any) -> None:  # noqa: ANN401 - those of HttpModel
        super().__init__(url, key, **others)
        self._logprobs = logprobs

    def _authority(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        operator = [{"role": "system", "content": request.system}] if request.system else []
        return {
            "messages": [*operator, {"role": "user", "content": request.prompt}],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            **({"logprobs": True, "top_logprobs": _ALTERNATIVES} if self._logprobs else {}),
        }

    def _text(self, document: Any) -> tuple[str, Fault | None]:  # noqa: ANN401 - any JSON value
        choice = document["choices"][0]
        message, end = choice["message"], choice["finish_reason"]
        if message.get("refusal"):
            return "", "refused"
        if end != "stop":
            return "", _OPENAI_ENDS.get(end, "malformed")
        text = message["content"]
        return (text, None) if isinstance(text, str) else ("", "malformed")

    def _usage(self, document: Any) -> tuple[int | None, int | None]:  # noqa: ANN401 - any JSON value
        usage = usage_of(document)
        return count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))

    def _tokens(self, document: Any) -> tuple[LogprobToken, ...]:  # noqa: ANN401 - any JSON value
        offered = document["choices"][0].get("logprobs")
        if not isinstance(offered, dict) or not offered.get("content"):
            return ()
        return tuple(
            LogprobToken(
                str(one["token"]),
                float(one["logprob"]),
                {str(other["token"]): float(other["logprob"]) for other in one.get("top_logprobs") or ()},
            )
            for one in offered["content"]
        )
