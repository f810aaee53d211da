"""What is looked at before a worker starts, without any service."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from faust.utils import venusian

from agents import claims, process
from agents.__main__ import main
from agents.app import build_app
from agents.lanes import Lanes
from agents.pauses import Pauses
from agents.start import advice, await_broker
from agents.wiring import ROLES
from groundwire.errors import UsageError
from groundwire.policy import Policy
from groundwire.settings import Settings


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {})


def events(role: str, policy: Policy | None = None, **settings: Any) -> list[str]:
    return [event for event, _ in advice(role, policy or Policy(), Settings(**settings))]


@pytest.mark.parametrize("role", ROLES)
def test_every_role_explains_itself_with_an_example(role: str) -> None:
    told = CliRunner().invoke(main, [role, "--help"])
    assert told.exit_code == 0
    assert f"python -m agents {role}" in " ".join(told.output.partition("Example:")[2].split())
    assert main.commands[role].help != main.help


def test_agents_and_tasks_are_declared_without_a_look_through_the_sources_of_all_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look(*_frame: object) -> None:
        raise AssertionError("the sources of all modules are looked through")

    async def settle(*_batch: object) -> None: ...

    async def task() -> None: ...

    monkeypatch.setattr(venusian, "attach", venusian.attach)  # as it is afterwards
    monkeypatch.setattr("inspect.getframeinfo", look)
    process._leave_unscanned()
    app = build_app("claims", Settings())
    claims.declare(app, Settings(), Lanes(settle, Pauses()))
    app.task(task)
    assert list(app.agents) == ["claims"]
    assert len(app._app_tasks) == 1


def test_reviews_without_a_keys_file_are_told_that_they_can_only_refuse_and_how_to_make_one() -> None:
    ((event, sentence),) = advice("reviews", Policy(), Settings())
    assert event == "review.no_keys"
    assert "GROUNDWIRE_KEYS_FILE" in sentence
    assert "groundwire keys new" in sentence
    assert events("reviews", keys_file=Path("keys.toml")) == []


async def test_a_broker_that_is_away_is_told_once_and_its_client_is_not_heard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    level = logging.getLogger("aiokafka").level
    with pytest.raises(UsageError, match=r"^GROUNDWIRE_BROKERS: no broker at 127\.0\.0\.1:1 answered"):
        await await_broker("127.0.0.1:1", 0.5)
    assert caplog.text == ""
    assert logging.getLogger("aiokafka").level == level


def test_attestation_without_keys_is_told_to_those_who_check_it() -> None:
    strict = Policy(attestation="hmac")
    for role in set(ROLES) - {"reviews"}:
        assert "attestation.no_keys" in events(role, strict)
        assert "attestation.no_keys" not in events(role, strict, keys_file=Path("keys.toml"))
        assert "attestation.no_keys" not in events(role)
    assert events("reviews", strict) == ["review.no_keys"]


@pytest.mark.parametrize("role", ["claims", "deferred"])
def test_without_folder_and_repository_it_is_told_once_that_what_they_hold_will_be_unknown(role: str) -> None:
    assert events(role) == ["sources.none"]
    for name in ("adr_dir", "repo", "tenants_file"):
        assert events(role, **{name: Path("x")}) == []


def test_a_misspelt_setting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"GROUNDWIRE_REDIS_ULR": "x", "GROUNDWIRE_REDIS_URL": "redis://x"})
    told = list(advice("responses", Policy(), Settings(redis_url="redis://x")))
    assert told == [
        (
            "setting.unknown",
            "GROUNDWIRE_REDIS_ULR is no setting of Groundwire; did you mean GROUNDWIRE_REDIS_URL?",
        )
    ]
