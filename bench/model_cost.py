"""Print what asking a language model adds to a response, in time, tokens and money: `python -m bench.model_cost`.

A server on this machine speaks the API of OpenAI and takes a fixed time for each answer. Each response is verified
with the model off, for a sample of its claims and for all of them, in turns and in an order that goes round, so that
what disturbs the machine disturbs all three. With `--real` the model is asked that GROUNDWIRE_MODEL_API names, and
tokens are those that it counts; the server here counts a fourth of the bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from groundwire.epistemic.model import CostLine, cost_report
from groundwire.epistemic.types import ModelCall, VerificationConfig
from groundwire.library.epistemic import verify_response
from groundwire.verify.models import HttpModel, ModelLimits, OpenAIModel, load_model

MODES: Final = ("off", "sample", "full")
SUPPORTED: Final = (
    '{"verdict": "supported", "probability": 0.97, "reason": "The passage states it in these words."}'
)
LIKELY: Final = '{"verdict": "true", "probability": 0.4}'
BASE_INPUT, BASE_OUTPUT = 3.0, 15.0
"""US dollars for a million tokens of the model that writes the responses."""
_BYTES: Final = 4  # of a token, about
_QUESTION: Final = "How do these parts behave when something fails?"
_DOES: Final = ("retries", "waits", "stores", "limits", "moves", "reports", "checks", "renews")
_WHAT: Final = ("failed requests", "the offsets", "old records", "its leases", "every payload", "the index")


class Response(NamedTuple):
    answer: str
    passages: dict[str, str]

    @property
    def base_usd(self) -> float:
        """What it cost to write: question and passages sent, the answer received."""
        sent = tokens(_QUESTION + "".join(self.passages.values()))
        return (sent * BASE_INPUT + tokens(self.answer) * BASE_OUTPUT) / 1e6


class Run(NamedTuple):
    """One response verified: seconds, what was asked, and how many claims it has."""

    seconds: float
    calls: Sequence[ModelCall]
    claims: int


def tokens(text: str) -> int:
    return -(-len(text.encode()) // _BYTES)


def responses(count: int, claims: int) -> list[Response]:
    """Return responses of that many claims, each from ten passages of six sentences; no two are alike."""
    rng = random.Random(0)
    made = []
    for number in range(count):
        passages = {
            f"part-{number}-{place}": " ".join(
                f"Component {number}x{place} {rng.choice(_DOES)} {rng.choice(_WHAT)} "
                f"after {rng.randint(2, 999)} seconds in zone {rng.randint(1, 99)}."
                for _ in range(6)
            )
            for place in range(10)
        }
        said = [rng.choice(text.split(". ")).rstrip(".") for text in passages.values()]
        made.append(Response(". ".join(said[:claims]) + ".", passages))
    return made


def service(delay: float) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
                )
                asked = json.loads(await reader.readexactly(int(length.split(b":")[1])))
                await asyncio.sleep(delay)
                body = json.dumps(_answer(asked)).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client or this server closed the connection
        finally:
            writer.close()

    return serve


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    sent = "".join(message["content"] for message in asked["messages"])
    text = SUPPORTED if '"evidence"' in sent else LIKELY
    usage = {"prompt_tokens": tokens(sent), "completion_tokens": tokens(text)}
    return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": usage}


async def verified(response: Response, mode: str, model: HttpModel) -> Run:
    config = VerificationConfig(model_scope="all", mode="full" if mode == "full" else "sample")
    began = time.perf_counter()
    found = await verify_response(
        _QUESTION, response.answer, response.passages, client=None if mode == "off" else model, config=config
    )
    taken = time.perf_counter() - began
    report = found.report
    if report is None or any(call.fault for call in report.calls):
        raise SystemExit(
            f"{mode}: {found.skipped or [call.fault for call in report.calls] if report else '-'}"
        )
    return Run(taken, report.calls, report.total_claims)


async def measured(model: HttpModel, made: Sequence[Response]) -> dict[str, list[Run]]:
    """Verify each response in each mode; a mode is first, second and last equally often."""
    runs: dict[str, list[Run]] = {mode: [] for mode in MODES}
    async with model:
        await verified(responses(1, 2)[0], "full", model)  # connections, and what is remembered of words
        for number, response in enumerate(made):
            turn = number % len(MODES)
            for mode in (*MODES[turn:], *MODES[:turn]):
                # what was asked once is known: each mode has claims of its own
                own = response._replace(answer=response.answer.replace("Component", f"Component {mode}"))
                own = own._replace(
                    passages={
                        name: text.replace("Component", f"Component {mode}")
                        for name, text in own.passages.items()
                    }
                )
                runs[mode].append(await verified(own, mode, model))
    return runs


def print_times(runs: dict[str, list[Run]]) -> None:
    print("| model | questions a response | p50 ms | p95 ms | added p50 ms | added mean ms | added p95 ms |")
    print("|---|---|---|---|---|---|---|")
    off = [run.seconds for run in runs["off"]]
    for mode, found in runs.items():
        times = [run.seconds for run in found]
        added = [one - other for one, other in zip(times, off, strict=True)]
        asked = statistics.mean(len(run.calls) for run in found)
        row = [quantile(times, 0.5), quantile(times, 0.95)]
        row += [quantile(added, 0.5), statistics.mean(added), quantile(added, 0.95)] if mode != "off" else []
        cells = [f"{1_000 * seconds:.0f}" for seconds in row] + ["-"] * (5 - len(row))
        print(f"| {mode} | {asked:.1f} | {' | '.join(cells)} |")


def print_costs(runs: dict[str, list[Run]], made: Sequence[Response]) -> None:
    """Print tokens and money for one response, by kind of question, and the share of what the response cost."""
    count = len(made)
    base = sum(response.base_usd for response in made)
    print("\n| model | for a response | questions | input tokens | output tokens | cost | of the response |")
    print("|---|---|---|---|---|---|---|")
    print("| any | claims found, evidence mapped: by rules | 0 | 0 | 0 | $0 | 0.0 % |")
    for mode in MODES[1:]:
        report = cost_report((call for run in runs[mode] for call in run.calls), base_usd=base)
        for line in (*report.lines, report.total):
            print(f"| {mode} | {line.kind} | {_cells(line, count, base)} |")
        asked = len({call.claim_id for run in runs[mode] for call in run.calls})
        print(f"| {mode} | a claim that is asked about | {_cells(report.total, asked, 0.0)} |")
    print(
        f"\nA response itself: ${base / count:.5f}, {statistics.mean(run.claims for run in runs['off']):.1f} claims."
    )


def _cells(line: CostLine, count: int, base: float) -> str:
    numbers = (line.questions, line.input_tokens, line.output_tokens)
    share = f"{100 * line.cost_usd / base:.1f} %" if base else "-"
    means = " | ".join(
        f"{number / count:.1f}" if number < 100 * count else f"{number / count:.0f}" for number in numbers
    )
    return f"{means} | ${line.cost_usd / count:.5f} | {share}"


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


async def run(options: argparse.Namespace) -> None:
    made = responses(options.responses, options.claims)
    if options.real:
        model = load_model()
        if model is None:
            raise SystemExit("--real: set GROUNDWIRE_MODEL_API")
        runs = await measured(model, made)
    else:
        server = await asyncio.start_server(service(options.delay / 1_000), "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            runs = await measured(OpenAIModel(url, limits=ModelLimits(concurrency=options.concurrency)), made)
    print_times(runs)
    print_costs(runs, made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--responses", type=int, default=120)
    parser.add_argument("--claims", type=int, default=5, help="of a response, at most 10")
    parser.add_argument("--delay", type=float, default=200.0, help="milliseconds that an answer takes")
    parser.add_argument("--concurrency", type=int, default=4, help="requests in flight at once")
    parser.add_argument("--real", action="store_true", help="ask the model that GROUNDWIRE_MODEL_API names")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
