"""`groundwire check`: the worked examples (S0-24 to S0-45) and the command's own promises."""

import hashlib
import hmac
import io
import json
import re

import pytest
from click.testing import CliRunner

from groundwire.cli.check import DecisionPrinter, check
from groundwire.errors import ErrorCode, RecordError
from groundwire.library.check import Checker, LineError
from groundwire.policy import Policy
from tests.golden.engine import Places
from tests.unit.gate.world import NOW, adr_folder, claim_bytes, verifier


@pytest.fixture
def adrs(tmp_path):
    return adr_folder(tmp_path / "adrs", ADR_003="# Storage\nWe use Pixeltable for memory storage.")


async def run(lines, checker=None, **sources):
    policy = sources.pop("policy", Policy())
    checker = checker or Checker(policy, verifier(**sources), now=NOW)
    return [result async for result in checker.check(lines)]


async def tier_of(content, checker_sources=None, **fields):
    (decision,) = await run([claim_bytes("1", content, **fields)], **(checker_sources or {}))
    assert not isinstance(decision, LineError), decision
    return str(decision.tier), str(decision.reason_code), decision


async def test_worked_examples_that_need_no_citation():
    """S0-28 to S0-38, S0-41 to S0-43, and that hedge words are listed as written."""
    ai, user, said = ({"source": name} for name in ("ai_synthesis", "user", "conversation"))
    for content, fields, tier, reason in [
        ("I prefer tabs over spaces", user, "tier_1", "trusted_source"),
        ("OAuth2 is required", {"source": "documentation"}, "tier_1", "trusted_source"),
        ("We decided to use PostgreSQL", {**said, "memory_type": "decision"}, "tier_1", "stated_decision"),
        ("The API returns JSON for REST responses", ai, "tier_2", "ungrounded"),
        ("OAuth2 is the authentication mechanism", ai, "tier_2", "ungrounded"),
        ("The service uses PostgreSQL 15", ai, "tier_2", "ungrounded"),
        ("The API uses OAuth2 for authentication.", ai, "tier_2", "ungrounded"),
        ("I think we should use Redis", user, "tier_3", "personal_speculation"),
        ("I guess the API supports this", ai, "tier_3", "personal_speculation"),
        ("Maybe we could try GraphQL", ai, "tier_3", "personal_speculation"),
        ("I think we should use Redis, definitely", ai, "tier_3", "personal_speculation"),
        ("The server may timeout under load", user, "tier_2", "technical_hedge"),
        ("Connections typically complete in <100ms", ai, "tier_2", "technical_hedge"),
        ("The API may return errors under load", ai, "tier_2", "technical_hedge"),
    ]:
        *found, decision = await tier_of(content, **fields)
        assert found == [tier, reason], content
    assert "hedge_words_detected: may" in decision.checks_failed
    assert [hedge.text for hedge in decision.hedges] == ["may"]


async def test_worked_examples_whose_citation_is_looked_up(adrs, tmp_path):
    """C-03, S0-15, S0-22, S0-24 to S0-27, S0-40, S0-44, S0-65, S0-69."""
    places = Places.make(tmp_path / "places")
    (sha, *_) = [one for one in places.commits if not one[:7].isdigit() and not one[:7].isalpha()]
    adr, git, url = {"adr_dir": adrs}, {"repo": places.repo}, "https://docs.example.com/api"
    short, found = f"commit:{sha[:7]}", ("tier_1", "verified_citation")
    unverified = ("tier_2", "citation_unverified")
    wrong = []
    made_up = "commit:a1b2c3d4e5f6"
    for content, sources, expected, source_id, told in [
        (
            "Per ADR-003, we use Pixeltable for memory storage",
            adr,
            found,
            "ADR-003",
            "citation_verified: adr:003",
        ),
        ("Per ADR-003, we use PostgreSQL", adr, found, "ADR-003", "citation_verified: adr:003"),
        ("Per ADR-999, we use magic", adr, unverified, "ADR-999", "citation_present"),
        ("Per ADR-003, replies typically take 5 ms", adr, ("tier_2", "technical_hedge"), "ADR-003", ""),
        (f"Fixed in commit {sha[:12]}", git, found, short, "citation_verified"),
        (f"Fixed in commit {sha[:10]}", git, found, short, "citation_verified"),
        (
            f"Fixed in {made_up.replace(':', ' ')}",
            git,
            unverified,
            made_up[:14],
            f"citation_unverified: {made_up}",
        ),
        (f"See {url}", {"urls": {url: 200}}, found, url, "citation_verified"),
        (f"See {url}", {"urls": {url: 404}}, unverified, url, "HTTP 404"),
    ]:
        tier, reason, decision = await tier_of(content, sources)
        checks = [*decision.checks_passed, *decision.checks_failed, decision.citations[0].detail or ""]
        got = (tier, reason), decision.evidence.source_id
        if got != (expected, source_id) or told not in "\n".join(checks):
            wrong.append((content, got, checks))
    assert wrong == []
    _, _, decision = await tier_of("Per ADR-999, we use magic", adr)
    assert decision.reason == "Ungrounded assertion needs verification"


async def test_what_is_stored_already_is_a_duplicate(adrs):
    """S0-39."""
    text = "Per ADR-003, we use PostgreSQL"
    first, second = await run([claim_bytes("1", text), claim_bytes("2", text)], adr_dir=adrs)
    assert first.tier == "tier_1"
    assert (second.tier, second.reason_code) == ("tier_3", "duplicate")
    assert second.reason == "Duplicate of existing memory"
    assert second.conflicting_memory_id == "1"
    assert second.similarity_score == 1.0
    assert "duplicate: 1" in second.checks_failed


# --- what the command itself promises


async def test_lines_keep_their_order_and_numbers_and_blank_ones_are_skipped():
    lines = [b"\n", claim_bytes("1"), b"  \r\n", b"{", claim_bytes("2", "Another thing") + b"\r\n"]
    first, error, second = await run(lines)
    assert (first.subject_id, first.origin.offset) == ("1", 1)
    assert isinstance(error, LineError)
    assert error.as_dict()["line"] == 4
    assert error.as_dict()["error"]["code"] == "invalid_json"
    assert (second.subject_id, second.origin.offset) == ("2", 4)
    assert (second.origin.partition, second.origin.topic) == (0, None)
    many = await run([claim_bytes(str(n), f"Statement number {n}") for n in range(205)])
    assert [result.subject_id for result in many] == [str(n) for n in range(205)], "more than a batch"


async def test_a_repeated_id_prints_the_recorded_decision_and_another_text_is_a_conflict():
    same = claim_bytes("1", metadata={"try": 2})
    first, again, other = await run([claim_bytes("1"), same, claim_bytes("1", "Something else")])
    assert again.to_bytes() == first.to_bytes()
    assert (other.error.code, other.error.field) == ("claim_id_conflict", "claim_id")


async def test_claims_and_responses_stand_in_one_file_and_are_decided_in_their_order():
    lines = [
        b'{"claim_id": "a", "user_id": "u", "content": "I prefer tabs", "source": "user"}',
        b'{"response_id": "a", "user_id": "u", "answer": "Yes.", "fan_out": true}',
        b'{"response_id": "b", "user_id": "u", "answer": "No.", "in_reply_to": "a"}',
        b'{"claim_id": "b", "user_id": "u", "content": "Yes", "source": "user", "derived_from": ["response:a"]}',
        b'{"response_id": 3, "user_id": "u", "answer": "Yes."}',
    ]
    *decisions, error = await run(lines)
    assert [(str(d.kind), str(d.reason_code)) for d in decisions] == [
        ("claim", "trusted_source"),
        ("response", "nothing_to_ground_on"),
        ("response", "nothing_to_ground_on"),
        ("claim", "derived_from_unapproved"),
    ]
    assert "fan_out_skipped: disabled" in decisions[1].checks_skipped
    assert decisions[2].facts.reply_to == {"response_id": "a", "mode": None, "attempt": 0}
    assert (error.error.code, error.error.field) == ("invalid_record", "response_id")


def invoke(lines, *options, env=None):
    return CliRunner().invoke(check, ["--no-network", *options], input=b"\n".join(lines), env=env)


def test_the_command_exits_0_when_all_were_decided_and_1_when_some_were_bad():
    good = invoke([claim_bytes()])
    assert good.exit_code == 0
    assert json.loads(good.stdout)["tier"] == "tier_2"
    bad = invoke([claim_bytes("1"), b"nonsense", claim_bytes("2", "Another")])
    assert bad.exit_code == 1
    printed = [json.loads(line) for line in bad.stdout.splitlines()]
    assert printed[0]["subject_id"] == "1"
    assert printed[1]["line"] == 2
    assert printed[1]["error"].keys() == {"code", "message", "field"}
    assert printed[2]["subject_id"] == "2"
    table = invoke([claim_bytes(), b"{"], "--format", "table")
    assert (table.exit_code, "line 2" in table.stdout) == (1, True)


def test_now_is_the_clock_of_every_record_and_of_its_citations():
    expired = claim_bytes(validity_horizon="2026-01-01T00:00:00Z")
    before, after = (
        json.loads(invoke([expired], "--now", time).stdout)
        for time in ("2025-12-31T23:59:59.999Z", "2026-01-01T01:00:00+01:00")
    )
    assert before["reason_code"] == "ungrounded"
    assert after["reason_code"] == "expired"
    assert after["decided_at"] == after["facts"]["clock"] == "2026-01-01T00:00:00Z"
    cited = claim_bytes(content="Per ADR-003, it ends")
    decision = json.loads(invoke([cited], "--now", "2026-01-01T00:00:00.123456Z").stdout)
    assert decision["citations"][0]["checked_at"] == decision["decided_at"] == "2026-01-01T00:00:00.123Z"


def test_the_same_lines_at_the_same_time_print_the_same_bytes_in_utf8_unescaped():
    lines = [
        claim_bytes("1", "Größe ist 5 漢字 😀"),
        claim_bytes("2", "Maybe"),
        claim_bytes("3", source="user"),
    ]
    one, two = (invoke(lines, "--now", "2026-01-01T00:00:00Z").stdout_bytes for _ in range(2))
    assert one == two
    assert "Größe ist 5 漢字 😀".encode() in one


def test_wrong_usage_exits_2_and_names_what_is_wrong(tmp_path):
    """S0-116: `vector` works in the library only."""
    file = tmp_path / "policy.toml"
    for text in ("dedup_treshold = 0.9", "dedup_threshold = 2", 'dedup_method = "vector"'):
        file.write_text(text)
        result = invoke([claim_bytes()], "--policy", str(file))
        assert (result.exit_code, text.split()[0] in result.stderr) == (2, True)
    for name, value in {"ALLOW_PORTS": "80,http", "NO_NETWORK": "perhaps", "DEDUP_THRESHOLD": "high"}.items():
        result = invoke([claim_bytes()], env={f"GROUNDWIRE_{name}": value})
        assert (result.exit_code, name.lower() in result.stderr.lower()) == (2, True)
    for option in ("--adr-dir", "--repo"):
        result = invoke([claim_bytes()], option, str(tmp_path / "none"))
        assert (result.exit_code, "does not exist" in result.stderr) == (2, True)
    for time in ("2026-01-31", "2026-01-31T12:00:00", "noon", "1700000000"):
        assert invoke([], "--now", time).exit_code == 2
    assert CliRunner().invoke(check, ["/no/such/file"]).exit_code == 2


def test_an_effective_policy_is_named_and_a_fuzzy_threshold_that_checks_nothing_is_warned_of(tmp_path):
    """S1-26."""
    policy = Policy(dedup_threshold=0.95, version="mine")
    file = tmp_path / f"{policy.sha256}.json"
    file.write_bytes(policy.canonical)
    printed = invoke([claim_bytes()], "--policy", str(file))
    assert json.loads(printed.stdout)["policy"] == {"version": "mine", "sha256": policy.sha256}
    low = {"GROUNDWIRE_EVIDENCE_QUOTE_FUZZY_THRESHOLD": "0.79"}
    assert "evidence_quote_fuzzy_threshold" in invoke([claim_bytes()], env=low).stderr
    assert "evidence_quote_fuzzy_threshold" not in printed.stderr


def test_a_model_that_is_configured_is_asked_about_responses_and_one_out_of_reach_approves_nothing(
    tmp_path, monkeypatch
):
    policy = tmp_path / "policy.toml"
    policy.write_text('[verification]\nmode = "full"\nmodel_scope = "all"\n')
    text = "The gateway of the service retries each failed request 3 times, and it waits 30 seconds before it does."
    line = json.dumps({"response_id": "r", "user_id": "ann", "answer": text, "context": {"a": text}})
    for name, value in {"API": "openai", "URL": "http://127.0.0.1:1", "ATTEMPTS": "1"}.items():
        monkeypatch.setenv(f"GROUNDWIRE_MODEL_{name}", value)
    verdicts = {}
    for option in ("--now=2026-01-01T00:00:00Z", "--no-network"):
        result = CliRunner().invoke(check, [option, "--policy", str(policy)], input=line)
        assert result.exit_code == 0, result.output
        decision = json.loads(result.stdout)
        calls = (decision["facts"]["verifier"] or {"calls": []})["calls"]
        verdicts[option] = decision["verdict"], {call["fault"] for call in calls}
        assert ("failed, last by ConnectError" in result.stderr) is (option != "--no-network")
    assert list(verdicts.values()) == [("review", {"unreachable"}), ("approved", set())]
    table = CliRunner().invoke(check, ["--format", "table", "--policy", str(policy)], input=line)
    assert "verifier_unavailable: 1" in table.stdout


def test_a_line_may_hold_a_record_with_its_headers_signed_byte_for_byte(tmp_path):
    def line_with_headers(value, secret=b"s3cret", record=None):
        signature = hmac.new(secret, value, hashlib.sha256).hexdigest()
        headers = json.dumps({"gw-attestation": f"docs:{signature}"}).encode()
        return b'{ "headers" : ' + headers + b' ,"record": ' + (record or value) + b"}"

    key = '[keys.docs]\nsecret = "s3cret"\ntenants = ["default"]\nsources = ["documentation"]\n'
    (tmp_path / "keys.toml").write_text(key)
    (tmp_path / "policy.toml").write_text('attestation = "hmac"\n')
    options = ("--keys", tmp_path / "keys.toml", "--policy", tmp_path / "policy.toml")
    value = (
        b'{"user_id":  "u", "content": "Caf\\u00e9s open at 9", "claim_id": "1", "source": "documentation"}'
    )
    lines = [
        line_with_headers(value),
        line_with_headers(value.replace(b'"u"', b'"v"'), b"other"),
        line_with_headers(value, record=json.dumps(value.decode()).encode()),
    ]
    first, second, same = (json.loads(line) for line in invoke(lines, *map(str, options)).stdout.splitlines())
    assert (first["reason_code"], second["reason_code"]) == ("trusted_source", "source_unattested")
    assert same == first
    assert first["origin"]["sha256"] == hashlib.sha256(value).hexdigest()
    for headers in [b"[]", b'{"gw-attestation": 1}', b"null"]:
        result = invoke([claim_bytes("1"), b'{"headers": ' + headers + b', "record": {}}'])
        told = json.loads(result.stdout.splitlines()[1])
        assert (told["line"], told["error"]["code"]) == (2, "invalid_record")
        assert told["error"]["field"] == "headers"


# --- the table of decisions

LONG = "The nightly backup of the billing database starts at two and copies every single table to the archive"


async def test_the_table_has_a_line_for_each_decision_with_what_decided_it():
    async def decisions(*claims):
        lines = [claim_bytes(f"c{n}", text, source="documentation") for n, text in enumerate(claims)]
        return await run(lines)

    def table(*made, **options):
        out = io.StringIO()
        for decision in made:
            DecisionPrinter(out, **options).decision(decision)
        return out.getvalue()

    near = await decisions(LONG, LONG.replace("copies", "never copies"))
    assert "other negation than c0 (0.94)" in table(*near)
    (thing,) = await decisions("One thing")
    assert [" ".join(line.split()) for line in table(thing, ids=True).splitlines()] == [
        "verdict reason id claim because",
        "approved trusted_source c0 One thing From trusted source: documentation",
    ]
    (month,) = await decisions("May is the month when the drivers rest.")
    assert month.hedges
    assert "hedges" not in table(month), "a hedge that decides nothing is no reason"
    line = b'{"response_id": "r", "user_id": "a", "answer": "It has 5 doors.", "context": {"a": "It has 3 doors."}}'
    (flagged,) = await run([line])
    assert "contradicted: “It has 5 doors.”" in table(flagged)
    assert "flagged_claims: 1" not in table(flagged)
    states = {"invalid": "not of these bytes", "expired": "expired", "unknown_key": "unknown key"}
    states |= {"not_entitled": "may not sign", "": "no header gw-attestation"}
    for state, told in states.items():
        attestation = {"key_id": "k", "state": state} if state else None
        facts = thing.facts.model_copy(update={"attestation": attestation})
        changed = {"facts": facts, "checks_failed": ["source_unattested: documentation"]}
        assert re.search(
            rf"source_unattested: documentation \(.*{told}", table(thing.model_copy(update=changed))
        )
    out = io.StringIO()
    printer = DecisionPrinter(out)
    printer.section("First")
    for decision in await decisions("One thing", "Maybe another"):
        printer.decision(decision)
    printer.section("Second")
    printer.error("line 3", RecordError(ErrorCode.INVALID_JSON, "not JSON"))
    lines = [line.split("  ")[0] for line in out.getvalue().splitlines()]
    assert lines == ["verdict", "", "First", "approved", "blocked", "", "Second", "dead letter"]
    printer.summary()
    assert out.getvalue().endswith("\n3 in: 1 approved, 1 blocked, 1 dead letter\n")


async def test_on_a_terminal_every_decision_is_one_line_of_its_width(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    made = await run(
        [
            claim_bytes("c1", LONG),
            claim_bytes("c2", "I think it may fail, see ADR-003 and ADR-004 and ADR-005"),
        ]
    )
    for width in [60, 80, 120, 200]:
        monkeypatch.setenv("COLUMNS", str(width))
        printer = DecisionPrinter(out := Terminal())
        for decision in made:
            printer.decision(decision)
        lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in out.getvalue().splitlines()]
        assert [len(line) <= width for line in lines] == [True] * 3


def test_one_record_over_several_lines_and_an_array_are_read_like_lines_of_the_same_bytes():
    first, second = (claim_bytes(str(number), f"The cache holds {number} rows") for number in (1, 2))
    expected = [json.loads(line)["origin"]["sha256"] for line in invoke([first, second]).stdout.splitlines()]
    array = b"\n".join([b"[ ", first, b" ,", second, b"]"])
    for given in (array, array.replace(b"\n", b"")):
        result = invoke([given])
        assert [json.loads(line)["origin"]["sha256"] for line in result.stdout.splitlines()] == expected
        assert result.exit_code == 0
    pretty = json.dumps(json.loads(first), indent=2).encode()
    (decided,) = map(json.loads, invoke([b"", pretty, b""]).stdout.splitlines())
    assert decided["subject_id"] == "1"
    for bad in ([pretty, second], [b"[1, 2]"], [b"[]"], [b"{"]):
        result = invoke(bad)
        assert result.exit_code == 1
        assert result.stderr.count("one JSON object a line") == (bad[0][:1] == b"{")
    assert "one JSON object a line" not in invoke([first, b"{"]).stderr
    assert "byte order mark" in invoke([b"\xef\xbb\xbf" + first]).stdout


def test_a_sample_shows_the_places_that_a_day_takes_and_what_would_ground_its_claims(tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text("[limits]\nreview_per_user = 2\n")
    texts = ["Logs go to disk", "Jobs run hourly", "Ports are open", "Queues may fill", "Per ADR-9, we use X"]
    lines = [
        claim_bytes(str(day), text, captured_at=f"2026-01-0{day}T00:00:00Z")
        for day, text in enumerate(texts, 1)
    ]
    result = invoke(
        [*lines, claim_bytes("9", "Sun rises in the east", source="user")], "--policy", str(policy)
    )
    assert "3 claims found no place in the review queue" in result.stderr
    result = invoke(lines, "--policy", str(policy), "--format", "table", "--now", "2026-01-05T00:00:00Z")
    said = result.output.partition(" in: ")[2]
    for line in (
        "5 of 5 claims need a place in review; the sample counts as 4 days.",
        "  2 of user ada; review_per_user is 2",
        "3 claims found no place and were blocked.",
        "  3 cite nothing:",
        "  1 hold a hedge:",
        "  1 cite what could not be looked up here:",
    ):
        assert line in said, said
    nothing = invoke([claim_bytes("9", "Sun rises in the east", source="user")], "--format", "table")
    assert nothing.output.endswith("1 in: 1 approved\n")


def test_keys_are_read_only_where_signatures_count_so_that_the_file_of_workers_need_not_be_there(tmp_path):
    missing = str(tmp_path / "keys.toml")

    def run_with(*options, **environment):
        given = {"GROUNDWIRE_KEYS_FILE": missing, **environment}
        return CliRunner().invoke(check, list(options), input=claim_bytes("1", "x"), env=given)

    assert run_with().exit_code == 0
    for result in (run_with("--keys", missing), run_with(GROUNDWIRE_ATTESTATION="hmac")):
        assert result.exit_code == 2
        assert "keys.toml" in result.stderr
