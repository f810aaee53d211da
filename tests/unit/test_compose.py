"""docker-compose.yml and the image, as far as they can be checked without Docker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.wiring import ROLES
from groundwire.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def test_the_file_follows_the_schema_of_compose_files() -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        str(COMPOSE),
    ]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_worker_role_runs_and_waits_for_topics_and_state(services: dict[str, Any]) -> None:
    for role in ROLES:
        assert services[role]["command"] == ["python", "-m", "agents", role]
        waits = {name: how["condition"] for name, how in services[role]["depends_on"].items()}
        assert waits == {"topics": "service_completed_successfully", "redis": "service_healthy"}


def test_every_variable_of_a_worker_is_a_setting(services: dict[str, Any]) -> None:
    known = {f"GROUNDWIRE_{name.upper()}" for name in Settings.model_fields}
    for name in (*ROLES, "topics"):
        assert set(services[name]["environment"]) <= known


def test_workers_get_longer_to_stop_than_their_own_deadline(services: dict[str, Any]) -> None:
    for role in ROLES:
        seconds = int(services[role]["stop_grace_period"].removesuffix("s"))
        assert seconds > Settings().shutdown_deadline


def test_state_is_appended_to_a_file_and_never_evicted(services: dict[str, Any]) -> None:
    command = " ".join(services["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command


def test_everything_that_stays_up_has_a_health_check_and_a_pinned_image(services: dict[str, Any]) -> None:
    for name, service in services.items():
        image = service["image"]
        assert not image.endswith(":latest")
        assert ":" in image
        if service["restart"] != "no":
            assert service["healthcheck"]["test"], name


def test_ports_are_published_on_loopback_only(services: dict[str, Any]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert all(str(port).startswith("127.0.0.1:") for port in published)


def test_the_image_copies_only_what_exists_and_runs_as_an_ordinary_user() -> None:
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line.startswith("COPY ")]
    sources = [name for line in lines if "--from=" not in line for name in line.split()[1:-1]]
    assert {"src", "agents", "topics", "requirements/worker.txt"} <= set(sources)
    assert all((ROOT / source).exists() for source in sources)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert all(f"!{source.split('/')[0]}" in ignored for source in sources)
    last_user = re.findall(r"^USER (\S+)$", DOCKERFILE.read_text(), re.MULTILINE)[-1]
    assert not last_user.startswith(("0", "root"))
