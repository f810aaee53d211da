"""Starting the console: what is missing is named, with what to do; no secret is."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from groundwire.cli.console import console
from groundwire.console.settings import ConsoleSettings, load_console_settings
from groundwire.errors import UsageError

KEYS = """
[keys.console]
secret = "s"
tenants = ["acme"]
roles = ["reviewer"]
[keys.docs]
secret = "d"
tenants = ["acme"]
"""
LINK = ["--one-time-link", "--name", "ann"]


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    path.write_text(KEYS)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "GROUNDWIRE_CONSOLE_KEY is not set"),
        ({"GROUNDWIRE_CONSOLE_KEY": "other"}, "GROUNDWIRE_CONSOLE_KEY: no key 'other'"),
        ({"GROUNDWIRE_CONSOLE_KEY": "docs"}, "role reviewer"),
        ({"GROUNDWIRE_KEYS_FILE": ""}, "GROUNDWIRE_KEYS_FILE is not set"),
        (
            {"GROUNDWIRE_KEYS_FILE": "/nowhere/keys.toml", "GROUNDWIRE_CONSOLE_KEY": "x"},
            "GROUNDWIRE_KEYS_FILE: keys file /nowhere/keys.toml",
        ),
        ({"GROUNDWIRE_CONSOLE_PORT": "8o00"}, "GROUNDWIRE_CONSOLE_PORT"),
        ({"GROUNDWIRE_CONSOLE_PORT": "8o00"}, "'8o00'"),
        ({"GROUNDWIRE_CONSOLE_HOST": "192.0.2.1"}, "GROUNDWIRE_CONSOLE_PUBLIC_URL"),
        ({"GROUNDWIRE_CONSOLE_SECRET": "tooshort"}, "GROUNDWIRE_CONSOLE_SECRET"),
        ({"GROUNDWIRE_CONSOLE_OIDC_ISSUER": "https://id.example"}, "GROUNDWIRE_CONSOLE_OIDC_CLIENT_ID"),
        ({"GROUNDWIRE_CONSOLE_PROXY_HEADER": "x-user"}, "GROUNDWIRE_CONSOLE_PROXY_ADDRESSES"),
        ({"GROUNDWIRE_CONSOLE_PUBLIC_URL": "review.example"}, "GROUNDWIRE_CONSOLE_PUBLIC_URL"),
    ],
)
def test_a_console_that_lacks_something_does_not_start_and_says_what(keys_file, environment, said) -> None:
    given = {"GROUNDWIRE_KEYS_FILE": str(keys_file), "GROUNDWIRE_CONSOLE_PORT": "0"} | environment
    result = CliRunner().invoke(console, LINK, env=given)

    assert result.exit_code == 2
    assert said in result.output
    assert "tooshort" not in result.output


def test_a_console_that_nobody_could_sign_in_to_does_not_start(keys_file) -> None:
    given = {"GROUNDWIRE_KEYS_FILE": str(keys_file), "GROUNDWIRE_CONSOLE_KEY": "console"}
    result = CliRunner().invoke(console, [], env=given)

    assert result.exit_code == 2
    assert "no way to sign in" in result.output


@pytest.mark.parametrize("name", ["GROUNDWIRE_CONSOLE_PORT", "GROUNDWIRE_METRICS_PORT"])
def test_a_port_that_is_taken_is_told_with_its_setting(keys_file, name) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        given = {"GROUNDWIRE_KEYS_FILE": str(keys_file), "GROUNDWIRE_CONSOLE_KEY": "console"}
        result = CliRunner().invoke(console, LINK, env={**given, "GROUNDWIRE_CONSOLE_PORT": "0", name: port})

    assert result.exit_code == 2
    assert name in result.stderr
    assert f"127.0.0.1:{port} cannot be bound" in result.stderr


def test_a_link_needs_to_know_whom_it_signs_in() -> None:
    assert "--name" in CliRunner().invoke(console, ["--one-time-link"]).output
    assert "--one-time-link" in CliRunner().invoke(console, ["--name", "ann"]).output


def test_settings_come_from_the_environment(monkeypatch) -> None:
    monkeypatch.setenv("GROUNDWIRE_CONSOLE_UNDO_SECONDS", "3")
    assert load_console_settings().undo_seconds == 3
    monkeypatch.setenv("GROUNDWIRE_CONSOLE_UNDO_SECONDS", "-1")
    with pytest.raises(UsageError, match="GROUNDWIRE_CONSOLE_UNDO_SECONDS"):
        load_console_settings()


def test_every_setting_is_explained() -> None:
    assert all(field.description for field in ConsoleSettings.model_fields.values())
