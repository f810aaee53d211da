"""Review queues over both stores, with a time that tests may let pass, and a model of them."""

import asyncio
from datetime import UTC, datetime

from hypothesis import strategies as st

from groundwire.messages.decisions import EvidenceObject
from groundwire.messages.tiers import IngestionTier
from groundwire.review_queue import (
    ReviewNotFound,
    ReviewOvertaken,
    ReviewQueue,
    ReviewQueueFull,
    ReviewStoreFailed,
    ReviewUnauthorized,
)
from groundwire.validator import ValidationResult

START = 1_760_000_000.0
CLAIM = "The API uses OAuth2"


def evidence(claim=CLAIM, **fields) -> EvidenceObject:
    """Evidence as the gate makes it."""
    return EvidenceObject(claim, datetime(2026, 1, 31, 12, 0, 4, 123456, UTC), "medium", **fields)


def result(of: EvidenceObject | None = None, **fields) -> ValidationResult:
    """The result that sends a claim to a person."""
    given = {
        "tier": IngestionTier.FLAG_REVIEW,
        "approved": False,
        "reason": "Ungrounded assertion needs verification",
        "evidence": of or evidence(),
        "checks_passed": ["no_speculation"],
        "checks_failed": ["citation_missing"],
        "similarity_score": 0.8125,
        "conflicting_memory_id": "m-7",
        "checks_skipped": ["dedup_skipped"],
    }
    return ValidationResult(**{**given, **fields})


async def put(queue: ReviewQueue, user_id="ada", claim=CLAIM, **fields) -> str:
    """Enqueue a claim of a user."""
    given = {
        "user_id": user_id,
        "content": claim,
        "memory_type": "fact",
        "source": "ai_synthesis",
        "evidence": evidence(claim),
        "validation_result": result(evidence(claim)),
    }
    return await queue.enqueue(**{**given, **fields})


class Stored:
    """A store callback that remembers its calls, and fails when it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.error: BaseException | None = None

    async def __call__(self, evidence, *, queue_id):
        self.calls.append((queue_id, evidence.claim))
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        return f"memory-{queue_id}"


class Clock:
    """Seconds since 1970, as the test wants them."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


# What a queue is, told as simply as possible

PER_USER, TOTAL, LEASE, ROWS = 2, 3, 30, 6
GRANTS = {"t": ["dana"]}


class Model:
    """A list of items and a list of what happened."""

    def __init__(self, ttl: int | None) -> None:
        self.ttl, self.now = ttl, 0
        self.items: list[dict] = []
        self.rows: list[tuple] = []  # whose, denied or not, the row

    def enqueue(self, owner):
        self.look([item for item in self.items if item["owner"] == owner])
        self.look(self.items)
        alive = [item for item in self.items if item["state"] in ("pending", "approving")]
        self.items.append(
            {"owner": owner, "state": "none", "at": self.now, "ends": 0, "token": None, "error": None}
        )
        number = len(self.items) - 1
        own = sum(item["owner"] == owner for item in alive)
        if own >= PER_USER or len(alive) >= TOTAL:
            self.note(owner, "denied", owner[1], None, "queue_full")  # its id was never told
            return "full: user" if own >= PER_USER else "full: total"
        self.items[number]["state"] = "pending"
        self.note(owner, "enqueue", owner[1], number)
        return "ok"

    def pending(self, owner, limit):
        self.look([item for item in self.items if item["owner"] == owner], limit)
        found = [
            n for n, item in enumerate(self.items) if (item["owner"], item["state"]) == (owner, "pending")
        ]
        return [(n, self.items[n]["error"]) for n in found[:limit]]

    def get(self, number, owner):
        item = self.items[number]
        if item["owner"] != owner:
            return None
        self.look([item])
        return item["state"] if item["state"] in ("pending", "approving") else None

    def begin(self, number, who, token):
        item = self.items[number]
        refused = self.refusal(number, who)
        if refused:
            return refused
        item.update(state="approving", ends=self.now + LEASE, token=token)
        self.note(item["owner"], "approve", who[1], number)
        return "ok"

    def settle(self, number, who, token, ok):
        item = self.items[number]
        alive = item["state"] in ("pending", "approving")
        if ok:
            late = item["state"] in ("rejected", "expired")
            item["state"] = "stored" if alive else item["state"]
            self.note(item["owner"], "stored_late" if late else "stored", who[1], number, f"memory {number}")
            return f"overtaken: {item['state']}" if late else "memory"
        if alive and item["token"] == token:
            item.update(state="pending", error="store_failed")
        self.note(item["owner"], "store_failed", who[1], number, "OSError")
        return "memory" if item["state"] == "stored" else "store failed"

    def reject(self, number, who):
        refused = self.refusal(number, who)
        if not refused:
            self.items[number]["state"] = "rejected"
            self.note(self.items[number]["owner"], "reject", who[1], number, "wrong")
        return refused or "ok"

    def history(self, owner, limit):
        own = [(denied, row) for whose, denied, row in self.rows if whose == owner]
        done = [number for number, (denied, _) in enumerate(own) if not denied][:ROWS]
        denied = [number for number, (denied, _) in enumerate(own) if denied][:ROWS]
        return [own[number][1] for number in sorted(done + denied)][:limit]

    def refusal(self, number, who):
        item = self.items[number]
        if item["state"] != "none":
            self.look([item])
        tenant, name = who
        granted = name in GRANTS.get(tenant, []) and tenant == item["owner"][0]
        may = item["state"] != "none" and (who == item["owner"] or granted)
        if may and item["state"] == "pending":
            return None
        row = ("denied", who[1], number, item["state"] if may else "unauthorized", False)
        self.rows.insert(0, (who, True, row))
        if item["state"] != "none" and item["owner"] != who:
            self.rows.insert(0, (item["owner"], True, row))
        return f"not found: {item['state']}" if may else "unauthorized"

    def look(self, items, limit=None):
        """What a store finds out when it looks at items: a lease has run out, or their time."""
        seen = 0
        for item in items:
            if seen == limit:
                return
            if item["state"] == "approving" and item["ends"] <= self.now:
                item.update(state="pending", error="store_interrupted")
            if item["state"] == "pending" and self.ttl and item["at"] + self.ttl <= self.now:
                item["state"] = "expired"
                number = next(n for n, one in enumerate(self.items) if one is item)
                self.note(item["owner"], "expired", "groundwire", number)
            seen += item["state"] == "pending"

    def note(self, owner, action, actor, number, detail=None):
        delegated = action not in ("denied", "expired") and actor != owner[1]
        row = (action, actor, number, detail, delegated)
        self.rows.insert(0, (owner, action == "denied", row))


class Driven:
    """A queue whose callbacks end when the test says so; items and approvals are known by their numbers."""

    def __init__(self, store, ttl: int | None) -> None:
        self.clock = Clock()
        self.ids: list[str] = []
        self.running: list[tuple[asyncio.Task, asyncio.Future, tuple]] = []
        self.begun: asyncio.Future | None = None
        self.model = Model(ttl)
        self.queue = ReviewQueue(
            self.store,
            store=store,
            max_per_user=PER_USER,
            max_total=TOTAL,
            lease=LEASE,
            review_ttl=ttl,
            audit_rows=ROWS,
            delegates=GRANTS,
            clock=self.clock,
        )

    async def store(self, given, queue_id):
        assert self.begun
        assert given == evidence()
        end = asyncio.get_running_loop().create_future()
        self.begun.set_result(end)
        if not await end:
            raise OSError
        return f"memory {self.ids.index(queue_id)}"

    async def step(self, name, *arguments) -> tuple:
        """Take a step with the queue and with the model; return both answers."""
        return await getattr(self, name)(*arguments)

    async def enqueue(self, owner):
        ids = self.ids
        try:
            ids.append(await put(self.queue, owner[1], tenant_id=owner[0]))
            answer = "ok"
        except ReviewQueueFull as full:
            ids.append(f"refused {len(ids)}")
            answer = f"full: {full.scope}"
        return answer, self.model.enqueue(owner)

    async def pending(self, owner, limit):
        found = await self.queue.get_pending(owner[1], limit, tenant_id=owner[0])
        return [(self.ids.index(one.queue_id), one.last_error) for one in found], self.model.pending(
            owner, limit
        )

    async def get(self, number, owner):
        if number >= len(self.ids):
            return None, None
        found = await self.queue.get_by_id(self.ids[number], owner[1], tenant_id=owner[0])
        return found and found.state, self.model.get(number, owner)

    async def begin(self, number, who):
        if number >= len(self.ids):
            return None, None
        self.begun = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(outcome(self.queue.approve(self.ids[number], who[1], tenant_id=who[0])))
        await asyncio.wait({task, self.begun}, return_when=asyncio.FIRST_COMPLETED)
        token = (number, who, len(self.running))
        if not self.begun.done():
            return await task, self.model.begin(number, who, token)
        self.running.append((task, self.begun.result(), token))
        return "ok", self.model.begin(number, who, token)

    async def settle(self, which, ok):
        if which >= len(self.running) or self.running[which][0].done():
            return None, None
        task, end, (number, who, _) = self.running[which]
        end.set_result(ok)
        return await task, self.model.settle(number, who, self.running[which][2], ok)

    async def reject(self, number, who):
        if number >= len(self.ids):
            return None, None
        answer = await outcome(self.queue.reject(self.ids[number], who[1], "wrong", tenant_id=who[0]))
        return answer, self.model.reject(number, who)

    async def history(self, owner, limit):
        rows = await self.queue.history(owner[1], limit, tenant_id=owner[0])
        seen = [(r.action, r.actor, self._number(r), r.detail, r.delegated) for r in rows]
        return seen, self.model.history(owner, limit)

    async def wait(self, seconds):
        self.clock.now += seconds
        self.model.now += seconds
        return None, None

    def _number(self, row):
        return self.ids.index(row.queue_id) if row.queue_id in self.ids else None

    async def stop(self):
        for task, _, _ in self.running:
            task.cancel()
        await asyncio.gather(*[task for task, _, _ in self.running], return_exceptions=True)


async def outcome(call):
    """Say in a word what a call gave."""
    try:
        answer = await call
    except ReviewUnauthorized:
        return "unauthorized"
    except ReviewNotFound as error:
        return f"not found: {error.state}"
    except ReviewStoreFailed as error:
        return "store failed" if isinstance(error.__cause__, OSError) else repr(error.__cause__)
    except ReviewOvertaken as error:
        return f"overtaken: {error.state}"
    return "ok" if answer is None else "memory"


_OWNERS = st.sampled_from([("t", "ada"), ("t", "bob"), ("u", "ada")])
_REVIEWERS = st.sampled_from(
    [("t", "ada"), ("t", "ada"), ("t", "bob"), ("u", "ada"), ("t", "dana"), ("u", "dana")]
)
_NUMBERS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), _OWNERS),
        st.tuples(st.just("enqueue"), _OWNERS),
        st.tuples(st.just("pending"), _OWNERS, st.sampled_from([1, 10])),
        st.tuples(st.just("get"), _NUMBERS, _OWNERS),
        st.tuples(st.just("begin"), _NUMBERS, _REVIEWERS),
        st.tuples(st.just("begin"), _NUMBERS, _REVIEWERS),
        st.tuples(st.just("settle"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("reject"), _NUMBERS, _REVIEWERS),
        st.tuples(st.just("history"), _REVIEWERS, st.sampled_from([3, 100])),
        st.tuples(st.just("wait"), st.sampled_from([1, 15, 30, 50])),
    ),
    max_size=40,
)
"""What may happen to a queue: a step and its arguments."""


async def agree(store, steps, ttl) -> None:
    """Take the same steps with a queue and the model; whatever they answer must be the same."""
    driven = Driven(store, ttl)
    try:
        for step in steps:
            answer, expected = await driven.step(*step)
            assert answer == expected, step
        for owner in (("t", "ada"), ("t", "bob"), ("u", "ada"), ("t", "dana")):
            for step in (("history", owner, 100), ("pending", owner, 10), ("history", owner, 100)):
                answer, expected = await driven.step(*step)
                assert answer == expected, step
    finally:
        await driven.stop()
