"""Breaks a deployment on purpose and checks that nothing was lost and nothing let through.

    python -m tests.faults --seed 1 --minutes 2
    python -m tests.faults --seed 1 --minutes 120 --broker kafka3 --dir .cache/faults
    python -m tests.faults --seed 1 --minutes 2 --redis replicated

A run is made of episodes of five minutes at most, with the seeds N, N+1, ...; with --dir each leaves its result there,
one that is there already is not run again, and the report sums up all that are there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from deploy.embedded import MissingServiceError
from tests.faults.checker import check, compare_state
from tests.faults.deployment import (
    GRACE,
    LIMITS,
    NODES,
    OVERSHOOT,
    POLICY,
    REBUILD_WAIT,
    REDIS,
    SESSION,
    Crew,
    OneRedis,
    Pages,
    Services,
    Watched,
    running,
)
from tests.faults.history import TOPICS, History, Violation, keep
from tests.faults.load import Inputs, Reviewers, Sender
from tests.faults.nemesis import Fault, Nemesis, schedule
from tests.faults.report import Result, failed, recoveries, stalls, table
from tests.services.serving import serving
from tests.stream.harness import Seen, new_seal_key

_EPISODE = 300.0
_SETTLE = 300.0  # seconds without progress after which a run gives up
_SUSPICIOUS = ("Traceback", "batch.failed", "partition.failed", "stopped.at_deadline")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 1 where a promise was broken, 2 where something needed is not installed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a run that is ended leaves no worker behind
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--seed", type=int, default=int(time.time()), help="of the first episode (default: new)")
    add("--minutes", type=float, default=2.0, help="of load and faults, in all")
    add("--broker", choices=sorted(NODES), default="embedded")
    add(
        "--redis",
        choices=list(REDIS),
        default="one",
        help="one, or a cluster of three without or with replicas",
    )
    add("--dir", type=Path, help="where results stay, so that a run can be resumed")
    add("--rate", type=float, default=15.0, help="inputs a second")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="groundwire-faults-") as scratch:
        folder = options.dir or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        state = "" if options.redis == "one" else f"{options.redis}-"
        wanted = []
        left, seed = options.minutes * 60, options.seed
        while left > 0.5:
            path = folder / f"{options.broker}-{state}{seed}.json"
            if not path.exists():
                wanted.append((seed, min(left, _EPISODE), path))
            left, seed = left - _EPISODE, seed + 1
        try:
            if wanted:
                with running(options.broker, options.redis) as services:
                    for episode in wanted:
                        _episode(services, *episode, options)
        except MissingServiceError as missing:
            click.echo(f"faults: {missing}", err=True)
            return 2
        results = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    click.echo(table(results))
    return 1 if failed(results) else 0


def _episode(services: Services, seed: int, seconds: float, path: Path, options: argparse.Namespace) -> None:
    faults = schedule(seed, seconds, nodes=NODES[options.broker], redis=options.redis)
    click.echo(f"seed {seed}, {len(faults)} faults in {seconds:g} s on {services.kind}:", err=True)
    click.echo("\n".join(map(str, faults)), err=True)
    begun = time.monotonic()
    work = path.with_suffix(".work")
    work.mkdir(exist_ok=True)
    result = asyncio.run(_run(services, seed, options.rate, work, faults, seconds))
    result["took"] = round(time.monotonic() - begun, 1)
    click.echo(f"seed {seed}: {'BROKEN' if failed([result]) else 'held'}, {result['took']} s", err=True)
    path.write_text(json.dumps(result, indent=1))


async def _run(
    services: Services, seed: int, rate: float, folder: Path, faults: Sequence[Fault], seconds: float
) -> Result:
    """Run workers, load and faults; then mend everything, read all topics and check them."""
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    seal_key = new_seal_key(folder / "seal.toml")
    deployment = Watched(services.broker, services.redis, folder)
    reviewers = Reviewers(deployment, folder, seed)
    deployment.environment = {
        **reviewers.settings,
        "GROUNDWIRE_SEAL_KEY": str(seal_key),
        "GROUNDWIRE_REDIS_URL": services.redis.url,
        "GROUNDWIRE_SESSION_TIMEOUT": str(SESSION),
        "GROUNDWIRE_STATE_GRACE": str(GRACE),
        "GROUNDWIRE_REBUILD_WAIT": str(REBUILD_WAIT),
        "GROUNDWIRE_POLICY_FILE": str(policy),
        "GROUNDWIRE_POLICIES_DIR": str(folder / "policies"),
        "GROUNDWIRE_NO_NETWORK": "",
        "GROUNDWIRE_CITATION_PATIENCE": "0",
        "GROUNDWIRE_ALLOW_NETWORKS": "127.0.0.0/8",
    }
    async with AsyncExitStack() as stack:
        pages = Pages()
        pages.port = await stack.enter_async_context(serving(pages.serve))
        page_proxy = await asyncio.to_thread(services.proxies.before, pages.port)
        deployment.environment["GROUNDWIRE_ALLOW_PORTS"] = str(page_proxy.port)
        await stack.enter_async_context(deployment)
        crew = Crew(deployment)
        await crew.begin()
        begun, clock = time.monotonic(), time.time() - time.monotonic()
        address = f"http://127.0.0.1:{page_proxy.port}"
        sender = Sender(deployment, Inputs(seed, address), rate)
        nemesis = Nemesis(services, crew, sender, reviewers, pages, page_proxy)
        watching = asyncio.create_task(crew.watch())
        load = [asyncio.create_task(sender.run()), asyncio.create_task(reviewers.run())]
        await asyncio.gather(asyncio.sleep(seconds), nemesis.run(faults))
        await asyncio.sleep(SESSION)
        broken = await _end(load)
        await sender.finish(_SETTLE)
        mended = time.monotonic()
        behind = await deployment.idle(_SETTLE)
        settled = time.monotonic() - mended
        if behind:
            (folder / "stuck.txt").write_text(await asyncio.to_thread(deployment.dump))
        broken += await _end([watching])
        ended = time.monotonic()
        exits = await crew.stop()
        records: dict[str, list[Seen]] = {topic: [] for topic in TOPICS}
        for seen in await deployment.stored(*TOPICS):
            records[seen.topic].append(seen)
        more = 0 if isinstance(services.redis, OneRedis) else OVERSHOOT
        history = History(
            prefix=deployment.prefix,
            records=records,
            sent=sender.sent,
            limits=replace(LIMITS, tenant=LIMITS.tenant + more, total=LIMITS.total + more),
            seen_at=deployment.seen_at,
            acted_at=reviewers.acted_at,
            forged=frozenset(reviewers.forged),
            ended=ended,
            page_stands=lambda url: url.startswith(f"{address}/ok/"),
        )
        promises = check(history)
        statuses = await deployment.statuses(policy, list(history.subjects))
        promises["state agrees with the topics"] = list(compare_state(history, statuses))
        # every decision is derived again from its record, policy and facts, and seals are checked
        files = ("--policies", str(folder / "policies"), "--seal-keys", str(seal_key))
        status, out, err = await deployment.command("verify", "--from-topics", *files, "--format", "json")
        found = [
            Violation("derived", "groundwire verify", one[:500]) for one in out.splitlines() if one.strip()
        ]
        if status and not found:
            found.append(Violation("derived", f"groundwire verify: exit {status}", err[-500:]))
        promises["decisions follow from their facts"] = found
        promises["everything is worked off"] = [Violation("stuck", what, "not committed") for what in behind]
    if any(promises.values()):
        keep(history, folder / "topics.jsonl")
    return {
        "seed": seed,
        "broker": services.kind,
        "minutes": round(seconds / 60, 2),
        "faults": recoveries(nemesis.struck, stalls(history, clock), begun),
        "failed_faults": nemesis.failed,
        "violations": {promise: [asdict(one) for one in those] for promise, those in promises.items()},
        "told": _told(history, sender, reviewers)
        | {"settled": round(settled, 1), "load": os.getloadavg()[0]},
        "workers": {
            "started": len(deployment.workers),
            "ended_alone": {str(code): count for code, count in crew.ended.items()},
            "stopped": {str(code): count for code, count in exits.items()},
            "logged": {word: sum(one.text.count(word) for one in deployment.workers) for word in _SUSPICIOUS},
            "tasks_broken": broken,
        },
    }


async def _end(tasks: Sequence[asyncio.Task[None]]) -> list[str]:
    broken = [repr(task.exception()) for task in tasks if task.done() and not task.cancelled()]
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task
    return broken


def _told(history: History, sender: Sender, reviewers: Reviewers) -> dict[str, Any]:
    letters = Counter(each[0].header("gw-error") or "" for each in history.letters.values())
    reasons = Counter(seen.json["reason_code"] for _, _, seen in history.revisions())
    return {
        "inputs": sum(len(history.of(topic)) for topic in ("claims", "llm-responses", "review-decisions")),
        "acknowledged": len(sender.sent),
        "actions": len(reviewers.acted_at),
        "subjects": len(history.subjects),
        "decisions": len(history.decisions),
        "provisional": len({s.header("ce_id") for s in history.decisions if s.json["revision"] == 0}),
        "deferred": len(history.of("deferred")),
        "seals": len(history.audit.get("seal", ())),
        "reasons": dict(reasons.most_common()),
        "dead_letters": dict(letters.most_common()),
    }


if __name__ == "__main__":
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs every connection that breaks
    sys.exit(main())
