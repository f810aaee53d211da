"""Producers that write by a schema registry, with Confluent's own serialisers, are decided like any other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from groundwire.config import RegistrySettings
from groundwire.kafka.registry import Registry
from groundwire.messages.decode import use_registry
from tests.services.schema_registry import SchemaRegistry, schema_registry
from tests.stream.harness import PATIENCE, Deployment, good, user_key

pytestmark = [pytest.mark.stream, pytest.mark.slow]

FIELDS = ("claim_id", "user_id", "content", "source")


@pytest.fixture
def schemas() -> Iterator[SchemaRegistry]:
    """A registry, which the test's own process uses too where it derives decisions again."""
    with schema_registry() as made:
        use_registry(Registry(RegistrySettings(url=made.url)).read)
        yield made
        use_registry(None)


def serialised(schemas: SchemaRegistry, topic: str, claims: list[dict[str, Any]]) -> list[bytes]:
    """Return three claims as Confluent's serialisers for Avro, Protobuf and JSON Schema write them."""
    client = SchemaRegistryClient({"url": schemas.url})
    where = SerializationContext(topic, MessageField.VALUE)
    fields = [{"name": name, "type": "string"} for name in FIELDS]
    avro = AvroSerializer(client, json.dumps({"type": "record", "name": "Claim", "fields": fields}))
    document = {"title": "Claim", "type": "object"}
    as_json = JSONSerializer(json.dumps(document), client)
    file = FileDescriptorProto(name="claim.proto", package="agents", syntax="proto3")
    message = file.message_type.add(name="Claim")
    for number, name in enumerate(FIELDS, 1):
        message.field.add(name=name, number=number, type=9, label=1)
    pool = DescriptorPool()
    pool.Add(file)
    made = GetMessageClass(pool.FindMessageTypeByName("agents.Claim"))
    of_protobuf = ProtobufSerializer(made, client, {"use.deprecated.format": False})
    first, second, third = claims
    values = avro(first, where), of_protobuf(made(**second), where), as_json(third, where)
    return [value for value in values if value]


async def test_all_three_formats_are_decided_and_derived_again_and_a_registry_that_is_away_holds_its_partition(
    schemas: SchemaRegistry, deployment: Deployment
):
    claims = [{name: good(number, source="user")[name] for name in FIELDS} for number in (1, 2, 3, 4)]
    named = {"GROUNDWIRE_SCHEMA_REGISTRY_URL": schemas.url}
    worker = await deployment.start_worker("claims", **named).ready()
    values = serialised(schemas, f"{deployment.prefix}claims", claims[:3])
    for claim, value in zip(claims, values, strict=False):
        assert value[:1] == b"\0"
        await deployment.produce([value], key=user_key(claim))
    unknown = await deployment.produce([b"\0\0\0\1\0\x02a"], partition=0)
    await deployment.settled(3, 1)
    assert {seen.json["verdict"] for seen in deployment.decisions} == {"approved"}
    (letter,) = deployment.dead
    assert letter.header("gw-error") == "invalid_record"
    message = letter.header("__connect.errors.exception.message") or ""
    assert f"schema 256 is unknown to the schema registry at {schemas.url}" in message
    assert letter.value == b"\0\0\0\1\0\x02a"

    schemas.status = 503  # another worker, which knows no schema yet
    await worker.stop()
    worker = await deployment.start_worker("claims", **named).ready()
    await deployment.produce([values[0]], key=user_key(claims[0]), partition=1)
    await deployment.produce([claims[3]], partition=2)
    await deployment.decision(str(claims[3]["claim_id"]))
    async with asyncio.timeout(PATIENCE):
        while not await worker.metric("groundwire_paused", dependency="registry"):  # noqa: ASYNC110 - a gauge
            await asyncio.sleep(0.2)
    assert "registry" in await worker.answers("/ready", 503)
    assert len(deployment.dead) == 1
    schemas.status = None
    await deployment.caught_up("claims")
    assert len(deployment.dead) == 1
    assert len(deployment.decided(str(claims[0]["claim_id"]))) == 2
    assert await worker.answers("/ready", 200)
    assert len(unknown) == 1

    out, _ = await deployment.succeeds("tail", "claims", "--until-end", "--from", "earliest", **named)
    read = [json.loads(line) for line in out.splitlines()]
    assert sorted(line["claim_id"] for line in read if "claim_id" in line) == [
        claims[0]["claim_id"],
        *[claim["claim_id"] for claim in claims],
    ]
    await deployment.succeeds("rebuild", "--yes", **named)
    verify = ("verify", "--from-topics", "--policies", deployment.policies["GROUNDWIRE_POLICIES_DIR"])
    await deployment.succeeds(*verify, **named)
    status, out, err = await deployment.command(*verify)
    assert status == 3, err
    assert "GROUNDWIRE_SCHEMA_REGISTRY_URL" in out + err
