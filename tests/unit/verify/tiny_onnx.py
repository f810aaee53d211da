"""Writes the folder of a tiny entailment model: an ONNX graph, encoded by hand, with a tokenizer and a configuration.

Its outputs are sums over the tokens of a pair: "stated" speaks for entailment, "denied" for contradiction. Padding
would speak loudly, if it were not masked.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import BertProcessing

LABELS = ("contradiction", "entailment", "neutral")
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "stated", "denied", "claim")
WEIGHTS = {
    "[PAD]": (50.0, 0.0, 0.0),
    "[CLS]": (0.0, 0.0, 1.0),
    "stated": (0.0, 4.0, 0.0),
    "denied": (6.0, 0.0, 0.0),
}
_FLOAT, _INT64 = 1, 7


def write_model(
    folder: Path,
    labels: Sequence[str] = LABELS,
    *,
    words: Sequence[str] = WORDS,
    longest: int = 32,
    outputs: int | None = None,
    mask: str = "attention_mask",
    joined: bool = True,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(_model(outputs or len(labels), mask))
    config = {
        "id2label": dict(enumerate(labels)),
        "vocab_size": len(WORDS),
        "max_position_embeddings": longest,
        "pad_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    if joined:
        tokenizer.post_processor = BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def _model(outputs: int, mask: str) -> bytes:
    # of a single output: what speaks for entailment less what speaks against it
    rows = [WEIGHTS.get(word, (0.0, 0.0, 0.0)) for word in WORDS]
    table = [
        value for row in rows for value in (row[:outputs] if outputs > 1 else (row[1] - row[0] - row[2],))
    ]
    nodes = (
        _node("Gather", ("table", "input_ids"), "embedded"),
        _node("Cast", (mask,), "shown", {"to": _FLOAT}),
        _node("Unsqueeze", ("shown", "last"), "column"),
        _node("Mul", ("embedded", "column"), "weighed"),
        _node("ReduceSum", ("weighed", "middle"), "logits", {"keepdims": 0}),
    )
    tensors = (
        _tensor("table", (len(WORDS), outputs), _FLOAT, struct.pack(f"<{len(table)}f", *table)),
        _tensor("last", (1,), _INT64, struct.pack("<q", 2)),
        _tensor("middle", (1,), _INT64, struct.pack("<q", 1)),
    )
    graph = b"".join(
        (
            *(_field(1, node) for node in nodes),
            _field(2, b"tiny"),
            *(_field(5, tensor) for tensor in tensors),
            *(_field(11, _value(name, _INT64, 2)) for name in ("input_ids", mask)),
            _field(12, _value("logits", _FLOAT, 2)),
        )
    )
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, b"") + _field(2, 13))


def _field(number: int, value: int | bytes) -> bytes:
    """Encode a field of a Protobuf message: an integer, or bytes with their length."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _node(
    kind: str, inputs: Sequence[str], output: str, attributes: Mapping[str, int] | None = None
) -> bytes:
    given = [_field(1, name.encode()) for name in inputs]
    named = [
        _field(5, _field(1, name.encode()) + _field(3, value) + _field(20, 2))
        for name, value in (attributes or {}).items()
    ]
    return b"".join((*given, _field(2, output.encode()), _field(4, kind.encode()), *named))


def _tensor(name: str, shape: Sequence[int], kind: int, data: bytes) -> bytes:
    dims = b"".join(_field(1, size) for size in shape)
    return dims + _field(2, kind) + _field(8, name.encode()) + _field(9, data)


def _value(name: str, kind: int, rank: int) -> bytes:
    shape = b"".join(_field(1, _field(2, f"{name}{place}".encode())) for place in range(rank))
    return _field(1, name.encode()) + _field(2, _field(1, _field(1, kind) + _field(2, shape)))
