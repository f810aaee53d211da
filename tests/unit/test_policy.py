"""The policy: defaults, files, overrides, its hash, errors that name the key, and where policies are kept."""

import hashlib
import json
import re
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from groundwire.config import Settings, load_settings
from groundwire.errors import StateUnavailable, UsageError
from groundwire.policy import GroundedIngestionConfig, Policy, load_policy, parse_policy, policy_variables
from groundwire.state.policies import PolicyStore
from groundwire.verify.citations import load_sources
from schemas.configuration import main, page
from tests.unit.checks.tables import failing


def test_the_default_of_every_key_is_the_published_one():
    """S0-154, S0-158: stricter settings are opt-in; material differences (C-08) and cited AI (C-35) are on."""
    assert GroundedIngestionConfig is Policy
    dedup = {"enable_dedup": True, "dedup_scope": "user_type", "dedup_method": "minhash"}
    dedup |= {"dedup_material_difference": True, "dedup_word_difference": True}
    dedup |= {"dedup_threshold": 0.92, "conflict_threshold": 0.85, "rejected_threshold": 0.8}
    claims = {"trusted_sources": ["adr", "commit", "documentation", "manual", "user"], "attestation": "off"}
    claims |= {"trusted_technical_hedges": "review", "grounded_speculation": "block", "version": "default"}
    claims |= {"failed_citation_overrides_trust": False, "auto_approve_ai_synthesis": True}
    claims |= {"verify_claim_relevance": False, "relevance_minimum": 0.5, "state_outage": "defer"}
    quotes = {"validation_enabled": True, "validation_mode": "substring", "fuzzy_threshold": 0.85}
    quotes |= {"fail_on_all_rejected": False, "log_rejections": True, "remove_soft": False}
    quotes |= {"min_characters": 0, "min_words": 0, "word_boundaries": False}
    answers = {"require_source_tags": False, "entity_required_confidence": 0.6, "on_critical": "review"}
    answers |= {"require_provenance": False, "strict_versions": False, "require_qualifiers": False}
    answers |= {"check_values": True, **{f"evidence_quote_{name}": value for name, value in quotes.items()}}
    limits = {"review_per_user": 100, "review_per_tenant": 2_000, "review_total": 10_000}
    limits |= {"pending_bytes_per_tenant": 64_000_000, "max_claims_per_response": 10}
    verification = {"enabled": True, "mode": "sample", "sample_rate": 0.3, "sample_seed": "", "samples": 1}
    verification |= {"operating_point": "balanced", "support_threshold": 0.7, "gap_threshold_bits": 2.0}
    verification |= {"dependence_threshold": 0.3, "prior_support": 0.02, "evidence_scrubbing": True}
    verification |= {"on_failure": "flag", "max_retries": 2, "verification_model": "haiku"}
    verification |= {"model_scope": "doubtful", "model_may_clear": False, "parallel_verification": True}
    verification |= {"max_claims_per_response": 10, "max_output_tokens": 300, "timeout_seconds": 10.0}
    verification |= {"budget_seconds": 30.0, "budget_tokens": 200_000, "budget_tokens_per_minute": 2_000_000}
    verification |= {"budget_usd": 1.0, "budget_usd_per_minute": 10.0}
    verification |= {"input_price": 0.25, "output_price": 1.25}
    tables = {"hedges": {"block": [], "review": [], "lexicon": "none"}, "limits": limits}
    expected = {**dedup, **claims, **answers, **tables, "verification": verification}
    assert json.loads(Policy().canonical) == expected
    assert (Policy().limits.review_reserved, Policy().limits.tenants) == (100, ()), (
        "not hashed, as policies lack them"
    )


def test_who_has_more_than_the_reserved_places_is_hashed_once_it_is_said():
    said = load_policy(None, {"GROUNDWIRE_REVIEW_RESERVED": "7", "GROUNDWIRE_TENANTS": "acme, umbrella"})
    assert (said.limits.review_reserved, said.limits.tenants) == (7, ("acme", "umbrella"))
    limits = json.loads(said.canonical)["limits"]
    assert (limits["review_reserved"], limits["tenants"]) == (7, ["acme", "umbrella"])
    assert parse_policy(said.canonical) == said


FULL = """
version = "2026-02"
enable_dedup = false
dedup_threshold = 1
trusted_sources = ["user", "wiki"]
attestation = "hmac"
[hedges]
block = ["reckon"]
[limits]
review_per_user = 7
"""


def write(tmp_path, text, name="policy.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_file_sets_what_it_names_and_nothing_else(tmp_path):
    policy = load_policy(write(tmp_path, FULL), {})
    assert (policy.version, policy.enable_dedup, policy.dedup_threshold) == ("2026-02", False, 1.0)
    assert policy.trusted_sources == {"user", "wiki"}
    assert (policy.hedges.block, policy.hedges.review) == (("reckon",), ())
    assert (policy.limits.review_per_user, policy.limits.review_total) == (7, 10_000)
    assert load_policy(None, {}) == load_policy(write(tmp_path, ""), {}) == Policy()
    assert load_policy(write(tmp_path, "version = 2026-01-31"), {}).version == "2026-01-31"


def test_an_unknown_key_or_a_wrong_value_is_named(tmp_path):
    values = {
        "dedup_treshold": ("0.9",),
        "dedup_threshold": ("1.01", "0.49", "nan", '"0.92"', "true"),
        "enable_dedup": ("1", '"no"'),
        "dedup_scope": ('"tenant"',),
        "attestation": ('"on"',),
        "trusted_sources": ('"user"', "[1]", '[""]'),
        "version": ("2", '""'),
        "relevance_minimum": ("1.5",),
        "limits": ("5",),
        "limits.review_per_user": ("-1", "1.5"),
        "limits.reviews": ("5",),
        "hedges.warn": ("[]",),
        "hedges.block": ('"maybe"',),
        "dedup": ("{threshold = 0.9}",),
    }

    def check(key, value):
        with pytest.raises(UsageError, match=rf"{key}\b"):
            load_policy(write(tmp_path, f"{key} = {value}"), {})

    assert failing(check, [(key, value) for key, given in values.items() for value in given]) == []
    for data in [b"", b"{", b"[]", b"5", b"null", b'{"x": 1}', b"[" * 100_000, b"\xff", b'{"version": NaN}']:
        path = tmp_path / "policy.json"
        path.write_bytes(data)
        with pytest.raises(UsageError, match=r"policy\.json"):
            load_policy(path, {})
        with pytest.raises(UsageError, match="stored policy"):
            parse_policy(data)


def test_variables_override_single_keys_of_the_file(tmp_path):
    environment = {
        "GROUNDWIRE_DEDUP_THRESHOLD": "0.95",
        "GROUNDWIRE_ENABLE_DEDUP": "true",
        "GROUNDWIRE_TRUSTED_SOURCES": "manual, adr",
        "GROUNDWIRE_REVIEW_PER_USER": "9",
        "GROUNDWIRE_HEDGES_REVIEW": "kind of,sort of",
        "GROUNDWIRE_BROKERS": "elsewhere:9092",
    }
    policy = load_policy(write(tmp_path, FULL), environment)
    assert (policy.dedup_threshold, policy.enable_dedup, policy.version) == (0.95, True, "2026-02")
    assert policy.trusted_sources == {"manual", "adr"}
    assert (policy.limits.review_per_user, policy.hedges.review) == (9, ("kind of", "sort of"))
    assert policy.hedges.block == ("reckon",)
    spaced = load_policy(None, {"GROUNDWIRE_TRUSTED_SOURCES": " user, ,adr,", "GROUNDWIRE_HEDGES_BLOCK": ","})
    assert (spaced.trusted_sources, spaced.hedges.block) == ({"user", "adr"}, ())


def test_a_wrong_value_of_the_environment_is_told_with_its_variable_and_key():
    def check(name, value, key):
        with pytest.raises(UsageError) as refused:
            load_policy(None, {f"GROUNDWIRE_{name}": value})
        assert f"(GROUNDWIRE_{name}): {key}: " in str(refused.value)
        assert repr(value) in str(refused.value)

    wrong = [
        ("DEDUP_THRESHOLD", "o.9", "dedup_threshold"),
        ("DEDUP_THRESHOLD", "", "dedup_threshold"),
        ("REVIEW_TOTAL", "-1", "limits.review_total"),
        ("STATE_OUTAGE", "stop", "state_outage"),
        ("ENABLE_DEDUP", "maybe", "enable_dedup"),
    ]
    assert failing(check, wrong) == []
    with pytest.raises(UsageError, match="dedup_threshold"):
        load_policy(None, {"GROUNDWIRE_DEDUP_THRESHOLD": "nan"})


def test_a_file_that_cannot_be_read_is_told_in_words_and_with_its_name(tmp_path, monkeypatch):
    path = tmp_path / "policy.toml"

    def check(data, why):
        path.write_bytes(data)
        with pytest.raises(UsageError) as caught:
            load_policy(path, {})
        assert str(caught.value).startswith(f"policy {path}: {why}")

    no_toml = [b"version = ", b"a = 1\na = 2", "\ufeffversion=1".encode(), b"x" * 1000]
    assert failing(check, [(b'version = "\xff"\n', "is not text in UTF-8, at byte 11")]) == []
    assert failing(check, [(data, "") for data in no_toml]) == []
    with pytest.raises(UsageError, match="it is a folder; give a file"):
        load_policy(tmp_path, {})
    with pytest.raises(UsageError, match=r"nowhere\.toml: cannot be read: No such file or directory$"):
        load_policy(tmp_path / "nowhere.toml", {})
    for error, why in ((OSError("gone"), "cannot be read: gone"), (RecursionError(), "is nested too deeply")):

        def broken(_path, error=error):
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(Path, "read_bytes", broken)
            with pytest.raises(UsageError, match=f"{why}$"):
                load_policy(path, {})
    for text, told in (('{"version": ["a secret"]}', "version: "), ("[]", "")):
        path = write(tmp_path, text, "policy.json")
        with pytest.raises(UsageError) as caught:
            load_policy(path, {})
        assert str(caught.value).startswith(f"policy ({path}): {told}")
        assert not re.search(r"secret|\): : ", str(caught.value)), "a long value is not shown"


def test_the_hash_is_that_of_the_canonical_json_of_the_effective_policy_however_it_was_written(tmp_path):
    policy = load_policy(write(tmp_path, FULL), {"GROUNDWIRE_REVIEW_TOTAL": "50"})
    plain = policy.model_dump(mode="json") | {"trusted_sources": sorted(policy.trusted_sources)}
    later = {
        "limits": ("review_reserved", "tenants"),
        "verification": ("entailment_model", "entailment_head"),
    }
    del plain["trackers"]
    for table, names in later.items():
        for name in names:
            del plain[table][name]  # at their defaults, as policies lack them
    assert policy.sha256 == hashlib.sha256(rfc8785.dumps(plain)).hexdigest()
    assert json.loads(policy.canonical) == plain
    assert Policy().sha256 != policy.sha256
    sources = "['manual', 'user', 'commit', 'adr', 'documentation']"
    written = f"enable_dedup = true\ndedup_threshold = 0.920\ntrusted_sources = {sources}"
    assert load_policy(write(tmp_path, written), {}).sha256 == Policy().sha256
    assert load_policy(None, {"GROUNDWIRE_DEDUP_THRESHOLD": "0.92"}).sha256 == Policy().sha256


policies = st.builds(
    Policy,
    version=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10),
    dedup_threshold=st.floats(0.5, 1.0),
    enable_dedup=st.booleans(),
    trusted_sources=st.frozensets(st.sampled_from(["user", "adr", "wiki", "ü", "a\\b"])),
    hedges=st.fixed_dictionaries({}, optional={"block": st.lists(st.sampled_from(["hm", "er"]), max_size=2)}),
)


@given(policies)
def test_an_effective_policy_reads_back_as_itself(policy):
    again = parse_policy(policy.canonical)
    assert again == policy
    assert (again.sha256, again.canonical) == (policy.sha256, policy.canonical)


# --- settings and sources


def test_a_wrong_setting_names_its_variable_and_settings_have_the_published_defaults(monkeypatch):
    for name, value in [
        *(("ALLOW_PORTS", ports) for ports in ("80,http", "0", "65536")),
        ("HEADS_COMMAND", "put 'heads"),
        *(("ALLOW_NETWORKS", networks) for networks in ("10.0.0.1/8", "intranet")),
        *(("PARTITIONS", "0"), ("SESSION_TIMEOUT", "soon"), ("NO_NETWORK", "perhaps")),
        *(("TOPIC_PREFIX", "a b"), ("LOG_FORMAT", "xml")),
    ]:
        with monkeypatch.context() as changed:
            changed.setenv(f"GROUNDWIRE_{name}", value)
            with pytest.raises(UsageError, match=f"GROUNDWIRE_{name}"):
                load_settings()
    monkeypatch.setenv("GROUNDWIRE_ALLOW_NETWORKS", "10.0.0.0/8, fd00::/8,")
    monkeypatch.setenv("GROUNDWIRE_ALLOW_PORTS", "443, 8443")
    monkeypatch.setenv("GROUNDWIRE_BROKERS", "a:1, b:2")
    settings = load_settings()
    assert (settings.topic_prefix, settings.group_prefix) == ("groundwire.", "groundwire-")
    assert (settings.session_timeout, settings.state_grace, settings.metrics_port) == (15, 10, 0)
    assert (settings.networks, settings.ports) == (["10.0.0.0/8", "fd00::/8"], [443, 8443])
    assert settings.bootstrap == ["a:1", "b:2"]


def test_each_tenant_has_its_own_sources_and_a_wrong_tenants_file_names_the_key(monkeypatch, tmp_path):
    tracker = "\n[tenants.acme.tracker]\nkind = '{}'\nurl = 'https://api.github.com'\nproject = 'acme/app'\n"
    tenants = "[tenants.acme]\nadr_dir = '/srv/acme/adrs'" + tracker.format("github")

    def load(text):
        monkeypatch.setenv("GROUNDWIRE_TENANTS_FILE", str(write(tmp_path, text, "tenants.toml")))
        return load_sources(load_settings())

    monkeypatch.setenv("GROUNDWIRE_ADR_DIR", "/srv/adrs")
    sources = load(tenants)
    assert (str(sources["acme"].adr_dir), str(sources["*"].adr_dir)) == ("/srv/acme/adrs", "/srv/adrs")
    assert sources["acme"].tracker is not None
    for text, key in [
        ("[tenants.acme]\nadrs = 'x'", r"tenants\.acme\.adrs"),
        (tracker.format("jira"), r"tenants\.acme\.tracker\.kind"),
        (tenants + "token_env = 'NO_SUCH_VARIABLE'", r"token_env.*NO_SUCH_VARIABLE"),
        ("[[", r"tenants\.toml"),
    ]:
        with pytest.raises(UsageError, match=key):
            load(text)


def test_a_wrong_key_comes_with_the_nearest_there_is_and_its_table_and_a_wrong_value_with_itself(tmp_path):
    missing, path = "there is no such key", tmp_path / "p.toml"
    for text, told in (
        ("dedup_treshold = 0.9", f"dedup_treshold: {missing}; did you mean dedup_threshold?"),
        ("[limits]\nreview_totl = 1", f"limits.review_totl: {missing}; did you mean review_total?"),
        ("[limit]\nreview_per_user = 3", f"limit: {missing}; did you mean limits?"),
        ("colour = 3", f"colour: {missing}"),
        ("[limits]\nhedges = 1", f"limits.hedges: {missing}"),
        ("support_threshold = 0.5", f"support_threshold: {missing}; it belongs to [verification]"),
        ("review_total = 5", f"review_total: {missing}; it belongs to [limits]"),
        (
            "max_claims_per_response = 5",
            f"max_claims_per_response: {missing}; it belongs to [limits] or [verification]",
        ),
        (
            '[verification]\non_critical = "block"',
            f"verification.on_critical: {missing}; it belongs to no table: write it above the first one",
        ),
        ("[hedges]\nmode = 3", f"hedges.mode: {missing}; it belongs to [verification]"),
        ("dedup_threshold = 7", "dedup_threshold: Input should be less than or equal to 1, not 7"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError) as refused:
            load_policy(path, {})
        assert str(refused.value) == f"policy ({path}): {told}"


def test_each_key_has_a_variable_and_a_table_as_a_whole_has_none():
    names = policy_variables()
    assert len(names) == len(set(names))
    assert {"GROUNDWIRE_HEDGES_BLOCK", "GROUNDWIRE_REVIEW_TOTAL", "GROUNDWIRE_VERSION"} <= set(names)
    for table in ("HEDGES", "LIMITS", "VERIFICATION"):
        assert f"GROUNDWIRE_{table}" not in names
        assert load_policy(None, {f"GROUNDWIRE_{table}": "x"}) == Policy()


def test_the_generated_page_has_every_setting_and_key_and_one_that_is_out_of_date_fails_the_check(
    tmp_path, capsys
):
    text = page()
    for name, field in Settings.model_fields.items():
        assert f"| `GROUNDWIRE_{name.upper()}` |" in text
        assert field.description
        assert field.description in text
    plain = Policy().model_dump()
    keys = {key for table in ("hedges", "limits", "verification") for key in plain.pop(table)} | plain.keys()
    assert [key for key in keys if f"| `{key}` |" not in text] == []
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert all(cell.strip() for row in rows for cell in row.split(" | ")[1:])
    file = tmp_path / "configuration.md"
    assert [main([verb, str(file)]) for verb in ("check", "write", "check")] == [1, 0, 0]
    file.write_text(text.replace("0.92", "0.93"))
    assert main(["check", str(file)]) == 1
    assert "make generate" in capsys.readouterr().err


# --- where policies are kept

POLICY = Policy(version="strict")
OTHER = Policy(version="lax")
NAME = POLICY.sha256


class Keeper:
    """State, which tells what it was asked for."""

    def __init__(self, kept=()):
        self.kept = dict(kept)
        self.asked = []

    async def put_policy(self, sha256, policy):
        self.kept[sha256] = policy

    async def get_policy(self, sha256):
        self.asked.append(sha256)
        return self.kept.get(sha256)


async def test_a_policy_is_kept_in_the_folder_and_in_state_and_found_in_either(tmp_path, capsys, caplog):
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


async def test_a_policy_is_looked_for_in_state_only_where_the_folder_has_none_and_only_once(tmp_path):
    keeper = Keeper({NAME: POLICY.canonical})
    (tmp_path / f"{OTHER.sha256}.json").write_bytes(OTHER.canonical)
    store = PolicyStore(tmp_path, keeper)
    assert await store.get(OTHER.sha256) == OTHER
    assert keeper.asked == []
    assert await store.get(NAME) == await store.get(NAME) == POLICY
    assert keeper.asked == [NAME]


async def test_what_is_not_what_its_name_says_or_cannot_be_read_is_no_policy_and_the_log_tells(tmp_path):
    for wrong, events in ((OTHER.canonical, []), (b"{", ["policy.unreadable"])):
        (tmp_path / f"{NAME}.json").write_bytes(wrong)
        with capture_logs() as told:
            genuine = await PolicyStore(tmp_path, Keeper({NAME: POLICY.canonical})).get(NAME)
        assert genuine == POLICY, "the one in state is what it says"
        assert [one["event"] for one in told if events] == events
        for store in (PolicyStore(tmp_path, None), PolicyStore(None, Keeper({NAME: wrong}))):
            assert await store.get(NAME) is None


async def test_what_is_no_hash_asks_nobody_and_where_state_does_not_tell_a_policy_is_not_unknown(tmp_path):
    (tmp_path / "secret.json").write_bytes(POLICY.canonical)
    for name in ["../secret", NAME.upper(), NAME + "0", NAME[1:], "", f"{NAME}\n"]:
        keeper = Keeper({name: POLICY.canonical})
        assert await PolicyStore(tmp_path / "policies", keeper).get(name) is None
        assert keeper.asked == []
    out = Mock(get_policy=AsyncMock(side_effect=StateUnavailable("out of reach")))
    with pytest.raises(StateUnavailable):
        await PolicyStore(tmp_path, out).get(NAME)
    store = PolicyStore(tmp_path, out)
    store.put_in_folder(POLICY)
    assert await store.get(NAME) == await PolicyStore(tmp_path, out).get(NAME) == POLICY


async def test_a_policy_that_is_there_is_not_written_again_and_a_folder_that_refuses_is_told_by_its_setting(
    tmp_path,
):
    place = tmp_path / f"{NAME}.json"
    place.write_text("as it was")
    await PolicyStore(tmp_path, None).put(POLICY)
    assert place.read_text() == "as it was"
    with pytest.raises(UsageError, match="GROUNDWIRE_POLICIES_DIR"):
        await PolicyStore(place, None).put(POLICY)
