"""The API of OpenAI (chat completions), which many other services and servers speak too."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from groundwire.epistemic.model import Fault, Request, Token
from groundwire.verify.models.http import HttpModel, count

_ENDS: Final[dict[object, Fault]] = {"length": "truncated", "content_filter": "refused"}
_ALTERNATIVES: Final = 10


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

    def _body(self, request: Request) -> dict[str, Any]:
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
            return "", _ENDS.get(end, "malformed")
        text = message["content"]
        return (text, None) if isinstance(text, str) else ("", "malformed")

    def _usage(self, document: Any) -> tuple[int | None, int | None]:  # noqa: ANN401 - any JSON value
        usage = document.get("usage") if isinstance(document, dict) else None
        if not isinstance(usage, dict):
            return None, None
        return count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))

    def _tokens(self, document: Any) -> tuple[Token, ...]:  # noqa: ANN401 - any JSON value
        offered = document["choices"][0].get("logprobs")
        if not isinstance(offered, dict) or not offered.get("content"):
            return ()
        return tuple(
            Token(
                str(one["token"]),
                float(one["logprob"]),
                {str(other["token"]): float(other["logprob"]) for other in one.get("top_logprobs") or ()},
            )
            for one in offered["content"]
        )
