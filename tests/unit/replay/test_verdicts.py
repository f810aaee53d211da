"""`groundwire report` counts what the gate decided, and what people made of it, from the output topics."""

import json
import random

from groundwire.messages.headers import InboundRecord
from groundwire.policy import Limits, Policy
from groundwire.replay.verdicts import PeriodVerdicts
from tests.unit.console.rooms import make_decision
from tests.unit.gate.world import NOW, claim_bytes
from tests.unit.replay.town import Town


def told(decisions):
    return [
        InboundRecord(f"groundwire.{one.verdict}", 0, at, 0, b"default:ann", one.to_bytes())
        for at, one in enumerate(decisions)
    ]


async def test_each_subject_counts_once_by_the_gates_decision_and_over_hold_is_what_people_approved_as_it_was():
    town = Town(policy=Policy(limits=Limits(review_per_user=3)))
    texts = [
        "A cache holds nine shards",
        "Maybe it rains",
        "Logs go to disk",
        "Jobs run hourly",
        "Ports are open",
        "Sun is up",
    ]
    sent = [claim_bytes(claim_id=f"c{n}", content=text, source="agent") for n, text in enumerate(texts)]
    await town.send(*(town.record(value) for value in sent))
    for action, name in (("approve", "c0"), ("reject", "c2"), ("edit", "c3")):
        fields = {"content": "Jobs run at noon"} if action == "edit" else {}
        await town.act(town.action(action, town.latest(name), **fields))
    await town.act(town.action("retract", town.latest("c0")))
    await town.send(town.record(sent[5]))  # refused, and sent again: there is a place now

    records = told(town.published.values())
    random.Random(1).shuffle(records)
    with PeriodVerdicts() as verdicts:
        for record in records * 2:  # delivered again after a crash
            verdicts.add(record)
        found = verdicts.report(NOW)
    counts = {"approved": 0, "review": 4, "blocked": 2}
    people = {"people_approved": 1, "people_edited": 1, "people_rejected": 1, "over_held": 0.3333}
    assert found["total"] == counts | people
    assert [(one["kind"], one["source"]) for one in found["by_source"]] == [("claim", "agent")]
    reasons = {one["reason_code"]: one for one in found["by_reason"]}
    for code, subject in (("personal_speculation", "c1"), ("review_queue_full", "c4")):
        assert (reasons[code]["blocked"], reasons[code]["example"]["subject_id"]) == (1, subject)
    assert reasons["ungrounded"]["review"] == 4
    assert found["no_place"] == {"user": 1}


def test_every_reason_is_listed():
    codes = [f"reason_{n}" for n in range(12)]
    with PeriodVerdicts() as verdicts:
        for code in codes:
            value = json.dumps(make_decision(code, reason_code=code)).encode()
            verdicts.add(InboundRecord("groundwire.review", 0, 0, 0, b"acme:ana", value))
        found = verdicts.report(NOW)
    assert {one["reason_code"] for one in found["by_reason"]} == {*codes}


async def test_of_a_tenant_alone_only_its_decisions_and_letters_count():
    town = Town()
    sent = [claim_bytes(claim_id=tenant, tenant_id=tenant) for tenant in ("acme", "acme-2")]
    await town.send(*(town.record(value) for value in sent))
    letters = [
        InboundRecord("groundwire.dead-letter", 0, at, 0, key, b"{", (("gw-error", b"invalid_json"),))
        for at, key in enumerate((b"acme:ann", b"acme-2:ann", None))
    ]
    with PeriodVerdicts("acme") as verdicts:
        for record in told(town.published.values()):
            verdicts.add(record)
        for letter in letters:
            verdicts.add_letter(letter)
        found = verdicts.report(NOW)
    assert found["total"]["review"] == 1
    assert found["dead_letters"] == {"invalid_json": 1}
