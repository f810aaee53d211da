"""The keys that seal: which of them signs, and a program that signs for one."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from groundwire.errors import SealUnavailable, UsageError
from groundwire.keys import ed25519
from groundwire.keys.file import new_key
from groundwire.keys.seal_keys import SealKeys, SealSigner

NOW = datetime(2026, 5, 1, tzinfo=UTC)
PRIVATE = ed25519.new_private_key()


def now() -> datetime:
    return NOW


def with_command(folder: Path, program: str, *, public: bool = True) -> Path:
    path = folder / "command.toml"
    shown = f'public_key = "{ed25519.public_key_of(PRIVATE)}"\n' if public else ""
    command = json.dumps([sys.executable, "-c", program])
    path.write_text(f'[keys.kms]\ncommand = {command}\n{shown}roles = ["seal"]\n')
    path.chmod(0o600)
    return path


def test_of_keys_that_overlap_the_one_that_began_last_signs(tmp_path):
    path = tmp_path / "keys.toml"
    new_key(path, "first", tenants=[], roles=["seal"], asymmetric=True, not_after=NOW + timedelta(days=1))
    new_key(path, "next", tenants=[], roles=["seal"], asymmetric=True, not_before=NOW)
    signer = SealSigner(path, now=now)
    assert signer.key_id(NOW - timedelta(seconds=1)) == "first"
    assert signer.key_id(NOW) == signer.key_id(NOW + timedelta(days=2)) == "next"


def test_without_a_key_that_holds_now_no_worker_starts(tmp_path):
    path = tmp_path / "keys.toml"
    new_key(path, "old", tenants=[], roles=["seal"], asymmetric=True, not_after=NOW - timedelta(days=1))
    with pytest.raises(UsageError, match="no key with the role seal"):
        SealSigner(path, now=now)
    reviewers = tmp_path / "reviewers.toml"
    new_key(reviewers, "ann", tenants=["acme"], roles=["reviewer"], asymmetric=True)
    with pytest.raises(UsageError, match="role seal"):
        SealKeys(reviewers)


async def test_a_program_signs_what_it_reads(tmp_path):
    program = (
        "import sys, base64; from groundwire.keys import ed25519;"
        f"print(base64.b64encode(ed25519.sign('{PRIVATE}', sys.stdin.buffer.read())).decode())"
    )
    signer = SealSigner(with_command(tmp_path, program), now=now)
    signature = await signer.sign("kms", b"head")
    assert ed25519.is_signed(ed25519.public_key_of(PRIVATE), b"head", signature)


@pytest.mark.slow
async def test_a_program_that_signs_nothing_that_holds_leaves_it_unsealed(tmp_path, monkeypatch):
    monkeypatch.setattr("groundwire.keys.seal_keys._COMMAND_SECONDS", 3.0)
    for program, why in (
        ("import sys; sys.exit(3)", "ended with 3"),
        ("print(7)", "no signature of 64 bytes"),
        ("import sys; sys.stdout.buffer.write(bytes(64))", "another key"),
        ("import sys\nwhile True: sys.stdout.write('1' * 99999)", "ended with|longer than"),
        ("import time; time.sleep(600)", "longer than"),
    ):
        signer = SealSigner(with_command(tmp_path, program), now=now)
        with pytest.raises(SealUnavailable, match=why):
            await signer.sign("kms", b"head")


def test_a_program_without_its_public_key_seals_nothing(tmp_path):
    with pytest.raises(UsageError, match="public_key"):
        SealSigner(with_command(tmp_path, "print(7)", public=False), now=now)
