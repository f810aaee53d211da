"""What keys and signatures refuse, each refusal by itself."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from groundwire.errors import UsageError
from groundwire.keys.attestation import Attestation, AttestationState, Keys
from tests.unit.checks.tables import failing

PATH = Path("keys.toml")
KEYS = Keys.parse(b'[keys.a]\nsecret = "xyz"\ntenants = ["acme"]\nsources = ["adr"]\n', PATH)


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


def test_nothing_is_signed_with_a_key_that_is_not_there():
    with pytest.raises(UsageError, match="no key 'b' in the keys file"):
        KEYS.sign("b", b"{}")


def test_keys_that_are_not_utf8_are_refused_where_they_go_wrong():
    with pytest.raises(UsageError, match=r"keys\.toml: not UTF-8 at byte 2"):
        Keys.parse(b"# \xff", PATH)


def test_keys_that_cannot_be_read_for_a_reason_without_words_are_a_usage_error(
    monkeypatch,
):
    def broken(*_):
        raise OSError

    monkeypatch.setattr(Path, "open", broken)
    with pytest.raises(UsageError, match="cannot be read"):
        Keys.load(PATH)


def test_a_key_id_that_cannot_be_is_named_as_it_stands_in_the_file():
    with pytest.raises(UsageError, match=r"keys\.toml: keys\.a b: "):
        Keys.parse(b'[keys."a b"]\nsecret = "xyz"\ntenants = ["t"]', PATH)
