"""docker-compose.yml, as far as it can be checked without Docker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.app import ROLES
from groundwire.config import Settings
from groundwire.console.settings import ConsoleSettings
from groundwire.state.server import connect

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yml"
CLUSTER = ROOT / "docker-compose.cluster.yml"
OWN = (*ROLES, "console", "topics", "keys")
"""Services that run the image of this project."""


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


@pytest.mark.parametrize("file", [COMPOSE, CLUSTER])
def test_the_file_follows_the_schema_of_compose_files(file: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", file]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_worker_role_runs_and_waits_for_topics_keys_and_state(services: dict[str, Any]) -> None:
    for role in (*ROLES, "console"):
        waits = {name: how["condition"] for name, how in services[role]["depends_on"].items()}
        assert waits == {
            "topics": "service_completed_successfully",
            "keys": "service_completed_successfully",
            "redis": "service_healthy",
        }
    assert all(services[role]["command"] == ["groundwire", "worker", role] for role in ROLES)


def test_the_console_asks_every_worker_at_its_metrics_port(services: dict[str, Any]) -> None:
    settings = ConsoleSettings(workers=services["console"]["environment"]["GROUNDWIRE_CONSOLE_WORKERS"])
    port = int(re.search(r"GROUNDWIRE_METRICS_PORT=(\d+)", (ROOT / "deploy/Dockerfile").read_text())[1])  # type: ignore[index]
    assert {(target.host, target.port) for target in settings.targets} == {(role, port) for role in ROLES}


def test_whatever_is_waited_for_can_come_true(services: dict[str, Any]) -> None:
    for service in services.values():
        for name, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_completed_successfully":
                assert services[name]["restart"] == "no", name
            else:
                assert services[name]["healthcheck"]["test"], name


def test_whatever_only_ends_is_waited_for_by_something_that_stays(services: dict[str, Any]) -> None:
    """`docker compose up --wait` takes the end of any other container for a failure."""
    staying = [service for service in services.values() if service["restart"] != "no"]
    for name, service in services.items():
        if service["restart"] == "no":
            assert any(name in other.get("depends_on", {}) for other in staying), name


def test_every_variable_is_a_setting_and_has_a_value_that_is_taken(
    services: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {f"GROUNDWIRE_{name.upper()}" for name in Settings.model_fields}
    known |= {f"GROUNDWIRE_CONSOLE_{name.upper()}" for name in ConsoleSettings.model_fields}
    for name in OWN:
        environment = services[name]["environment"]
        assert set(environment) <= known
        with monkeypatch.context() as patched:
            for variable, value in environment.items():
                patched.setenv(variable, value)
            connect(Settings().redis_url)
            ConsoleSettings()


def test_workers_get_longer_to_stop_than_their_own_deadline(services: dict[str, Any]) -> None:
    for role in ROLES:
        seconds = int(services[role]["stop_grace_period"].removesuffix("s"))
        assert seconds > Settings().shutdown_deadline


def test_state_is_appended_to_a_file_never_evicted_and_bounded(services: dict[str, Any]) -> None:
    command = " ".join(services["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command
    assert re.search(r"--maxmemory \S+", command), "without a limit nobody is told that it fills up"


def test_everything_that_stays_up_has_a_health_check_and_a_pinned_image(services: dict[str, Any]) -> None:
    for name, service in services.items():
        _, _, tag = service["image"].rpartition(":")
        if name not in OWN:
            assert re.fullmatch(r"v?\d+\.\d+\.\d+(-[a-z]+)?", tag), service["image"]
        if service["restart"] != "no" and name not in ROLES:  # those have the image's own
            assert service["healthcheck"]["test"], name


def test_ports_are_published_on_loopback_only(services: dict[str, Any]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in published)


def test_no_service_gains_privileges_and_ours_write_nothing_but_tmp_and_their_volume(
    services: dict[str, Any],
) -> None:
    for name, service in services.items():
        assert service["security_opt"] == ["no-new-privileges:true"], name
    for name in OWN:
        assert services[name]["read_only"]
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["tmpfs"] == ["/tmp"]  # noqa: S108 - of the container


def test_the_file_holds_no_secret(services: dict[str, Any]) -> None:
    for service in services.values():
        for name in service.get("environment", {}):
            assert not re.search(r"SECRET|PASSWORD|TOKEN$|HASH_KEY", name)


def test_what_is_mounted_from_the_checkout_exists(services: dict[str, Any]) -> None:
    mounts = [volume for service in services.values() for volume in service.get("volumes", [])]
    files = [mount.split(":")[0] for mount in mounts if isinstance(mount, str) and mount.startswith("./")]
    assert files
    assert all((ROOT / name).exists() for name in files)


def test_prometheus_asks_exactly_the_services_that_answer(services: dict[str, Any]) -> None:
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert set(jobs["groundwire"]["dns_sd_configs"][0]["names"]) == {*ROLES, "console"}
    for job in ("kafka", "redis"):
        for target in jobs[job]["static_configs"][0]["targets"]:
            name, port = target.split(":")
            assert port in " ".join(services[name]["healthcheck"]["test"])


def test_the_keys_are_made_once_and_name_who_may_review(services: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    command = tmp_path / "groundwire"  # as the image has it, whether or not it is installed here
    command.write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "from groundwire.cli.main import main; main()" "$@"\n'
    )
    command.chmod(0o755)
    shell, options, script = services["keys"]["command"]
    environment = {
        **os.environ,
        "GROUNDWIRE_KEYS_FILE": str(path),
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    run = [shell, options, script.replace("$$", "$")]  # compose reads $ as a variable of its own
    subprocess.run(run, env=environment, check=True, capture_output=True)
    first = path.read_bytes()
    found = tomllib.loads(first.decode())
    assert {name: (key["tenants"], key["roles"]) for name, key in found["keys"].items()} == {
        "console": (["default"], ["reviewer"]),
        "gate": (["default"], ["reviewer"]),
    }
    assert found["reviewers"] == {"default": ["lead"]}
    assert services["console"]["environment"]["GROUNDWIRE_CONSOLE_KEY"] in found["keys"]
    assert services["reviews"]["environment"]["GROUNDWIRE_REVIEW_KEY"] in found["keys"]
    subprocess.run(run, env=environment, check=True, capture_output=True)
    assert path.read_bytes() == first


def test_with_the_cluster_whatever_asks_redis_asks_its_nodes_and_waits_until_they_are_joined() -> None:
    overlay = yaml.safe_load(CLUSTER.read_text())["services"]
    nodes = {name for name, service in overlay.items() if "--cluster-enabled" in service.get("command", ())}
    assert set(overlay["redis-cluster"]["depends_on"]) == nodes
    for name in (*ROLES, "console"):
        url = overlay[name]["environment"]["GROUNDWIRE_REDIS_URL"]
        assert {host.split(":")[0] for host in url.removeprefix("redis+cluster://").split(",")} <= nodes
        connect(url)
        assert "redis-cluster" in overlay[name]["depends_on"]
