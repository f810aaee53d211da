"""One run of a seed: services, workers, load and faults; then everything is mended, read and checked."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.faults.checker import check, compare_state
from tests.faults.history import TOPICS, History, Violation, keep
from tests.faults.load import Inputs, Reviewers, Sender
from tests.faults.nemesis import Fault, Nemesis
from tests.faults.report import recoveries, stalls
from tests.faults.services import OneRedis, Pages, Services
from tests.faults.workers import LIMITS, OVERSHOOT, POLICY, Crew, Watched, logged
from tests.services.serving import serving
from tests.stream.harness import Seen, new_seal_key

SHOULD_NOT_BE = ("Traceback", "batch.failed", "partition.failed", "stopped.at_deadline")


@dataclass(frozen=True)
class Timing:
    """Seconds: the workers' settings that decide how long things take, and how long a run waits without progress."""

    session: float = 6.0
    grace: float = 2.0
    rebuild_wait: float = 4.0
    settle: float = 300.0


DEFAULTS = Timing(session=15.0, grace=10.0, rebuild_wait=60.0, settle=600.0)
"""What workers do when nobody sets anything."""


@dataclass(frozen=True)
class Setup:
    seed: int
    rate: float
    timing: Timing
    folder: Path


async def run(services: Services, setup: Setup, faults: Sequence[Fault], seconds: float) -> dict[str, Any]:
    setup.folder.mkdir(parents=True, exist_ok=True)
    policy = setup.folder / "policy.toml"
    policy.write_text(POLICY)
    seal_key = new_seal_key(setup.folder / "seal.toml")
    deployment = Watched(services.broker, services.redis, setup.folder)
    reviewers = Reviewers(deployment, setup.folder, setup.seed)
    timing = setup.timing
    deployment.environment = {
        **reviewers.settings,
        "GROUNDWIRE_SEAL_KEY": str(seal_key),
        "GROUNDWIRE_REDIS_URL": services.redis.url,
        "GROUNDWIRE_SESSION_TIMEOUT": str(timing.session),
        "GROUNDWIRE_STATE_GRACE": str(timing.grace),
        "GROUNDWIRE_REBUILD_WAIT": str(timing.rebuild_wait),
        "GROUNDWIRE_POLICY_FILE": str(policy),
        "GROUNDWIRE_POLICIES_DIR": str(setup.folder / "policies"),
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
        sender = Sender(deployment, Inputs(setup.seed, address), setup.rate)
        nemesis = Nemesis(services, crew, sender, reviewers, pages, page_proxy)
        watching = asyncio.create_task(crew.watch())
        load = [asyncio.create_task(sender.run()), asyncio.create_task(reviewers.run())]
        await asyncio.gather(asyncio.sleep(seconds), nemesis.run(faults))
        await asyncio.sleep(setup.timing.session)
        broken = await _end(load)
        await sender.finish(setup.timing.settle)
        mended = time.monotonic()
        behind = await deployment.idle(setup.timing.settle)
        settled = time.monotonic() - mended
        if behind:
            (setup.folder / "stuck.txt").write_text(await asyncio.to_thread(deployment.dump))
        broken += await _end([watching])
        ended = time.monotonic()
        exits = await crew.stop()
        history = History(
            prefix=deployment.prefix,
            records=await stored(deployment),
            sent=sender.sent,
            limits=LIMITS
            if isinstance(services.redis, OneRedis)
            else replace(LIMITS, tenant=LIMITS.tenant + OVERSHOOT, total=LIMITS.total + OVERSHOOT),
            seen_at=deployment.seen_at,
            acted_at=reviewers.acted_at,
            forged=frozenset(reviewers.forged),
            ended=ended,
            page_stands=lambda url: url.startswith(f"{address}/ok/"),
        )
        promises = check(history)
        standings = await deployment.statuses(policy, list(history.subjects))
        promises["state agrees with the topics"] = list(compare_state(history, standings))
        promises["decisions follow from their facts"] = await _verified(deployment, setup.folder, seal_key)
        promises["everything is worked off"] = [Violation("stuck", what, "not committed") for what in behind]
    if any(promises.values()):
        keep(history, setup.folder / "topics.jsonl")
    found = recoveries(nemesis.struck, stalls(history, clock), begun)
    return {
        "seed": setup.seed,
        "broker": services.kind,
        "session": setup.timing.session,
        "minutes": round(seconds / 60, 2),
        "faults": [{**asdict(one), "session": setup.timing.session} for one in found],
        "failed_faults": nemesis.failed,
        "violations": {
            promise: [asdict(one) for one in broken_by] for promise, broken_by in promises.items()
        },
        "told": _told(history, sender, reviewers)
        | {"settled": round(settled, 1), "load": os.getloadavg()[0]},
        "workers": {
            "started": len(deployment.workers),
            "ended_alone": {str(code): count for code, count in crew.ended.items()},
            "stopped": {str(code): count for code, count in exits.items()},
            "logged": logged(deployment, SHOULD_NOT_BE),
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


async def stored(deployment: Watched) -> dict[str, list[Seen]]:
    found: dict[str, list[Seen]] = {topic: [] for topic in TOPICS}
    for seen in await deployment.stored(*TOPICS):
        found[seen.topic].append(seen)
    return found


async def _verified(deployment: Watched, folder: Path, seal_key: Path) -> list[Violation]:
    """Have `groundwire verify` derive every decision again from its record, policy and facts, and check seals."""
    files = ("--policies", str(folder / "policies"), "--seal-keys", str(seal_key))
    status, out, err = await deployment.command("verify", "--from-topics", *files, "--format", "json")
    found = [
        Violation("derived", "groundwire verify", line[:500]) for line in out.splitlines() if line.strip()
    ]
    if status and not found:
        found.append(Violation("derived", f"groundwire verify: exit {status}", err[-500:]))
    return found


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
