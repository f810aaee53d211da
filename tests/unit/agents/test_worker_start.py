"""What is looked at before a worker starts, without any service."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from faust.utils import venusian

from agents import process
from agents.app import ROLES, build_app, declare_agent
from agents.partitions import Health, PartitionWorkers
from agents.process import advice, await_broker
from groundwire.config import Settings
from groundwire.errors import UsageError
from groundwire.policy import Policy

HERE = Path(__file__)


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {})


def events(role: str, policy: Policy | None = None, **settings: Any) -> list[str]:
    return [event for event, _ in advice(role, policy or Policy(), Settings(**settings))]


def test_agents_and_tasks_are_declared_without_a_look_through_the_sources_of_all_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look(*_frame: object) -> None:
        raise AssertionError("the sources of all modules are looked through")

    async def process_batch(*_batch: object) -> None: ...

    async def task() -> None: ...

    monkeypatch.setattr(venusian, "attach", venusian.attach)  # as it is afterwards
    monkeypatch.setattr("inspect.getframeinfo", look)
    process._skip_scan()
    app = build_app("claims", Settings())
    declare_agent(app, "claims", "", PartitionWorkers(process_batch, Health()))
    app.task(task)
    assert list(app.agents) == ["claims"]
    assert len(app._app_tasks) == 1


def test_reviews_without_a_keys_file_are_told_that_they_can_only_refuse_and_how_to_make_one() -> None:
    ((event, sentence),) = advice("reviews", Policy(), Settings())
    assert event == "review.no_keys"
    assert "GROUNDWIRE_KEYS_FILE" in sentence
    assert "groundwire keys new" in sentence
    assert events("reviews", keys_file=HERE) == []


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
        assert "attestation.no_keys" not in events(role, strict, keys_file=HERE)
        assert "attestation.no_keys" not in events(role)
    assert events("reviews", strict) == ["review.no_keys"]


@pytest.mark.parametrize("role", ["claims", "deferred"])
def test_without_folder_and_repository_it_is_told_once_that_what_they_hold_will_be_unknown(role: str) -> None:
    assert events(role) == ["sources.none"]
    for name in ("adr_dir", "repo", "tenants_file"):
        assert events(role, **{name: HERE}) == []


@pytest.mark.parametrize("name", ["adr_dir", "repo", "keys_file"])
def test_a_path_that_is_not_there_is_told_with_its_setting(name: str, tmp_path: Path) -> None:
    told = dict(advice("claims", Policy(), Settings(**{name: tmp_path / "mistyped"})))
    assert told["path.missing"] == f"GROUNDWIRE_{name.upper()}: there is no {tmp_path / 'mistyped'}"


def test_a_misspelt_setting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"GROUNDWIRE_REDIS_ULR": "x", "GROUNDWIRE_REDIS_URL": "redis://x"})
    told = list(advice("responses", Policy(), Settings(redis_url="redis://x")))
    assert told == [
        (
            "setting.unknown",
            "GROUNDWIRE_REDIS_ULR is no setting of Groundwire; did you mean GROUNDWIRE_REDIS_URL?",
        )
    ]
