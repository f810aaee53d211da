"""`groundwire entailment`: checks an entailment model, measures it, and names it in a policy."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import click

from groundwire.cli.options import policy_option, reporting
from groundwire.cli.output import columns
from groundwire.epistemic.entailment import Pair
from groundwire.library.calibrate import TABLE, write_keys
from groundwire.text.normalise import escape_controls
from groundwire.verify.models.onnx import OnnxModel

_LENGTHS = (128, 256, 512)
_ROUNDS = 5


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--name", help="What the policy calls it.  [default: the folder's name]")
@policy_option
@click.option(
    "--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="Of the processor."
)
def entailment(folder: Path, name: str | None, policy_file: Path | None, threads: int) -> None:
    """Check an entailment model, and name it in a policy.

    FOLDER holds a cross-encoder for entailment or groundedness: one .onnx file, tokenizer.json and config.json. What
    `groundwire worker responses` would refuse at its start is told here. Printed are its name with its revision, a hash
    of the files, and the time that a pair takes; --policy writes the name into the table [verification].

    Exit status: 0 when it can be used, 2 when not.

    Example: groundwire entailment models/nli-deberta-v3-small --policy policy.toml
    """
    with reporting():
        model = OnnxModel(folder, name, threads=threads)
        rows = [("model", model.name), ("outputs", ", ".join(model.labels.values()))]
        rows += [
            (f"a pair of {length} tokens", f"{1000 * _seconds(model, length):.1f} ms")
            for length in _LENGTHS
            if length <= model.longest
        ]
        for line in columns(rows):
            click.echo(escape_controls(line))
        if policy_file is None:
            click.echo(f'add to the policy file:\n[{TABLE}]\nentailment_model = "{model.name}"', err=True)
            return
        write_keys(policy_file, {"entailment_model": model.name})
        click.echo(escape_controls(f"written to {policy_file}, [{TABLE}]"), err=True)


def _seconds(model: OnnxModel, length: int) -> float:
    """Return what a pair of about so many tokens takes, in a batch of eight."""
    unit, claim = "the gate retries a request ", "the gate retries"
    several = model.length(Pair(unit * 8, claim))
    pair = Pair(unit * max(1, 8 * length // several - 1), claim)
    taken = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        model.run([pair] * 8)
        taken.append((time.perf_counter() - began) / 8)
    return median(taken)
