"""Variables that nothing reads are told of, and those that something reads are not."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from groundwire.cli.environment import known_variables, unknown_variables
from groundwire.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


def test_what_something_reads_is_not_told_of_and_one_letter_less_is_with_its_name() -> None:
    for name in sorted(known_variables()):
        assert unknown_variables({name: ""}) == []
        wrong = f"{name[:-2]}{name[-1]}"
        if wrong not in known_variables():
            (told,) = unknown_variables({wrong: "", "PATH": "", "GROUNDWIRETEST": ""})
            assert told.startswith(f"{wrong} is no setting of Groundwire; did you mean GROUNDWIRE_")
    others = ["TEST_BROKER", "KAFKA_JARS", "SERVICE_HOST", "CONSOLE_SERVICE_PORT_HTTP", "PORT_8700_TCP_ADDR"]
    read = re.findall(r"\$\{(GROUNDWIRE_\w+)", (ROOT / "docker-compose.yml").read_text())
    assert read
    assert unknown_variables(dict.fromkeys([*read, *(f"GROUNDWIRE_{name}" for name in others)], "x")) == []
    assert unknown_variables({"GROUNDWIRE_XYZZY": ""}) == ["GROUNDWIRE_XYZZY is no setting of Groundwire"]
    commands = (ROOT / "src/groundwire/cli").glob("*.py")
    options = {name for path in commands for name in re.findall(r'envvar="(\w+)"', path.read_text())}
    assert options
    assert options <= known_variables()


def test_a_command_tells_of_them_once_on_standard_error_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").touch()
    environment = {"GROUNDWIRE_KEYS_FLE": "x", "GROUNDWIRE_KEYS_FILE": str(tmp_path / "keys.toml")}
    done = CliRunner().invoke(main, ["keys", "list"], env=environment)
    assert done.exit_code == 0
    warning = "warning: GROUNDWIRE_KEYS_FLE is no setting of Groundwire; did you mean GROUNDWIRE_KEYS_FILE?\n"
    assert done.stderr == warning
