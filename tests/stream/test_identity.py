"""The same claim again: one subject, one decision, whoever sees it first (X-09)."""

from __future__ import annotations

import asyncio
import json

import pytest

from groundwire.keys.attestation import Keys
from tests.stream.harness import Deployment, assert_one_truth, good
from tests.stream.site import Site

pytestmark = [pytest.mark.stream, pytest.mark.slow]

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.smoke
async def test_the_same_claim_again_gets_its_decision_again_and_other_content_is_a_dead_letter(
    deployment: Deployment,
):
    await deployment.start_workers("claims")
    claim = good(1, metadata={"run": 1})
    await deployment.produce([claim], headers=[("traceparent", TRACE)])
    first = await deployment.decision("c1")
    assert first.header("traceparent") == TRACE.decode()

    again = {**claim, "metadata": {"run": 2}, "captured_at": "2020-01-01T00:00:00Z"}
    await deployment.produce([again, {**claim, "content": "Something else altogether"}, good(2)])
    await deployment.decision("c2")
    await deployment.settled(2, 1)
    await deployment.quiet()

    repeats = deployment.decided("c1")
    assert len(repeats) == 2
    assert_one_truth(repeats)
    assert repeats[1].header("traceparent") is None
    (letter,) = deployment.dead
    assert letter.header("gw-error") == "claim_id_conflict"
    assert json.loads(letter.value or b"")["content"] == "Something else altogether"


@pytest.mark.smoke
async def test_two_equal_claims_that_race_under_different_keys_have_one_approval(deployment: Deployment):
    workers = await deployment.start_workers("claims", "claims")
    rounds = 60
    for number in range(rounds):
        pair = [
            await deployment.send(
                good(5 * number + 5, claim_id=f"race{number}"), key=b"", partition=partition
            )
            for partition in (0, 1)
        ]
        # and two texts that say the same under two ids
        twins = [
            await deployment.send(
                good(5 * number + 5, claim_id=f"twin{number}-{side}", user_id="t", source="user"),
                key=b"",
                partition=side + 2,
            )
            for side in (0, 1)
        ]
        await asyncio.gather(*pair, *twins)
    await deployment.settled(3 * rounds)
    await deployment.quiet()

    assert_one_truth(deployment.decisions)
    for number in range(rounds):
        assert len({seen.header("ce_id") for seen in deployment.decided(f"race{number}")}) == 1
        twins_seen = [deployment.decided(f"twin{number}-{side}")[0].json for side in (0, 1)]
        if not any("maybe" in str(twin["hedges"]).lower() for twin in twins_seen):
            assert sorted(twin["verdict"] for twin in twins_seen) == ["approved", "blocked"]
            assert {twin["reason_code"] for twin in twins_seen} >= {"duplicate"}
    assert sum([await worker.metric("groundwire_miskeyed_total") for worker in workers]) >= 3 * rounds


async def test_a_claim_that_waits_and_its_twin_that_does_not_have_one_approval(
    deployment: Deployment, site: Site
):
    deployment.environment |= site.settings
    await deployment.start_workers("claims", "deferred")
    text = f"The queue of module seven holds nine items, see {site.url}/ok/twin"
    waits = {"claim_id": "waits", "user_id": "u", "content": text, "source": "user"}
    await asyncio.gather(
        await deployment.send(waits, partition=0),
        await deployment.send({**waits, "claim_id": "other"}, partition=1),
        await deployment.send(waits, partition=2),
    )
    await deployment.settled(2)
    await deployment.quiet()
    verdicts = {seen.json["subject_id"]: seen.json["verdict"] for seen in deployment.decisions}
    assert sorted(verdicts.values()) == ["approved", "blocked"]
    assert_one_truth(deployment.decisions)


async def test_only_what_a_key_vouches_for_counts_as_its_source(deployment: Deployment):
    file = deployment.folder / "keys.toml"
    file.write_text(
        "[keys.sync]\n"
        f'secret = "{"s" * 40}"\ntenants = ["default"]\nsources = ["documentation"]\nroles = []\n'
    )
    deployment.environment |= {"GROUNDWIRE_KEYS_FILE": str(file), "GROUNDWIRE_ATTESTATION": "hmac"}
    await deployment.start_workers("claims")
    signed, unsigned = (
        {
            "claim_id": name,
            "user_id": name,
            "content": f"The {name} page is complete",
            "source": "documentation",
        }
        for name in ("signed", "unsigned")
    )
    signature = Keys.load(file).sign("sync", json.dumps(signed).encode())
    await deployment.produce([signed], headers=[("gw-attestation", signature)])
    await deployment.produce([unsigned])
    assert (await deployment.decision("signed")).json["verdict"] == "approved"
    held = (await deployment.decision("unsigned")).json
    assert held["verdict"] != "approved"
    assert "source_unattested: documentation" in held["checks_failed"]
