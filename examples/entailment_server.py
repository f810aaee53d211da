"""A small entailment model behind the API that the gate asks: `python examples/entailment_server.py MODEL`.

MODEL is a cross-encoder for sequence classification, by name or folder, that `transformers` loads: one with an output
called "entailment", or a single output that is a score. It needs `transformers` and `torch`, and nothing of Groundwire.
The gate asks it with

    GROUNDWIRE_MODEL_API=openai GROUNDWIRE_MODEL_URL=http://127.0.0.1:8500/v1

and, in the policy, `evidence_scrubbing = false`: such a model knows nothing without evidence.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

MOST_BYTES = 1_000_000
UNKNOWN = 0.02
"""What a claim without evidence is taken for."""

Scorer = Callable[[str, Sequence[str]], Sequence[float]]
"""Claim and passages -> for each passage, or part of one, the probability, 0..1, that it states the claim."""


def load(name: str) -> Scorer:
    """Load a cross-encoder. Raises: ValueError, it has no output for entailment."""
    import torch  # noqa: PLC0415 - the rest needs neither
    from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModelForSequenceClassification.from_pretrained(name).eval()
    place = output_of({label: int(number) for number, label in model.config.id2label.items()})

    longest = min(tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", 512))
    lock = Lock()  # a tokenizer serves one thread at a time

    def score(claim: str, passages: Sequence[str]) -> Sequence[float]:
        if not passages or len(tokenizer(claim)["input_ids"]) > longest // 2:
            return []  # half of a claim is another claim
        with lock, torch.inference_mode():
            windows = tokenizer(
                list(passages),
                [claim] * len(passages),
                max_length=longest,
                truncation="only_first",
                return_overflowing_tokens=True,  # what is behind the end of a long passage makes further windows
                padding=True,
                return_tensors="pt",
            )
            windows.pop("overflow_to_sample_mapping", None)
            outputs = model(**windows).logits
        found = outputs.sigmoid()[:, 0] if place is None else outputs.softmax(-1)[:, place]
        return list(found.tolist())

    return score


def output_of(labels: dict[str, int]) -> int | None:
    """Return which output stands for entailment; None where there is one, a score."""
    if len(labels) == 1:
        return None
    for label, place in labels.items():
        if label.lower().startswith(("entail", "support")):
            return place
    raise ValueError(f"no output of the model is for entailment: {', '.join(labels)}")


def judge(prompt: str, score: Scorer) -> str:
    """Answer a question of the gate: the passage that states the claim best decides."""
    document = json.loads(prompt.split("\n")[1])  # a line of data between two lines with a nonce
    if "evidence" not in document:
        return json.dumps({"verdict": "false", "probability": UNKNOWN})
    passages = [passage["text"] for passage in document["evidence"]]
    best = max(score(document["claim"], passages), default=0.0)
    verdict = "supported" if best >= 0.5 else "unsupported"
    return json.dumps({"verdict": verdict, "probability": round(float(best), 4)})


def serve(score: Scorer, host: str, port: int) -> ThreadingHTTPServer:
    """Return a server of `/v1/chat/completions`, bound and not yet running."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            try:
                request = json.loads(self.rfile.read(min(length, MOST_BYTES)))
                content = judge(request["messages"][-1]["content"], score)
            except (KeyError, IndexError, TypeError, ValueError):
                self._answer(400, {"error": {"message": "not a question of the gate"}})
                return
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": content},
                "finish_reason": "stop",
            }
            self._answer(
                200, {"object": "chat.completion", "model": request.get("model"), "choices": [choice]}
            )

        def _answer(self, status: int, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: requests hold what claims say."""

    return ThreadingHTTPServer((host, port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8500)
    args = parser.parse_args()
    with serve(load(args.model), args.host, args.port) as server:
        print(f"http://{args.host}:{server.server_port}/v1", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
