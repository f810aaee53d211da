"""Hostile files, lines, texts and folders end as documented: without a traceback, a secret, or a file from outside."""

# ruff: noqa: PT017 - an input may be refused: then its refusal is asserted
from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
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
from groundwire.verify.citations import load_sources
from groundwire.verify.local import AdrFolder
from groundwire.verify.results import MAX_TEXT, CitationState
from tests.fuzz import inputs
from tests.fuzz.contract import listening
from tests.fuzz.inputs import CANARY, ODD, TABLES, WORDS, feed, mutated, scratched, text, written
from tests.unit.console.rooms import make_decision


def test_an_error_in_a_file_of_an_operator_is_a_usage_error_that_names_no_secret(tmp_path):
    secret = re.compile("swordfish|c3dvcmRmaXNo")  # in clear, and as a private key begins
    values = (*TABLES["toml_values"], "9" * 5_000, "[" * 2_000 + "]" * 2_000, '"' + "a" * 5_000 + '"')
    policy, keys, tokens, sources = Path(__file__).with_name("settings.toml").read_text().split("# next\n")
    path = tmp_path / "file.toml"

    def toml(rng, plain):
        """Change, double, leave out or move lines."""
        lines = plain.strip().split("\n")
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(lines))
            name = lines[at].partition("=")[0].strip()
            match rng.randrange(6):
                case 0:
                    lines[at] = f"{name} = {rng.choice(values)}"
                case 1:
                    lines.insert(rng.randint(0, len(lines)), lines[at])
                case 2:
                    del lines[at]
                    lines = lines or [""]
                case 3:
                    other = rng.one(name[:-1], f'"{text(rng)[:30]}"', f"{name}.a.b", "x")
                    lines[at] = lines[at].replace(name, other, 1)
                case 4:
                    lines[at] = lines[at] + text(rng)[:60]
                case _:
                    lines[at] = f"{name} = {json.dumps(text(rng))}"
        data = "\n".join(lines).encode("utf-8", "surrogatepass")
        return scratched(rng, data) if rng.chance(0.1) else data

    async def read(rng):
        kind = rng.randrange(6)
        data = toml(rng, (policy, keys, tokens, sources, policy, keys)[kind])
        path.write_bytes(data)
        try:
            match kind:
                case 0:
                    names = [name for name in ("ENABLE_DEDUP", "ON_CRITICAL") if rng.chance(0.2)]
                    environment = {f"GROUNDWIRE_{name}": text(rng)[:50] for name in names}
                    assert re.fullmatch("[0-9a-f]{64}", load_policy(path, environment).sha256)
                case 1:
                    public, _ = public_keys(Keys.load(path))
                    assert not secret.search(public.decode()), "the public halves name a private one"
                    Keys.parse(public, path)
                case 2:
                    Tokens.parse(data, path)
                case 3:
                    load_sources(load_settings().model_copy(update={"tenants_file": path}))
                case 4:
                    canonical = json.loads(load_policy(None, {}).canonical)
                    parse_policy(written(rng, mutated(rng, canonical)))
                case _:
                    name = rng.one("fresh", "docs-sync", text(rng)[:50])
                    tenants, allowed = [rng.one("acme", text(rng)[:50])], [text(rng)[:40] or "x"]
                    new_key(path, name, tenants=tenants, sources=allowed, asymmetric=rng.chance(0.5))
        except UsageError as refused:
            assert str(refused)
            assert kind not in {1, 5} or not secret.search(str(refused)), "a refusal names a secret"
        assert not secret.search(heard()), "a log names a secret"

    with listening() as heard:
        feed(8, read)


def lines(rng, example):
    made = [written(rng, mutated(rng, example(rng))) for _ in range(rng.randint(1, 4))]
    return rng.one(b"\n", b"\n", b"\r\n", b"\n\n").join(made)


def labelled(rng):
    claim, said = rng.one("claim", "answer"), "It retries 3 times."
    data = lines(rng, lambda rng: {
        claim: inputs.content(rng),
        "evidence": rng.one(said, [said, CANARY], {"a": said}),
        "label": rng.choice(("supported", "false", True, False, "contradicted")),
        "group": "g",
    })  # fmt: skip
    return scratched(rng, data) if rng.chance(0.2) else data


def test_a_command_ends_with_a_documented_status_and_no_traceback_whatever_its_file(tmp_path):
    path = tmp_path / "lines"

    def document(rng):
        found = [inputs.response(rng) for _ in range(rng.randint(1, 3))]
        for one in found:
            if rng.chance(0.3):
                del one["response_id"], one["user_id"]
        return written(rng, mutated(rng, found if rng.chance(0.5) else found[0]))

    async def ran(rng):
        layout = ["--format", rng.one("json", "table")]
        match rng.randrange(4):
            case 0:
                data = lines(rng, rng.one(inputs.claim, inputs.response))
                times = ("2026-01-31T12:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", text(rng))
                now = ["--now", rng.choice(times)] if rng.chance(0.5) else []
                command = ["check", path, "--no-network", *layout, *now]
            case 1:
                data = document(rng)
                command = ["audit", path, "--no-network", *layout]
            case 2:
                data = labelled(rng)
                command = ["evaluate", path, "--draws", "10", *layout]
            case _:
                data = lines(rng, lambda rng: make_decision("c1", inputs.content(rng)))
                command = ["verify", "--decisions", path, "--records", path, "--policies", tmp_path, *layout]
        path.write_bytes(data)
        # commands have loops of their own
        run = await asyncio.to_thread(CliRunner().invoke, main, [str(part) for part in command])
        if run.exception is not None and not isinstance(run.exception, SystemExit):
            raise run.exception
        assert run.exit_code in {0, 1, 2, 3}
        assert "Traceback (most recent call last)" not in run.output
        control = re.search("[\x00-\x08\x0e-\x1f]", run.output.replace("\x1b[", ""))
        assert not control or "json" in layout

    with listening():
        feed(2, ran)


def test_labelled_rows_are_read_or_refused_with_a_reason_and_lines_have_an_address():
    async def read(rng):
        data = labelled(rng)
        for row in read_labelled(data):
            assert not isinstance(row, BadRow) or row.error.message
        for line in data.split(b"\n"):
            for topic in (None, TopicName.CLAIMS):
                _, key = address_anyhow(line, topic)
                assert key is None or b":" in key, "a key without a tenant"

    feed(14, read)


def test_a_folder_of_decision_records_answers_each_number_and_with_no_file_from_outside(tmp_path):
    adrs = tmp_path / "adr"
    (tmp_path / "secret.md").write_text("outside")

    def put(rng):
        odd = rng.choice(ODD).replace("/", "_")
        known = ("ADR-003.md", "adr-3-x.md", "ADR-0004-b.md")
        name = rng.one(*known, f"ADR-3-{odd}.md", f"ADR-{odd}.md", odd, "x" * 250)
        encoded = name.replace("\x00", "").encode("utf-8", "surrogatepass")[:250]
        path = adrs / os.fsdecode(encoded if encoded.strip(b".") else b"plain")
        if os.path.lexists(path):  # who writes into a pipe waits for a reader
            return
        with suppress(OSError):
            match rng.randrange(8):
                case 0:
                    path.symlink_to(rng.one("../secret.md", "/dev/zero", path.name, "nowhere", "/etc"))
                case 1:
                    path.mkdir()
                case 2:
                    os.mkfifo(path)
                case _:
                    body = text(rng).encode("utf-8", "surrogatepass") * rng.one(1, 1, 1, 1_000)
                    path.write_bytes(scratched(rng, body) if rng.chance(0.3) else body)

    async def looked_up(rng):
        shutil.rmtree(adrs, ignore_errors=True)
        adrs.mkdir()
        for _ in range(rng.randint(1, 5)):
            put(rng)
        numbers = [rng.one(*TABLES["adr_numbers"], "9" * 5_000) for _ in range(3)]
        found = await AdrFolder(adrs).check(numbers, want_text=rng.chance(0.7))
        assert set(found) == set(numbers)
        for number, check in found.items():
            real = number.isdigit() and number.isascii() and (number.lstrip("0") or "0") in {"0", "3", "4"}
            assert check.state != CitationState.VERIFIED or real, f"verified: {number[:20]!r}"
            assert "outside" not in (check.text or "")

    with listening():
        feed(4, looked_up)


def test_a_citation_is_found_inside_its_text():
    async def found(rng):
        parts = (*WORDS, *ODD, text(rng), "http://", "commit ", "ADR-", "#", "0" * 40)
        whole = rng.one("", " ").join(rng.choice(parts) for _ in range(rng.randint(1, 20)))
        for citation in CitationDetector().detect(whole):
            assert 0 <= citation.start < citation.end <= len(whole)

    feed(20, found)


def test_a_file_of_keys_tokens_or_tenants_that_no_reader_can_follow_is_a_usage_error(tmp_path):
    path = tmp_path / "tenants.toml"
    tenants = partial(load_sources, load_settings().model_copy(update={"tenants_file": path}))
    tracker = '[tenants.a.tracker]\nkind = "github"\nurl = "https://[::1"\nproject = "a/b"\n'
    for text_, why in (
        ("a = " + "[" * 5_000, "nested too deeply"),
        ("a = " + "9" * 5_000, "not TOML: "),
        (tracker, r"tenants\.a\.tracker"),
    ):
        path.write_text(text_)
        others = [partial(kind.parse, text_.encode(), Path("keys.toml")) for kind in (Keys, Tokens)]
        for read in (tenants, *(others if text_ is not tracker else [])):
            with pytest.raises(UsageError, match=why):
                read()


async def test_of_many_files_for_one_record_no_more_is_read_than_is_looked_at(tmp_path, monkeypatch):
    for number in range(20):
        (tmp_path / f"ADR-3-{number:02}.md").write_text("a" * MAX_TEXT)
    read = []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda path, *a, **k: read.append(path) or real(path, *a, **k))
    check = (await AdrFolder(tmp_path).check(["3"], want_text=True))["3"]
    assert check.text == "a" * MAX_TEXT
    assert len(read) == 1
