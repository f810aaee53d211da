"""Keys: HMAC and Ed25519 signatures, the keys file while it is read and while it changes, seals, `groundwire keys`."""

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
import subprocess
import sys
import time
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from agents.wiring import build_expiry
from groundwire.cli.keys import keys as keys_command
from groundwire.client import Producer
from groundwire.config import Settings
from groundwire.errors import SealUnavailable, UsageError
from groundwire.keys import ed25519
from groundwire.keys.attestation import Attestation, AttestationState, Key, Keys
from groundwire.keys.file import end_key, new_key, public_keys
from groundwire.keys.seal_keys import SealKeys, SealSigner
from groundwire.keys.watched import EVERY, WatchedKeys
from groundwire.review.actions import Signer
from groundwire.review.permissions import Permissions, Person
from tests.unit.checks.tables import differing, failing
from tests.unit.docs.pages import ROOT
from tests.unit.gate.office import KEYS, TEXT, Office
from tests.unit.gate.world import NOW as OFFICE_NOW

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MOMENT, DAY = timedelta(microseconds=1), timedelta(days=1)
PATH = Path("keys.toml")
FILE = """
[keys.docs]
secret = "s3cret"
tenants = ["acme", "globex"]
sources = ["documentation", "adr"]
roles = []
not_before = 2026-01-30T12:00:00Z
not_after = 2026-01-31T13:00:00+01:00

[keys."desk.1"]
secret = "other"
tenants = ["acme"]
roles = ["reviewer"]

[reviewers]
acme = ["lead@acme.example"]
"""
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
SEAL = f'[keys.s]\nprivate_key = "{PRIVATE}"\nroles = ["seal"]\n'
HUSH = base64.b64encode(b"hush" * 8).decode()


def parse(text=FILE):
    return Keys.parse(text.encode(), PATH)


def write(path, text=FILE, mode: int = 0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


def state(keys, header, value=b"{}", *, tenant="acme", source="adr", at=NOW, role=None):
    found = keys.check(header, value, tenant=tenant, source=source, at=at, role=role)
    return found and str(found.state)


def as_reviewer(text, header, value=b"r", at=NOW):
    return state(parse(text), header, value, source=None, at=at, role="reviewer")


def test_signatures_are_those_of_the_standards():
    """HMAC-SHA256 under the secret's text, or Ed25519."""
    expected = hmac.new(b"s3cret", b'{"a": 1}', hashlib.sha256).hexdigest()
    assert parse().sign("docs", b'{"a": 1}') == f"docs:{expected}".encode()
    assert dict(parse(SIGNS))["desk"].verifying_key == PUBLIC
    assert parse(SIGNS).sign("desk", b"r") == f"desk:{SIGNATURE.hex()}".encode()
    with pytest.raises(UsageError, match="no key 'b' in the keys file"):
        parse().sign("b", b"{}")


@given(
    raw=st.binary(min_size=32, max_size=32), value=st.binary(), other=st.binary(max_size=130), data=st.data()
)
def test_what_a_key_signs_it_verifies_and_no_other_bytes_nor_another_signature(raw, value, other, data):
    half = base64.b64encode(raw).decode()
    key = Key(tenants=["t"], **{data.draw(st.sampled_from(["secret", "private_key"])): half})
    signature = key.sign(value)
    assert key.verifies(value, signature)
    assert key.verifies(other, signature) == (value == other)
    assert key.verifies(value, other) == (signature == other)
    flipped = bytearray(signature)
    bit = data.draw(st.integers(0, 8 * len(signature) - 1))
    flipped[bit // 8] ^= 1 << bit % 8
    assert not key.verifies(value, bytes(flipped))


def test_every_way_to_fall_short_has_its_state_and_only_valid_vouches():
    keys = parse()

    def check(key, how, expected):
        signed = keys.sign(key, b"{}").decode()
        assert state(keys, signed, **how) == expected
        assert state(Keys.empty(), signed, **how) == "unknown_key"

    cases = [
        ("docs", {}, "valid"),  # a key holds in its closed interval
        ("docs", {"at": NOW + MOMENT}, "expired"),
        ("docs", {"at": NOW - DAY}, "valid"),
        ("docs", {"at": NOW - DAY - MOMENT}, "expired"),
        ("docs", {"tenant": None}, "valid"),  # a record of no tenant may have a key of any
        ("docs", {"tenant": "initech"}, "not_entitled"),
        ("docs", {"source": "user"}, "not_entitled"),
        ("docs", {"source": None}, "valid"),  # a record without a source needs none
        ("docs", {"source": None, "role": "reviewer"}, "not_entitled"),
        ("desk.1", {"source": None, "role": "reviewer"}, "valid"),
        ("desk.1", {"source": None, "role": "reviewer", "tenant": "globex"}, "not_entitled"),
    ]
    assert failing(check, cases) == []
    assert state(keys, "docs:" + "0" * 64, tenant="initech", at=NOW + MOMENT) == "invalid", "before the rest"
    assert state(keys, None) is None, "no header is no attestation"
    assert [one for one in AttestationState if Attestation("a", one).valid] == ["valid"]
    assert keys.delegated("acme", "lead@acme.example")
    assert not keys.delegated("globex", "lead@acme.example")
    assert not keys.delegated("acme", "someone")


@given(other=st.text())
@example("a" * 5_000)
@example("<script>:\x1b[31m")
def test_a_header_is_read_strictly_and_the_fact_holds_a_short_plain_key_id(other):
    fact = Keys.empty().check(other, b"", tenant="t", source="s", at=NOW).fact()
    assert set(fact) == {"key_id", "state"}
    assert re.fullmatch(r"[A-Za-z0-9._-]{0,100}", fact["key_id"])
    keys = parse()
    header = keys.sign("docs", b"{}").decode()
    changed = [
        *(header + "\n", " " + header, header.replace(":", "::"), header[:-1], header + "0", ""),
        *(header + "0" * 64, header[:-1] + "g", header[:-1] + "٣", header.replace("docs", "")),
        *(header.replace("docs", "döcs"), header.replace("docs", "d" * 101)),
    ]
    assert differing(lambda header: state(keys, header), changed, to="invalid") == []


def test_a_public_half_suffices_to_check_and_not_to_sign_nor_as_the_secret_of_an_hmac(tmp_path):
    header = parse(SIGNS).sign("desk", b"r").decode()
    assert as_reviewer(CHECKS, header) == "valid"
    assert as_reviewer(CHECKS, header, b"s") == "invalid"
    assert as_reviewer(CHECKS, header.upper().replace("DESK", "desk")) == "valid"
    keys = Keys.load(write(tmp_path / "keys.toml", CHECKS))
    for start in (
        lambda: keys.sign("desk", b"r"),
        lambda: Signer(keys, "desk"),
        lambda: Producer(attest="desk", keys_file=tmp_path / "keys.toml"),
        lambda: build_expiry(Settings(review_key="desk"), keys, None, None),
    ):
        with pytest.raises(UsageError, match=r"'desk'.*signs nothing here"):
            start()
    assert Signer(parse(SIGNS), "desk").headers(b"r")[-1][1].endswith(SIGNATURE.hex().encode())
    # a command signs nothing here, and checks by the public half beside it
    alone = f'[keys.desk]\ncommand = ["kms", "desk"]\n{REST}'
    beside = alone + f'public_key = "{PUBLIC}"\n'
    assert (as_reviewer(alone, header), as_reviewer(beside, header)) == ("invalid", "valid")
    with pytest.raises(UsageError, match="signs nothing here"):
        parse(beside).sign("desk", b"r")
    known = [PUBLIC.encode(), base64.b64decode(PUBLIC), b"desk", b""]
    shared = parse(f'[keys.desk]\nsecret = "{PUBLIC}"\n{REST}').sign("desk", b"r").decode()
    digests = [hmac.digest(secret, b"r", hashlib.sha256).hex() for secret in known]
    forged = [shared, *(f"desk:{digest * times}" for digest in digests for times in (1, 2))]
    for text in (SIGNS, CHECKS):
        assert differing(lambda header, text=text: as_reviewer(text, header), forged, to="invalid") == []


def test_a_wrong_keys_file_is_refused_naming_file_key_and_field_but_no_secret(tmp_path):
    def check(text, named):
        with pytest.raises(UsageError, match=r"keys file keys\.toml: ") as caught:
            parse(text)
        assert named in str(caught.value)
        assert HUSH[:8] not in str(caught.value)

    shown = [f'[keys.a]\n{half} = "{HUSH}"\n{REST}' for half in ("secret", "private_key")]
    assert HUSH not in "".join(repr(list(parse(text))) for text in shown), "nor does a representation"

    valid = f'[keys.a]\nsecret = "{HUSH}"\ntenants = ["t"]\n'
    one_of = "keys.a: secret, private_key, public_key or command: exactly one"
    later = "not_before = 2026-01-02T00:00:00Z\nnot_after = 2026-01-01T00:00:00Z"
    whole = [
        (valid + 'sorces = ["adr"]', "keys.a.sorces"),
        (f'[keys.a]\nsecret = "{HUSH}"', "keys.a: tenants: may be empty only"),
        (valid.replace(HUSH, ""), "keys.a.secret"),
        (valid.replace('"t"', '"a b"'), "keys.a.tenants"),
        (valid + 'roles = ["admin"]', "keys.a.roles"),
        (valid + "not_after = 2026-01-31T12:00:00", "keys.a.not_after"),
        (valid.replace("keys.a", 'keys."a b"'), "keys.a b: "),
        ("[reviewers]\nacme = 'lead'", "reviewers.acme"),
        ("[keys", "not TOML"),
    ]
    keys = [
        (REST, one_of),
        (f'secret = "{HUSH}"\nprivate_key = "{HUSH}"\n{REST}', one_of),
        (f'private_key = "{HUSH}"\ncommand = ["kms"]\n{REST}', one_of),
        (f'secret = "{HUSH}"\ncommand = ["kms"]\n{REST}', one_of),
        (f'private_key = "{HUSH[:-2]}"\n{REST}', "keys.a.private_key: must be 32 bytes in base64"),
        (f'private_key = "{HUSH}!"\n{REST}', "keys.a.private_key: must be 32 bytes in base64"),
        (f'public_key = "{PUBLIC[4:]}"\n{REST}', "keys.a.public_key: must be 32 bytes in base64"),
        (f"command = []\n{REST}", "keys.a.command"),
        (f'command = "kms {HUSH}"\n{REST}', "keys.a.command"),
        (f'private_key = "{HUSH}"\nroles = ["reviewer"]', "keys.a: tenants"),
        (f'secret = "{HUSH}"\nroles = ["seal"]', "keys.a: secret: the role seal needs an Ed25519 key"),
        (f'private_key = "{HUSH}"\nroles = ["seal", "reviewer"]\ntenants = ["t"]', "keys.a: roles"),
        (f'private_key = "{HUSH}"\nroles = ["seal"]\nsources = ["adr"]', "keys.a: roles"),
        (f'private_key = "{HUSH}"\n{REST}{later}', "keys.a: not_before: is after not_after"),
    ]
    assert failing(check, [*whole, *((f"[keys.a]\n{text}", named) for text, named in keys)]) == []
    # the error is short whatever the file holds
    for text, why in (("a = " + "[" * 100_000, "nested too deeply"), (f"a = {'9' * 10_000}", "not TOML: ")):
        with pytest.raises(UsageError, match=why) as caught:
            Keys.load(write(tmp_path / "keys.toml", text))
        assert len(str(caught.value)) < len(str(tmp_path)) + 200
    with pytest.raises(UsageError, match=r"none\.toml.*No such file"):
        Keys.load(tmp_path / "none.toml")
    with pytest.raises(UsageError, match=r"keys\.toml: not UTF-8 at byte 2"):
        Keys.parse(b"# \xff", PATH)


def test_a_file_that_others_may_read_is_warned_of_and_refused_where_it_holds_a_key_for_seals(
    tmp_path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.toml"
    for mode in (0o640, 0o604, 0o644):
        caplog.clear()
        with pytest.raises(UsageError, match=re.escape(f"keys file {path}: ") + ".*'s'.*chmod 600"):
            Keys.load(write(path, SEAL, mode))
        assert "s" in Keys.load(write(path, SEAL))
        Keys.load(write(path, FILE))
        Keys.load(write(path, SEAL.replace("private_key", "public_key"), mode))
        assert not caplog.records, "what is public may be read"
        Keys.load(write(path, SIGNS, mode))
        assert ("chmod 600" in caplog.text) == bool(mode & 0o004)


@given(
    sources=st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=100), max_size=3),
    before=st.sampled_from(["", FILE, FILE.rstrip(), "# empty"]),
)
def test_a_new_key_reads_back_and_leaves_the_rest_byte_for_byte(tmp_path_factory, sources, before):
    path = write(tmp_path_factory.mktemp("keys") / "keys.toml", before)
    new_key(path, "a.b-c_1", tenants=["t.1"], sources=sources, roles=["reviewer"], not_after=NOW)
    assert path.read_text().startswith(before)
    added = dict(Keys.load(path))["a.b-c_1"]
    assert (added.tenants, added.sources) == (["t.1"], sources)
    assert (added.roles, added.not_after) == (["reviewer"], NOW)
    assert len(bytes.fromhex(added.secret)) == 32
    old = {"keys": {}, **tomllib.loads(before)}
    new = tomllib.loads(path.read_text())
    assert new.pop("keys").keys() - {"a.b-c_1"} == old.pop("keys").keys()
    assert new == old


def test_a_new_key_keeps_the_file_its_owners_a_link_a_link_and_one_that_cannot_be_changes_nothing(tmp_path):
    path, link = tmp_path / "keys.toml", tmp_path / "link.toml"
    link.symlink_to(path)
    path.touch(0o600)
    for name in ("one", "two"):
        new_key(link, name, tenants=["t"], roles=["reviewer"])
        assert path.stat().st_mode & 0o777 == 0o600
    assert link.is_symlink()
    assert len({key.secret for _, key in Keys.load(path)}) == 2
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["keys.toml", "link.toml"], "no draft stays"
    link.unlink()
    write(path)
    refused = ("docs", "t", "s"), ("a b", "t", "s"), ("new", "t t", "s"), ("new", "t", "\udc80")
    for key_id, tenant, source in refused:
        with pytest.raises(UsageError):
            new_key(path, key_id, tenants=[tenant], sources=[source])
    assert path.read_text() == FILE
    assert [entry.name for entry in tmp_path.iterdir()] == ["keys.toml"]
    (tmp_path / ".keys.toml.new").touch()
    with pytest.raises(UsageError, match="being edited"):
        new_key(path, "new", tenants=["t"])


ONE = '[keys.one]\nsecret = "s"\ntenants = ["default"]\n'


class Watch:
    """A keys file, the keys that watch it, and the time."""

    def __init__(self, path):
        self.path, self.time = path, SimpleNamespace(now=0.0)
        self.path.write_text(KEYS)
        self.keys = WatchedKeys(path, clock=lambda: self.time.now)

    def write(self, text, *, replaced=False):
        """Write the file a minute ago, or put another in its place as `groundwire keys` and a mounted secret do."""
        place = self.path.with_name("draft") if replaced else self.path
        place.write_text(text)
        place.replace(self.path)
        os.utime(self.path, (time.time() - 60,) * 2)
        self.time.now += EVERY


@pytest.fixture
def watch(tmp_path):
    return Watch(tmp_path / "keys.toml")


def test_a_delegation_or_key_that_changes_in_the_file_counts_from_then_on(watch):
    permissions, lead = Permissions(watch.keys), Person("lead", frozenset({"default", "acme"}))
    for replaced in (False, True):
        watch.write(KEYS, replaced=replaced)
        assert permissions.scope(lead).whole == {"default"}
        watch.write(KEYS.replace('default = ["lead"]', 'acme = ["lead"]'), replaced=replaced)
        assert permissions.scope(lead).whole == {"acme"}
        assert not permissions.scope(lead).sees("default", "ada")
    watch.write(KEYS)
    header = watch.keys.sign("console", b"value").decode()

    def now():
        asked = {"tenant": "default", "source": None, "at": OFFICE_NOW, "role": "reviewer"}
        return state(watch.keys, header, b"value", **asked)

    assert now() == "valid"
    watch.write(KEYS.replace('secret = "one"', 'secret = "1111"'))
    assert now() == "invalid"
    watch.write(ONE)
    assert now() == "unknown_key"
    assert "console" not in watch.keys
    assert [name for name, _ in watch.keys] == ["one"]
    with pytest.raises(UsageError, match="console"):
        watch.keys.sign("console", b"value")


def test_a_file_that_is_none_changes_nothing_is_logged_once_and_forgotten_once_it_is_mended(watch):
    def reloads(result):
        return REGISTRY.get_sample_value("groundwire_keys_reloads_total", {"result": result}) or 0.0

    for broken in ("[keys", '[keys.one]\nsecret = "hush"\n', None):
        watch.write(KEYS)
        assert watch.keys.delegated("default", "lead")
        before = reloads("refused"), reloads("taken")
        with capture_logs() as logs:
            watch.path.unlink() if broken is None else watch.path.write_text(broken)
            for _ in range(3):
                watch.time.now += EVERY
                assert watch.keys.delegated("default", "lead")
        assert [line["event"] for line in logs] == ["keys.refused"]
        assert "hush" not in str(logs)
        watch.write(ONE)
        assert not watch.keys.delegated("default", "lead")
        assert (reloads("refused"), reloads("taken")) == (before[0] + 1, before[1] + 1)
    with pytest.raises(UsageError, match="keys file"):
        WatchedKeys.load(watch.path.with_name("none.toml"))


def test_a_file_that_is_being_written_counts_once_it_stands_still(watch):
    for half in (KEYS[: KEYS.index("[keys")], KEYS[: KEYS.index("[keys") + 3], ""):
        watch.path.write_text(half)
        watch.time.now += EVERY
        assert watch.keys.delegated("default", "lead")
        assert "console" in watch.keys
    watch.path.write_text(ONE)
    watch.time.now += EVERY
    assert "console" in watch.keys
    watch.time.now += EVERY  # looked at again, and nothing was written since
    assert "console" not in watch.keys


async def test_the_gate_carries_out_what_it_refused_once_the_reviewer_is_let_in(watch):
    office = Office(keys=watch.keys)
    gate = office.reviews
    (pending,) = await office.decide(office.claim("a", TEXT))
    action = office.action("approve", pending, reviewer="new")
    (refused,) = await gate.apply_step(await gate.prepare([action]))
    assert refused.code == "unauthorized"
    watch.write(KEYS.replace('["lead"]', '["lead", "new"]'))
    (carried_out,) = await gate.apply_step(await gate.prepare([action]))
    assert carried_out.decision.approved


def test_a_key_ends_in_its_file_and_all_else_in_it_stays(tmp_path):
    path = tmp_path / "keys.toml"
    path.write_text("# of the desk\n")
    for name in ("a", "b"):
        new_key(path, name, tenants=["t"], roles=["reviewer"])
    before = path.read_text()
    for until in (NOW + DAY, NOW):
        end_key(path, "a", until)
        assert [key.not_after for _, key in Keys.load(path)] == [until, None]
    assert set(before.splitlines()) < set(path.read_text().splitlines())
    with pytest.raises(UsageError, match="there is no key 'c'"):
        end_key(path, "c", NOW)


SEALING = ed25519.new_private_key()


def new_seal(path, name, **fields):
    new_key(path, name, tenants=[], roles=["seal"], asymmetric=True, **fields)


def with_command(folder, program, *, public=True):
    shown = f'public_key = "{ed25519.public_key_of(SEALING)}"\n' if public else ""
    command = json.dumps([sys.executable, "-c", program])
    return write(folder / "command.toml", f'[keys.kms]\ncommand = {command}\n{shown}roles = ["seal"]\n')


def test_the_seal_key_that_began_last_signs_and_without_one_that_holds_now_no_worker_starts(tmp_path):
    new_seal(tmp_path / "keys.toml", "first", not_after=NOW + DAY)
    new_seal(tmp_path / "keys.toml", "next", not_before=NOW)
    signer = SealSigner(tmp_path / "keys.toml", now=lambda: NOW)
    assert signer.key_id(NOW - timedelta(seconds=1)) == "first"
    assert signer.key_id(NOW) == signer.key_id(NOW + 2 * DAY) == "next"
    assert dict(parse(SEAL.replace("private_key", "public_key")))["s"].kind == "public"
    assert dict(parse('[keys.s]\ncommand = ["kms"]\nroles = ["seal"]'))["s"].verifying_key is None
    new_seal(tmp_path / "old.toml", "old", not_after=NOW - DAY)
    with pytest.raises(UsageError, match="no key with the role seal"):
        SealSigner(tmp_path / "old.toml", now=lambda: NOW)
    reviewers = tmp_path / "reviewers.toml"
    new_key(reviewers, "ann", tenants=["acme"], roles=["reviewer"], asymmetric=True)
    with pytest.raises(UsageError, match="role seal"):
        SealKeys(reviewers)
    with pytest.raises(UsageError, match="public_key"):
        SealSigner(with_command(tmp_path, "print(7)", public=False), now=lambda: NOW)


async def test_a_program_signs_what_it_reads(tmp_path):
    program = (
        "import sys, base64; from groundwire.keys import ed25519;"
        f"print(base64.b64encode(ed25519.sign('{SEALING}', sys.stdin.buffer.read())).decode())"
    )
    signature = await SealSigner(with_command(tmp_path, program), now=lambda: NOW).sign("kms", b"head")
    assert ed25519.is_signed(ed25519.public_key_of(SEALING), b"head", signature)


@pytest.mark.slow
async def test_a_program_that_signs_nothing_that_holds_leaves_it_unsealed(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("groundwire.keys.seal_keys._COMMAND_SECONDS", 3.0)
    for program, why in [
        ("import sys; sys.exit(3)", "ended with 3"),
        ("print(7)", "no signature of 64 bytes"),
        ("import sys; sys.stdout.buffer.write(bytes(64))", "another key"),
        ("import sys\nwhile True: sys.stdout.write('1' * 99999)", "ended with|longer than"),
        ("import time; time.sleep(60)", "longer than"),
    ]:
        with pytest.raises(SealUnavailable, match=why):
            await SealSigner(with_command(tmp_path, program), now=lambda: NOW).sign("kms", b"head")


def run(*arguments, **env):
    return CliRunner().invoke(keys_command, [str(argument) for argument in arguments], env=env)


def test_commands_make_list_and_publish_keys_without_printing_a_secret_half(tmp_path):
    path = tmp_path / "keys.toml"
    desk = "new desk --ed25519 --tenant acme --role reviewer --not-before 2026-01-01T00:00:00Z"
    desk += " --not-after 2027-01-01T01:00:00+01:00"
    made = [
        run("new", "docs", "--tenant", "acme", "--tenant", "globex", "--source", "adr", "--file", path),
        run(*desk.split(), "--source", "a\u202e\x1bb", "--file", path),
        run("new", "seals", "--ed25519", "--role", "seal", "--file", path),
    ]
    assert [(one.exit_code, str(path) in one.output) for one in made] == [(0, True)] * 3
    whole = dict(Keys.load(path))
    assert f"public key {whole['desk'].verifying_key}\n" in made[1].output

    printed = run("public", "--file", path)
    assert "docs" in printed.stderr
    assert not re.search("[\x1b\u202e]", printed.stdout)
    assert tomllib.loads(printed.stdout)["keys"]["desk"]["not_after"] == datetime(2027, 1, 1, tzinfo=UTC)
    halves = dict(parse(printed.stdout))
    assert halves.keys() == {"desk", "seals"}
    for name, half in halves.items():
        shown = {"private_key": None, "public_key": whole[name].verifying_key}
        assert half == whole[name].model_copy(update=shown)

    listed = run("list", "--file", path, "--format", "json")
    docs, desk, seals = (json.loads(line) for line in listed.output.splitlines())
    lists = {"tenants": ["acme", "globex"], "sources": ["adr"], "roles": []}
    empty = {"public_key": None, "not_before": None, "not_after": None}
    assert docs == {"key_id": "docs", "kind": "hmac"} | lists | empty
    assert (desk["kind"], seals["key_id"]) == ("ed25519", "seals")
    assert seals["public_key"] == whole["seals"].verifying_key
    table = run("list", GROUNDWIRE_KEYS_FILE=str(path))
    head = "key kind tenants sources roles not before not after docs"
    assert " ".join(table.output.split()).startswith(head)
    assert table.output.splitlines()[1].split() == ["docs", "hmac", "acme,", "globex", "adr", "-", "-", "-"]
    assert "2026-01-01T00:00:00Z  2027-01-01T00:00:00Z" in table.output
    told = "".join(one.output for one in [*made, printed, listed, table])
    kept = {key.private_key or key.secret for key in whole.values()}
    assert len(kept) == 3
    assert not [half for half in kept if half in told]
    hostile = '[keys.a]\nsecret="x"\ntenants=["t"]\nsources=["\\u001b[31m[bold]"]\n'
    kms = f'[keys.kms]\ncommand = ["kms", "--token", "{HUSH}"]\n{REST}'
    path = write(tmp_path / "keys.toml", hostile + CHECKS + kms)
    shown = run("list", "--file", path).output  # the kind of a key is what the file holds of it
    kinds = [line.split()[:2] for line in shown.splitlines()[1:]]
    assert kinds == [["a", "hmac"], ["desk", "public"], ["kms", "command"]]
    assert "\\x1b[31m[bold]" in shown
    assert HUSH not in run("list", "--file", path, "--format", "json").output
    assert public_keys(Keys.load(path))[1] == ["a", "kms"]


def test_commands_exit_with_2_and_one_line_for_what_a_person_must_mend(tmp_path):
    path = write(tmp_path / "keys.toml")
    new = ("new", "n", "--file", path)

    def check(arguments, why):
        result = run(*arguments)
        assert result.exit_code == 2
        assert "Error: " in result.stderr
        assert why in result.stderr

    cases = [
        (("list", "--file", tmp_path / "none"), "groundwire keys new"),
        (("new", "docs", "--tenant", "t", "--source", "s", "--file", path), "docs"),
        ((*new, "--tenant", "t"), "a --source or a --role"),
        ((*new, "--source", "s"), "--tenant"),
        ((*new, "--tenant", "t", "--source", "s", "--not-after", "tomorrow"), "tomorrow"),
        ((*new, "--role", "seal", "--tenant", "t"), "--role seal needs --ed25519"),
        ((*new, "--role", "seal", "--role", "reviewer", "--tenant", "t", "--ed25519"), "no other role"),
        ((*new, "--role", "reviewer", "--ed25519"), "needs a --tenant"),
        ((*new, "--tenant", "t", "--ed25519"), "a --source or a --role"),
    ]
    assert failing(check, cases) == []
    assert path.read_text() == FILE


@pytest.mark.slow
def test_a_keys_file_of_secrets_is_read_where_cryptography_is_not_installed(tmp_path):
    path = write(tmp_path / "keys.toml")
    program = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from groundwire.cli.main import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, "keys", "list", "--file", path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "docs" in done.stdout) == (0, True), done.stderr


def test_an_ed25519_key_without_cryptography_names_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    unread = base64.b64encode(secrets.token_bytes(32)).decode()
    for half in ("private_key", "public_key"):
        with pytest.raises(UsageError, match=r"^cryptography is not installed.*'groundwire\[client\]'"):
            parse(f'[keys.a]\n{half} = "{unread}"\n{REST}')
