"""Workers whose state is in a Redis Cluster, of which a primary dies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from groundwire.state import buckets
from tests.services.brokers import Broker
from tests.services.fixtures import or_skip
from tests.services.redis_cluster import LocalCluster
from tests.stream.harness import Deployment, assert_one_truth, good, until

pytestmark = [pytest.mark.stream, pytest.mark.slow]


@pytest.mark.parametrize("replicas", [0, 1])
async def test_a_primary_that_dies_under_load_loses_nothing_and_holds_up_its_own_users_alone(
    broker: Broker, tmp_path: Path, replicas: int
):
    total = 1_200

    def of_users(number: int) -> dict[str, object]:
        """A claim of one of many users."""
        return good(number, source="user") | {"user_id": f"user-{number % 90}"}

    environment = {"GROUNDWIRE_STATE_GRACE": "3"}
    with or_skip(lambda: LocalCluster(replicas=replicas)) as cluster:
        async with Deployment(broker, cluster, tmp_path, environment=environment) as deployment:  # type: ignore[arg-type]
            workers = await deployment.start_workers("claims", "deferred")
            slots = [buckets.slots()[buckets.bucket_of("default", f"user-{n}")] for n in range(90)]
            node = cluster.primary_of(slots[0])
            there = {f"user-{n}" for n in range(90) if cluster.primary_of(slots[n]) is node}
            await deployment.produce([of_users(number) for number in range(total // 3)])
            await deployment.settled(total // 3)
            node.kill()
            during = [of_users(number) for number in range(total // 3, total)]
            await deployment.produce(during)
            others = {claim["claim_id"] for claim in during if claim["user_id"] not in there}
            await until(
                lambda: (
                    {seen.json["subject_id"] for seen in deployment.decisions if seen.json["revision"]}
                    >= others
                ),
                "the users of other primaries are decided",
            )
            if cluster.replicas:
                await until(lambda: cluster.primary_of(slots[0]) is not node, "the replica takes over")
            else:
                assert await workers[0].metric("groundwire_paused", dependency="shard") == 1
                await asyncio.to_thread(cluster.restart, node)
            names = {claim["claim_id"] for claim in during}
            await until(
                lambda: (
                    {seen.json["subject_id"] for seen in deployment.decisions if seen.json["revision"]}
                    >= names
                ),
                "every claim is decided",
            )
            await deployment.quiet()
            assert_one_truth([seen for seen in deployment.decisions if seen.json["revision"]])
            assert not deployment.dead
            await workers[0].answers("/ready", 200)
            await deployment.caught_up("claims")
            assert [await worker.stop() for worker in workers] == [0, 0]
