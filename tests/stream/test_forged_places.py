"""Forgeries that change nothing that was signed: true bytes in another place, or what needs no seal."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from groundwire.messages.base import sha256_hex
from groundwire.messages.identity import event_id, retraction_id
from groundwire.messages.seals import SealedOutput, root_of
from groundwire.replay.verify import VerifyStatus
from tests.stream.harness import Seen
from tests.stream.test_forgeries import Published, published, statuses, with_other_value

__all__ = ["published"]

pytestmark = [pytest.mark.stream, pytest.mark.slow]


def with_header(seen: Seen, name: str, value: bytes) -> Seen:
    return replace(seen, headers=tuple((n, value if n == name else v) for n, v in seen.headers))


async def named(made: Published, folder: Any, topic: str, *records: Seen) -> set[tuple[str | None, str]]:
    """Verify with records more on a topic; returns which ids are named as what."""
    found = await made.rewritten({topic: [*made.topics[topic], *records]}, folder)
    return {(placed.finding.decision_id, placed.finding.status.value) for placed in found}


@pytest.mark.parametrize(
    ("topic", "change"),
    [
        pytest.param("review", {}, id="topic"),
        pytest.param("approved", {"key": b"default:somebody"}, id="key"),
        pytest.param("approved", {"ce_id": b"0" * 36}, id="id"),
        pytest.param("approved", {"ce_time": b"2027-01-01T00:00:00Z"}, id="time"),
        pytest.param("approved", {"ce_subject": b"another"}, id="subject"),
    ],
)
async def test_a_decision_that_is_published_again_in_another_place_is_named(
    published, tmp_path, topic, change
):
    true = published.decided()
    copy = true
    for name, value in change.items():
        copy = replace(copy, key=value) if name == "key" else with_header(copy, name, value)
    found = await named(published, tmp_path, topic, copy)
    assert (true.json["decision_id"], "differs") in found


async def test_an_approval_under_a_policy_that_nobody_has_is_named_as_one_without_a_seal(published, tmp_path):
    name = "00000000-0000-5000-8000-000000000002"
    forged = with_other_value(
        published.decided(),
        lambda told: told.update(decision_id=name, policy={"version": "x", "sha256": "0" * 64}),
    )
    forged = with_header(forged, "ce_id", name.encode())
    assert await named(published, tmp_path, "approved", forged) == {(name, "unsealed")}


async def test_a_retraction_that_nobody_asked_for_is_named(published, tmp_path):
    true = published.topics["retractions"][0]
    victim = published.decided().json
    name = "00000000-0000-5000-8000-000000000001"
    forged = with_other_value(
        true,
        lambda told: told.update(
            decision_id=name, supersedes=victim["decision_id"], subject_id=victim["subject_id"]
        ),
    )
    forged = with_header(forged, "ce_id", retraction_id(name).encode())
    assert await named(published, tmp_path, "retractions", forged) == {(retraction_id(name), "unsealed")}


async def test_an_event_of_another_type_under_the_id_of_a_refusal_contradicts_nobody(published, tmp_path):
    acted = next(seen for seen in published.topics["audit"] if seen.json["type"] == "review_action")
    name = event_id("refused_action", acted.json["detail"]["action_id"])
    other = with_other_value(
        acted, lambda told: told.update(type="policy_loaded", event_id=name, detail={"x": "refused_action"})
    )
    without = [seen for seen in published.topics["audit"] if seen is not acted]
    found = await published.rewritten(
        {"audit": [*without, with_header(other, "ce_id", name.encode())]}, tmp_path
    )
    assert statuses(found) == {"removed"}


async def test_the_last_seal_of_a_chain_and_what_it_covers_cannot_be_cut_off(published, tmp_path):
    last = published.seals()[-1]
    covered = {text.split()[2] for text in last.json["detail"]["outputs"]}
    topics = {
        name: [
            seen
            for seen in published.topics[name]
            if seen.header("ce_id") not in covered and seen is not last
        ]
        for name in ("approved", "review", "blocked", "audit")
    }
    found = await published.rewritten(topics, tmp_path)
    assert any("committed last" in placed.finding.detail for placed in found), found


async def test_a_second_seal_of_a_stretch_with_another_root_covers_nothing(published, tmp_path):
    last = published.seals()[-1]
    forged = with_other_value(published.decided("blocked"), lambda told: told.update(approved=True))
    output = SealedOutput(0, "approved", forged.json["decision_id"], sha256_hex(forged.value or b""))

    def change(told: dict[str, Any]) -> None:
        told["detail"]["outputs"] = [str(output)]
        told["detail"]["seal"] |= {"root": root_of([output]), "count": 1}

    seal = with_other_value(last, change)
    assert json.loads(seal.value or b"")["detail"]["signature"] == last.json["detail"]["signature"]
    found = await published.rewritten({"audit": [*published.topics["audit"], seal]}, tmp_path)
    assert [placed.finding.status for placed in found] == [VerifyStatus.BAD_SEAL]
