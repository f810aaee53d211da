"""Values framed for a schema registry are read as the JSON that they stand for, and hostile ones are refused."""

from __future__ import annotations

import io
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest
from confluent_kafka.schema_registry.confluent.type import decimal_pb2
from google.protobuf import struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass
from google.type import date_pb2
from pydantic import BaseModel

from groundwire.config import RegistrySettings
from groundwire.errors import RecordError, RegistryUnavailable, SchemaMissing, UsageError
from groundwire.kafka.registry import Registry
from groundwire.messages import decode
from groundwire.messages.decode import decode_claim, decode_response, schema_of, use_registry
from schemas.__main__ import INPUTS
from tests.services.schema_registry import SchemaRegistry, schema_registry

CLAIM = {"claim_id": "c1", "user_id": "ada", "content": "The API returns JSON"}
UNKNOWN = 999
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    with schema_registry() as made:
        yield made


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def registry(server: SchemaRegistry, clock: list[float]) -> Iterator[Registry]:
    made = Registry(RegistrySettings(url=server.url), lambda: clock[0])
    use_registry(made.read)
    yield made
    use_registry(None)


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4) + payload


def record(*fields: tuple[str, Any], name: str = "Value") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": of, "type": kind} for of, kind in fields]}


def avro(server: SchemaRegistry, schema: Any, value: Any, **more: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return framed(registered(server, schema, **more), stream.getvalue())


def registered(server: SchemaRegistry, schema: Any, **more: Any) -> int:
    return server.register("claims-value", {"schema": json.dumps(schema), **more})


def refusal(value: bytes) -> str:
    with pytest.raises(RecordError) as caught:
        decode_claim(value)
    assert caught.value.code == "invalid_record"
    return caught.value.message


def test_json_in_a_frame_and_in_a_structured_cloud_event_is_the_record_that_it_holds():
    plain = json.dumps(CLAIM).encode()
    event = {"specversion": "1.0", "id": "1", "source": "/agents", "type": "claim", "subject": "any"}
    as_text = {**event, "data_base64": b64encode(plain).decode()}
    for value in (
        framed(7, plain),
        framed(7, b" \n" + plain),
        json.dumps({**event, "data": CLAIM}).encode(),
        json.dumps(as_text).encode(),
        framed(7, json.dumps({**event, "data": CLAIM}).encode()),
    ):
        assert decode_claim(value) == decode_claim(plain)
    answer = {"response_id": "r", "user_id": "ada", "answer": None}
    assert decode.decode_either(json.dumps({**event, "data": answer}).encode()) == decode_response(
        json.dumps(answer).encode()
    )
    for wrong, message in (
        ({**event, "specversion": "0.3", "data": CLAIM}, "specversion: the version of a CloudEvent"),
        (event, "data: the CloudEvent holds no record"),
        ({**event, "data": None}, "the value must be a JSON object"),
        ({**event, "data": {**CLAIM, "contant": ""}}, "contant: there is no such field"),
        ({**event, "data_base64": "%"}, "data_base64: is not base64"),
        ({**as_text, "data_base64": b64encode(b'{"claim_id": "\\u0000"}').decode()}, "NUL character"),
    ):
        assert message in refusal(json.dumps(wrong).encode())


def test_without_a_registry_an_error_says_what_the_value_is_and_what_to_install():
    message = refusal(framed(17, b"\x02c"))
    for part in (
        "Avro or Protobuf",
        "schema id 17",
        "no registry is configured",
        "pip install 'groundwire[registry]'",
        "GROUNDWIRE_SCHEMA_REGISTRY_URL",
    ):
        assert part in message


def test_avro_with_logical_types_is_the_record_that_its_fields_say(
    registry: Registry, server: SchemaRegistry
):
    moment = datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)
    extra = record(
        ("day", {"type": "int", "logicalType": "date"}),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}),
        ("lines", {"type": "fixed", "size": 4, "name": "Four", "logicalType": "decimal", "precision": 9}),
        ("hash", "bytes"),
        ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
        ("at", {"type": "long", "logicalType": "timestamp-micros"}),
        name="Extra",
    )
    schema = record(
        ("claim_id", {"type": "string", "logicalType": "uuid"}),
        ("user_id", "string"),
        ("content", "string"),
        ("source", ["null", "string"]),
        ("captured_at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("validity_horizon", ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
        ("derived_from", {"type": "array", "items": "string"}),
        ("metadata", extra),
    )
    value = {
        **CLAIM,
        "claim_id": UUID(int=7),
        "source": None,
        "captured_at": moment,
        "validity_horizon": None,
        "derived_from": ["a", "b"],
        "metadata": {
            "day": date(2026, 2, 28),
            "price": Decimal("-12.35"),
            "lines": Decimal(70_000),
            "hash": b"\0\xff",
            "kind": "B",
            "at": moment,
        },
    }
    claim = decode_claim(avro(server, schema, value))
    assert claim.claim_id == "00000000-0000-0000-0000-000000000007"
    assert (claim.source, claim.captured_at, claim.validity_horizon) == ("ai_synthesis", moment, None)
    assert claim.derived_from == ["a", "b"]
    assert claim.metadata == {
        "day": "2026-02-28",
        "price": -12.35,
        "lines": 70_000,
        "hash": "AP8=",
        "kind": "B",
        "at": "2026-01-31T12:00:00.250Z",
    }
    naive = record(*[(name, "string") for name in CLAIM], ("captured_at", "string"))
    assert "captured_at" in refusal(avro(server, naive, {**CLAIM, "captured_at": "2026-01-31"}))
    answer = record(("response_id", "string"), ("user_id", "string"), ("answer", ["null", "string"]))
    response = decode_response(avro(server, answer, {"response_id": "r", "user_id": "ada", "answer": None}))
    assert response.answer is None, "the one null that says something"


def test_a_schema_that_refers_to_others_is_read_with_them_and_each_is_asked_for_once(
    registry: Registry, server: SchemaRegistry
):
    inner = record(("team", "string"), name="Metadata")
    server.register("metadata", {"schema": json.dumps(inner)})
    schema = record(*[(name, "string") for name in CLAIM], ("metadata", "Metadata"))
    number = registered(
        server, schema, references=[{"name": "Metadata", "subject": "metadata", "version": 1}]
    )
    stream = io.BytesIO()
    named: dict[str, Any] = {}
    fastavro.parse_schema(inner, named)
    parsed = fastavro.parse_schema(schema, named)
    fastavro.schemaless_writer(stream, parsed, {**CLAIM, "metadata": {"team": "search"}})
    for _ in range(3):
        assert decode_claim(framed(number, stream.getvalue())).metadata == {"team": "search"}
    assert server.asked == [f"/schemas/ids/{number}", "/subjects/metadata/versions/1"]


def proto(name: str, *fields: tuple[str, str, str], package: str = "memories") -> FileDescriptorProto:
    """Return a file with a message Other, and Claim within Outer; a field is name, type and label."""
    file = FileDescriptorProto(name=name, package=package, syntax="proto3")
    file.dependency.extend(
        ["google/protobuf/timestamp.proto", "google/protobuf/struct.proto", "google/protobuf/wrappers.proto"]
    )
    file.dependency.extend(["confluent/type/decimal.proto", "google/type/date.proto"])
    file.message_type.add(name="Other")
    claim = file.message_type.add(name="Outer").nested_type.add(name="Claim")
    for number, (field, kind, label) in enumerate(fields, 1):
        made = claim.field.add(name=field, number=number)
        made.label = made.LABEL_REPEATED if label == "repeated" else made.LABEL_OPTIONAL
        if kind[0] == ".":
            made.type, made.type_name = made.TYPE_MESSAGE, kind
        else:
            made.type = getattr(made, f"TYPE_{kind.upper()}")
        if label == "optional":
            made.proto3_optional, made.oneof_index = True, len(claim.oneof_decl)
            claim.oneof_decl.add(name=f"_{field}")
    return file


def pool_of(file: FileDescriptorProto) -> DescriptorPool:
    pool = DescriptorPool()
    for module in (timestamp_pb2, struct_pb2, wrappers_pb2, decimal_pb2, date_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return pool


def test_protobuf_is_read_by_its_message_indexes_with_times_decimals_dates_and_absent_fields(
    registry: Registry, server: SchemaRegistry
):
    file = proto(
        "claims.proto",
        *((name, "string", "") for name in CLAIM),
        ("source", "string", ""),
        ("captured_at", ".google.protobuf.Timestamp", ""),
        ("validity_horizon", ".google.protobuf.Timestamp", ""),
        ("derived_from", "string", "repeated"),
        ("metadata", ".google.protobuf.Struct", ""),
        ("source_id", ".google.protobuf.StringValue", ""),
    )
    number = server.register(
        "p", {"schema": b64encode(file.SerializeToString()).decode(), "schemaType": "PROTOBUF"}
    )
    pool = pool_of(file)
    message = GetMessageClass(pool.FindMessageTypeByName("memories.Outer.Claim"))(**CLAIM)
    message.captured_at.FromJsonString("2026-01-31T12:00:00.250Z")
    message.derived_from.append("a")
    message.metadata.update({"n": 1, "deep": {"list": [True, None, "x"]}})
    message.source_id.value = "7"
    payload = message.SerializeToString()
    claim = decode_claim(framed(number, b"\x04\x02\x00" + payload))  # the second message's first one, zigzag
    assert claim.model_dump(exclude_defaults=True, mode="json") == {
        **CLAIM,
        "captured_at": "2026-01-31T12:00:00.250Z",
        "derived_from": ["a"],
        "metadata": {"n": 1, "deep": {"list": [True, None, "x"]}},
        "source_id": "7",
    }
    assert "required" in refusal(framed(number, b"\x00" + b""))  # the first message: it has no fields
    for indexes in (b"\x02\x09", b"\x03", b"\x04\x02\x09", b"\xff\xff\xff\xff\xff\xff\x7f", b"", b"\x80"):
        refusal(framed(number, indexes + payload))

    kinds = proto(
        "numbers.proto",
        *(("response_id", "string", ""), ("user_id", "string", ""), ("answer", "string", "optional")),
        *(("confidence", "double", ""), ("verify", "bool", "optional"), ("mode", "string", "")),
        *(("price", ".confluent.type.Decimal", ""), ("day", ".google.type.Date", "")),
        package="",
    )
    number = server.register(
        "n", {"schema": b64encode(kinds.SerializeToString()).decode(), "schemaType": "PROTOBUF"}
    )
    made = GetMessageClass(pool_of(kinds).FindMessageTypeByName("Outer.Claim"))(
        response_id="r", user_id="u", answer=""
    )
    response = decode_response(framed(number, b"\x04\x02\x00" + made.SerializeToString()))
    assert (response.answer, response.confidence, response.verify, response.mode) == ("", 0.0, True, "auto")
    made.price.value, made.price.scale = (-1235).to_bytes(2, signed=True), 2
    made.day.year, made.day.month, made.day.day = 2026, 2, 28
    read = json.loads(registry.read(number, b"\x04\x02\x00" + made.SerializeToString()))
    assert (read["price"], read["day"]) == (-12.35, "2026-02-28")


def test_an_unknown_id_is_refused_and_asked_again_after_a_minute_and_a_registry_that_is_away_refuses_nothing(
    registry: Registry, server: SchemaRegistry, clock: list[float]
):
    value = avro(server, record(*[(name, "string") for name in CLAIM]), CLAIM)
    with pytest.raises(SchemaMissing, match=f"schema {UNKNOWN} is unknown to the schema registry at http"):
        decode_claim(framed(UNKNOWN, b"x"))
    refusal(framed(UNKNOWN, b"x"))
    assert len(server.asked) == 1
    clock[0] = 61.0
    with pytest.raises(SchemaMissing):
        registry.read_known(UNKNOWN, b"x")  # of a batch whose look-ups took longer
    assert len(server.asked) == 1
    refusal(framed(UNKNOWN, b"x"))
    assert len(server.asked) == 2
    assert "no schema registry has a schema 2147483648" in refusal(framed(1 << 31, b"x"))
    assert len(server.asked) == 2, "some answer such an id as if they were away"
    with pytest.raises(RegistryUnavailable, match="HTTP 404"):
        Registry(RegistrySettings(url=f"{server.url}/wrong")).read(1, b"x")
    with pytest.raises(RegistryUnavailable, match="to be looked up"):
        registry.read_known(1, b"x")
    for status in (500, 503, 401, 403, 429):
        server.status = status
        with pytest.raises(RegistryUnavailable, match=f"HTTP {status}.*GROUNDWIRE_SCHEMA_REGISTRY_"):
            decode_claim(value)
        clock[0] += 10
    server.status = 503
    with pytest.raises(RegistryUnavailable):
        decode_claim(value)
    asked = len(server.asked)
    with pytest.raises(RegistryUnavailable):
        decode_claim(value)
    assert len(server.asked) == asked, "who cannot wait does not ask again at once"
    server.status = None
    clock[0] += 10
    assert decode_claim(value).claim_id == "c1"
    server.status = 500
    assert decode_claim(value).claim_id == "c1", "a schema never changes under its id"


def zigzag(number: int) -> bytes:
    number, out = (number << 1) ^ (number >> 63), b""
    while number & ~0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def test_hostile_avro_is_refused_before_it_takes_memory_or_time(registry: Registry, server: SchemaRegistry):
    """Each of these took minutes, gigabytes, or the process, in a decoder without limits."""
    node = record(("next", ["null", "Node"]), name="Node")
    nothing = record(("items", {"type": "array", "items": "null"}))
    empty = record(("items", {"type": "array", "items": record(name="Empty")}))
    fixed = record(("items", {"type": "map", "values": {"type": "fixed", "name": "F", "size": 0}}))
    deep: Any = "string"
    for _ in range(70):
        deep = {"type": "array", "items": deep}
    wide = record(*((f"f{number}", "int") for number in range(10_001)))
    for schema, payload, message in (
        (node, b"\x02" * 890_000, "recursive: Node"),
        (nothing, zigzag(2**40) + b"\0", "no byte: null"),
        (empty, zigzag(2**40) + b"\0", "no byte: Empty"),
        (fixed, b"\0", "no byte: F"),
        (record(("deep", deep)), b"\0", "too large"),
        (wide, b"\0", "too large"),
        ("null", b"x", "no byte: null"),
        ({"type": "nonsense"}, b"x", "cannot be used"),
        (record(("x", "Unknown")), b"x", "cannot be used"),
    ):
        assert message in refusal(framed(registered(server, schema), payload))
    money = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    for schema, payload in (
        (record(("d", money)), zigzag(890_000) + b"\x7f" * 890_000),
        (record(("s", "string")), zigzag(2**60) + b"abc"),
        (record(("s", "string")), zigzag(-5) + b"abc"),
        (record(("s", "string")), zigzag(1) + b"\xff"),
        (record(("s", "string")), zigzag(1) + b"aTRAILING"),
        (record(("s", {"type": "array", "items": "int"})), zigzag(2**60) + b"\x02"),
        (record(("s", "double")), b"\0\0\0\0\0\0\xf8\x7f"),  # NaN
        (record(("s", {"type": "long", "logicalType": "timestamp-millis"})), zigzag(2**62)),
        (record(("s", ["null", "int"])), zigzag(7)),
    ):
        assert "not of its schema" in refusal(framed(registered(server, schema), payload))
    many = record(("items", {"type": "array", "items": record(("f", "boolean"), name="Item")}))
    with pytest.raises(RecordError, match="more than 100000 elements"):
        decode_claim(framed(registered(server, many), zigzag(880_000) + b"\0" * 880_001))
    file = compiled((ROOT / "schemas/llm-response/1.0.proto").read_text("utf-8"))
    text = b64encode(file.SerializeToString()).decode()
    number = server.register("p", {"schema": text, "schemaType": "PROTOBUF"})
    response = [message.name for message in file.message_type].index("LlmResponse")
    chunks = next(field.number for field in file.message_type[response].field if field.name == "chunks")
    with pytest.raises(RecordError, match="more than 100000 elements"):
        decode_response(framed(number, b"\x02" + zigzag(response) + bytes([chunks << 3 | 2, 0]) * 440_000))
    assert "GIVES AWAY" not in refusal(avro(server, record(("contant", "string")), {"contant": "GIVES AWAY"}))


def test_other_schemas_that_cannot_be_read_are_refused_with_why(registry: Registry, server: SchemaRegistry):
    text = server.register("t", {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"})
    assert "serialized" in refusal(framed(text, b"\0"))
    assert "is not JSON" in refusal(
        framed(server.register("j", {"schema": "{}", "schemaType": "JSON"}), b"[]")
    )
    loop = [{"name": "a", "subject": "loop", "version": 1}]
    number = server.register("loop", {"schema": '"string"', "references": loop})
    assert "too many others" in refusal(framed(number, b"\0"))
    assert schema_of(b"\0\0\0\0\1") is None
    with pytest.raises(RecordError) as caught:
        decode_claim(b"\0\0\0\0\1")
    assert caught.value.code == "invalid_json"


def test_the_registry_is_told_who_asks_and_wrong_settings_are_named(
    server: SchemaRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    server.user = ("gate", "s3cret")
    (tmp_path / "password").write_text("s3cret\n")
    number = registered(server, record(("s", "string")))
    settings = {"url": server.url, "username": "gate", "password_file": tmp_path / "password"}
    assert Registry(RegistrySettings(**settings)).read(number, b"\x02x") == b'{"s": "x"}'
    with pytest.raises(RegistryUnavailable, match="HTTP 401"):
        Registry(RegistrySettings(url=server.url)).read(number, b"\x02x")
    for variables, named in (
        ({"URL": "registry:8081"}, "URL"),
        ({"URL": "http://gate:s3cret@registry"}, "URL"),
        ({"USERNAME": "gate"}, "PASSWORD_FILE"),
        ({"CERT_FILE": "a.pem"}, "KEY_FILE"),
        ({"URL": server.url, "CA_FILE": "missing.pem"}, "CA_FILE: missing.pem"),
        ({"URL": server.url, "USERNAME": "a", "PASSWORD_FILE": "missing"}, "PASSWORD_FILE: missing"),
    ):
        given = {f"GROUNDWIRE_SCHEMA_REGISTRY_{name}": value for name, value in variables.items()}
        monkeypatch.setattr("os.environ", given)
        with pytest.raises(UsageError, match=f"GROUNDWIRE_SCHEMA_REGISTRY_.*{named}") as caught:
            Registry(RegistrySettings.load())
        assert "s3cret" not in str(caught.value)


def compiled(text: str) -> FileDescriptorProto:
    """Return what protoc makes of a file as `schemas` writes it: messages, their fields, and maps."""
    file = FileDescriptorProto(
        name="value.proto", syntax="proto3", package=re.search(r"package (.+);", text)[1]
    )
    file.dependency.extend(re.findall(r'import "(.+)";', text))
    scalars = {"string": 9, "bool": 8, "int64": 3, "double": 1}
    for name, body in re.findall(r"message (\w+) \{\n(.*?)\n\}", text, re.DOTALL):
        message = file.message_type.add(name=name)

        def add(to: Any, kind: str, field: str, number: int, *, repeated: bool) -> Any:
            made = to.field.add(name=field, number=number, label=3 if repeated else 1)
            if kind in scalars:
                made.type = scalars[kind]
            else:
                made.type = 11
                made.type_name = f".{kind}" if kind.startswith("google.") else f".{file.package}.{kind}"
            return made

        lines = re.findall(r"  (optional |repeated |)(map<string, ([\w.]+)>|[\w.]+) (\w+) = (\d+);", body)
        for label, kind, inner, field, number in lines:
            if inner:
                entry = message.nested_type.add(
                    name="".join(part.title() for part in field.split("_")) + "Entry"
                )
                entry.options.map_entry = True
                add(entry, "string", "key", 1, repeated=False)
                add(entry, inner, "value", 2, repeated=False)
                add(message, f"{name}.{entry.name}", field, int(number), repeated=True)
                continue
            made = add(message, kind, field, int(number), repeated=label == "repeated ")
            if label == "optional ":
                made.proto3_optional, made.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field}")
    return file


def kept(value: dict[str, Any]) -> dict[str, Any]:
    """Return a sample without what the schemas have no place for: keys of the corpus, deep metadata."""
    if "metadata" in value:
        flat = {name: one for name, one in value["metadata"].items() if not isinstance(one, dict | list)}
        value = {**value, "metadata": flat}
    if "corpus_index" in value:
        named = {name: {"confidence": one["confidence"]} for name, one in value["corpus_index"].items()}
        value = {**value, "corpus_index": named}
    return value


SAMPLES = sorted((ROOT / "tests/contract/samples").glob("*.good.*.json"))


@pytest.mark.parametrize("name", sorted(INPUTS))
def test_a_record_written_by_the_published_schemas_is_the_one_that_its_json_is(
    name: str, registry: Registry, server: SchemaRegistry
):
    model, samples = INPUTS[name], [path for path in SAMPLES if path.name.startswith(f"{name}.")]
    assert samples
    schema = json.loads((ROOT / f"schemas/{name}/1.0.avsc").read_text("utf-8"))
    text = (ROOT / f"schemas/{name}/1.0.proto").read_text("utf-8")
    file = compiled(text)
    number = server.register(
        "p", {"schema": b64encode(file.SerializeToString()).decode(), "schemaType": "PROTOBUF"}
    )
    message = GetMessageClass(pool_of(file).FindMessageTypeByName(f"{file.package}.{model.__name__}"))
    for path in samples:
        plain = kept(json.loads(path.read_text("utf-8")))
        expected = decode.validate(model, plain)
        parsed, _ = decode.read_value(avro(server, schema, as_given(expected)))
        assert decode.validate(model, parsed) == expected, path.name
        if plain.get("answer", "") is None or [] in plain.values() or {} in plain.values():
            continue  # Protobuf has neither null nor lists that are there without items
        sent = in_protobuf(message(), as_given(expected)).SerializeToString()
        parsed, _ = decode.read_value(framed(number, b"\0" + sent))
        assert decode.validate(model, parsed) == expected, path.name


def as_given(record: BaseModel) -> dict[str, Any]:
    """Return a record's fields as a producer holds them, times as times."""
    return {
        name: [as_given(one) if isinstance(one, BaseModel) else one for one in value]
        if isinstance(value, list)
        else {key: as_given(one) if isinstance(one, BaseModel) else one for key, one in value.items()}
        if isinstance(value, dict)
        else value
        for name in record.model_fields_set
        for value in [getattr(record, name)]
    }


def in_protobuf(message: Any, fields: dict[str, Any]) -> Any:
    """Set the fields of a message, as a producer would."""
    for name, value in fields.items():
        target, of = getattr(message, name), message.DESCRIPTOR.fields_by_name[name].message_type
        if value is None:
            continue
        if isinstance(value, datetime):
            target.FromDatetime(value)
        elif of is None and isinstance(value, list):
            target.extend(value)
        elif of is None:
            setattr(message, name, value)
        elif isinstance(value, list):
            for item in value:
                if of.file.package == "google.protobuf":
                    ParseDict(item, target.add())
                else:
                    in_protobuf(target.add(), item)
        elif not of.GetOptions().map_entry:
            target.update(value)
            target.SetInParent()
        else:
            for key, item in value.items():
                if isinstance(item, str):
                    target[key] = item
                else:
                    in_protobuf(target[key], {"items": item} if isinstance(item, list) else item)
    return message
