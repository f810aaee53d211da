"""`examples/check_proof.html` says of a proof what `examples/check_proof.py` says, and asks nobody."""

from __future__ import annotations

import json
import runpy
import tomllib

import pytest
from playwright.sync_api import expect

from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key, public_keys
from tests.stream.harness import ROOT
from tests.unit.examples.proofs import proof_of
from tests.unit.review.world import decision


@pytest.fixture(scope="module")
def proof_page(chromium):
    context = chromium.new_context()
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((ROOT / "examples" / "check_proof.html").as_uri())
    yield page
    assert set(asked) == {page.url}
    context.close()


def test_the_page_says_of_a_proof_what_the_program_says_whatever_was_changed(proof_page, tmp_path):
    for name, role in (("gate", "seal"), ("ann", "reviewer")):
        new_key(tmp_path / "keys.toml", name, tenants=["t"] * (role != "seal"), roles=[role], asymmetric=True)
    keys = Keys.load(tmp_path / "keys.toml")
    public = public_keys(keys)[0].decode()
    value = decision("c1", 1, "approved", text="Tjänsten använder Redis.").to_bytes()
    true = proof_of(dict(keys)["gate"], value)
    fault = runpy.run_path(str(ROOT / "examples" / "check_proof.py"))["fault"]
    head, (side, first) = true["seal"], true["path"][0]
    other = {"left": "right", "right": "left"}[side]
    cases = [(true, public)]
    cases += [(true | change, public) for change in (
        {"decision": true["decision"].replace("Redis", "MySQL")}, {"output": "8" + true["output"]},
        {"output": true["output"].replace("approved/3", "review/3")},
        {"output": true["output"].replace("approved/3", "approved/4")},
        {"path": true["path"][1:]}, {"path": [[other, first], *true["path"][1:]]}, {"signature": "00" * 64},
        *({"seal": head | {field: changed}} for field, changed in (
            ("root", "0" * 64), ("key", "ann"), ("key", "nobody"), ("end", 10), ("topic", "u.claims"),
            ("before", "0" * 64), ("at", "2026-11-29T00:00:00Z"),
        )),
    )]  # fmt: skip
    for line in (
        "not_after = 2026-01-01T00:00:00Z",
        "not_after=2026-01-01T00:00:00Z",
        "not_before = 2027-01-01T00:00:00Z",
        "not_before = 2026-01-01T00:00:00Z",
    ):
        cases.append((true, public.replace("[keys.gate]\n", f"[keys.gate]\n{line}\n")))
    said = set()
    for given, held in cases:
        wrong = fault(given, tomllib.loads(held)["keys"])
        said.add(wrong)
        (tmp_path / "proof.json").write_text(json.dumps(given))
        (tmp_path / "public.toml").write_text(held)
        proof_page.reload()
        proof_page.locator("#proof").set_input_files(tmp_path / "proof.json")
        proof_page.locator("#public").set_input_files(tmp_path / "public.toml")
        result = proof_page.locator("#result")
        expect(result).to_contain_text(f"Not proved: {wrong}." if wrong else "was published, sealed at")
        shown = proof_page.locator("#decision")
        expect(shown).to_contain_text("" if wrong else "Tjänsten använder Redis.")
        assert shown.is_visible() is not bool(wrong)
    assert len(said) == 7, "each fault, and none"
    # what ends a key is read, or nothing is proved
    after = "[keys.gate]\nnot_after = 2026-01-01T00:00:00Z  # stolen\n"
    unread = [
        (json.dumps(true), public.replace("[keys.gate]\n", after)),
        (json.dumps(true), public + "not_after = 7 o'clock\n"),
    ]
    unread += [(text, public) for text in ("", "[]", "{}", '{"output": 7}', "<script>")]
    for text, held in unread:
        (tmp_path / "proof.json").write_text(text)
        (tmp_path / "public.toml").write_text(held)
        proof_page.reload()
        for name, field in (("proof.json", "#proof"), ("public.toml", "#public")):
            proof_page.locator(field).set_input_files(tmp_path / name)
        expect(proof_page.locator("#result")).to_have_text("Not proved: a file cannot be read.")
