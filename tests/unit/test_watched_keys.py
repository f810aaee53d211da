"""A keys file that changes while a process runs: it counts from the next second, and a broken one not at all."""

from __future__ import annotations

import inspect
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from groundwire.errors import UsageError
from groundwire.keys import watched
from groundwire.keys.attestation import Keys
from groundwire.keys.watched import EVERY, WatchedKeys
from groundwire.review.permissions import Permissions, Person
from tests.unit.gate.office import KEYS, TEXT, Office
from tests.unit.gate.world import NOW

LEAD = Person("lead", frozenset({"default", "acme"}))
ONE = '[keys.one]\nsecret = "s"\ntenants = ["default"]\n'


class Watch:
    """A keys file, the keys that watch it, and the time."""

    def __init__(self, path: Path, text: str = KEYS) -> None:
        self.path, self.time = path, SimpleNamespace(now=0.0)
        self.path.write_text(text)
        self.keys = WatchedKeys(path, clock=lambda: self.time.now)

    def write(self, text: str) -> None:
        self.path.write_text(text)
        self.stand_still()
        self.time.now += EVERY

    def stand_still(self) -> None:
        """Let it have been written a minute ago."""
        os.utime(self.path, (time.time() - 60,) * 2)

    def replace(self, text: str) -> None:
        """As `groundwire keys` does, and a mounted secret: another file takes its place."""
        draft = self.path.with_name("draft")
        draft.write_text(text)
        draft.replace(self.path)
        self.stand_still()
        self.time.now += EVERY


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path / "keys.toml")


def reloads(result: str) -> float:
    return REGISTRY.get_sample_value("groundwire_keys_reloads_total", {"result": result}) or 0.0


def test_who_is_delegated_or_no_longer_counts_for_whoever_looks_from_then_on(watch: Watch) -> None:
    permissions = Permissions(watch.keys)
    for change in (watch.write, watch.replace):
        watch.write(KEYS)
        assert permissions.scope(LEAD).whole == {"default"}
        change(KEYS.replace('default = ["lead"]', 'acme = ["lead"]'))
        assert permissions.scope(LEAD).whole == {"acme"}
        assert not permissions.scope(LEAD).sees("default", "ada")


def test_nothing_of_keys_is_answered_by_anything_but_the_file_as_it_is_now(watch: Watch) -> None:
    assert set(vars(watch.keys)) == {"_file"}
    own = [
        name for name, value in vars(Keys).items() if callable(value) and "self._" in inspect.getsource(value)
    ]
    assert {*own} - {*vars(WatchedKeys)} == set()


def test_a_key_that_is_withdrawn_or_changed_vouches_for_nothing_more(watch: Watch) -> None:
    header = watch.keys.sign("console", b"value").decode()

    def state() -> str | None:
        found = watch.keys.check(header, b"value", tenant="default", at=NOW, role="reviewer")
        return str(found.state) if found else None

    assert state() == "valid"
    watch.write(KEYS.replace('secret = "one"', 'secret = "1111"'))
    assert state() == "invalid"
    watch.write(ONE)
    assert state() == "unknown_key"
    assert "console" not in watch.keys
    assert [name for name, _ in watch.keys] == ["one"]
    with pytest.raises(UsageError, match="console"):
        watch.keys.sign("console", b"value")


@pytest.mark.parametrize("broken", ["[keys", '[keys.one]\nsecret = "hush"\n', None])
def test_a_file_that_is_none_changes_nothing_is_told_of_once_and_forgotten_once_it_is_mended(
    watch: Watch, broken: str | None
) -> None:
    before = reloads("refused"), reloads("taken")
    with capture_logs() as logs:
        watch.path.unlink() if broken is None else watch.path.write_text(broken)
        for _ in range(3):
            watch.time.now += EVERY
            assert watch.keys.delegated("default", "lead")
    assert [line["event"] for line in logs] == ["keys.refused"]
    assert "hush" not in str(logs)
    watch.write(ONE)
    assert not watch.keys.delegated("default", "lead")
    assert (reloads("refused"), reloads("taken")) == (before[0] + 1, before[1] + 1)


def test_a_file_that_is_being_written_counts_once_it_stands_still(watch: Watch) -> None:
    for half in (KEYS[: KEYS.index("[keys")], KEYS[: KEYS.index("[keys") + 3], ""):
        watch.path.write_text(half)
        watch.time.now += EVERY
        assert watch.keys.delegated("default", "lead")
        assert "console" in watch.keys
    watch.path.write_text(ONE)
    watch.time.now += EVERY
    assert "console" in watch.keys
    watch.time.now += EVERY  # looked at again, and nothing was written since
    assert "console" not in watch.keys


def test_the_file_is_looked_at_once_a_second_and_read_only_where_it_changed(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []
    look = watched._version

    def counting(path: Path) -> object:
        looks.append(path)
        return look(path)

    monkeypatch.setattr(watched, "_version", counting)
    before = reloads("taken")
    for _ in range(20):  # five seconds
        watch.time.now += EVERY / 4
        assert watch.keys.delegated("default", "lead")
    assert len(looks) == 5
    assert reloads("taken") == before


def test_without_a_good_file_to_begin_with_there_are_no_keys(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="keys file"):
        WatchedKeys.load(tmp_path / "none.toml")


async def test_the_gate_carries_out_what_it_refused_once_the_reviewer_is_let_in(watch: Watch) -> None:
    office = Office(keys=watch.keys)
    gate = office.reviews
    (pending,) = await office.decide(office.claim("a", TEXT))
    action = office.action("approve", pending, reviewer="new")
    (refused,) = await gate.apply_step(await gate.prepare([action]))
    assert refused.code == "unauthorized"  # type: ignore[union-attr]
    watch.write(KEYS.replace('["lead"]', '["lead", "new"]'))
    (carried_out,) = await gate.apply_step(await gate.prepare([action]))
    assert carried_out.decision.approved  # type: ignore[union-attr]
