"""Policies by their hash: kept in a folder and in state, and believed only where they are what their name says."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from groundwire.errors import StateUnavailable, UsageError
from groundwire.policy import Policy, load_policy
from groundwire.state.policies import PolicyStore

POLICY = Policy(version="strict")
OTHER = Policy(version="lax")
NAME = POLICY.sha256


class Keeper:
    """State, which tells what it was asked for."""

    def __init__(self, **kept: bytes) -> None:
        self.kept = kept
        self.asked: list[str] = []

    async def put_policy(self, sha256: str, policy: bytes) -> None:
        self.kept[sha256] = policy

    async def get_policy(self, sha256: str) -> bytes | None:
        self.asked.append(sha256)
        return self.kept.get(sha256)


class Out(Keeper):
    """State that is out of reach."""

    async def get_policy(self, sha256: str) -> bytes | None:
        raise StateUnavailable(f"out of reach: {sha256}")


async def test_a_policy_is_kept_in_the_folder_and_in_state_and_found_in_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder, keeper = tmp_path / "new" / "policies", Keeper()
    store = PolicyStore(folder, keeper)
    await store.put(POLICY)
    assert [path.name for path in folder.iterdir()] == [f"{NAME}.json"]
    assert (folder / f"{NAME}.json").read_bytes() == keeper.kept[NAME] == POLICY.canonical
    assert await PolicyStore(folder, None).get(NAME) == POLICY
    assert await PolicyStore(None, keeper).get(NAME) == POLICY
    assert await PolicyStore(tmp_path / "empty", keeper).get(NAME) == POLICY
    assert load_policy(folder / f"{NAME}.json", {"GROUNDWIRE_VERSION": "overridden"}) == POLICY
    for store in (PolicyStore(tmp_path / "empty", None), PolicyStore(None, Keeper())):
        assert await store.get(NAME) is None
        assert await store.get(Policy().sha256) is None, "the defaults are no policy that is kept"
    nowhere = PolicyStore(None, None)
    assert await nowhere.get(NAME) is None
    await nowhere.put(POLICY)
    assert await nowhere.get(NAME) == POLICY
    assert "unreadable" not in capsys.readouterr().out + caplog.text, "what is not there is not unreadable"


async def test_a_policy_is_looked_for_in_state_only_where_the_folder_has_none_and_only_once(
    tmp_path: Path,
) -> None:
    keeper = Keeper(**{NAME: POLICY.canonical})
    (tmp_path / f"{OTHER.sha256}.json").write_bytes(OTHER.canonical)
    store = PolicyStore(tmp_path, keeper)
    assert await store.get(OTHER.sha256) == OTHER
    assert keeper.asked == []
    assert await store.get(NAME) == await store.get(NAME) == POLICY
    assert keeper.asked == [NAME]


async def test_a_policy_that_is_not_what_its_name_says_is_none(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.json").write_bytes(OTHER.canonical)
    assert await PolicyStore(tmp_path, None).get(NAME) is None
    assert await PolicyStore(None, Keeper(**{NAME: OTHER.canonical})).get(NAME) is None
    genuine = Keeper(**{NAME: POLICY.canonical})
    assert await PolicyStore(tmp_path, genuine).get(NAME) == POLICY, "the one in state is what it says"


async def test_what_is_no_hash_names_no_file_and_asks_nobody(tmp_path: Path) -> None:
    for name in ["../secret", NAME.upper(), NAME + "0", NAME[1:], "", f"{NAME}\n"]:
        (tmp_path / "secret.json").write_bytes(POLICY.canonical)
        keeper = Keeper(**{name: POLICY.canonical})
        assert await PolicyStore(tmp_path / "policies", keeper).get(name) is None
        assert keeper.asked == []


async def test_what_cannot_be_read_is_no_policy_and_the_log_tells(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.json").write_text("{")
    with capture_logs() as told:
        assert await PolicyStore(tmp_path, Keeper(**{NAME: POLICY.canonical})).get(NAME) == POLICY
    assert [one["event"] for one in told] == ["policy.unreadable"]
    with capture_logs() as told:
        assert await PolicyStore(None, Keeper(**{NAME: b"{"})).get(NAME) is None
    assert [one["event"] for one in told] == ["policy.unreadable"]


async def test_where_state_does_not_tell_a_policy_is_not_unknown(tmp_path: Path) -> None:
    with pytest.raises(StateUnavailable):
        await PolicyStore(tmp_path, Out()).get(NAME)
    store = PolicyStore(tmp_path, Out())
    store.put_in_folder(POLICY)
    assert await store.get(NAME) == await PolicyStore(tmp_path, Out()).get(NAME) == POLICY


async def test_a_folder_that_cannot_be_written_to_is_told_by_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="GROUNDWIRE_POLICIES_DIR"):
        await PolicyStore(tmp_path / "file", None).put(POLICY)


async def test_a_policy_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    place = tmp_path / f"{NAME}.json"
    place.write_text("as it was")
    await PolicyStore(tmp_path, None).put(POLICY)
    assert place.read_text() == "as it was"
