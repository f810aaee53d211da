"""Breaks a deployment on purpose and checks that nothing was lost and nothing let through.

    python -m tests.faults --seed 1 --minutes 2
    python -m tests.faults --seed 1 --minutes 120 --broker kafka3 --dir .cache/faults
    python -m tests.faults --seed 1 --minutes 2 --redis replicated
    python -m tests.faults --clients --calm --minutes 60 --broker kafka

A run is made of episodes of five minutes at most, with the seeds N, N+1, ...; without faults of one. With `--clients`
four client libraries send, in all codecs, transactions and a registry's framing, and one tenant is hostile from a
quarter of the time on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from deploy.embedded import MissingServiceError
from groundwire.config import RegistrySettings
from groundwire.kafka.registry import Registry
from groundwire.messages.decode import use_registry
from tests.faults.checker import check, compare_state
from tests.faults.clients import HOSTILE, ForeignSender
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
    Proxy,
    Services,
    Watched,
    running,
)
from tests.faults.history import CLAIMS, RESPONSES, REVIEWS, TOPICS, History, Violation, keep, name, place_of
from tests.faults.load import Inputs, Reviewers, Sender
from tests.faults.nemesis import Fault, Nemesis, schedule
from tests.services.schema_registry import schema_registry
from tests.services.serving import serving
from tests.stream.harness import Seen, new_seal_key

Result = dict[str, Any]
_EPISODE = 300.0
_SETTLE = 300.0  # seconds without progress after which a run gives up


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
    add("--dir", type=Path, help="where results, logs and records of each episode stay")
    add("--rate", type=float, default=15.0, help="inputs a second")
    add("--calm", action="store_true", help="cause no faults")
    add("--clients", action="store_true", help="send by Java, franz-go, librdkafka and aiokafka; needs kafka")
    options = parser.parse_args(arguments)
    if options.clients and options.broker == "embedded":
        parser.error("--clients needs --broker kafka: the embedded broker has no transactions")
    results: list[Result] = []
    left, seed = options.minutes * 60, options.seed
    with tempfile.TemporaryDirectory(prefix="groundwire-faults-") as scratch:
        try:
            with running(options.broker, options.redis) as services:
                while left > 0.5:
                    folder = (options.dir or Path(scratch)) / f"{services.kind}-{seed}"
                    folder.mkdir(parents=True)
                    seconds = left if options.calm else min(left, _EPISODE)
                    results.append(_episode(services, seed, seconds, folder, options))
                    left, seed = left - seconds, seed + 1
        except MissingServiceError as missing:
            click.echo(f"faults: {missing}", err=True)
            return 2
    click.echo(_table(results))
    return 1 if any(map(_failed, results)) else 0


def _episode(
    services: Services, seed: int, seconds: float, folder: Path, options: argparse.Namespace
) -> Result:
    faults = schedule(seed, seconds, nodes=NODES[options.broker], redis=options.redis)
    faults = [] if options.calm else faults
    click.echo(f"seed {seed}, {len(faults)} faults in {seconds:g} s on {services.kind}:", err=True)
    click.echo("\n".join(map(str, faults)), err=True)
    result = asyncio.run(_run(services, seed, options, folder, faults, seconds))
    click.echo(f"seed {seed}: {'BROKEN' if _failed(result) else 'held'}", err=True)
    (folder / "result.json").write_text(json.dumps(result, indent=1))
    return result


def _failed(result: Result) -> bool:
    """Whether a promise was broken, or a fault or part of the suite itself did not do what it should."""
    broken = (
        result["failed_faults"] or result["tasks_broken"] or set(result["exits"]) - {0} or result["errors"]
    )
    return bool(broken or any(result["violations"].values()))


def _table(results: Sequence[Result]) -> str:
    faults: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    promises: dict[str, list[str]] = {}
    for result in results:
        faults.update(result["faults"])
        counts.update(result["counts"])
        for promise, broken in result["violations"].items():
            found = [f"        seed {result['seed']}: {one['record']}: {one['detail']}" for one in broken]
            promises.setdefault(promise, []).extend(found)
    seeds = ", ".join(f"{result['services']} {result['seed']}" for result in results)
    lines = [f"{len(results)} runs, {faults.total()} faults (seeds: {seeds})"]
    lines += [", ".join(f"{count} {name}" for name, count in each.items()) for each in (counts, faults)]
    for promise, found in promises.items():
        lines += [f"{'BROKEN' if found else 'held':7} {promise}", *found[:20]]
        lines += [f"        and {len(found) - 20} more"] if len(found) > 20 else []
    lines += [f"not caused: {why}" for result in results for why in result["failed_faults"]]
    lines += [f"a client said: {why}" for result in results for why in result["errors"][:20]]
    lines += [f"{name}: {figure}" for result in results for name, figure in result["waits"].items()]
    return "\n".join(lines)


async def _run(
    services: Services,
    seed: int,
    options: argparse.Namespace,
    folder: Path,
    faults: Sequence[Fault],
    seconds: float,
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
        "GROUNDWIRE_SESSION_TIMEOUT": str(SESSION),
        "GROUNDWIRE_STATE_GRACE": str(GRACE),
        "GROUNDWIRE_REBUILD_WAIT": str(REBUILD_WAIT),
        "GROUNDWIRE_POLICY_FILE": str(policy),
        "GROUNDWIRE_POLICIES_DIR": str(folder / "policies"),
        "GROUNDWIRE_NO_NETWORK": "",
        "GROUNDWIRE_ALLOW_NETWORKS": "127.0.0.0/8",
    }
    async with AsyncExitStack() as stack:
        pages = Pages()
        pages.port = await stack.enter_async_context(serving(pages.serve))
        page_proxy = Proxy(services.portal, pages.port)
        deployment.environment["GROUNDWIRE_ALLOW_PORTS"] = str(page_proxy.port)
        await stack.enter_async_context(deployment)
        address = f"http://127.0.0.1:{page_proxy.port}"
        inputs = Inputs(seed, address)
        sender: Sender | ForeignSender
        if options.clients:
            schemas = stack.enter_context(schema_registry())
            deployment.environment["GROUNDWIRE_SCHEMA_REGISTRY_URL"] = schemas.url
            use_registry(Registry(RegistrySettings(url=schemas.url)).read)
            sender = ForeignSender(deployment, inputs, options.rate, schemas.url, folder)
        else:
            sender = Sender(deployment, inputs, options.rate)
        crew = Crew(deployment)
        watching = asyncio.create_task(crew.watch())
        await crew.begin()
        nemesis = Nemesis(services, crew, sender, reviewers, pages, page_proxy)
        load = [asyncio.create_task(sender.run()), asyncio.create_task(reviewers.run())]
        await asyncio.gather(_load(sender, seconds), nemesis.run(faults))
        await asyncio.sleep(SESSION)
        broken = await _end(load)
        await sender.finish(_SETTLE)
        behind = await deployment.idle(_SETTLE)
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
            page_exists=lambda url: url.startswith(f"{address}/ok/"),
        )
        promises = check(history)
        if isinstance(sender, ForeignSender):
            decided = {history.cause(seen) for seen in history.decisions} & sender.aborted
            promises["what was aborted is not read"] = [
                Violation("aborted", name(place), "decided") for place in decided if place
            ]
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
        "services": services.kind,
        "faults": nemesis.struck,
        "failed_faults": nemesis.failed,
        "violations": {promise: [asdict(one) for one in those] for promise, those in promises.items()},
        "counts": {
            "inputs": sum(len(history.of(topic)) for topic in (CLAIMS, RESPONSES, REVIEWS)),
            "acknowledged": len(sender.sent),
            "actions": len(reviewers.acted_at),
            "subjects": len(history.subjects),
            "decisions": len(history.decisions),
            "deferred": len(history.of("deferred")),
            "seals": len(history.audit.get("seal", ())),
            "dead letters": len(history.letters),
        },
        "exits": dict(exits),
        "tasks_broken": broken,
        "errors": getattr(sender, "errors", []),
        "waits": _waits(history, sender) if isinstance(sender, ForeignSender) else {},
    }


async def _load(sender: Sender | ForeignSender, seconds: float) -> None:
    await asyncio.sleep(seconds / 4)
    if isinstance(sender, ForeignSender):
        sender.hostile_since = time.monotonic()
    await asyncio.sleep(seconds * 3 / 4)


def _waits(history: History, sender: ForeignSender) -> dict[str, str]:
    """Return how long claims of other tenants took that were not deferred, before and beside a hostile one."""
    waits: dict[str, list[float]] = {"alone": [], "beside a hostile tenant": []}
    first = min((at for at in sender.sent_at.values()), default=0.0)
    for seen in history.decisions:
        cause = history.cause(seen)
        hostile = seen.json["tenant_id"] == HOSTILE
        if hostile or cause in history.deferred or cause not in sender.sent_at or seen.json["revision"] != 1:
            continue
        at = sender.sent_at[cause]
        if at > first + 10:  # producers connect
            when = "alone" if at < sender.hostile_since else "beside a hostile tenant"
            waits[when].append(history.seen_at[place_of(seen)] - at)
    found = {
        f"seconds until a claim is decided, {when}": sorted(each) for when, each in waits.items() if each
    }
    return {
        what: f"p50 {each[len(each) // 2]:.3f}, p99 {each[len(each) * 99 // 100]:.3f}"
        for what, each in found.items()
    }


async def _end(tasks: Sequence[asyncio.Task[None]]) -> list[str]:
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    return [repr(end) for end in ends if not isinstance(end, asyncio.CancelledError | None)]


if __name__ == "__main__":
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs every connection that breaks
    sys.exit(main())
