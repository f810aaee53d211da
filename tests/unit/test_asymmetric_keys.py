"""Ed25519 keys of the keys file: what each half may do, who may read it, and the commands that make and show it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import subprocess
import sys
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from agents.wiring import build_expiry
from groundwire.cli.keys import keys as keys_command
from groundwire.client import Producer
from groundwire.config import Settings
from groundwire.errors import UsageError
from groundwire.keys.attestation import Key, Keys
from groundwire.keys.file import new_key, public_keys
from groundwire.review.actions import Signer
from tests.unit.docs.pages import ROOT

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
PATH = Path("keys.toml")
# RFC 8032, 7.1, test 2
PRIVATE = base64.b64encode(
    bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
).decode()
PUBLIC = base64.b64encode(
    bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
).decode()
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)
REST = 'tenants = ["acme"]\nroles = ["reviewer"]\n'
SIGNS = f'[keys.desk]\nprivate_key = "{PRIVATE}"\n{REST}'
CHECKS = f'[keys.desk]\npublic_key = "{PUBLIC}"\n{REST}'


def parse(text: str) -> Keys:
    return Keys.parse(text.encode(), PATH)


def state(keys: Keys, header: str, value: bytes = b"r", *, at: datetime = NOW) -> str:
    found = keys.check(header, value, tenant="acme", at=at, role="reviewer")
    assert found is not None
    return str(found.state)


keys_of_each_kind = st.one_of(
    st.text(min_size=1).map(lambda text: Key(secret=text, tenants=["t"])),
    st.binary(min_size=32, max_size=32).map(
        lambda raw: Key(private_key=base64.b64encode(raw).decode(), tenants=["t"])
    ),
)


def test_signatures_are_those_of_the_standard() -> None:
    key = dict(parse(SIGNS))["desk"]
    assert key.verifying_key == PUBLIC
    assert key.sign(b"r") == SIGNATURE
    assert parse(SIGNS).sign("desk", b"r") == f"desk:{SIGNATURE.hex()}".encode()


@given(key=keys_of_each_kind, value=st.binary(), data=st.data())
def test_what_a_key_signs_it_verifies_and_no_other_bytes_or_signature(
    key: Key, value: bytes, data: st.DataObject
) -> None:
    signature, other = key.sign(value), data.draw(st.binary())
    assert key.verifies(value, signature)
    assert key.verifies(other, signature) == (value == other)
    flipped, bit = bytearray(signature), data.draw(st.integers(0, 8 * len(signature) - 1))
    flipped[bit // 8] ^= 1 << bit % 8
    assert not key.verifies(value, bytes(flipped))
    drawn = data.draw(st.binary(max_size=130))
    assert key.verifies(value, drawn) == (signature == drawn)


def test_a_public_half_suffices_to_check_and_not_to_sign() -> None:
    header = parse(SIGNS).sign("desk", b"r").decode()
    assert state(parse(CHECKS), header) == "valid"
    assert state(parse(CHECKS), header, b"s") == "invalid"
    assert state(parse(CHECKS), header.upper().replace("DESK", "desk")) == "valid"
    with pytest.raises(UsageError, match=r"'desk'.*signs nothing here"):
        parse(CHECKS).sign("desk", b"r")


def test_whoever_is_to_sign_with_a_public_half_is_told_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(CHECKS)
    keys = Keys.load(path)
    starts: list[Callable[[], object]] = [
        lambda: Signer(keys, "desk"),
        lambda: Producer(attest="desk", keys_file=path),
        lambda: build_expiry(Settings(review_key="desk"), keys, cast("Any", None), cast("Any", None)),
    ]
    for start in starts:
        with pytest.raises(UsageError, match=r"'desk'.*signs nothing here"):
            start()
    assert Signer(parse(SIGNS), "desk").headers(b"r")[-1][1].endswith(SIGNATURE.hex().encode())


def test_an_hmac_under_anything_that_is_public_of_a_key_is_no_signature() -> None:
    known = [PUBLIC.encode(), base64.b64decode(PUBLIC), b"desk", b""]
    digests = [hmac.digest(secret, b"r", hashlib.sha256) for secret in known]
    shared = parse(f'[keys.desk]\nsecret = "{PUBLIC}"\n{REST}').sign("desk", b"r").decode()
    headers = [shared, *(f"desk:{(digest * times).hex()}" for digest in digests for times in (1, 2))]
    assert {state(parse(text), header) for text in (SIGNS, CHECKS) for header in headers} == {"invalid"}


def test_a_command_signs_nothing_here_and_checks_by_the_public_half_beside_it() -> None:
    alone = f'[keys.desk]\ncommand = ["kms", "desk"]\n{REST}'
    beside = alone + f'public_key = "{PUBLIC}"\n'
    header = parse(SIGNS).sign("desk", b"r").decode()
    assert (state(parse(alone), header), state(parse(beside), header)) == ("invalid", "valid")
    assert dict(parse(beside))["desk"].command == ["kms", "desk"]
    with pytest.raises(UsageError, match="signs nothing here"):
        parse(beside).sign("desk", b"r")


MOMENT = timedelta(microseconds=1)
DAY = timedelta(days=1)


@given(
    begins=st.none() | st.datetimes(timezones=st.just(UTC)),
    ends=st.none() | st.datetimes(timezones=st.just(UTC)),
    at=st.datetimes(timezones=st.just(UTC)),
)
def test_a_key_is_valid_in_its_closed_interval(
    begins: datetime | None, ends: datetime | None, at: datetime
) -> None:
    if begins and ends and begins > ends:
        begins, ends = ends, begins
    key = Key(secret="s", tenants=["acme"], roles=["reviewer"], not_before=begins, not_after=ends)
    assert key.holds(at) == ((begins or at) <= at <= (ends or at))
    for edge in (begins, ends):
        assert edge is None or key.holds(edge)


def test_before_its_time_a_key_counts_as_expired_and_while_two_overlap_both_hold() -> None:
    old = SIGNS.replace("desk", "old") + "not_after = 2026-01-31T12:00:00Z\n"
    new = SIGNS.replace("desk", "new") + "not_before = 2026-01-30T12:00:00Z\n"
    keys = parse(old + new)
    signed = [keys.sign(name, b"r").decode() for name in ("old", "new")]
    for at in (NOW - DAY, NOW):
        assert [state(keys, header, at=at) for header in signed] == ["valid", "valid"]
    assert [state(keys, header, at=NOW - DAY - MOMENT) for header in signed] == ["valid", "expired"]
    assert [state(keys, header, at=NOW + MOMENT) for header in signed] == ["expired", "valid"]


SEAL = f'[keys.s]\nprivate_key = "{PRIVATE}"\nroles = ["seal"]\n'
HUSH = base64.b64encode(b"hush" * 8).decode()


def test_a_key_that_seals_needs_no_tenant() -> None:
    assert dict(parse(SEAL))["s"].tenants == []
    assert dict(parse(SEAL.replace("private_key", "public_key")))["s"].kind == "public"
    assert dict(parse('[keys.s]\ncommand = ["kms"]\nroles = ["seal"]'))["s"].verifying_key is None


def test_a_wrong_key_is_refused_naming_file_key_and_field_but_no_half_of_it() -> None:
    one, days = "keys.a: secret, private_key", [f"2026-01-0{day}T00:00:00" for day in (1, 2)]
    private, wrong = f'private_key = "{HUSH}"\n', []
    for text, named in (
        (f'secret = "{HUSH}"\n{private}{REST}', f"{one}, public_key or command"),
        (f'secret = "{HUSH}"\npublic_key = "{PUBLIC}"\n{REST}', f"{one}, public_key or command"),
        (f'{private}public_key = "{PUBLIC}"\n{REST}', one),
        (f'{private}command = ["kms"]\n{REST}', one),
        (f'secret = "{HUSH}"\ncommand = ["kms"]\n{REST}', one),
        (REST, one),
        (f'private_key = "{HUSH[:-2]}"\n{REST}', "keys.a.private_key: must be 32 bytes in base64"),
        (f'private_key = "{HUSH}!"\n{REST}', "keys.a.private_key: must be 32 bytes in base64"),
        (f'private_key = ["{HUSH}"]\n{REST}', "keys.a.private_key"),
        (f'public_key = "{PUBLIC[4:]}"\n{REST}', "keys.a.public_key: must be 32 bytes in base64"),
        (f'public_key = ""\n{REST}', "keys.a.public_key"),
        (f"command = []\n{REST}", "keys.a.command"),
        (f'command = [""]\n{REST}', "keys.a.command"),
        (f'command = "kms {HUSH}"\n{REST}', "keys.a.command"),
        (f'{private}roles = ["reviewer"]', "keys.a: tenants"),
        (f"{private}tenants = []", "keys.a: tenants"),
        (f'secret = "{HUSH}"\nroles = ["seal"]', "keys.a: secret: the role seal needs an Ed25519 key"),
        (f'{private}roles = ["seal", "reviewer"]\ntenants = ["t"]', "keys.a: roles"),
        (f'{private}roles = ["seal"]\nsources = ["adr"]', "keys.a: roles"),
        (f"{private}{REST}not_before = {days[1]}Z\nnot_after = {days[0]}Z", "not_before: is after not_after"),
        (f"{private}{REST}not_before = {days[1]}", "keys.a.not_before"),
    ):
        with pytest.raises(UsageError, match=r"keys file keys\.toml: ") as caught:
            parse(f"[keys.a]\n{text}")
        told = str(caught.value)
        wrong += [(text, told)] * (named not in told or HUSH[:8] in told)
    assert wrong == []


values = st.one_of(
    st.just(HUSH),
    st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=5).map(lambda text: HUSH + text),
    st.just([HUSH]),
    st.just({"of": HUSH}),
)


@given(st.dictionaries(st.sampled_from(["secret", "private_key", "public_key", "command", "roles"]), values))
def test_no_error_and_no_representation_of_a_key_shows_a_secret(fields: dict[str, object]) -> None:
    lines = "\n".join(f"{name} = {_toml(value)}" for name, value in fields.items())
    try:
        told = repr(list(parse(f'[keys.a]\ntenants = ["t"]\n{lines}')))
    except UsageError as exc:
        told = str(exc)
    public = fields.keys() & {"public_key", "command"}  # what is public may be shown
    assert HUSH not in told or public


def _toml(value: object) -> str:
    return f'{{of = "{value["of"]}"}}' if isinstance(value, dict) else json.dumps(value)


def test_a_file_with_a_private_key_for_seals_is_refused_where_group_or_others_can_read_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.toml"
    for mode in (0o640, 0o604, 0o644):
        caplog.clear()
        path.write_text(SEAL)
        path.chmod(mode)
        with pytest.raises(UsageError, match=re.escape(f"keys file {path}: ") + ".*'s'.*chmod 600"):
            Keys.load(path)
        path.chmod(0o600)
        assert "s" in Keys.load(path)
        path.chmod(mode)
        path.write_text(SEAL.replace("private_key", "public_key"))
        Keys.load(path)
        assert not caplog.records, "what is public may be read"
        path.write_text(SIGNS)
        Keys.load(path)
        assert ("chmod 600" in caplog.text) == bool(mode & 0o004)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(keys_command, [str(argument) for argument in arguments])


def test_commands_make_list_and_publish_ed25519_keys_without_printing_a_private_half(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    new_key(path, "shared", tenants=["acme"], sources=["adr"])
    made = run(
        *("new", "desk", "--ed25519", "--tenant", "acme", "--role", "reviewer", "--source", "a\u202e\x1bb"),
        *("--not-before", "2026-01-01T00:00:00Z", "--not-after", "2027-01-01T00:00:00Z", "--file", path),
    )
    sealed = run("new", "seals", "--ed25519", "--role", "seal", "--file", path)
    assert (made.exit_code, sealed.exit_code) == (0, 0), made.output + sealed.output
    whole = dict(Keys.load(path))
    private = {key.private_key for key in whole.values()} - {None}
    assert len(private) == 2
    assert f"public key {whole['desk'].verifying_key}\n" in made.output

    printed = run("public", "--file", path)
    assert "shared" in printed.stderr
    assert not re.search("[\x1b\u202e]", printed.stdout)
    assert tomllib.loads(printed.stdout)["keys"]["desk"]["not_after"] == datetime(2027, 1, 1, tzinfo=UTC)
    halves = dict(parse(printed.stdout))
    assert halves.keys() == {"desk", "seals"}
    for name, half in halves.items():
        assert half == whole[name].model_copy(
            update={"private_key": None, "public_key": whole[name].verifying_key}
        )

    listed = run("list", "--file", path, "--format", "json")
    assert [json.loads(line)["kind"] for line in listed.output.splitlines()] == ["hmac", "ed25519", "ed25519"]
    last = json.loads(listed.output.splitlines()[2])
    assert (last["key_id"], last["public_key"]) == ("seals", whole["seals"].verifying_key)
    table = run("list", "--file", path)
    assert "2026-01-01T00:00:00Z  2027-01-01T00:00:00Z" in table.output
    told = made.output + sealed.output + printed.output + listed.output + table.output
    assert not [half for half in (*private, whole["shared"].secret) if half in told]


def test_the_kind_of_a_key_is_what_the_file_holds_of_it(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(f'{CHECKS}[keys.kms]\ncommand = ["kms", "--token", "{HUSH}"]\n{REST}')
    lines = run("list", "--file", path).output.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["desk", "public"], ["kms", "command"]]
    assert HUSH not in run("list", "--file", path, "--format", "json").output
    assert public_keys(Keys.load(path))[1] == ["kms"]


def test_a_key_that_cannot_be_made_is_told_why_and_no_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    for arguments, why in (
        ("--role seal", "--role seal needs --ed25519"),
        ("--role seal --tenant t", "--role seal needs --ed25519"),
        ("--role seal --role reviewer --tenant t --ed25519", "no other role"),
        ("--role reviewer --ed25519", "needs a --tenant"),
        ("--tenant t --ed25519", "a --source or a --role"),
    ):
        result = run("new", "n", *arguments.split(), "--file", path)
        assert (result.exit_code, why in result.stderr) == (2, True), arguments
        assert not path.exists()


@pytest.mark.slow
def test_a_keys_file_of_secrets_is_read_where_cryptography_is_not_installed(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    new_key(path, "shared", tenants=["acme"], sources=["adr"])
    program = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from groundwire.cli.main import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, "keys", "list", "--file", path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "shared" in done.stdout) == (0, True), done.stderr


def test_an_ed25519_key_without_cryptography_names_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    for half in ("private_key", "public_key"):
        unread = base64.b64encode(secrets.token_bytes(32)).decode()
        with pytest.raises(UsageError, match=r"^cryptography is not installed.*'groundwire\[client\]'"):
            parse(f'[keys.a]\n{half} = "{unread}"\n{REST}')
