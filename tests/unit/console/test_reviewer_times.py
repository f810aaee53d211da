"""A reviewer's median is of the times that people took at pages, as a look at everything that happened counts them."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import httpx
import pytest

from tests.unit.console.rooms import Room, approved, csrf, make_decision, make_room
from tests.unit.console.test_reviewers import told

ABSENCE = 600


@dataclass
class Sitting:
    """A browser at work, and what it did: when it was seen at each page, and each decision with how it ended."""

    room: Room
    browser: httpx.AsyncClient
    token: str
    seen: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    decided: list[tuple[str, float, str]] = field(default_factory=list)
    """Item, when, and `counts` or why it does not count."""

    @property
    def now(self) -> float:
        return self.room.clock.now.timestamp()

    async def open(self, item: str) -> None:
        await self.browser.get(f"/items/{item}")
        self.seen[item].append(self.now)

    async def stay(self, item: str) -> None:
        await self.browser.post(f"/api/items/{item}/lock", json={}, headers={"x-csrf-token": self.token})
        if self.seen[item]:
            self.seen[item].append(self.now)

    async def decide(self, item: str, way: str) -> None:
        sent: dict[str, Any] = {"csrf": self.token, "action": "approve", "revision": "1"}
        if way == "several":
            del sent["revision"]
            await self.browser.post("/bulk", data={**sent, "ids": f"{item}:1", "sure": "yes"})
        else:
            back = {"back": "queue"} if way == "list" else {}
            await self.browser.post(f"/items/{item}/actions", data={**sent, **back})
        entry = self.room.site.outbox.on(item)
        assert entry is not None
        end = "list" if way in {"list", "several"} else random.Random(f"{item}{self.now}").choice(ENDS)
        self.decided.append((item, self.now, end))
        if end == "undone":
            await self.browser.post(f"/actions/{entry.order.action_id}/undo", data={"csrf": self.token})
            return
        await self.room.released()
        self.room.carry_out(entry.order.action_id, applied=end != "refused")

    def median_by_hand(self) -> float | None:
        times = []
        for item, at, end in self.decided:
            signs = [one for one in self.seen[item] if one <= at] + [at]
            start = at
            for earlier in reversed(signs):
                if start - earlier > ABSENCE:
                    break
                start = earlier
            heard = len(signs) > 1 and at - signs[-2] <= ABSENCE
            if end == "counts" and heard:
                times.append(at - start)
        return median(times) if times else None


ENDS = ("counts", "counts", "counts", "undone", "refused")
WAYS = ("page", "page", "page", "list", "several")


@pytest.mark.parametrize("seed", range(3))
async def test_the_median_is_the_one_that_a_look_at_everything_that_happened_gives(seed) -> None:
    rng, room = random.Random(seed), make_room(rate_identity=100_000, rate_address=100_000)
    items = room.add(*(make_decision(f"c-{number}") for number in range(12)))
    async with room.browser() as browser:
        sitting = Sitting(room, browser, await csrf(browser))
        for _ in range(120):
            room.clock.forward(seconds=rng.choice([1, 5, 20, 90, ABSENCE, ABSENCE + 1]))
            item = rng.choice(items)
            if room.site.outbox.on(item) is None:
                doing = rng.choice(["open", "open", "stay", "decide"])
                await (
                    sitting.decide(item, rng.choice(WAYS))
                    if doing == "decide"
                    else getattr(sitting, doing)(item)
                )
        found = (await told(room))["lead"]
    assert sitting.median_by_hand() is not None
    assert found["median"] == pytest.approx(sitting.median_by_hand())
    assert found["undone"] == sum(end == "undone" for _, _, end in sitting.decided)


async def test_of_two_times_the_median_lies_between_them(room, browser) -> None:
    sitting = Sitting(room, browser, await csrf(browser))
    for item, seconds in zip(room.add(make_decision("a"), make_decision("b")), (3, 90), strict=True):
        await sitting.open(item)
        room.clock.forward(seconds=seconds)
        sent = {"csrf": sitting.token, "action": "approve", "revision": "1"}
        await browser.post(f"/items/{item}/actions", data=sent)
        room.carry_out(room.site.outbox.on(item).order.action_id)
    assert (await told(room))["lead"]["median"] == 46.5


async def test_a_page_that_was_opened_once_gives_no_time_to_a_decision_from_a_list(room, browser) -> None:
    (item,) = room.add(make_decision("a"))
    sitting = Sitting(room, browser, await csrf(browser))
    await sitting.open(item)
    room.clock.forward(seconds=9)
    await sitting.decide(item, "several")
    assert "lead" not in await told(room)


async def test_the_memory_that_is_replaced_gives_no_time_of_its_own(room, browser) -> None:
    memory = {"subject_id": "old", "class": "approved", "difference": "number", "inter": 3, "union": 4}
    facts = {"clock": "2026-01-31T12:00:00Z", "place": "free"}
    dedup = {"status": "ok", "scheme": "s", "matches": [memory]}
    new, old = room.add(make_decision("new", facts=facts | {"dedup": dedup}), approved("old"))
    sitting = Sitting(room, browser, await csrf(browser))
    await sitting.open(new)
    room.clock.forward(seconds=4)
    await sitting.open(old)
    room.clock.forward(seconds=3)
    sent = {
        "csrf": sitting.token,
        "action": "replace",
        "revision": "1",
        "replaces": f"{old}:1",
        "reason": "outdated",
    }
    await browser.post(f"/items/{new}/actions", data=sent)
    for one in (new, old):
        room.carry_out(room.site.outbox.on(one).order.action_id)
    assert (await told(room))["lead"]["median"] == 7
