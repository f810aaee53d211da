"""Entailment models in ONNX: loaded from a folder, held to the policy's revision, run on pairs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from agents.__main__ import main as worker
from agents.wiring import refuse_other_model
from groundwire.cli.entailment import entailment
from groundwire.epistemic.entailment import Pair
from groundwire.epistemic.model import ModelFault
from groundwire.epistemic.types import VerificationConfig
from groundwire.errors import UsageError
from groundwire.policy import Policy, load_policy
from groundwire.verify.models import load_model
from groundwire.verify.models.onnx import OnnxModel
from tests.unit.verify.tiny_onnx import LABELS, WORDS, write_model

STATED, DENIED, OPEN = Pair("it is stated", "claim"), Pair("denied", "claim"), Pair("a b c d e f", "claim")


@pytest.mark.parametrize("labels", [LABELS, ("score",)])
def test_pairs_are_scored_by_the_output_for_entailment_whatever_else_is_in_their_batch(tmp_path, labels):
    model = OnnxModel(write_model(tmp_path, labels))
    together = model.run([STATED, DENIED, OPEN])
    assert together == [found for pair in (STATED, DENIED, OPEN) for found in model.run([pair])]
    stated, denied, left = together
    assert stated.support > 0.9
    assert 0.5 > left.support > denied.support
    assert denied.contradicted == (len(labels) > 1)
    assert not stated.contradicted


def test_of_evidence_that_does_not_fit_the_part_that_states_the_claim_counts_and_no_half_of_a_claim(tmp_path):
    model = OnnxModel(write_model(tmp_path))
    far, near, long = model.run([Pair("x " * 90 + "stated", "claim"), STATED, Pair("stated", "claim " * 30)])
    assert (far.support, far.tokens > 90) == (near.support, True)
    assert isinstance(long, ModelFault)
    assert long.code == "too_long"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda folder: folder / "none", "there is no such folder"),
        (lambda folder: (folder / "model.onnx").unlink(), "holds no .onnx file"),
        (lambda folder: (folder / "model_int8.onnx").write_bytes(b""), "several models (model.onnx, model_int8.onnx)"),
        (lambda folder: (folder / "model.onnx").write_bytes(b"text"), "onnxruntime cannot load it"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "holds no tokenizer.json"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json: cannot be read"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json: cannot be read"),
        (lambda folder: (folder / "config.json").write_text("{}"), "id2label must name the outputs"),
        (lambda folder: write_model(folder, words=(*WORDS, "more")), "it has 8 tokens, config.json 7"),
        (lambda folder: write_model(folder, joined=False), "without a mark between them"),
        (lambda folder: write_model(folder, longest=6), "leaves no room for two texts"),
        (lambda folder: write_model(folder, ("no", "yes")), "no output of id2label says"),
        (lambda folder: write_model(folder, outputs=2), "does not fit its config.json and tokenizer.json"),
        (lambda folder: write_model(folder, mask="pixels"), "needs the input pixels"),
    ],
)  # fmt: skip
def test_what_is_missing_or_does_not_fit_is_refused_at_the_start_by_its_name(tmp_path, change, why):
    found = change(write_model(tmp_path))
    with pytest.raises(UsageError) as refused:
        OnnxModel(found if isinstance(found, Path) and not found.exists() else tmp_path)
    assert why in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_one_command_names_a_model_in_the_policy_and_another_revision_is_refused(tmp_path, monkeypatch):
    folder, file = write_model(tmp_path / "tiny"), tmp_path / "policy.toml"
    file.write_text('version = "ours" # stays\n')
    result = CliRunner().invoke(entailment, [str(folder), "--policy", str(file), "--name", "org/tiny"])
    assert result.exit_code == 0, result.output
    assert "outputs" in result.output
    assert "# stays" in file.read_text()
    config = load_policy(file, {}).verification
    monkeypatch.setenv("GROUNDWIRE_MODEL_API", "entailment")
    monkeypatch.setenv("GROUNDWIRE_MODEL_FOLDER", str(folder))
    assert load_model(config, network=False).name == config.entailment_model
    assert config.entailment_model.startswith("org/tiny@")

    def refused(given: VerificationConfig = config) -> str:
        with pytest.raises(UsageError) as error:
            load_model(given)
        return str(error.value)

    assert "the policy names no entailment model" in refused(VerificationConfig())
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    assert f"and the policy names {config.entailment_model}" in refused()
    monkeypatch.setenv("GROUNDWIRE_MODEL_API", "openai")
    assert "GROUNDWIRE_MODEL_FOLDER and GROUNDWIRE_MODEL_API=entailment" in refused()
    monkeypatch.delenv("GROUNDWIRE_MODEL_FOLDER")
    monkeypatch.setenv("GROUNDWIRE_MODEL_API", "none")
    assert "set GROUNDWIRE_MODEL_API=entailment" in refused()
    with pytest.raises(UsageError, match="restart the worker"):
        refuse_other_model(Policy(), load_policy(file, {}))


def test_without_the_extra_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UsageError, match=r"pip install 'groundwire\[entailment\]'"):
        OnnxModel(write_model(tmp_path))


def test_there_is_no_role_for_the_model_and_the_error_says_where_it_runs():
    result = CliRunner().invoke(worker, ["entailment"])
    assert result.exit_code == 2
    assert "GROUNDWIRE_MODEL_API=entailment" in result.output
