"""What guards and signatures refuse, each refusal by itself."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from groundwire.errors import UsageError
from groundwire.keys.attestation import Attestation, AttestationState, Keys
from groundwire.library.guards import EntityGroundingGuard, RelationPreservationGuard
from tests.unit.checks.tables import failing

PATH = Path("keys.toml")
KEYS = Keys.parse(b'[keys.a]\nsecret = "xyz"\ntenants = ["acme"]\nsources = ["adr"]\n', PATH)
SUIT = {"subject": "Acme", "relation": "sued", "object": "Globex"}


def test_only_a_valid_signature_vouches():
    assert [state for state in AttestationState if Attestation("a", state).valid] == ["valid"]


def test_a_record_of_no_tenant_may_have_a_key_of_any_and_one_of_a_tenant_only_that_tenants():
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    cases = [(None, "valid"), ("acme", "valid"), ("globex", "not_entitled")]

    def check(tenant, state):
        found = KEYS.check(KEYS.sign("a", b"{}").decode(), b"{}", tenant=tenant, source="adr", at=now)
        assert found is not None
        assert found.state == state

    assert failing(check, cases) == []


def test_nothing_is_signed_with_a_key_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="no key 'b' in the keys file"):
        KEYS.sign("b", b"{}")


def test_keys_that_are_not_utf8_are_refused_where_they_go_wrong() -> None:
    with pytest.raises(UsageError, match=r"keys\.toml: not UTF-8 at byte 2"):
        Keys.parse(b"# \xff", PATH)


def test_keys_that_cannot_be_read_for_a_reason_without_words_are_a_usage_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(Path, "open", broken)
    with pytest.raises(UsageError, match="cannot be read"):
        Keys.load(PATH)


def test_a_key_id_that_cannot_be_is_named_as_it_stands_in_the_file() -> None:
    with pytest.raises(UsageError, match=r"keys\.toml: keys\.a b: "):
        Keys.parse(b'[keys."a b"]\nsecret = "xyz"\ntenants = ["t"]', PATH)


class Sink:
    def __init__(self) -> None:
        self.events: list[str] = []

    def try_emit(self, event: str, _payload: Any, /) -> None:
        self.events.append(event)


async def test_a_sink_of_either_guard_comes_before_that_of_the_context() -> None:
    given = {"entities": [{"id": "x"}], "corpus_index": {}, "claims": [SUIT]}
    inputs = SimpleNamespace(get_from=lambda _stage, key, default: given.get(key, default))
    own, outer = Sink(), Sink()
    ctx = SimpleNamespace(inputs=inputs, event_sink=outer, tenant_id="acme")
    await EntityGroundingGuard(sink=own).execute(ctx)
    await RelationPreservationGuard([], sink=own).execute(ctx)
    assert (own.events, outer.events) == (["knowledge.eg.failed", "knowledge.rp.violation"], [])


def test_what_a_resolver_gives_that_is_no_truth_is_refused_by_what_it_is() -> None:
    with pytest.raises(TypeError, match="a truth is a mapping with subject, relation and object, got int"):
        RelationPreservationGuard(lambda **_asked: [7]).check([SUIT])


def test_a_plain_call_refuses_every_answer_that_has_to_be_awaited() -> None:
    async def look_up() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with pytest.raises(TypeError, match="await execute"):
            RelationPreservationGuard(lambda **_asked: future).check([SUIT])

    asyncio.run(look_up())
