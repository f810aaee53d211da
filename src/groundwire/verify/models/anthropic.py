"""The API of Anthropic (messages)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from groundwire.epistemic.model import Fault, Request
from groundwire.verify.models.http import HttpModel, count

_VERSION: Final = "2023-06-01"
_GOOD: Final = frozenset({"end_turn", "stop_sequence"})
_ENDS: Final[dict[object, Fault]] = {
    "max_tokens": "truncated",
    "model_context_window_exceeded": "truncated",
    "refusal": "refused",
}
_SENT: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class AnthropicModel(HttpModel):
    """A model behind `<url>/v1/messages`. It offers no log-probabilities."""

    path: ClassVar[str] = "/v1/messages"

    def _authority(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": _VERSION, **({"x-api-key": key} if key else {})}

    def _body(self, request: Request) -> dict[str, Any]:
        return {
            "system": request.system or None,
            "messages": [{"role": "user", "content": request.prompt}],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
        }

    def _text(self, document: Any) -> tuple[str, Fault | None]:  # noqa: ANN401 - any JSON value
        end = document["stop_reason"]
        if end not in _GOOD:
            return "", _ENDS.get(end, "malformed")
        parts = [block["text"] for block in document["content"] if block["type"] == "text"]
        return ("".join(parts), None) if parts else ("", "malformed")

    def _usage(self, document: Any) -> tuple[int | None, int | None]:  # noqa: ANN401 - any JSON value
        usage = document.get("usage") if isinstance(document, dict) else None
        if not isinstance(usage, dict):
            return None, None
        sent = count(usage.get("input_tokens"))
        cached = sum(count(usage.get(name)) or 0 for name in _SENT[1:])
        return (None if sent is None else sent + cached), count(usage.get("output_tokens"))
