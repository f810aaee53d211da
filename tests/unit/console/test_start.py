"""Starting the console: what is missing is named, with what to do; no secret is."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

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


def start(keys_file: Path, arguments: list[str] = LINK, **environment: str) -> Result:
    given = {"GROUNDWIRE_KEYS_FILE": str(keys_file), "GROUNDWIRE_CONSOLE_PORT": "0"} | environment
    return CliRunner().invoke(console, arguments, env=given)


def test_a_console_that_lacks_a_setting_does_not_start_and_names_it_and_no_secret(keys_file) -> None:
    wrong = []
    for environment, said in (
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
    ):
        result = start(keys_file, **environment)
        if result.exit_code != 2 or said not in result.output or "tooshort" in result.output:
            wrong.append((environment, result.output))
    assert wrong == []
    nobody = start(keys_file, [], GROUNDWIRE_CONSOLE_KEY="console")
    assert (nobody.exit_code, "no way to sign in" in nobody.output) == (2, True)


def test_a_port_in_use_is_named_with_its_setting(keys_file) -> None:
    for name in ("GROUNDWIRE_CONSOLE_PORT", "GROUNDWIRE_METRICS_PORT"):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            result = start(keys_file, **{"GROUNDWIRE_CONSOLE_KEY": "console", name: str(port)})

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
