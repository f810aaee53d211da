"""API tokens of the console, and the commands that make and revoke them."""

from __future__ import annotations

import json
import os
import time
import tomllib
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from groundwire.cli.keys import token as token_command
from groundwire.errors import UsageError
from groundwire.messages.base import format_time
from groundwire.review.permissions import Person
from groundwire.review.tokens import Tokens, WatchedTokens, new_token, revoke_token

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANN = Person("ann", frozenset({"acme"}))
HASH = "0" * 64


def made(path, name="ci", **fields) -> str:
    return new_token(path, name, **{"person": "ann", "tenants": ["acme"], **fields})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokens.toml"


def test_a_token_speaks_for_its_own_person_up_to_its_end_and_stands_nowhere(path, caplog) -> None:
    token = made(path, not_after=NOW)
    tokens = {made(path, f"t{n}", person=f"p{n}"): f"p{n}" for n in range(5)}
    look = made(path, "look", read_only=True, tenants=["acme", "globex"])
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["tokens.toml"]
    kept = Tokens.load(path)
    assert kept.person(token, NOW) == ANN
    assert kept.person(token, NOW + timedelta(microseconds=1)) is None
    assert {one: kept.person(one, NOW).name for one in tokens} == tokens
    assert kept.person(look, NOW) == Person("ann", frozenset({"acme", "globex"}), read_only=True)
    assert not [one for one in (token, look, *tokens) if one in path.read_text()]
    hashes = [entry.sha256 for _, entry in kept]
    for wrong in (look[:-1], look + "x", look.upper(), *hashes, "", "\ud800"):
        assert kept.person(wrong, NOW) is None
    assert not caplog.records
    path.chmod(0o644)
    Tokens.load(path)
    assert "chmod 600" in caplog.text, "others may read the file"


@given(
    person=st.text(st.characters(codec="utf-8"), min_size=1, max_size=50),
    before=st.sampled_from(
        ["", "# mine", '# a\n[tokens."x.y"]\nsha256 = "' + HASH + '"\nperson="b"\ntenants=["t"]']
    ),
)
def test_what_stands_in_the_file_stays_when_a_token_comes_and_goes(tmp_path_factory, person, before) -> None:
    path = tmp_path_factory.mktemp("tokens") / "tokens.toml"
    path.write_text(before)
    made(path, "new", person=person, not_after=NOW)
    assert path.read_text().startswith(before)
    assert Tokens.load(path).person(person, NOW) is None, "no other text is a token"
    assert dict(Tokens.load(path))["new"].person == person
    revoke_token(path, "new")
    assert path.read_text().rstrip() == before.rstrip()


def test_revoking_takes_out_that_token_alone(path) -> None:
    kept, gone, last = (made(path, name) for name in ("a", "b", "c"))
    revoke_token(path, "b")
    tokens = Tokens.load(path)
    assert [name for name, _ in tokens] == ["a", "c"]
    assert [tokens.person(token, NOW) for token in (kept, gone, last)] == [ANN, None, ANN]
    rest = 'person = "b", tenants = ["t"]'
    other = f'c = {{sha256 = "{"1" * 64}", {rest}}}\n'
    path.write_text(f'[tokens]\na = {{sha256 = "{HASH}", {rest}}}\n{other}')
    revoke_token(path, "a")
    assert path.read_text() == f"[tokens]\n{other}", "of an inline table too"


def test_a_token_that_would_not_read_back_is_refused_and_changes_nothing(path) -> None:
    made(path)
    before = path.read_bytes()
    for name, fields, wrong in [
        ("ci", {}, "exists"),
        ("a b", {}, "a b"),
        ("new", {"tenants": []}, "tenants"),
        ("new", {"tenants": ["a/b"]}, "tenants"),
        ("new", {"person": ""}, "person"),
        ("new", {"person": "\ud800"}, "not text"),
    ]:
        with pytest.raises(UsageError, match=wrong):
            made(path, name, **fields)
        assert path.read_bytes() == before
    with pytest.raises(UsageError, match="there is no token"):
        revoke_token(path, "none")


def test_a_wrong_file_is_refused_by_field_and_without_hashes(path) -> None:
    whole = f'sha256 = "{HASH}"\nperson = "b"\ntenants = ["t"]\n'
    for text, wrong in [
        ("[tokens", "TOML"),
        ("[token.a]", "token"),
        (f"[tokens.a]\n{whole.partition(chr(10))[2]}", "sha256"),
        (f"[tokens.a]\n{whole.replace(HASH, 's3cret')}", "sha256"),
        (f"[tokens.a]\n{whole}admin = true", "admin"),
        (f"[tokens.a]\n{whole}read_only = 1", "read_only"),
        (f"[tokens.a]\n{whole}[tokens.b]\n{whole}", "same hash"),
    ]:
        path.write_text(text)
        with pytest.raises(UsageError, match=wrong) as caught:
            Tokens.load(path)
        assert HASH not in str(caught.value)
        assert "s3cret" not in str(caught.value)


def test_what_is_revoked_or_cannot_be_read_counts_no_more_without_a_restart(path) -> None:
    token = made(path)
    live = WatchedTokens(path)
    assert live.person(token, NOW) == ANN
    other = made(path, "other", person="bob")
    assert live.person(other, NOW).name == "bob"
    revoke_token(path, "ci")
    ahead = time.time() + 3600
    os.utime(path, (ahead, ahead))
    assert live.person(token, NOW) is None, "though its file is dated ahead"
    path.write_text("[broken")
    assert live.person(other, NOW) is None
    path.unlink()
    assert live.person(other, NOW) is None


def test_commands_make_list_and_revoke_tokens_print_a_token_once_and_say_what_file_to_give(path) -> None:
    def run(*arguments, **env):
        return CliRunner().invoke(token_command, [str(argument) for argument in arguments], env=env)

    for arguments in (["list"], ["revoke", "x"], ["new", "x", "--person", "a", "--tenant", "t"]):
        result = run(*arguments)
        assert (result.exit_code, "GROUNDWIRE_TOKENS_FILE" in result.stderr) == (2, True)
    result = run("list", "--file", path)
    assert (result.exit_code, path.name in result.stderr) == (2, True)
    assert "groundwire token new" in result.stderr
    end = format_time(datetime.now(UTC) + timedelta(days=1))
    options = ["--person", "ann", "--tenant", "acme", "--not-after", end, "--read-only"]
    new = run("new", "ci", *options, "--file", path)
    assert new.exit_code == 0, new.output
    assert Tokens.load(path).person(new.stdout.strip(), NOW).read_only
    listed = run("list", GROUNDWIRE_TOKENS_FILE=str(path))
    assert listed.stdout.splitlines()[1].split()[:4] == ["ci", "ann", "acme", "look"]
    as_json = run("list", "--format", "json", "--file", path)
    assert json.loads(as_json.stdout)["person"] == "ann"
    (kept,) = tomllib.loads(path.read_text())["tokens"].values()
    assert kept["sha256"] not in listed.output + as_json.output + new.output
    assert [run("revoke", "ci", "--file", path).exit_code for _ in range(2)] == [0, 2]
    assert run("list", "--file", path).stdout.split() == ["token", "person", "tenants", "may", "not", "after"]
