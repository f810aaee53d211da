"""Files and lines that commands read, their arguments, texts that cite, and folders of decision records."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from groundwire.checks.citations import CitationDetector
from groundwire.cli.main import main
from groundwire.config import load_settings
from groundwire.errors import UsageError
from groundwire.kafka.produce import address_anyhow
from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key, public_keys
from groundwire.library.evaluate import BadRow, read_labelled
from groundwire.messages.topics import TopicName
from groundwire.policy import load_policy, parse_policy
from groundwire.review.tokens import Tokens
from groundwire.verify.adr import AdrFolder
from groundwire.verify.citations import load_sources
from groundwire.verify.results import CitationState
from tests.fuzz import inputs
from tests.fuzz.inputs import CANARY, ODD, TABLES, WORDS, Dice, mutated, scratched, text, written
from tests.fuzz.runner import entry, hold
from tests.unit.console import rooms

POLICY, KEYS, TOKENS, SOURCES = Path(__file__).with_name("settings.toml").read_text().split("# next\n")
"""Files that an operator writes: a policy, keys, tokens, and sources of tenants."""
SECRET: Final = re.compile("swordfish|c3dvcmRmaXNo")
"""In clear, and as a private key begins."""
_VALUES: Final = (*TABLES["toml_values"], "9" * 5_000, "[" * 2_000 + "]" * 2_000, '"' + "a" * 5_000 + '"')


def toml(rng: Dice, plain: str) -> bytes:
    """Return a TOML file with lines changed, doubled, left out or moved."""
    lines = plain.strip().split("\n")
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(lines))
        name = lines[at].partition("=")[0].strip()
        match rng.randrange(6):
            case 0:
                lines[at] = f"{name} = {rng.choice(_VALUES)}"
            case 1:
                lines.insert(rng.randint(0, len(lines)), lines[at])
            case 2:
                del lines[at]
                lines = lines or [""]
            case 3:
                lines[at] = lines[at].replace(
                    name, rng.one(name[:-1], f'"{text(rng)[:30]}"', f"{name}.a.b", "x"), 1
                )
            case 4:
                lines[at] = lines[at] + text(rng)[:60]
            case _:
                lines[at] = f"{name} = {json.dumps(text(rng))}"
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    return scratched(rng, data) if rng.chance(0.1) else data


async def _settings(folder: Path, heard: Callable[[], str], rng: Dice) -> int:
    """Read a file that an operator writes: an error in it is a usage error, which names no secret."""
    kind = rng.randrange(6)
    data = toml(rng, (POLICY, KEYS, TOKENS, SOURCES, POLICY, KEYS)[kind])
    path = folder / "file.toml"
    path.write_bytes(data)
    try:
        match kind:
            case 0:
                names = [name for name in ("ENABLE_DEDUP", "ON_CRITICAL") if rng.chance(0.2)]
                environment = {f"GROUNDWIRE_{name}": text(rng)[:50] for name in names}
                found = load_policy(path, environment).sha256
                hold(re.fullmatch("[0-9a-f]{64}", found), "a policy without a hash")
            case 1:
                public, _ = public_keys(Keys.load(path))
                hold(not SECRET.search(public.decode()), "the public halves name a private one")
                Keys.parse(public, path)
            case 2:
                Tokens.parse(data, path)
            case 3:
                load_sources(load_settings().model_copy(update={"tenants_file": path}))
            case 4:
                parse_policy(written(rng, mutated(rng, json.loads(load_policy(None, {}).canonical))))
            case _:
                name, tenant = rng.one("fresh", "docs-sync", text(rng)[:50]), rng.one("acme", text(rng)[:50])
                sources, asymmetric = [text(rng)[:40] or "x"], rng.chance(0.5)
                new_key(path, name, tenants=[tenant], sources=sources, asymmetric=asymmetric)
    except UsageError as refused:
        hold(str(refused), "refused without a reason")
        hold(kind not in {1, 5} or not SECRET.search(str(refused)), "a refusal names a secret")
    hold(not SECRET.search(heard()), "a log names a secret")
    return len(data)


async def _commands(folder: Path, rng: Dice) -> int:
    """Run a command on a file of lines: it ends with a documented status, without a traceback."""
    name = rng.choice(sorted(_COMMANDS))
    command, make = _COMMANDS[name]
    data = make(rng)
    path = folder / "lines.jsonl"
    path.write_bytes(data)
    places = {"FILE": str(path), "FOLDER": str(folder)}
    layout = ["--format", rng.one("json", "table")]
    times = ("2026-01-31T12:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", text(rng))
    more = {
        "check": ["--no-network", *layout, *(["--now", rng.choice(times)] if rng.chance(0.5) else [])],
        "audit": ["--no-network", *layout],
        "evaluate": ["--draws", "10", *layout],
        "csv": ["--draws", "10", "--input", rng.one("csv", "tsv")],
        "verify": ["--policies", "FOLDER", *layout],
    }[name]
    given = [places.get(part, part) for part in (*command.split(), *more)]
    run = await asyncio.to_thread(CliRunner().invoke, main, given)  # commands have loops of their own
    if run.exception is not None and not isinstance(run.exception, SystemExit):
        raise run.exception
    hold(run.exit_code in {0, 1, 2, 3}, f"exit status {run.exit_code}")
    hold("Traceback (most recent call last)" not in run.output, "a traceback")
    control = re.search("[\x00-\x08\x0e-\x1f]", run.output.replace("\x1b[", ""))
    hold(not control or "json" in given, "control characters")
    return len(data)


def _lines(rng: Dice, one: Callable[[Dice], object]) -> bytes:
    made = [written(rng, mutated(rng, one(rng))) for _ in range(rng.randint(1, 4))]
    return rng.one(b"\n", b"\n", b"\r\n", b"\n\n").join(made)


def _row(rng: Dice) -> object:
    evidence = rng.one("It retries 3 times.", ["It retries 3 times.", CANARY], {"a": "It retries 3 times."})
    label = rng.choice(("supported", "false", True, False, "contradicted"))
    claim = rng.one("claim", "answer")
    return {claim: inputs.content(rng), "evidence": evidence, "label": label, "group": "g"}


def _table(rng: Dice) -> bytes:
    cut = rng.one(",", ",", "\t")
    rows = [["claim", "evidence", "label", "group"]]
    rows += [
        [text(rng), text(rng), rng.one("supported", "false", text(rng)[:20]), "g"]
        for _ in range(rng.randint(1, 4))
    ]
    if rng.chance(0.5):
        row = rng.choice(rows)
        row[rng.randrange(len(row))] = rng.one('"', '""', '"a\nb"', "a" * rng.one(10, 140_000), *ODD)
    if rng.chance(0.2):
        rng.choice(rows).append("more")
    data = "\n".join(cut.join(cells) for cells in rows).encode("utf-8", "surrogatepass")
    return scratched(rng, data) if rng.chance(0.2) else data


def _document(rng: Dice) -> bytes:
    found = [inputs.response(rng) for _ in range(rng.randint(1, 3))]
    for one in found:
        if rng.chance(0.3):
            del one["response_id"], one["user_id"]
    return written(rng, mutated(rng, found if rng.chance(0.5) else found[0]))


_COMMANDS: Final[Mapping[str, tuple[str, Callable[[Dice], bytes]]]] = {
    "check": ("check FILE", lambda rng: _lines(rng, rng.one(inputs.claim, inputs.response))),
    "audit": ("audit FILE", _document),
    "evaluate": ("evaluate FILE", lambda rng: _lines(rng, _row)),
    "csv": ("evaluate FILE", _table),
    "verify": (
        "verify --decisions FILE --records FILE",
        lambda rng: _lines(rng, lambda rng: rooms.make_decision("c1", inputs.content(rng))),
    ),
}


async def _labels(rng: Dice) -> int:
    csv = rng.chance(0.5)
    data = _table(rng) if csv else _lines(rng, _row)
    for row in read_labelled(data, rng.one("csv", "tsv") if csv else "jsonl"):
        hold(not isinstance(row, BadRow) or row.error.message, "refused without a reason")
    for line in data.split(b"\n"):
        for topic in (None, TopicName.CLAIMS):
            _, key = address_anyhow(line, topic)
            hold(key is None or b":" in key, "a key without a tenant")
    return len(data)


async def _folders(folder: Path, rng: Dice) -> int:
    """Fill a folder as an attacker would, and look decision records up in it."""
    adrs = folder / "adr"
    shutil.rmtree(adrs, ignore_errors=True)
    adrs.mkdir()
    (folder / "secret.md").write_text("outside")
    size = sum(_some_file(rng, adrs) for _ in range(rng.randint(1, 5)))
    numbers = [rng.one(*TABLES["adr_numbers"], "9" * 5_000) for _ in range(3)]
    found = await AdrFolder(adrs).check(numbers, want_text=rng.chance(0.7))
    hold(set(found) == set(numbers), "not one answer for each number")
    for number, check in found.items():
        real = number.isdigit() and number.isascii() and (number.lstrip("0") or "0") in {"0", "3", "4"}
        hold(check.state != CitationState.VERIFIED or real, f"verified: {number[:20]!r}")
        hold("outside" not in (check.text or ""), "a file outside of the folder was read")
    return size


def _some_file(rng: Dice, folder: Path) -> int:
    odd = rng.choice(ODD).replace("/", "_")
    name = rng.one(
        "ADR-003.md", "adr-3-x.md", "ADR-0004-b.md", f"ADR-3-{odd}.md", f"ADR-{odd}.md", odd, "x" * 250
    )
    encoded = name.replace("\x00", "").encode("utf-8", "surrogatepass")[:250]
    path = folder / os.fsdecode(encoded if encoded.strip(b".") else b"plain")
    if os.path.lexists(path):  # who writes into a pipe waits for a reader
        return 0
    with suppress(OSError):
        match rng.randrange(8):
            case 0:
                path.symlink_to(rng.one("../secret.md", "/dev/zero", path.name, "nowhere", "/etc"))
                return 0
            case 1:
                path.mkdir()
                return 0
            case 2:
                os.mkfifo(path)
                return 0
            case _:
                body = text(rng).encode("utf-8", "surrogatepass") * rng.one(1, 1, 1, 1_000)
                body = scratched(rng, body) if rng.chance(0.3) else body
                path.write_bytes(body)
                return len(body)
    return 0


async def _cited(rng: Dice) -> int:
    pieces = [
        rng.one(*WORDS, *ODD, text(rng), "http://", "commit ", "ADR-", "#", "0" * 40)
        for _ in range(rng.randint(1, 20))
    ]
    whole = rng.one("", " ").join(pieces)
    for citation in CitationDetector().detect(whole):
        hold(0 <= citation.start < citation.end <= len(whole), "a citation outside of its text")
    return len(whole)


ENTRIES: Final = (
    entry("settings", lambda folder, heard: partial(_settings, folder, heard), 8),
    entry("commands", lambda folder, _: partial(_commands, folder), 1),
    entry("labels", lambda *_: _labels, 14),
    entry("citations", lambda *_: _cited, 20),
    entry("folders", lambda folder, _: partial(_folders, folder), 4),
)
