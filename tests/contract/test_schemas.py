"""The published schemas: what the models say, what the samples show, and what the files hold are one."""

import json
import string
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from groundwire.errors import ErrorCode, RecordError
from groundwire.messages.decisions import Decision
from groundwire.messages.decode import validate
from groundwire.messages.headers import (
    OF_LETTERS,
    InboundRecord,
    dead_letter_headers,
    decision_headers,
    deferred_headers,
    event_headers,
)
from groundwire.messages.topics import TopicName
from schemas.__main__ import INPUTS, OUTPUTS, described, files, main, schema
from schemas.asyncapi import asyncapi, to_yaml

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "schemas"
GOOD = sorted((ROOT / "tests/contract/samples").glob("*.good.*.json"))
BAD = sorted((ROOT / "tests/contract/samples").glob("*.bad.*.json"))


def record_of(path):
    return path.name.split(".")[0]


def validator(name):
    published = json.loads((PUBLISHED / name / "1.0.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(published)


def read(name, value):
    """Read a value as the gate or a consumer written with the models does."""
    text = json.dumps(value)
    return validate(INPUTS[name], value) if name in INPUTS else OUTPUTS[name].model_validate_json(text)


def test_every_published_file_is_what_the_models_say():
    stale = [name for name, text in files().items() if (PUBLISHED / name).read_text(encoding="utf-8") != text]
    assert stale == [], "run: python -m schemas write schemas"


def test_every_field_of_a_published_schema_says_what_it_means_in_the_words_of_the_page():
    words = tomllib.loads((ROOT / "docs" / "develop" / "fields.toml").read_text(encoding="utf-8"))
    for name in [*INPUTS, *OUTPUTS]:
        published = json.loads((PUBLISHED / name / "1.0.json").read_text(encoding="utf-8"))
        parts = {published["title"].split()[0]: published, **published.get("$defs", {})}
        for model, part in parts.items():
            texts = {field: value.get("description") for field, value in part.get("properties", {}).items()}
            assert texts == words.get(model, {})
            assert all(texts.values())
    words = tomllib.loads((ROOT / "docs" / "develop" / "fields.toml").read_text(encoding="utf-8"))
    del words["Claim"]["source_id"]
    with pytest.raises(ValueError, match=r"\[Claim\] .*source_id"):
        described("claim", words)


def test_check_names_the_stale_file_and_write_mends_it(tmp_path, capsys):
    assert main(["write", str(tmp_path)]) == 0
    assert main(["check", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""
    (tmp_path / "claim/1.0.json").write_text("{}")
    (tmp_path / "audit/1.0.json").unlink()
    (tmp_path / "claim/0.9.json").write_text("{}")  # an older version stays beside the newer
    assert main(["check", str(tmp_path)]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.split(" is not")[0] for line in said] == [
        str(tmp_path / "claim/1.0.json"),
        str(tmp_path / "audit/1.0.json"),
    ]
    main(["write", str(tmp_path)])
    assert main(["check", str(tmp_path)]) == 0


def test_every_schema_is_one_and_is_found_under_its_id():
    for name in [*INPUTS, *OUTPUTS]:
        generated = schema(name)
        jsonschema.Draft202012Validator.check_schema(generated)
        assert generated["$id"] == f"https://groundwire.dev/schemas/{name}/1.0.json"
        assert (PUBLISHED / generated["$id"].removeprefix("https://groundwire.dev/schemas/")).is_file()
    for name in [*INPUTS, *OUTPUTS]:
        assert any(record_of(path) == name for path in GOOD)
        assert any(record_of(path) == name for path in BAD)


def test_models_and_schemas_read_good_samples_write_outputs_as_they_were_and_refuse_bad_samples():
    for path in GOOD:
        value = json.loads(path.read_text(encoding="utf-8"))
        validator(record_of(path)).validate(value)
        read(record_of(path), value)
    for path in BAD:
        value = json.loads(path.read_text(encoding="utf-8"))
        with pytest.raises((RecordError, ValidationError)):
            read(record_of(path), value)
        with pytest.raises(jsonschema.ValidationError):
            validator(record_of(path)).validate(value)
    for path in [path for path in GOOD if record_of(path) in OUTPUTS]:
        value = json.loads(path.read_text(encoding="utf-8"))
        name = record_of(path)
        written = json.loads(read(name, value).model_dump_json(by_alias=True))
        validator(name).validate(written)
        assert written == {field: value[field] for field in written}
        assert set(value) - set(written) <= {"tomorrow"}


plain = st.text(string.ascii_letters + string.digits + " .:-äß漢", max_size=30)


@given(st.data())
def test_model_and_schema_agree_on_any_value_of_any_input_field(data):
    json_values_table = st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.5, -0.1, 1.5]) | plain,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3),
        max_leaves=5,
    )
    path = data.draw(st.sampled_from([path for path in GOOD if record_of(path) in INPUTS]), label="sample")
    name = record_of(path)
    value = json.loads(path.read_text(encoding="utf-8"))
    field = data.draw(st.sampled_from([*INPUTS[name].model_fields, "another"]), label="field")
    if data.draw(st.booleans(), label="left out"):
        value.pop(field, None)
    else:
        value[field] = data.draw(json_values_table, label="value")
    try:
        read(name, value)
        accepted = True
    except RecordError:
        accepted = False
    assert validator(name).is_valid(value) == accepted


def test_the_document_reads_back_as_it_was_made():
    text = (PUBLISHED / "asyncapi.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text) == asyncapi()


@given(st.data())
def test_any_document_of_objects_lists_and_scalars_is_written_so(data):
    keys = st.sampled_from(["no", "on", "y", "a-b", "ce_id", "null", "1", "", "- a", "#"]) | plain
    documents = st.recursive(
        st.none() | st.booleans() | st.integers() | plain | st.text(string.punctuation + " \n\t"),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    )
    document = data.draw(st.dictionaries(keys, documents, min_size=1))
    assert yaml.safe_load(to_yaml(document)) == document


def test_every_topic_has_its_channel_and_every_reference_a_target():
    def resolve(document, reference):
        for part in reference.removeprefix("#/").split("/"):
            document = document[part]
        return document

    document = asyncapi()
    assert {channel["address"] for channel in document["channels"].values()} == {
        f"groundwire.{topic}" for topic in TopicName
    }
    references = []

    def collect(value):
        if isinstance(value, dict):
            references.extend([value["$ref"]] if "$ref" in value else [])
            value = list(value.values())
        for child in value if isinstance(value, list) else []:
            collect(child)

    collect(document)
    assert len(references) > 20
    for reference in references:
        assert resolve(document, reference) if reference[0] == "#" else (PUBLISHED / reference).is_file()


def test_the_headers_that_are_sent_are_those_described():
    def headers_valid(message, headers):
        described = asyncapi()["components"]["messages"][message]["headers"]
        assert {name for name, _ in headers} <= set(described["properties"]), (
            "a header that the document leaves out"
        )
        jsonschema.validate({name: value.decode() for name, value in headers}, described)

    sample = (ROOT / "tests/contract/samples/decision.good.approved-claim.json").read_text(encoding="utf-8")
    decision = Decision.model_validate_json(sample)
    traced = [("traceparent", b"00-1-1-01")]
    headers_valid("decision", decision_headers(decision, traced))
    for name in OUTPUTS:
        headers_valid(name, event_headers(name, "id", "2026-01-31T12:00:00Z", "c", []))
    headers_valid("deferred", deferred_headers(InboundRecord("t", 0, 0, 1, b"k", b"{}", traced)))
    with pytest.raises(jsonschema.ValidationError):
        headers_valid("decision", [("ce_id", b"x")])
    error = RecordError(ErrorCode.INVALID_JSON, "not JSON", None)
    described = asyncapi()["components"]["messages"]["dead-letter"]["headers"]["properties"]
    sent = {name for name, _ in dead_letter_headers(error, "t", 0, 0, [])}
    assert set(described) <= sent | OF_LETTERS
