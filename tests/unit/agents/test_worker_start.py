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


async def test_a_broker_that_is_away_is_told_once_and_its_client_is_not_heard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    level = logging.getLogger("aiokafka").level
    with pytest.raises(UsageError, match=r"^GROUNDWIRE_BROKERS: no broker at 127\.0\.0\.1:1 answered"):
        await await_broker("127.0.0.1:1", 0.5)
    assert caplog.text == ""
    assert logging.getLogger("aiokafka").level == level


def test_settings_that_are_valid_but_hardly_meant_so_are_told(tmp_path: Path) -> None:
    strict, keyed = Policy(attestation="hmac"), {"keys_file": HERE}
    rows = [
        *[(role, strict, {}, "attestation.no_keys", True) for role in set(ROLES) - {"reviews"}],
        *[(role, strict, keyed, "attestation.no_keys", False) for role in ROLES],
        *[(role, None, {}, "attestation.no_keys", False) for role in ROLES],
        ("reviews", strict, {}, "review.no_keys", True),
        ("reviews", None, keyed, "review.no_keys", False),
        *[(role, None, {}, "sources.none", role in {"claims", "deferred"}) for role in ROLES],
        *[
            ("claims", None, {name: HERE}, "sources.none", False)
            for name in ("adr_dir", "repo", "tenants_file")
        ],
        *[
            ("claims", None, {name: tmp_path / "mistyped"}, "path.missing", True)
            for name in ("adr_dir", "repo", "keys_file")
        ],
    ]
    wrong = [row for row in rows if (row[3] in events(row[0], row[1], **row[2])) is not row[4]]
    assert wrong == []
    sentence = dict(advice("reviews", Policy(), Settings()))["review.no_keys"]
    assert "GROUNDWIRE_KEYS_FILE" in sentence
    assert "groundwire keys new" in sentence
    told = dict(advice("claims", Policy(), Settings(repo=tmp_path / "mistyped")))
    assert told["path.missing"] == f"GROUNDWIRE_REPO: there is no {tmp_path / 'mistyped'}"


def test_a_misspelt_setting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"GROUNDWIRE_REDIS_ULR": "x", "GROUNDWIRE_REDIS_URL": "redis://x"})
    told = list(advice("responses", Policy(), Settings(redis_url="redis://x")))
    assert told == [
        (
            "setting.unknown",
            "GROUNDWIRE_REDIS_ULR is no setting of Groundwire; did you mean GROUNDWIRE_REDIS_URL?",
        )
    ]
