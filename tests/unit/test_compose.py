"""docker-compose.yml, as far as it can be checked without Docker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from agents.app import ROLES
from deploy.embedded.process import find_program
from groundwire.config import Settings
from groundwire.console.settings import ConsoleSettings
from groundwire.state.server import connect
from tests.services.fixtures import or_skip

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yml"
CLUSTER = ROOT / "docker-compose.cluster.yml"
OWN = (*ROLES, "console", "topics", "keys")
"""Services that run the image of this project."""


SERVICES: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]


@pytest.mark.slow
def test_the_files_follow_the_schema_of_compose_files() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run([*command, COMPOSE, CLUSTER], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_worker_role_runs_waits_for_topics_keys_and_state_and_has_time_to_stop() -> None:
    for role in (*ROLES, "console"):
        waits = {name: how["condition"] for name, how in SERVICES[role]["depends_on"].items()}
        ended = "service_completed_successfully"
        assert waits == {"topics": ended, "keys": ended, "redis": "service_healthy"}
    for role in ROLES:
        assert SERVICES[role]["command"] == ["groundwire", "worker", role]
        assert int(SERVICES[role]["stop_grace_period"].removesuffix("s")) > Settings().shutdown_deadline


def test_the_console_and_prometheus_ask_the_services_that_answer() -> None:
    settings = ConsoleSettings(workers=SERVICES["console"]["environment"]["GROUNDWIRE_CONSOLE_WORKERS"])
    port = int(re.search(r"GROUNDWIRE_METRICS_PORT=(\d+)", (ROOT / "deploy/Dockerfile").read_text())[1])  # type: ignore[index]
    assert {(target.host, target.port) for target in settings.targets} == {(role, port) for role in ROLES}
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert set(jobs["groundwire"]["dns_sd_configs"][0]["names"]) == {*ROLES, "console"}
    for job in ("kafka", "redis"):
        for target in jobs[job]["static_configs"][0]["targets"]:
            name, number = target.split(":")
            assert number in " ".join(SERVICES[name]["healthcheck"]["test"])


def test_every_condition_can_come_true_and_every_task_that_ends_is_waited_for() -> None:
    """`docker compose up --wait` takes the end of a container that nothing waits for as a failure."""
    staying = [service for service in SERVICES.values() if service["restart"] != "no"]
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_completed_successfully":
                assert SERVICES[other]["restart"] == "no", other
            else:
                assert SERVICES[other]["healthcheck"]["test"], other
        if service["restart"] == "no":
            assert any(name in other.get("depends_on", {}) for other in staying), name


PASSWORD = "${GROUNDWIRE_REDIS_PASSWORD:?make up writes it to .env}"


def test_every_variable_is_a_setting_that_is_taken_and_none_holds_a_secret_that_stands_in_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {f"GROUNDWIRE_{name.upper()}" for name in Settings.model_fields}
    known |= {f"GROUNDWIRE_CONSOLE_{name.upper()}" for name in ConsoleSettings.model_fields}
    for name, service in SERVICES.items():
        environment = service.get("environment", {})
        for variable, value in environment.items():
            if re.search(r"SECRET|PASSWORD|AUTH$|TOKEN$|HASH_KEY", variable):
                assert value == PASSWORD, variable
            assert PASSWORD in value or variable != "GROUNDWIRE_REDIS_URL"
        if name in OWN:
            assert set(environment) <= known
            with monkeypatch.context() as patched:
                for variable, value in environment.items():
                    patched.setenv(variable, value.replace(PASSWORD, "6f3e"))
                connect(Settings().redis_url)
                ConsoleSettings()


def test_services_are_pinned_healthy_unprivileged_reachable_on_loopback_only_and_state_is_kept_and_bounded() -> (
    None
):
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    assert [port for port in published if not re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)] == []
    mounts = [volume for service in SERVICES.values() for volume in service.get("volumes", [])]
    files = [mount.split(":")[0] for mount in mounts if isinstance(mount, str) and mount.startswith("./")]
    assert files
    assert [name for name in files if not (ROOT / name).exists()] == []
    redis = " ".join(SERVICES["redis"]["command"])
    assert "--appendonly yes" in redis
    assert "--maxmemory-policy noeviction" in redis
    assert re.search(r"--maxmemory \S+", redis), "without a limit nothing warns before memory is full"
    for name, service in SERVICES.items():
        assert service["deploy"]["resources"]["limits"]["memory"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        if service["restart"] != "no" and name not in ROLES:  # workers have the image's own check
            assert service["healthcheck"]["test"], name
        if name in OWN:
            assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
            assert service["tmpfs"] == ["/tmp"]  # noqa: S108 - of the container
        else:
            tag = service["image"].rpartition(":")[2]
            assert re.fullmatch(r"v?\d+\.\d+\.\d+(-[a-z]+)?", tag), service["image"]


def test_redis_takes_its_password_from_standard_input_and_answers_nobody_without(tmp_path: Path) -> None:
    server = or_skip(lambda: find_program("redis-server", "redis-server: apt-get install redis-server"))
    entrypoint = tmp_path / "docker-entrypoint.sh"  # which the image has: it gives up root
    entrypoint.write_text('#!/bin/sh\nexec "$@"\n')
    entrypoint.chmod(0o755)
    shell, *command = [part.replace("$$", "$") for part in SERVICES["redis"]["command"]]
    limit = command.index("--maxmemory") + 1
    command[limit] = "64mb"
    socket = tmp_path / "redis.sock"
    folder = f"{tmp_path}{os.pathsep}{Path(server).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": folder, "REDISCLI_AUTH": "6f3e"}
    options = ("--port", "0", "--unixsocket", str(socket), "--dir", str(tmp_path))
    running = subprocess.Popen([shell, *command, *options], env=environment, stdout=subprocess.DEVNULL)
    try:
        while not socket.exists():
            assert running.poll() is None
            time.sleep(0.05)
        # a refused password is an error of the connection too, and would be tried again as often
        client = redis.Redis(unix_socket_path=str(socket), retry=Retry(ConstantBackoff(0.1), 5))
        with pytest.raises(redis.AuthenticationError):
            client.ping()
        assert redis.Redis(unix_socket_path=str(socket), password="6f3e").ping()
        assert "--requirepass" not in " ".join(command)
    finally:
        running.terminate()
        running.wait()


@pytest.mark.slow
def test_the_keys_are_made_once_name_who_may_review_and_the_console_s_private_one_is_in_its_volume_alone(
    tmp_path: Path,
) -> None:
    command = tmp_path / "groundwire"
    command.write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "from groundwire.cli.main import main; main()" "$@"\n'
    )
    command.chmod(0o755)
    (tmp_path / "gate" / "console").mkdir(parents=True)
    shell, options, script = SERVICES["keys"]["command"]
    found_first = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": found_first, "PYTHONPATH": str(ROOT / "src")}
    script = script.replace("/var/lib/groundwire", str(tmp_path / "gate"))
    run = [shell, options, script.replace("$$", "$")]  # compose reads $ as a variable of its own
    subprocess.run(run, env=environment, check=True, capture_output=True)
    files = tmp_path / "gate" / "keys.toml", tmp_path / "gate" / "console" / "keys.toml"
    first = [path.read_bytes() for path in files]
    gate, console = (tomllib.loads(content.decode()) for content in first)
    assert gate["reviewers"] == console["reviewers"] == {"default": ["lead"]}
    assert {name: (key["tenants"], key["roles"]) for name, key in gate["keys"].items()} == {
        "console": (["default"], ["reviewer"]),
        "gate": (["default"], ["reviewer"]),
    }
    assert gate["keys"]["console"].keys() == {"public_key", "tenants", "sources", "roles"}
    assert console["keys"].keys() == {"console"}
    assert SERVICES["console"]["environment"]["GROUNDWIRE_CONSOLE_KEY"] in console["keys"]
    assert SERVICES["reviews"]["environment"]["GROUNDWIRE_REVIEW_KEY"] in gate["keys"]
    subprocess.run(run, env=environment, check=True, capture_output=True)
    assert [path.read_bytes() for path in files] == first

    def volume(name: str) -> set[str]:
        return {one for one in SERVICES[name]["volumes"] if isinstance(one, str)}

    assert volume("console") == {"console-keys:/var/lib/groundwire"}
    assert volume("topics") == set()
    assert all(volume(role) == {"gate-keys:/var/lib/groundwire"} for role in ROLES)


def test_with_the_cluster_every_client_of_redis_asks_its_nodes_and_waits_until_they_are_joined() -> None:
    overlay = yaml.safe_load(CLUSTER.read_text())["services"]
    nodes = {name for name, service in overlay.items() if "--cluster-enabled" in service.get("command", ())}
    assert set(overlay["redis-cluster"]["depends_on"]) == nodes
    for name in (*ROLES, "console"):
        url = overlay[name]["environment"]["GROUNDWIRE_REDIS_URL"]
        hosts = url.removeprefix(f"redis+cluster://:{PASSWORD}@")
        assert {host.split(":")[0] for host in hosts.split(",")} <= nodes
        url = url.replace(PASSWORD, "6f3e")
        connect(url)
        assert "redis-cluster" in overlay[name]["depends_on"]
