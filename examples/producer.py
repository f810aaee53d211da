"""Send claims to Groundwire: the least that a producer has to do.

    python examples/producer.py --user maria "The search runs on PostgreSQL, see ADR-003."

Needs aiokafka only. A producer's part of the contract:

- the key is `{tenant_id}:{user_id}`, so that a user's records stay in order;
- the claim id is the identity: sent again with the same fields, it gets its decision again; with others, it
  is a dead letter. Make it from what is claimed, not at random;
- acks=all and idempotence, or a lost acknowledgement loses or doubles a record.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
from collections.abc import Iterable

from aiokafka import AIOKafkaProducer


def claim(content: str, *, tenant: str, user: str, source: str) -> dict[str, str]:
    """Build a Claim 1.0; the same statement of the same user always has the same id."""
    name = hashlib.sha256(content.encode()).hexdigest()[:32]
    return {"claim_id": name, "tenant_id": tenant, "user_id": user, "content": content, "source": source}


async def send(brokers: str, topic: str, claims: Iterable[dict[str, str]]) -> None:
    """Send claims in order and wait until the broker has all of them."""
    producer = AIOKafkaProducer(bootstrap_servers=brokers, enable_idempotence=True, acks="all")
    await producer.start()
    try:
        sent = []
        for one in claims:
            key = f"{one['tenant_id']}:{one['user_id']}".encode()
            value = json.dumps(one, ensure_ascii=False).encode()
            sent.append((one["claim_id"], await producer.send(topic, value, key)))
        for claim_id, acknowledged in sent:
            where = await acknowledged
            print(f"{claim_id} {where.topic}[{where.partition}]@{where.offset}")
    finally:
        await producer.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("content", nargs="+", help="a statement to have stored")
    parser.add_argument("--user", required=True, help="whose memory it is")
    parser.add_argument("--tenant", default="default")
    parser.add_argument("--source", default="ai_synthesis", help="who says so (default: ai_synthesis)")
    prefix = os.environ.get("GROUNDWIRE_TOPIC_PREFIX", "groundwire.")
    parser.add_argument("--topic", default=f"{prefix}claims")
    parser.add_argument("--brokers", default=os.environ.get("GROUNDWIRE_BROKERS", "127.0.0.1:9092"))
    given = parser.parse_args()
    claims = [
        claim(text, tenant=given.tenant, user=given.user, source=given.source) for text in given.content
    ]
    asyncio.run(send(given.brokers, given.topic, claims))


if __name__ == "__main__":
    main()
