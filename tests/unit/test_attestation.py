"""Signatures under keys of a TOML file, and the file itself."""

import hashlib
import hmac
import json
import logging
import re
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from groundwire.cli.keys import keys as keys_command
from groundwire.errors import UsageError
from groundwire.keys.attestation import AttestationState, Keys
from groundwire.keys.file import new_key

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
FILE = """
[keys.docs]
secret = "s3cret"
tenants = ["acme", "globex"]
sources = ["documentation", "adr"]
roles = []
not_after = 2026-01-31T13:00:00+01:00

[keys."desk.1"]
secret = "other"
tenants = ["acme"]
roles = ["reviewer"]

[reviewers]
acme = ["lead@acme.example"]
"""


def write(path: Path, text: str = FILE) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.fixture
def keys(tmp_path):
    return Keys.load(write(tmp_path / "keys.toml"))


def check(keys, header, value=b"{}", *, tenant="acme", source="adr", at=NOW, role=None):
    found = keys.check(header, value, tenant=tenant, source=source, at=at, role=role)
    return found and found.state


def test_signature_is_the_hmac_of_the_value_under_the_secrets_text(keys):
    expected = hmac.new(b"s3cret", b'{"a": 1}', hashlib.sha256).hexdigest()
    assert keys.sign("docs", b'{"a": 1}') == f"docs:{expected}".encode()


@given(value=st.binary(), other=st.binary())
def test_only_the_signed_bytes_pass(value, other):
    keys = Keys.parse(FILE.encode(), Path("keys.toml"))
    header = keys.sign("docs", value).decode()
    assert check(keys, header, value) == "valid"
    assert (check(keys, header, other) == "valid") == (value == other)


def test_every_way_to_fall_short_has_its_state_and_a_header_is_read_strictly(keys):
    later, wrong = NOW + timedelta(microseconds=1), []
    for key, how, state in (
        ("docs", {}, "valid"),  # a key holds at its last moment
        ("docs", {"at": later}, "expired"),
        ("docs", {"tenant": "initech"}, "not_entitled"),
        ("docs", {"source": "user"}, "not_entitled"),
        ("docs", {"source": None}, "valid"),  # a record without a source needs none
        ("docs", {"source": None, "role": "reviewer"}, "not_entitled"),
        ("desk.1", {"source": None, "role": "reviewer"}, "valid"),
        ("desk.1", {"source": None, "role": "reviewer", "tenant": "globex"}, "not_entitled"),
    ):
        signed = keys.sign(key, b"{}").decode()
        found = check(keys, signed, **how), check(Keys.empty(), signed, **how)
        wrong += [(key, how, found)] * (found != (AttestationState(state), "unknown_key"))
    assert wrong == []
    assert check(keys, "docs:" + "0" * 64, tenant="initech", at=later) == "invalid", "before all else"
    assert check(keys, None) is None, "no header is no attestation"
    signed = keys.sign("docs", b"{}").decode()
    name, _, digits = signed.partition(":")
    assert check(keys, f"{name}:{digits.upper()}") == "valid"
    headers = [
        signed + "\n",
        " " + signed,
        f"docs::{digits}",
        signed[:-1],
        signed + "0",
        signed + "0" * 64,
        "",
    ]
    headers += [signed[:-1] + "g", signed[:-1] + "٣", *(f"{key}:{digits}" for key in ("", "döcs", "d" * 101))]
    assert [header for header in headers if check(keys, header) != "invalid"] == []


@given(header=st.text())
@example("a" * 5_000)
@example("<script>:\x1b[31m")
def test_the_fact_holds_a_short_plain_key_id_whatever_the_header(header):
    found = Keys.empty().check(header, b"", tenant="t", source="s", at=NOW)
    fact = found.fact()
    assert set(fact) == {"key_id", "state"}
    assert len(fact["key_id"]) <= 100
    assert all(char.isascii() and (char.isalnum() or char in "._-") for char in fact["key_id"])


def test_delegation_is_per_tenant(keys):
    assert keys.delegated("acme", "lead@acme.example")
    assert not keys.delegated("globex", "lead@acme.example")
    assert not keys.delegated("acme", "someone")


VALID = '[keys.a]\nsecret = "xyz"\ntenants = ["t"]\n'


def test_a_wrong_keys_file_is_refused_naming_file_key_and_field_but_no_secret(tmp_path):
    path, wrong = tmp_path / "keys.toml", []
    for text, named in (
        (None, "No such file"),
        (VALID + 'sorces = ["adr"]', "keys.a.sorces"),
        ('[keys.a]\ntenants = ["t"]', "keys.a: secret, private_key, public_key or command: exactly one"),
        ('[keys.a]\nsecret = "xyz"', "keys.a: tenants: may be empty only"),
        (VALID.replace("xyz", ""), "keys.a.secret"),
        (VALID.replace('["t"]', '"t"'), "keys.a.tenants"),
        (VALID.replace('"t"', '"a b"'), "keys.a.tenants"),
        (VALID + 'roles = ["admin"]', "keys.a.roles"),
        (VALID + "not_after = 2026-01-31", "keys.a.not_after"),
        (VALID + "not_after = 2026-01-31T12:00:00", "keys.a.not_after"),
        (VALID.replace("keys.a", 'keys."a b"'), "keys.a b"),
        ("[reviewers]\nacme = 'lead'", "reviewers.acme"),
        ("[reviwers]\nacme = []", "reviwers"),
        ("[keys", "not TOML"),
    ):
        if text is not None:
            write(path, text)
        with pytest.raises(UsageError, match=re.escape(str(path))) as caught:
            Keys.load(path)
        told = str(caught.value)
        wrong += [(text, told)] * (named not in told or "xyz" in told)
    assert wrong == []


def test_a_keys_file_that_nests_without_end_is_told_so_and_not_quoted(tmp_path):
    for text, why in (("a = " + "[" * 100_000, "nested too deeply"), (f"a = {'9' * 10_000}", "not TOML: ")):
        with pytest.raises(UsageError, match=why) as caught:
            Keys.load(write(tmp_path / "keys.toml", text))
        assert len(str(caught.value)) < len(str(tmp_path)) + 200


def test_a_file_that_others_may_read_is_warned_of_and_no_representation_shows_a_secret(tmp_path, caplog):
    path = write(tmp_path / "keys.toml")
    assert "s3cret" not in repr(dict(Keys.load(path)))
    with caplog.at_level(logging.WARNING):
        Keys.load(path)
        assert not caplog.records
        path.chmod(0o644)
        Keys.load(path)
    assert "chmod 600" in caplog.text


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=100)


@given(sources=st.lists(names, max_size=3), before=st.sampled_from(["", FILE, FILE.rstrip(), "# empty"]))
def test_a_new_key_reads_back_and_leaves_the_rest_byte_for_byte(tmp_path_factory, sources, before):
    path = write(tmp_path_factory.mktemp("keys") / "keys.toml", before)
    new_key(path, "a.b-c_1", tenants=["t.1"], sources=sources, roles=["reviewer"], not_after=NOW)
    assert path.read_text().startswith(before)
    added = dict(Keys.load(path))["a.b-c_1"]
    assert (added.tenants, added.sources, added.roles, added.not_after) == (
        ["t.1"],
        sources,
        ["reviewer"],
        NOW,
    )
    assert len(bytes.fromhex(added.secret)) == 32
    old = {"keys": {}, **tomllib.loads(before)}
    new = tomllib.loads(path.read_text())
    assert new.pop("keys").keys() - {"a.b-c_1"} == old.pop("keys").keys()
    assert new == old


def test_a_new_file_is_the_owners_alone_and_two_secrets_differ(tmp_path):
    path = tmp_path / "keys.toml"
    for name in ("one", "two"):
        new_key(path, name, tenants=["t"], roles=["reviewer"])
        assert path.stat().st_mode & 0o777 == 0o600
    secrets = [key.secret for _, key in Keys.load(path)]
    assert len(set(secrets)) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["keys.toml"], "no draft stays behind"


def test_a_key_that_cannot_be_is_refused_and_a_second_editor_told_to_wait_and_the_file_stays(tmp_path):
    path = write(tmp_path / "keys.toml")
    for key_id, tenants, sources in (
        *(("docs", ["t"], []), ("a b", ["t"], []), ("new", [], []), ("new", ["t t"], [])),
        *(("new", ["t"], [""]), ("new", ["t"], ["\udc80"])),
    ):
        with pytest.raises(UsageError):
            new_key(path, key_id, tenants=tenants, sources=sources)
    assert [entry.name for entry in tmp_path.iterdir()] == ["keys.toml"]
    (tmp_path / ".keys.toml.new").touch()
    with pytest.raises(UsageError, match="being edited"):
        new_key(path, "new", tenants=["t"])
    assert path.read_text() == FILE


def test_a_symbolic_link_stays_one(tmp_path):
    target, link = write(tmp_path / "target.toml"), tmp_path / "keys.toml"
    link.symlink_to(target)
    new_key(link, "new", tenants=["t"])
    assert link.is_symlink()
    assert "new" in Keys.load(target)


def run(*arguments, **env):
    return CliRunner().invoke(keys_command, [str(argument) for argument in arguments], env=env)


def test_commands_make_and_list_keys_without_printing_a_secret(tmp_path):
    path = tmp_path / "keys.toml"
    made = run(
        *("new", "docs", "--tenant", "acme", "--tenant", "globex", "--source", "adr"),
        *("--not-after", "2027-01-01T01:00:00+01:00", "--file", path),
    )
    assert made.exit_code == 0, made.output
    assert str(path) in made.output
    table = run("list", GROUNDWIRE_KEYS_FILE=str(path))
    assert table.output.split() == [
        *("key", "kind", "tenants", "sources", "roles", "not", "before", "not", "after"),
        *("docs", "hmac", "acme,", "globex", "adr", "-", "-", "2027-01-01T00:00:00Z"),
    ]
    listed = run("list", "--file", path, "--format", "json")
    assert json.loads(listed.output) == {
        "key_id": "docs",
        "kind": "hmac",
        "public_key": None,
        "tenants": ["acme", "globex"],
        "sources": ["adr"],
        "roles": [],
        "not_before": None,
        "not_after": "2027-01-01T00:00:00Z",
    }
    secret = dict(Keys.load(path))["docs"].secret
    assert secret not in made.output + table.output + listed.output


def test_commands_exit_with_2_and_one_line_for_what_a_person_must_mend(tmp_path):
    path = write(tmp_path / "keys.toml")
    absent = run("list", "--file", tmp_path / "none")
    assert (absent.exit_code, "groundwire keys new" in absent.stderr) == (2, True)
    for arguments in (
        ("list",),
        ("new", "docs", "--tenant", "t", "--source", "s", "--file", path),
        ("new", "n", "--tenant", "t", "--file", path),
        ("new", "n", "--source", "s", "--file", path),
        ("new", "n", "--tenant", "t", "--source", "s", "--not-after", "tomorrow", "--file", path),
    ):
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert "Error: " in result.stderr


def test_a_hostile_source_reaches_the_terminal_as_text(tmp_path):
    path = write(tmp_path / "keys.toml", '[keys.a]\nsecret="x"\ntenants=["t"]\nsources=["\\u001b[31m[bold]"]')
    assert "\\x1b[31m[bold]" in run("list", "--file", path).output
