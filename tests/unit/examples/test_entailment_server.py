"""The example that puts an entailment model behind the API that the gate asks."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from groundwire.epistemic.prompts import prior_prompt, support_prompt
from groundwire.epistemic.types import VerificationConfig
from groundwire.library.epistemic import detect_hallucinations
from groundwire.verify.models import OpenAIModel
from tests.unit.examples.loading import load

HELD = "The gateway of the service retries each failed request before it gives up."
OTHER = "The gateway of the service logs the names of its clients in a table of the database."


example = load("entailment_server.py")


def test_the_gate_reads_what_the_server_answers_of_each_claim_and_the_best_passage_decides() -> None:
    """Without evidence nothing is known; what is no question of the gate is refused."""

    def same(claim: str, passages: Sequence[str]) -> list[float]:
        """Stand in for a model: a passage states what it says word by word."""
        return [0.99 if claim in passage else 0.01 for passage in passages]

    evidence = {"a": HELD, "b": "The cache is in Dublin."}
    config = VerificationConfig(model_scope="all", mode="full", evidence_scrubbing=False)
    with example.serve(same, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        try:
            answer, client = f"{HELD} {OTHER}", OpenAIModel(url)
            report = detect_hallucinations(answer, evidence, client=client, config=config)
            questions = (b"", b"{}", b"[]", b'{"messages": [{"content": "hello"}]}')
            replies = [httpx.post(f"{url}/chat/completions", content=one) for one in questions]
        finally:
            server.shutdown()
            thread.join()
    assert [call.fault for call in report.calls] == [None, None]
    assert [round(claim.evidence_support, 2) for claim in report.claims] == [0.99, 0.01]
    assert [reply.status_code for reply in replies] == [400] * 4
    for prompt, verdict, probability in (
        (support_prompt(HELD, evidence), "supported", 0.99),
        (support_prompt(OTHER, evidence), "unsupported", 0.01),
        (support_prompt(OTHER, {}), "unsupported", 0.0),
        (prior_prompt(HELD), "false", 0.02),
    ):
        said = json.loads(example.judge(prompt.user, same))
        assert said == {"verdict": verdict, "probability": probability}, prompt


@pytest.mark.slow
@pytest.mark.parametrize("labels", [("contradiction", "entailment", "neutral"), ("score",)])
def test_a_cross_encoder_is_loaded_from_its_folder_and_scores_every_passage(tmp_path: Path, labels) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted({*HELD.split(), *OTHER.split()})]
    levels = tokenizers.models.WordLevel({word: number for number, word in enumerate(words)}, "[UNK]")
    inner = tokenizers.Tokenizer(levels)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    inner.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokens = {"model_max_length": 48, "pad_token": "[PAD]", "unk_token": "[UNK]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **tokens).save_pretrained(tmp_path)
    size = {"vocab_size": len(words), "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    size |= {"intermediate_size": 8, "max_position_embeddings": 48}
    names = {"id2label": dict(enumerate(labels)), "label2id": {label: n for n, label in enumerate(labels)}}
    config = transformers.BertConfig(**size, **names)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    score = example.load(str(tmp_path))
    one, *others = score(HELD, [HELD, f"{OTHER} " * 20])
    assert len(others) > 1  # windows of the long one
    assert all(0 < found < 1 for found in (one, *others))
    assert score(HELD, [HELD]) == pytest.approx([one], abs=1e-5)
    assert score(f"{HELD} " * 20, [HELD]) == []


def test_the_output_for_entailment_is_found_by_its_name() -> None:
    assert example.output_of({"CONTRADICTION": 0, "ENTAILMENT": 1, "NEUTRAL": 2}) == 1
    assert example.output_of({"LABEL_0": 0}) is None
    with pytest.raises(ValueError, match="LABEL_0, LABEL_1"):
        example.output_of({"LABEL_0": 0, "LABEL_1": 1})
