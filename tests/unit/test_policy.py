"""The policy: defaults, files, overrides, its hash, and errors that name the key."""

import hashlib
import json
from pathlib import Path

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from groundwire.config import load_settings
from groundwire.epistemic.types import VerificationConfig
from groundwire.errors import UsageError
from groundwire.policy import GroundedIngestionConfig, Policy, load_policy, parse_policy, policy_variables
from groundwire.verify.citations import load_sources


def test_the_defaults_are_the_fast_and_friendly_ones():
    """S0-158: stricter settings are opt-in; material differences (C-08) and cited AI synthesis (C-35) are on."""
    assert Policy().model_dump(mode="json") | {"trusted_sources": None} == {
        "version": "default",
        "enable_dedup": True,
        "dedup_threshold": 0.92,
        "dedup_scope": "user_type",
        "dedup_method": "minhash",
        "dedup_material_difference": True,
        "dedup_word_difference": True,
        "conflict_threshold": 0.85,
        "rejected_threshold": 0.8,
        "trusted_sources": None,
        "trusted_technical_hedges": "review",
        "grounded_speculation": "block",
        "failed_citation_overrides_trust": False,
        "auto_approve_ai_synthesis": True,
        "verify_claim_relevance": False,
        "relevance_minimum": 0.5,
        "attestation": "off",
        "state_outage": "defer",
        "evidence_quote_validation_enabled": True,
        "evidence_quote_validation_mode": "substring",
        "evidence_quote_fuzzy_threshold": 0.85,
        "evidence_quote_fail_on_all_rejected": False,
        "evidence_quote_log_rejections": True,
        "evidence_quote_min_characters": 0,
        "evidence_quote_min_words": 0,
        "evidence_quote_word_boundaries": False,
        "evidence_quote_remove_soft": False,
        "require_source_tags": False,
        "entity_required_confidence": 0.6,
        "require_provenance": False,
        "strict_versions": False,
        "require_qualifiers": False,
        "check_values": True,
        "hedges": {"block": [], "review": [], "lexicon": "none"},
        "limits": {
            "review_per_user": 100,
            "review_per_tenant": 2_000,
            "review_total": 10_000,
            "pending_bytes_per_tenant": 64_000_000,
            "max_claims_per_response": 10,
        },
        "on_critical": "review",
        "verification": VerificationConfig().model_dump(),
    }


def test_the_librarys_config_has_the_published_fields():
    """S0-154."""
    config = GroundedIngestionConfig(
        dedup_method="vector",
        dedup_threshold=0.95,
        verify_claim_relevance=True,
        auto_approve_ai_synthesis=False,
    )
    assert (config.dedup_method, config.dedup_threshold) == ("vector", 0.95)


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


def test_an_unknown_key_or_a_wrong_value_is_named(tmp_path):
    wrong = {
        "dedup_treshold = 0.9": "dedup_treshold",
        "dedup_threshold = 1.01": "dedup_threshold",
        "dedup_threshold = 0.49": "dedup_threshold",
        "dedup_threshold = nan": "dedup_threshold",
        "dedup_threshold = inf": "dedup_threshold",
        'dedup_threshold = "0.92"': "dedup_threshold",
        "dedup_threshold = true": "dedup_threshold",
        "enable_dedup = 1": "enable_dedup",
        'enable_dedup = "no"': "enable_dedup",
        'dedup_scope = "tenant"': "dedup_scope",
        'dedup_method = "exact"': "dedup_method",
        'attestation = "on"': "attestation",
        'state_outage = "stop"': "state_outage",
        'trusted_sources = "user"': "trusted_sources",
        "trusted_sources = [1]": "trusted_sources",
        'trusted_sources = [""]': "trusted_sources",
        "version = 2": "version",
        'version = ""': "version",
        "relevance_minimum = 1.5": "relevance_minimum",
        "[limits]\nreview_per_user = -1": "limits.review_per_user",
        "[limits]\nreview_per_user = 1.5": "limits.review_per_user",
        "[limits]\nreviews = 5": "limits.reviews",
        "limits = 5": "limits",
        "[hedges]\nwarn = []": "hedges.warn",
        '[hedges]\nblock = "maybe"': "hedges.block",
        "[dedup]\nthreshold = 0.9": "dedup",
    }
    for text, key in wrong.items():
        with pytest.raises(UsageError, match=rf"{key}\b"):
            load_policy(write(tmp_path, text), {})


def test_a_file_that_is_no_toml_is_named(tmp_path):
    for text in ["version = ", "a = 1\na = 2", "\ufeffversion=1", "x" * 1000]:
        with pytest.raises(UsageError, match=r"policy\.toml"):
            load_policy(write(tmp_path, text), {})


def test_an_effective_policy_that_is_none_is_named(tmp_path):
    for data in [b"", b"{", b"[]", b"5", b"null", b'{"x": 1}', b"[" * 100_000, b"\xff", b'{"version": NaN}']:
        path = tmp_path / "policy.json"
        path.write_bytes(data)
        with pytest.raises(UsageError, match=r"policy\.json"):
            load_policy(path, {})
        with pytest.raises(UsageError, match="stored policy"):
            parse_policy(data)


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"none\.toml"):
        load_policy(tmp_path / "none.toml", {})


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


def test_a_wrong_override_names_the_key():
    for name, value, key in [
        ("GROUNDWIRE_DEDUP_THRESHOLD", "high", "dedup_threshold"),
        ("GROUNDWIRE_DEDUP_THRESHOLD", "", "dedup_threshold"),
        ("GROUNDWIRE_DEDUP_THRESHOLD", "nan", "dedup_threshold"),
        ("GROUNDWIRE_REVIEW_TOTAL", "many", "limits.review_total"),
        ("GROUNDWIRE_STATE_OUTAGE", "stop", "state_outage"),
        ("GROUNDWIRE_ENABLE_DEDUP", "maybe", "enable_dedup"),
    ]:
        with pytest.raises(UsageError, match=key):
            load_policy(None, {name: value})


def test_the_hash_is_that_of_the_canonical_json_of_the_effective_policy(tmp_path):
    policy = load_policy(write(tmp_path, FULL), {"GROUNDWIRE_REVIEW_TOTAL": "50"})
    plain = policy.model_dump(mode="json") | {"trusted_sources": sorted(policy.trusted_sources)}
    assert policy.sha256 == hashlib.sha256(rfc8785.dumps(plain)).hexdigest()
    assert json.loads(policy.canonical) == plain
    assert Policy().sha256 != policy.sha256


def test_the_hash_does_not_depend_on_how_the_policy_was_written(tmp_path):
    sources = "['manual', 'user', 'commit', 'adr', 'documentation']"
    spelt_out = f"enable_dedup = true\ndedup_threshold = 0.920\ntrusted_sources = {sources}"
    assert load_policy(write(tmp_path, spelt_out), {}).sha256 == Policy().sha256
    assert load_policy(None, {"GROUNDWIRE_DEDUP_THRESHOLD": "0.92"}).sha256 == Policy().sha256
    assert load_policy(None, {"GROUNDWIRE_DEDUP_THRESHOLD": "0.93"}).sha256 != Policy().sha256


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


def test_a_wrong_setting_names_its_variable(monkeypatch):
    for name, value in [
        ("GROUNDWIRE_ALLOW_PORTS", "80,http"),
        ("GROUNDWIRE_ALLOW_PORTS", "0"),
        ("GROUNDWIRE_ALLOW_PORTS", "65536"),
        ("GROUNDWIRE_ALLOW_NETWORKS", "10.0.0.1/8"),
        ("GROUNDWIRE_ALLOW_NETWORKS", "intranet"),
        ("GROUNDWIRE_PARTITIONS", "0"),
        ("GROUNDWIRE_SESSION_TIMEOUT", "soon"),
        ("GROUNDWIRE_NO_NETWORK", "perhaps"),
        ("GROUNDWIRE_TOPIC_PREFIX", "a b"),
        ("GROUNDWIRE_LOG_FORMAT", "xml"),
    ]:
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            with pytest.raises(UsageError, match=name):
                load_settings()


def test_settings_have_the_published_defaults_and_lists(monkeypatch):
    monkeypatch.setenv("GROUNDWIRE_ALLOW_NETWORKS", "10.0.0.0/8, fd00::/8,")
    monkeypatch.setenv("GROUNDWIRE_ALLOW_PORTS", "443, 8443")
    monkeypatch.setenv("GROUNDWIRE_BROKERS", "a:1, b:2")
    settings = load_settings()
    assert (settings.topic_prefix, settings.group_prefix) == ("groundwire.", "groundwire-")
    assert (settings.session_timeout, settings.state_grace, settings.metrics_port) == (15, 10, 0)
    assert (settings.networks, settings.ports) == (["10.0.0.0/8", "fd00::/8"], [443, 8443])
    assert settings.bootstrap == ["a:1", "b:2"]


TENANTS = """
[tenants.acme]
adr_dir = "/srv/acme/adrs"
[tenants.acme.tracker]
kind = "github"
url = "https://api.github.com"
project = "acme/app"
"""


def settings_with(monkeypatch, tmp_path, text):
    monkeypatch.setenv("GROUNDWIRE_TENANTS_FILE", str(write(tmp_path, text, "tenants.toml")))
    return load_settings()


def test_each_tenant_has_its_own_sources_and_the_rest_the_common_ones(monkeypatch, tmp_path):
    monkeypatch.setenv("GROUNDWIRE_ADR_DIR", "/srv/adrs")
    sources = load_sources(settings_with(monkeypatch, tmp_path, TENANTS))
    assert str(sources["acme"].adr_dir) == "/srv/acme/adrs"
    assert sources["acme"].tracker is not None
    assert str(sources["*"].adr_dir) == "/srv/adrs"


def test_a_wrong_tenants_file_names_the_key(monkeypatch, tmp_path):
    for text, key in [
        ("[tenants.acme]\nadrs = 'x'", r"tenants\.acme\.adrs"),
        ("[tenants.acme.tracker]\nkind = 'jira'\nurl = 'x'\nproject = 'y'", r"tenants\.acme\.tracker\.kind"),
        (TENANTS + "token_env = 'NO_SUCH_VARIABLE'", r"token_env.*NO_SUCH_VARIABLE"),
        ("[[", r"tenants\.toml"),
    ]:
        with pytest.raises(UsageError, match=key):
            load_sources(settings_with(monkeypatch, tmp_path, text))


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


def test_a_wrong_value_of_the_environment_is_told_with_its_variable():
    for environment, named in (
        ({"GROUNDWIRE_DEDUP_THRESHOLD": "o.9"}, "(GROUNDWIRE_DEDUP_THRESHOLD): dedup_threshold: "),
        ({"GROUNDWIRE_REVIEW_TOTAL": "-1"}, "(GROUNDWIRE_REVIEW_TOTAL): limits.review_total: "),
    ):
        (value,) = environment.values()
        with pytest.raises(UsageError) as refused:
            load_policy(None, environment)
        assert named in str(refused.value)
        assert repr(value) in str(refused.value)


def test_a_file_that_cannot_be_read_is_told_in_words_and_with_its_name(tmp_path):
    bad = tmp_path / "policy.toml"
    bad.write_bytes(b'version = "\xff"\n')
    for path, why in ((bad, "is not text in UTF-8, at byte 11"), (tmp_path, "it is a folder; give a file")):
        with pytest.raises(UsageError, match=why) as caught:
            load_policy(path, {})
        assert str(caught.value).startswith(f"policy {path}: ")
        assert "Errno" not in str(caught.value)
    with pytest.raises(UsageError, match=r"cannot be read: No such file or directory$"):
        load_policy(tmp_path / "nowhere.toml", {})


def test_a_file_that_is_nested_too_deeply_or_cannot_be_read_for_no_reason_given_is_told_too(
    tmp_path, monkeypatch
):
    def refused(error):
        def broken(_path):
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(Path, "read_bytes", broken)
            with pytest.raises(UsageError) as caught:
                load_policy(tmp_path / "p.toml", {})
        return str(caught.value).removeprefix(f"policy {tmp_path / 'p.toml'}: ")

    assert refused(OSError("gone")) == "cannot be read: gone"
    assert refused(RecursionError()) == "is nested too deeply"


def test_a_wrong_value_is_shown_where_it_is_short_and_the_file_alone_where_it_has_no_keys(tmp_path):
    path = tmp_path / "policy.json"
    path.write_text('{"version": ["a secret"]}')
    with pytest.raises(UsageError) as caught:
        load_policy(path, {})
    assert "secret" not in str(caught.value)
    path.write_text("[]")
    with pytest.raises(UsageError) as caught:
        load_policy(path, {})
    assert str(caught.value).startswith(f"policy ({path}): ")
    assert "): : " not in str(caught.value)


def test_a_date_for_a_version_is_its_text(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("version = 2026-01-31")
    assert load_policy(path, {}).version == "2026-01-31"


def test_a_table_as_a_whole_has_no_variable_and_each_of_its_keys_has_one():
    names = policy_variables()
    assert len(names) == len(set(names))
    assert {"GROUNDWIRE_HEDGES_BLOCK", "GROUNDWIRE_REVIEW_TOTAL", "GROUNDWIRE_VERSION"} <= set(names)
    for table in ("HEDGES", "LIMITS", "VERIFICATION"):
        assert f"GROUNDWIRE_{table}" not in names
        assert load_policy(None, {f"GROUNDWIRE_{table}": "x"}) == Policy()


def test_words_of_a_list_are_parted_by_commas_and_empty_ones_do_not_count():
    found = load_policy(None, {"GROUNDWIRE_TRUSTED_SOURCES": " user, ,adr,", "GROUNDWIRE_HEDGES_BLOCK": ","})
    assert found.trusted_sources == {"user", "adr"}
    assert found.hedges.block == ()
