"""Cross-encoders for entailment or groundedness in ONNX, run by onnxruntime on this machine's processor.

A model is a folder: one `.onnx` file (there or in `onnx/`), `tokenizer.json` and `config.json`, as most such models are
published. Its revision is a hash of these files: what a policy names is what runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Final

from groundwire.epistemic.entailment import Entailed, EntailmentModel, Pair, Scored
from groundwire.epistemic.model import ModelFault
from groundwire.errors import UsageError, naming_extra

LONGEST: Final = 512
"""Tokens of a pair, whatever more a model takes: time grows with them."""

_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
_STATES: Final = ("entail", "support", "consistent", "grounded")
"""How the output that says so is called; a single output is a score whatever its name."""
_OVERLAP: Final = 64  # tokens of evidence that two windows share, where it takes several
_TRIAL: Final = Pair("The gateway retries a request three times.", "The gateway retries.")


class OnnxModel(EntailmentModel):
    """A cross-encoder of a folder.

    Args:
        folder: holds the model.
        name: what the policy calls it, without the revision; by default the folder's name.
        threads: of the processor.

    Raises:
        UsageError: names the file and what is wrong with it, or the extra that is not installed.
    """

    def __init__(self, folder: Path, name: str | None = None, *, threads: int = 1) -> None:
        try:
            import numpy as np  # noqa: PLC0415 - an extra has it
            import onnxruntime  # noqa: PLC0415 - an extra, and half a second
            import tokenizers  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as exc:
            raise UsageError(str(naming_extra(exc, "an entailment model"))) from None
        files = files_of(folder)
        self.revision = revision_of(files)
        super().__init__(f"{name or folder.resolve().name}@{self.revision}")
        self._np = np
        config = _read_config(files["config.json"])
        self.labels = _labels(config, files["config.json"])
        self._stating = _stating(self.labels, files["config.json"])
        self._denying = next((n for n, label in self.labels.items() if label.startswith("contra")), None)
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(files["tokenizer.json"]))
        except Exception as exc:  # noqa: BLE001 - the library raises no class of its own
            raise UsageError(f"{files['tokenizer.json']}: cannot be read: {exc}") from None
        self._pad = config.get("pad_token_id") or 0
        self.longest = min(LONGEST, int(config.get("max_position_embeddings") or LONGEST))
        self._fit(config, files["tokenizer.json"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # threads that wait for work must not take the processor from the worker's event loop
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        graph = files["model"]
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(graph), options, providers=["CPUExecutionProvider"]
            )
        except Exception as exc:  # noqa: BLE001 - the library has many, with one base
            raise UsageError(f"{graph}: onnxruntime cannot load it: {exc}") from None
        self._inputs = [given.name for given in self._session.get_inputs()]
        if unknown := sorted(set(self._inputs) - set(_INPUTS)):
            raise UsageError(f"{graph}: needs the input {unknown[0]}: it is no encoder of pairs of texts")
        self._try(graph)

    def run(self, pairs: Sequence[Pair]) -> Sequence[Scored]:
        """Score pairs; of evidence that does not fit, the part that states the claim best counts."""
        windows: list[tuple[int, Any]] = []
        for place, pair in enumerate(pairs):
            if len(self._tokenizer.encode(pair.claim, add_special_tokens=False).ids) > self.longest // 2:
                continue  # half of a claim is another claim
            encoded = self._tokenizer.encode(pair.window, pair.claim)
            windows += [(place, part) for part in (encoded, *encoded.overflowing)]
        windows.sort(key=lambda window: len(window[1].ids))
        found: list[list[Entailed]] = [[] for _ in pairs]
        for start in range(0, len(windows), _TOGETHER):
            part = windows[start : start + _TOGETHER]
            for (place, _), said in zip(part, self._score([one for _, one in part]), strict=True):
                found[place].append(said)
        return [
            max(parts)._replace(tokens=sum(one.tokens for one in parts))
            if parts
            else ModelFault("too_long", requests=0)
            for parts in found
        ]

    def length(self, pair: Pair) -> int:
        return len(self._tokenizer.encode(pair.window, pair.claim).ids)

    def _score(self, encodings: Sequence[Any]) -> list[Entailed]:
        np = self._np
        length = max(len(one.ids) for one in encodings)
        arrays = {name: np.zeros((len(encodings), length), dtype=np.int64) for name in self._inputs}
        if "input_ids" in arrays:
            arrays["input_ids"] += self._pad
        for row, one in enumerate(encodings):
            for name, values in zip(_INPUTS, (one.ids, one.attention_mask, one.type_ids), strict=True):
                if name in arrays:
                    arrays[name][row, : len(values)] = values
        logits = np.asarray(self._session.run(None, arrays)[0], dtype=np.float64)
        if logits.shape != (len(encodings), len(self.labels)) or not np.isfinite(logits).all():
            raise ValueError(f"outputs of shape {logits.shape}, or no numbers")
        if len(self.labels) == 1:
            logits = np.concatenate([logits, np.zeros_like(logits)], axis=1)  # its sigmoid
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        return [
            Entailed(float(row[self._stating]), int(row.argmax()) == self._denying, len(one.ids))
            for row, one in zip(shares, encodings, strict=True)
        ]

    def _fit(self, config: Mapping[str, Any], path: Path) -> None:
        """See that the tokenizer is the model's, and cut what is too long. Raises: UsageError."""
        size, known = self._tokenizer.get_vocab_size(), config.get("vocab_size")
        if isinstance(known, int) and size > known:
            raise UsageError(
                f"{path}: does not fit: it has {size} tokens, config.json {known}; take both from one revision"
            )
        special = self._tokenizer.num_special_tokens_to_add(is_pair=True)
        if not special:
            raise UsageError(f"{path}: does not fit: it joins two texts without a mark between them")
        if self.longest < 2 * (special + 1) + _OVERLAP // 16:
            raise UsageError(f"{path}: max_position_embeddings of config.json leaves no room for two texts")
        self._tokenizer.no_padding()
        stride = min(_OVERLAP, (self.longest // 2 - special) // 2)
        self._tokenizer.enable_truncation(self.longest, stride=max(0, stride), strategy="only_first")

    def _try(self, graph: Path) -> None:
        try:
            (found,) = self.run([_TRIAL])
        except Exception as exc:  # noqa: BLE001 - whatever files that do not fit bring about
            raise UsageError(f"{graph}: does not fit its config.json and tokenizer.json: {exc}") from None
        if isinstance(found, ModelFault):
            raise UsageError(f"{graph}: does not take a pair of short texts: {found}")


_TOGETHER: Final = 8  # windows in one run of the graph: they are padded to the longest


def files_of(folder: Path) -> dict[str, Path]:
    """Return the files of a model. Raises: UsageError, one is missing, or there are several models."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder")
    graphs = sorted([*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")])
    if not graphs:
        raise UsageError(
            f"{folder}: holds no .onnx file, there or in onnx/; `optimum-cli export onnx` makes one"
        )
    if len(graphs) > 1:
        named = ", ".join(str(graph.relative_to(folder)) for graph in graphs)
        raise UsageError(f"{folder}: holds several models ({named}): keep one of them")
    files = {"model": graphs[0]}
    for data in sorted(graphs[0].parent.glob(f"{graphs[0].name}[._]data*")):
        files[data.name] = data  # weights beside the graph
    for name in ("config.json", "tokenizer.json"):
        files[name] = folder / name
        if not files[name].is_file():
            raise UsageError(f"{folder}: holds no {name}")
    return files


def revision_of(files: Mapping[str, Path]) -> str:
    """Return what the policy names: a hash of the files, 16 digits. Raises: UsageError, one cannot be read."""
    whole = sha256()
    for name, path in sorted(files.items()):
        try:
            with path.open("rb") as file:
                whole.update(f"{name} {file_digest(file, 'sha256').hexdigest()}\n".encode())
        except OSError as exc:
            raise UsageError(f"{path}: cannot be read: {exc.strerror or exc}") from None
    return whole.hexdigest()[:16]


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as exc:
        raise UsageError(f"{path}: cannot be read: {exc}") from None
    if not isinstance(config, dict):
        raise UsageError(f"{path}: must hold a JSON object")
    return config


def _labels(config: Mapping[str, Any], path: Path) -> dict[int, str]:
    try:
        labels = {int(number): str(label).lower() for number, label in config["id2label"].items()}
    except (KeyError, ValueError, AttributeError):
        labels = {}
    if not labels or sorted(labels) != list(range(len(labels))):
        raise UsageError(f"{path}: id2label must name the outputs, from 0 on")
    return labels


def _stating(labels: Mapping[int, str], path: Path) -> int:
    if len(labels) == 1:
        return 0
    found = [number for number, label in labels.items() if label.startswith(_STATES)]
    if len(found) != 1:
        raise UsageError(
            f"{path}: no output of id2label says that the evidence states the claim: {', '.join(labels.values())}; "
            'name it "entailment"'
        )
    return found[0]


def load_entailment(folder: Path, named: str, *, threads: int) -> OnnxModel:
    """Load the model that a policy names. Raises: UsageError, the folder holds another one, and as above."""
    name, _, revision = named.partition("@")
    if (found := revision_of(files_of(folder))) != revision:
        raise UsageError(
            f"{folder}: holds revision {found}, and the policy names {named}; "
            "`groundwire entailment FOLDER --policy FILE` writes what it holds"
        )
    return OnnxModel(folder, name, threads=threads)
