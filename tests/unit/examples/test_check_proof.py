"""A proof checked without Groundwire holds as it was printed, and in no other way."""

import json
import runpy
import tomllib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key, public_keys
from groundwire.messages.base import sha256_hex
from groundwire.messages.seals import SealedOutput, SealHead, path_of, root_of
from tests.stream.harness import ROOT
from tests.unit.review.world import decision


@pytest.fixture(scope="module")
def proof(tmp_path_factory):
    """Return the text of a proof, the public keys, and what checks the two."""
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    new_key(path, "gate", tenants=[], roles=["seal"], asymmetric=True)
    keys, value = Keys.load(path), decision("c1", 1, "approved").to_bytes()
    outputs = [SealedOutput(at, "review", 1, f"{at:036x}", sha256_hex(b"%d" % at)) for at in range(2)]
    outputs.append(SealedOutput(9, "approved", 3, json.loads(value)["decision_id"], sha256_hex(value)))
    names = {"key": "gate", "partition": 0, "topic": "t.claims", "before": None}
    at = datetime(2026, 11, 28, tzinfo=UTC)
    head = SealHead(at=at, count=3, first=0, end=9, root=root_of(outputs), **names)
    made = {
        "decision": value.decode(),
        "output": str(outputs[2]),
        "path": path_of(outputs, 2),
        "seal": head.model_dump(mode="json"),
        "signature": dict(keys)["gate"].sign(head.to_bytes()).hex(),
    }
    check = runpy.run_path(str(ROOT / "examples" / "check_proof.py"))["fault"]
    return json.dumps(made), tomllib.loads(public_keys(keys)[0].decode())["keys"], check


@given(st.data())
def test_a_proof_of_which_any_part_is_changed_or_missing_holds_only_for_the_same_decision_and_seal(
    proof, data
):
    text, keys, check = proof
    true = json.loads(text)
    assert check(true, keys) is None
    values = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
    values |= st.lists(values, max_size=2) | st.sampled_from([text, {}, true["path"], true["output"] + " 7"])
    changed = json.loads(text)
    part = changed if data.draw(st.booleans()) else changed["seal"]
    name = data.draw(st.sampled_from(sorted(part)))
    part[name] = data.draw(values)
    if part[name] is None:
        del part[name]
    if check(changed, keys) is None:
        parts = "decision", "output", "seal"
        assert [changed[part] for part in parts] == [true[part] for part in parts]
