"""`groundwire state`: what the state of a deployment takes in Redis, and what it is going to take."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import click
from rich.console import Console

from groundwire.cli.options import format_option, reporting
from groundwire.cli.output import columns
from groundwire.config import load_settings
from groundwire.state.redis import GLOB, RedisState
from groundwire.state.server import Server, connect

_KINDS: Final = {
    "s": "outcomes",
    **dict.fromkeys("kbmx", "index"),
    "c": "beginnings of derivation lines",
    "d": "who rests on whom",
    "a": "actions of people",
    "o": "decisions that an action superseded",
    "r": "outcomes that a later record superseded",
    "w": "waiting claims",
    "q": "counters",
    "f": "in flight",
    **dict.fromkeys(("epoch", "scheme", "rebuild", "alive"), "epoch, scheme"),
    "policy": "policies",
    "corpus": "corpus",
    "citation": "cached citations",
    "qc": "query cache",
    "console": "console",
}
_TAG: Final = re.compile(rb"^\{\d+\}")  # of a partition in a cluster
_REMEMBERED: Final = ("outcomes", "index")
_GB: Final = 1_000_000_000


@dataclass(slots=True)
class Usage:
    """Keys of one kind: how many there are, and what those take that were measured."""

    number: int = 0
    measured: int = 0
    measured_bytes: int = 0

    @property
    def total(self) -> int:
        """Bytes of all of them, at the mean of those measured."""
        return round(self.number * self.measured_bytes / self.measured) if self.measured else 0


@dataclass(slots=True)
class StateSize:
    """What state takes.

    Attributes:
        kinds: by what the keys are for.
        pending: bytes of the pending records of each tenant.
        used: bytes that the server uses in all.
        limit: its `maxmemory`, in a cluster that of all primaries; 0: one of them has none.
        room: bytes until then; of a cluster until the fullest primary is full, since all fill alike.
    """

    kinds: dict[str, Usage] = field(default_factory=lambda: defaultdict(Usage))
    pending: dict[str, int] = field(default_factory=dict)
    used: int = 0
    limit: int = 0
    room: int = 0

    @property
    def per_outcome(self) -> float:
        """Mean bytes of an outcome with its share of the index."""
        outcomes = self.kinds["outcomes"].number
        return sum(self.kinds[kind].total for kind in _REMEMBERED) / outcomes if outcomes else 0.0

    def projection(self, claims: int | None, daily: int | None) -> dict[str, float]:
        """Return what follows from the mean of an outcome for so many more claims; nothing where there is none yet."""
        mean = self.per_outcome
        if not mean:
            return {}
        found: dict[str, float] = {"bytes_per_outcome": round(mean), "outcomes_per_gb": int(_GB / mean)}
        if claims is not None:
            found["bytes_of_claims"] = round(claims * mean)
        if self.limit:
            found["outcomes_until_maxmemory"] = int(self.room / mean)
            if daily:
                found["days_until_maxmemory"] = round(self.room / mean / daily, 1)
        return found


@click.group(name="state")
def state() -> None:
    """See what the gate remembers in Redis. Nothing is changed; settings come from the environment, as for workers.

    Example: groundwire state size --claims 1000000
    """


@state.command(name="size")
@click.option("--claims", type=click.IntRange(min=1), help="Project the bytes of so many more claims.")
@click.option(
    "--daily", type=click.IntRange(min=1), help="Project the days until maxmemory at so many a day."
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=1_000,
    show_default=True,
    help="How many keys of each kind are measured.",
)
@format_option
def size(*, claims: int | None, daily: int | None, sample: int, layout: str) -> None:
    """Show how many keys of each kind state has, and how many bytes they take.

    All keys of the deployment are counted, by SCAN, which never holds up the server for long. The first of each kind
    that SCAN meets, in no particular order, are measured by MEMORY USAGE; the others are taken to be like them. A
    claim that others are compared with is an outcome and a part of the index. Keys carry digests, no tenants: only
    the bytes of pending records are told by tenant.

    Exit status: 0, or 2 for usage and Redis out of reach.

    Example: groundwire state size --claims 1000000 --daily 50000
    """

    async def ask() -> StateSize:
        settings = load_settings()
        redis = connect(settings.redis_url)
        state_of = RedisState(redis, settings.topic_prefix, scheme="", partitions=settings.partitions)
        try:
            await state_of.server.check_kind()
            with Console(stderr=True, highlight=False).status("0 keys") as status:
                where = state_of.server, state_of, settings.topic_prefix
                return await measure(*where, sample, lambda n: status.update(f"{n:,} keys"))
        finally:
            await state_of.close()

    with reporting():
        found = asyncio.run(ask())
    projection = found.projection(claims, daily)
    if layout == "json":
        kinds = {
            kind: {"keys": usage.number, "measured": usage.measured, "bytes": usage.total}
            for kind, usage in sorted(found.kinds.items())
        }
        memory = {"used_memory": found.used, "maxmemory": found.limit, "projection": projection}
        pending = dict(sorted(found.pending.items()))
        click.echo(json.dumps({"kinds": kinds, "pending_bytes": pending, **memory}))
        return
    lines = [["what", "keys", "measured", "bytes"]]
    for kind, usage in sorted(found.kinds.items(), key=lambda each: (-each[1].total, each[0])):
        lines.append([kind, f"{usage.number:,}", f"{usage.measured:,}", f"{usage.total:,}"])
    pending_lines = [
        ["pending records of tenant", tenant, f"{size:,} bytes"]
        for tenant, size in sorted(found.pending.items())
    ]
    summary = [["bytes the server uses", f"{found.used:,}"]]
    summary.append(["its maxmemory", f"{found.limit:,}" if found.limit else "none"])
    if not found.limit:
        summary.append(["until maxmemory", "cannot be told without one"])
    summary += [[_PROJECTED[name], f"{value:,}"] for name, value in projection.items()]
    for part in (lines, pending_lines, summary):
        if part is summary or (part is pending_lines and part):
            click.echo()
        for line in columns(part):
            click.echo(line)


async def measure(
    server: Server, state_of: RedisState, prefix: str, sample: int, counted: Callable[[int], None]
) -> StateSize:
    """Count the keys under a prefix, and measure up to `sample` of each kind.

    `counted` is called with how many keys were counted so far. Raises: StateUnavailable.
    """
    found, total = StateSize(), 0
    pattern = prefix.translate(GLOB) + "*"
    async for keys in server.scan(pattern, 1_000):  # a few milliseconds of the server; a key may come twice
        for key in keys:
            bare = _TAG.sub(b"", key[len(prefix.encode()) :]).split(b":", 1)[0].strip(b"{}")
            # `other`: what no version of the gate that is known here has written
            usage = found.kinds[_KINDS.get(bare.decode(errors="replace"), "other")]
            usage.number += 1
            if usage.measured < sample:
                taken = await server.call("MEMORY USAGE", key)
                if taken is not None:  # it has not expired meanwhile
                    usage.measured += 1
                    usage.measured_bytes += int(taken)
        total += len(keys)
        counted(total)
    _, stored = await state_of.tenants_use()
    found.pending = {tenant.decode(errors="replace"): size for tenant, size in stored.items()}
    memories = await server.infos("memory")
    found.used = sum(int(memory["used_memory"]) for memory in memories)
    limits = [int(memory.get("maxmemory", 0)) for memory in memories]
    if all(limits):
        found.limit = sum(limits)
        least = min(
            limit - int(memory["used_memory"]) for limit, memory in zip(limits, memories, strict=True)
        )
        found.room = max(0, least) * len(limits)
    return found


_PROJECTED: Final = {
    "bytes_per_outcome": "bytes an outcome, its share of the index included",
    "outcomes_per_gb": "outcomes in a GB at that",
    "bytes_of_claims": "bytes of --claims more",
    "outcomes_until_maxmemory": "outcomes until maxmemory",
    "days_until_maxmemory": "days until maxmemory",
}
