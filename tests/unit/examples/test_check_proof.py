"""A proof checked without Groundwire holds as it was printed, and in no other way."""

import json
import runpy
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key, public_keys
from tests.stream.harness import ROOT
from tests.unit.examples.proofs import proof_of
from tests.unit.review.world import decision


@pytest.fixture(scope="module")
def proof(tmp_path_factory):
    """Return the text of a proof, the public keys, and what checks the two."""
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    new_key(path, "gate", tenants=[], roles=["seal"], asymmetric=True)
    keys = Keys.load(path)
    made = proof_of(dict(keys)["gate"], decision("c1", 1, "approved").to_bytes())
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
