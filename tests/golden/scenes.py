"""Scenes at the gate: what comes again, waits, is decided by people, fans out, or meets an outage."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from groundwire.state.policies import PolicyStore
from tests.golden import inputs
from tests.golden.engine import RESPONSES, REVIEWS, Corpus, Draw, Oracle, Places, TenantCorpus, World, samples

Scene = Callable[[World], Awaitable[None]]


def claim(world: World, number: int, content: str, key: str = "", **fields: Any) -> Any:
    return world.record(inputs.claim_line(number, content, **fields), key=key)


async def people(world: World) -> None:
    """Every action on every kind of subject, refused ones included."""
    facts = [f"The pump of hall {n} has {n + 3} valves" for n in range(12)]
    await world.send(*(claim(world, n, text) for n, text in enumerate(facts[:10])))
    await world.send(claim(world, 20, "The ledger is kept for ten years", source="user"))
    kept = {"source": "user", "derived_from": ["c20", "c0"]}
    await world.send(claim(world, 21, "Since it is kept, the ledger is large", **kept))
    await world.send(claim(world, 22, "Hall 7 closes soon", validity_horizon="2026-01-31T12:00:25Z"))
    for batch in samples("actions"):
        await world.act(*(world.action(action, name, **fields) for action, name, fields in batch))
    await world.send(*(claim(world, 30 + n, text, source="user") for n, text in enumerate(facts[:8])))
    withdrawn = {"source": "user", "derived_from": ["c20", "c6", "c77"]}
    await world.send(claim(world, 40, "It rests on what was withdrawn", **withdrawn))
    same = [claim(world, n, text) for n, text in enumerate(facts[:7])]
    await world.send(*same, claim(world, 20, "Other text"))
    for value in (b"{", None, b'{"action_id": "x"}', b'{"action": "approve", "content": "x"}'):
        await world.act(world.record(value, REVIEWS, key="console"))


async def again(world: World) -> None:
    """Records that come again: at once, from another place, after a change of policy, after a decision."""
    first = [claim(world, n, text) for n, text in enumerate(inputs.FACTS)]

    def tank(number: int, user: str) -> Any:
        return claim(world, 10 + number, f"Tank {number} holds {number} litres", user_id=user)

    await world.send(*first, first[0])
    world.policy = {"version": "next", "enable_dedup": False, "auto_approve_ai_synthesis": False}
    changed = [claim(world, n, text, metadata={"n": 1}) for n, text in enumerate(inputs.FACTS)]
    await world.send(*first, *changed)
    world.policy = {"limits": {"review_per_user": 4, "review_per_tenant": 6, "review_total": 7}}
    refused = [tank(n, ("ada", "bob", "cay")[n // 3]) for n in range(9)]
    await world.send(*refused)
    await world.act(world.action("approve", "c1"), world.action("reject", "c2"))
    await world.send(*refused, *(tank(n, "ada") for n in range(3)))
    joined = claim(world, 30, inputs.FACTS[3])
    await world.send(joined)
    await world.act(world.action("approve", "c3"))
    elsewhere = [claim(world, 30, inputs.FACTS[3]), claim(world, 31, inputs.FACTS[3], tenant_id="acme")]
    await world.send(joined, *elsewhere)
    await world.send(*map(world.record, [*inputs.bad(), None]), world.record(None, RESPONSES))


async def waiting(world: World) -> None:
    """Citations that ask the network, and what the same user sends meanwhile."""
    texts = list(inputs.filled("cited", world.places))
    records = [claim(world, n, text, user_id=f"u{n % 40}", source="user") for n, text in enumerate(texts)]
    links = ("good", "gone", "broken", "moved", "limits?a=1", "nowhere")
    for number, link in enumerate(links, 100):
        text = f"The pump writes to the ledger every five minutes: https://docs.example.org/{link}"
        who = {"user_id": f"v{number % 2}", "tenant_id": ("default", "bare")[number // 105]}
        records.append(claim(world, number, text, **who))
    await world.send(*records)
    await world.send(*records[:4], claim(world, 200, "I said so", user_id="v0", source="user"), *records[-6:])
    other = claim(world, 100, "Another text", user_id="v0")
    await world.send(other, claim(world, 201, "Not late", user_id="w"))
    await world.take_deferred()
    once_more = claim(world, 202, f"Again: https://docs.example.org/{links[0]}", user_id="v1")
    await world.send(*records[-8:], once_more)
    world.policy = {"verify_claim_relevance": True, "failed_citation_overrides_trust": True}
    for number, link in enumerate(links, 300):
        text = f"The pump writes to the ledger at https://docs.example.org/{link} and #{12 + number % 2}, ADR-003"
        await world.send(claim(world, number, text, source="user"))
    await world.take_deferred()


async def signed(world: World) -> None:
    """Sources that need a signature."""
    world.policy = {"attestation": "hmac"}
    for number, key in enumerate(("", "docs", "console", "old", "nobody", "docs:" + "0" * 64, "docs:zz") * 2):
        source = ("user", "conversation", "ai_synthesis", "adr")[number % 4]
        await world.send(claim(world, number, f"Tank {number} is {number} m high", key=key, source=source))
    world.offset += 60
    await world.send(claim(world, 50, "A late key signs nothing", key="old", source="user"))
    await world.send(claim(world, 51, "Another tenant's key", key="old", source="user", tenant_id="acme"))


async def outages(world: World) -> None:
    """Provisional decisions, and those that override them."""
    sources = ("user", "ai_synthesis")
    records = [claim(world, n, text, source=sources[n % 2]) for n, text in enumerate(inputs.FACTS)]
    more = ("Maybe not", "Per ADR-003, PostgreSQL", "Fixed in https://docs.example.org/good")
    records += [claim(world, 10 + n, text, derived_from=["c1"]) for n, text in enumerate(more)]
    records += [world.record(inputs.random_response(Draw(n), n), RESPONSES) for n in range(12)]
    records += [world.record(b"{"), claim(world, 20, "Old", validity_horizon="2026-01-01T00:00:00Z")]
    await world.outage(*records)
    await world.send(*records)
    await world.take_deferred()


async def answers(world: World) -> None:
    """Responses with a corpus and a model: replies, requests for others, claims that are sent on."""
    for number in range(0, 60, 4):
        several = range(number, number + 4)
        values = [inputs.random_response(Draw(900 + n), n, fan_out=True) for n in several]
        records = [world.record(value, RESPONSES) for value in values]
        await world.send(*records)
        await world.take_fanned_out()
        await world.send(*records[:1])
        await world.take_deferred()
    for number, reply in enumerate(("r100", "r101", "r102", "r100"), 101):
        poor = {"confidence": 0.45, "mode": "thinking", "query": "How?", "chunks": [inputs.CODE]}
        value = inputs.response_line(number, inputs.REPLIES[0], in_reply_to=reply, **poor)
        await world.send(world.record(value, RESPONSES))
    for number, entity in enumerate(("known-1", "other", "broken"), 110):
        fields = {"entities": [{"id": entity}], "claims": [inputs.RELATIONS[number % 3]]}
        await world.send(
            world.record(inputs.response_line(number, "The pump feeds it.", **fields), RESPONSES)
        )


async def asked(world: World) -> None:
    """Responses that a person decides."""
    values = [inputs.random_response(Draw(1300 + n), n) for n in range(24)]
    for value in values:
        await world.send(world.record(value, RESPONSES))
    latest = {d.subject_id: d for d in world.published.values()}
    for number, name in enumerate(latest):
        first = world.action(("approve", "reject", "expire", "edit", "retract")[number % 5], name)
        await world.act(first)
        await world.act(first, world.action("retract", name, reason="gone"))
    await world.send(*(world.record(value, RESPONSES) for value in values[:8]))


async def rebuilt(world: World) -> None:
    """State made anew of topics that lost some of what they held, and the same records again."""
    await people(world)
    for gone in ((), ("blocked",), ("blocked", "audit"), ("approved", "retractions")):
        await world.rebuild(*gone)
        records = world.sent[:26]
        facts = [claim(world, 100 + n, text, source="user") for n, text in enumerate(inputs.FACTS)]
        await world.send(*records, *facts)
        for name in ("c0", "c1", "c3", "c7", "c20"):
            await world.act(*(world.action(action, name) for action in ("approve", "retract")))


async def forgotten(world: World) -> None:
    """What was decided by policies that nobody knows any more."""
    known = [
        *inputs.CLAIM_POLICIES.values(),
        inputs.RESPONSE_POLICIES["ask"],
        inputs.RESPONSE_POLICIES["strict"],
    ]
    for number, policy in enumerate(known):
        world.policy = policy
        some, others = range(8 * number, 8 * number + 6), range(number, number + 3)
        records = [world.record(inputs.random_claim(Draw(70 + n), n)) for n in some]
        records += [world.record(inputs.random_response(Draw(80 + n), n), RESPONSES) for n in others]
        await world.outage(*records[:2])
        await world.send(*records)
        await world.take_deferred()
    world.policies = PolicyStore(None, None)
    world.policy = {"version": "new", "hedges": {"block": ["pump"]}, "trusted_sources": []}
    await world.send(*world.sent)
    for name in sorted({d.subject_id for d in world.published.values()})[::2]:
        await world.act(world.action("approve", name), world.action("retract", name))
    await world.send(*world.sent[::2])


async def broken(world: World) -> None:
    """Records that are too much for a decision, or for the broker; and parts that break."""
    for value in inputs.large_claims():
        await world.send(world.record(value))
    for value in list(inputs.large_responses())[1:5:3]:
        await world.send(world.record(value, RESPONSES))
    for key in ("", "docs"):
        world.refuse(world.record(b"x" * 400, key=key))
    world.break_parts()
    for number in range(8):
        await world.send(world.record(inputs.random_response(Draw(1500 + number), 50 + number), RESPONSES))
        value = inputs.claim_line(100 + number, f"Per ADR-003 and #{number}", user_id=f"u{number}")
        await world.send(world.record(value))


def life(seed: int) -> Scene:
    """Random records, people and changes of policy."""

    async def live(world: World) -> None:
        draw = Draw(seed)
        for day in range(14):
            world.policy = draw.one([*inputs.CLAIM_POLICIES.values(), *inputs.RESPONSE_POLICIES.values()])
            records = []
            for place in range(1 + draw.below(5)):
                number = 5 * day + place
                topic = draw.one((None, RESPONSES))
                make = inputs.random_response if topic else inputs.random_claim
                key = "docs" if draw.chance(0.3) and not topic else ""
                records.append(world.record(make(draw, number), topic or "groundwire.claims", key=key))
            await world.send(*records)
            names = sorted({d.subject_id for d in world.published.values()})
            for name in draw.some(names, 3):
                action = draw.one(("approve", "reject", "edit", "expire", "retract", "retract"))
                more = {}
                if action == "edit":
                    more["content"] = f"The gate of dock {draw.below(9)} stays shut"
                await world.act(world.action(action, name, **more))
            await world.take_deferred()
            await world.take_fanned_out()
            if draw.chance(0.2):
                await world.rebuild(*draw.some(("blocked", "retractions", "audit"), 2))
                await world.send(*draw.some(world.sent, 5))

    return live


def scenes(places: Places) -> Iterator[tuple[World, Scene]]:
    """Return every scene with the world that it begins in."""
    plain = (people, again, waiting, signed, outages, rebuilt, forgotten)
    for scene in plain:
        yield World(scene.__name__, places), scene
    corpus, verification = TenantCorpus(Corpus(), frozenset({"*"})), {"mode": "full", "on_failure": "retry"}
    critical = {"mode": "critical_only", "model_may_clear": True, "samples": 3}
    for number, asking in enumerate((verification, critical)):
        yield World(f"answers-{number}", places, {"verification": asking}, Oracle(), corpus), answers
    yield World("answers-2", places, inputs.RESPONSE_POLICIES["retry"]), answers
    yield World("broken", places, {"verification": verification}, Oracle(), corpus), broken
    yield World("asked", places, inputs.RESPONSE_POLICIES["ask"]), asked
    for seed in range(4):
        yield World(f"life-{seed}", places, model=Oracle() if seed == 3 else None), life(seed)
