"""`groundwire evaluate`: verdicts against labels, for statements with their evidence and for records of the gate."""

import hashlib
import hmac
import json
import tomllib

from click.testing import CliRunner

from groundwire.cli.evaluate import evaluate
from groundwire.epistemic.types import VerificationConfig
from groundwire.library.epistemic import detect_hallucinations, verify_claim
from groundwire.library.evaluate import (
    LABELS,
    WHOLE,
    BadRow,
    Labelled,
    judge,
    read_labelled,
)
from groundwire.library.verdicts import EXPECTED, LabelledOutcome, Share, read_labelled_records
from groundwire.policy import load_policy

GOOD = {"claim": "It retries 3 times.", "evidence": "It retries 3 times.", "label": "supported"}
BAD = GOOD | {"claim": "It retries 5 times.", "label": "contradicted"}
ROWS = [row | {"group": f"g{number}"} for number in range(20) for row in (GOOD, BAD)]


def run(*arguments, rows=ROWS, status=0, env=None):
    data = rows if isinstance(rows, bytes) else "".join(json.dumps(row) + "\n" for row in rows)
    options = ["--draws", "20", "--no-network", *map(str, arguments)]
    result = CliRunner(env=env).invoke(evaluate, options, input=data)
    assert result.exit_code == status, result.output
    return result


def figures(rows, *arguments):
    return json.loads(run("--format", "json", *arguments, rows=rows).stdout)


def test_the_verifier_is_reported_beside_baselines_that_know_nothing_of_the_evidence():
    found = figures(ROWS)
    assert (found["rows"], found["sources"], found["bad_rows"]) == (40, 20, 0)
    assert list(found["methods"]) == ["length", "verifier"]
    values = {name: figures["auroc"]["value"] for name, figures in found["methods"].items()}
    assert values == {"length": 0.5, "verifier": 1.0}
    assert found["verdicts"]["false_alarms"] == found["verdicts"]["missed"] == 0
    assert "calibration" not in found
    answers = [{"answer" if name == "claim" else name: cell for name, cell in row.items()} for row in ROWS]
    assert WHOLE in run(rows=answers).stdout, "doubts of an answer add up"
    assert WHOLE not in run().stdout


def test_what_is_measured_is_what_the_library_says_and_the_threshold_flags(monkeypatch):
    text, evidence = "It retries 3 times. It waits in MongoDB.", {"1": "It retries 3 times."}
    row = Labelled(1, text, declared=False, evidence=evidence, supported=False, group="g")
    answer = judge(row)
    report = detect_hallucinations(text, evidence)
    flagged = report.flagged_claims > 0
    assert flagged == (answer.support < VerificationConfig().support_threshold)
    assert answer.whole == report.answer_support
    claim = judge(row._replace(declared=True))
    assert claim.support == verify_claim(text, list(evidence.values())).evidence_support
    assert judge(row._replace(text="Thanks!")).support == 1.0
    monkeypatch.setattr("groundwire.checks.support.verify.JUDGED", 1)
    assert judge(row._replace(evidence={"1": text})).support == 0.0, "a part of it was not looked at"


def test_the_threshold_in_force_is_the_policys(tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text("[verification]\nsupport_threshold = 0.0\n")
    rows = [GOOD, GOOD | {"claim": "It retries 3 times in MongoDB.", "label": False}]
    message = run("--policy", policy, rows=rows).stdout
    assert "at support_threshold = 0, balanced being in force:" in message
    assert "balanced         0 of 1 (0.0 % [0.0, 79.3])  1 of 1 (100.0 %" in message


_TRUE = (
    "The gate retries failed writes 3 times before it gives up and tells the operator. Each attempt is waited for, and "
    "its outcome is written to the log of the worker. Whoever reads the log sees which broker refused the record."
)
ONE_DOUBT = {"answer": f"{_TRUE} It is fast.", "evidence": _TRUE, "label": "unsupported"}


def test_verdicts_are_counted_at_each_operating_point_and_reported_at_the_one_in_force(tmp_path):
    """One doubtful claim of four flags at strict alone."""
    missed = {}
    for point in ("strict", "balanced", "lenient"):
        policy = tmp_path / "policy.toml"
        policy.write_text(f'[verification]\noperating_point = "{point}"\n')
        rows = [GOOD, ONE_DOUBT]
        found = figures(rows, "--policy", policy)
        assert found["operating_point"] == point
        assert {at: count["missed"] for at, count in found["points"].items()} == {
            "strict": 0, "balanced": 1, "lenient": 1,
        }  # fmt: skip
        missed[point] = found["verdicts"]["missed"]
        assert f"{point} being in force" in run("--policy", policy, rows=rows).stdout
    assert missed == {"strict": 0, "balanced": 1, "lenient": 1}


def test_misses_name_the_line_and_the_outcome_and_rows_of_both_kinds_are_refused_by_line():
    message = run("--misses", rows=[GOOD, BAD, ONE_DOUBT]).stdout.splitlines()[-1]
    assert message.startswith("3     not supported  passed")
    assert _TRUE[:60] in message
    message = run(rows=[GOOD, {"content": "It retries.", "label": "hold"}], status=2).stderr
    assert "line 1 is a statement with its evidence" in message
    assert "line 2 a record for the gate" in message


def test_bad_rows_are_named_left_out_and_keep_anything_from_being_written(tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text("# mine\n")
    result = run("--calibrate", "--policy", policy, rows=[*ROWS, GOOD | {"label": 1}], status=1)
    assert "line 41: label: " in result.stderr
    assert "40 rows" in result.stdout
    assert "1 bad, left out" in result.stdout
    assert "nothing is written" in result.stderr
    assert policy.read_text() == "# mine\n"


def test_calibrating_writes_what_it_says_and_the_policy_takes_it(tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text('# mine\nversion = "v7"  # seven\n')
    result = run("--calibrate", "--policy", policy, "--format", "json")
    found = json.loads(result.stdout)["calibration"]
    assert found["held_out"]["false_alarms"] == found["held_out"]["missed"] == 0
    written = tomllib.loads(policy.read_text())["verification"]
    assert written == {key: found[key] for key in ("support_threshold", "gap_threshold_bits")}
    assert policy.read_text().startswith('# mine\nversion = "v7"  # seven\n')
    assert f"written to {policy}" in result.stderr
    assert load_policy(policy, {}).verification.support_threshold == found["support_threshold"]


def test_a_policy_file_that_is_not_there_is_made_and_keeps_a_default_that_does_as_well(tmp_path):
    policy, name = tmp_path / "new.toml", "GROUNDWIRE_VERIFICATION_SUPPORT_THRESHOLD"
    result = run("--calibrate", "--policy", policy)
    assert f"written to the new file {policy}" in result.stderr
    assert "laxer" not in result.stderr
    default = VerificationConfig().support_threshold
    assert load_policy(policy, {}).verification.support_threshold == default
    assert name not in result.stderr
    overridden = run("--calibrate", "--policy", policy, env={name: "0.9"})
    assert name in overridden.stderr, "a variable that overrides what is written"


def test_a_threshold_that_is_laxer_than_the_one_in_force_is_warned_of(tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text("[verification]\nsupport_threshold = 1.0\n")
    half = GOOD | {"claim": "It retries 3 times in MongoDB.", "group": "h"}
    result = run("--calibrate", "--policy", policy, rows=[*ROWS, *[half] * 3])
    assert "is laxer than 1, in force\n" in result.stderr
    assert load_policy(policy, {}).verification.support_threshold < 1


def test_without_a_policy_file_the_lines_to_add_are_printed_and_no_file_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("--calibrate")
    assert "chosen for balanced: support_threshold = " in result.stdout
    assert "on sources held out from the choice" in result.stdout
    lines = result.stderr.partition("add to the policy file:\n")[2]
    assert set(tomllib.loads(lines)["verification"]) == {"support_threshold", "gap_threshold_bits"}
    assert list(tmp_path.iterdir()) == []
    policy = tmp_path / "policy.toml"
    policy.write_text("[verification]\nsupport_threshold = 0.5\n")
    result = run("--calibrate", env={"GROUNDWIRE_POLICY_FILE": str(policy)})
    assert "at support_threshold = 0.5," in result.stdout
    assert policy.read_text() == "[verification]\nsupport_threshold = 0.5\n", "measured and never written"
    few = [row | {"group": row["group"] if row["group"] in "g1 g2" else "g1"} for row in ROWS]
    assert "2 sources are too few" in run("--calibrate", rows=few).stdout


def test_wrong_usage_says_what_to_give_instead():
    for arguments, part in [
        (["--calibrate", "--max-false-alarms", "0.01"], "at least 100"),
        (["--calibrate", "--max-false-alarms", "0"], "max-false-alarms"),
        (["--calibrate", "--policy", "effective.json"], "--policy"),
        (["--policy", "nowhere.toml"], "nowhere.toml"),
        (["--calibrate", "--policy", "no/where.toml"], "there is no folder"),
        (["--max-false-alarms", "0.01"], "--calibrate"),
    ]:
        assert part in run(*arguments, status=2).stderr
    for rows in [[], [GOOD] * 3, [BAD] * 3]:
        assert "both are needed" in run(rows=rows, status=2).stderr


def test_a_single_json_document_is_refused_as_a_whole():
    result = CliRunner().invoke(evaluate, input=json.dumps(ROWS, indent=1))
    assert result.exit_code == 2
    assert "single JSON document" in result.stderr


def test_a_file_of_responses_is_refused_with_the_command_that_reads_it():
    response = {"answer": "It retries.", "context": {"a": "It retries."}}
    assert "groundwire audit" in run(rows=[response, response], status=2).stderr
    for rows in ([GOOD | {"evidence": 5}], [response | {"label": "supported"}]):
        assert "groundwire audit" not in run(rows=rows, status=2).stderr
    assert "groundwire audit" not in run(rows=[response, *ROWS], status=1).stderr


def read_one(row):
    data = row if isinstance(row, bytes) else json.dumps(row).encode()
    (found,) = read_labelled(data)
    return found


def test_evidence_is_a_text_several_or_texts_by_id_and_a_label_says_whether_it_supports_all_of_the_row():
    for evidence, read in (
        ("a", {"1": "a"}),
        (["a", "b"], {"1": "a", "2": "b"}),
        ({"x": "a"}, {"x": "a"}),
        ([], {}),
    ):
        assert read_one(GOOD | {"evidence": evidence}).evidence == read
    for label in [*LABELS, True, False, " Supported "]:
        expected = label if isinstance(label, bool) else label.strip().lower() in {"supported", "true"}
        assert read_one(GOOD | {"label": label}).supported is expected


def test_rows_of_the_same_evidence_are_one_group_unless_the_row_names_another():
    first = read_one(GOOD | {"evidence": ["a", "b"]})
    assert first.group == read_one(GOOD | {"evidence": {"2": "b", "1": "a"}}).group
    assert first.group != read_one(GOOD).group
    assert read_one(GOOD | {"group": "g"}).group == "g"
    assert read_one(GOOD | {"id": 7, "annotator": "ann"}) == read_one(GOOD), "fields of one's own"
    assert read_one(GOOD).declared
    answer = {"answer": "It retries. It waits.", "evidence": "", "label": False}
    assert not read_one(answer).declared, "an answer holds several claims"


def test_what_is_wrong_with_a_row_names_its_line_and_field():
    for row, field in [
        (GOOD | {"claim": 3}, "claim"),
        (GOOD | {"claim": " "}, "claim"),
        (GOOD | {"answer": "both"}, "claim"),
        ({"evidence": "a", "label": True}, "claim"),
        (GOOD | {"evidence": None}, "evidence"),
        (GOOD | {"evidence": ["a", 1]}, "evidence.2"),
        (GOOD | {"evidence": {"x": None}}, "evidence.x"),
        (GOOD | {"label": "maybe"}, "label"),
        (GOOD | {"label": 1}, "label"),
        (GOOD | {"group": 1}, "group"),
        (GOOD | {"grup": "x"}, "grup"),
    ]:
        good, bad, again = read_labelled("\n".join(["", *map(json.dumps, (GOOD, row, GOOD))]).encode())
        assert isinstance(bad, BadRow)
        assert (bad.line, bad.error.field) == (3, field)
        assert bad.error.message.startswith(f"{field}: ")
        assert (good.line, again.line) == (2, 4)
    for line in [b"{", b"[]", b'"x"', b"\xff", b'{"claim": "a", "claim": "b"}', b"NaN"]:
        bad, good = read_labelled(line + b"\r\n" + json.dumps(GOOD).encode() + b"\r\n")
        assert isinstance(bad, BadRow)
        assert good.text == GOOD["claim"]


# records for the gate


def counts(found, name):
    return found[name]["found"], found[name]["total"]


PLAIN = "The reactor stands in hall two."
HEDGED = "Maybe the reactor stands in hall two."


def test_leak_is_of_what_should_be_held_and_over_hold_of_what_should_be_approved():
    rows = [
        {"content": PLAIN, "label": "hold", "class": "a"},
        {"content": HEDGED, "label": "hold", "class": "a"},
        {"content": HEDGED, "label": "approve", "class": "b"},
    ]
    result = figures(rows)
    assert (counts(result, "leak"), counts(result, "over_hold")) == ((1, 2), (1, 1))
    assert counts(result["classes"]["a"], "leak") == (1, 2)
    assert counts(result["classes"]["b"], "over_hold") == (1, 1)
    assert [(miss["line"], miss["outcome"]) for miss in result["misses"]] == [(1, "approved"), (3, "blocked")]
    assert (result["leak"]["low"], result["leak"]["high"]) == Share(1, 2).estimate[1:]
    assert PLAIN not in run(rows=rows).stdout
    assert PLAIN in run("--misses", rows=rows).stdout


def test_claims_that_name_no_source_are_counted_as_the_users_own():
    rows = [
        {"content": PLAIN, "label": "approve"},
        {"content": PLAIN, "label": "hold", "source": "ai_synthesis"},
        {"record": {"content": PLAIN, "source": "ai_synthesis"}, "label": "hold"},
        {"record": {"answer": PLAIN, "context": {"a": PLAIN}}, "label": "approve"},
    ]
    assert figures(rows)["source_assumed"] == 1
    assert (
        'claims that name no source: 1, taken for the user\'s own ("source": "user")' in run(rows=rows).stdout
    )


def test_rows_of_one_user_are_sent_in_order_and_rows_without_one_know_nothing_of_each_other():
    row = {"content": PLAIN, "label": "duplicate"}
    outcomes = [
        [m["outcome"] for m in figures([row | user] * 2)["misses"]] for user in ({}, {"user_id": "u"})
    ]
    assert outcomes == [["approved", "approved"], ["approved"]]
    for row in [
        {"content": PLAIN, "earlier": [PLAIN]},
        {"first": PLAIN, "second": PLAIN},
        {"text": PLAIN, "earlier": PLAIN},
    ]:
        assert figures([row | {"expect": "duplicate"}])["misses"] == [], "it was sent earlier"


def test_a_conflict_counts_as_caught_only_where_it_is_the_reason():
    parts = " ".join(f"part{chr(letter)}" for letter in range(97, 123))
    other = f"The valve is open beside {parts}."
    rows = [
        {"first": other, "second": other.replace("is open", "is not open"), "expect": "conflict"},
        {"first": other, "second": HEDGED, "expect": "conflict"},
        {"first": other, "second": other, "expect": "conflict"},
    ]
    result = figures(rows)
    assert counts(result, "conflicts_caught") == (1, 3)
    assert counts(result, "wrong_duplicates") == (1, 3)
    assert counts(result, "leak") == (0, 3)
    assert "conflicts caught: 1 of 3" in run(rows=rows).stdout


def test_a_record_is_sent_as_it_is_a_response_too():
    chunk = {"chunk_id": "1", "file": "a", "content": PLAIN, "start_line": 1, "end_line": 1}
    rows = [
        {"record": {"answer": PLAIN, "chunks": [chunk]}, "label": "clean"},
        {"record": {"content": PLAIN, "source": "ai_synthesis"}, "label": "review"},
    ]
    assert figures(rows)["misses"] == []


def test_a_policy_and_a_folder_of_decision_records_serve_as_with_check(tmp_path):
    (tmp_path / "ADR-003-halls.md").write_text(PLAIN)
    policy = tmp_path / "policy.toml"
    policy.write_text("auto_approve_ai_synthesis = false\n")
    row = {"content": f"{PLAIN} (ADR-003)", "source": "ai_synthesis", "label": "approve"}
    assert figures([row], "--adr-dir", tmp_path)["misses"] == []
    assert len(figures([row], "--adr-dir", tmp_path, "--policy", policy)["misses"]) == 1


def test_a_signed_record_is_decided_as_it_is_written_and_signatures_that_cannot_count_are_warned_of(tmp_path):
    """A signature is of bytes: two spaces are not one."""
    secret = "0123456789abcdef0123456789abcdef"
    keys, policy = tmp_path / "keys.toml", tmp_path / "policy.toml"
    keys.write_text(f'[keys.docs]\nsecret = "{secret}"\ntenants = ["default"]\nsources = ["documentation"]\n')
    keys.chmod(0o600)
    policy.write_text('attestation = "hmac"\n')
    with_keys, with_policy = ("--keys", keys), ("--policy", policy)
    signing = (*with_keys, *with_policy)
    record = f'{{"claim_id": "s", "user_id":"w",  "source": "documentation", "content": "{PLAIN}"}}'

    value = f"docs:{hmac.new(secret.encode(), record.encode(), hashlib.sha256).hexdigest()}"
    signed = (
        f'{{"label": "approve", "headers": {{"gw-attestation": "{value}"}}, "record": {record}}}\n'.encode()
    )
    result = run(*signing, "--format", "json", rows=signed)
    assert (json.loads(result.stdout)["misses"], result.stderr) == ([], "")
    changed = figures(signed.replace(b"  ", b" "), *signing)
    assert [miss["reason_code"] for miss in changed["misses"]] == ["source_unattested"]
    unsigned = [{"record": json.loads(record), "label": "hold"}]
    assert "no record is signed" in run(*signing, rows=unsigned).stderr
    assert "no keys" in run(*with_policy, rows=unsigned).stderr
    assert "--keys changes nothing" in run(*with_keys, rows=unsigned).stderr
    misspelt = run(*signing, rows=signed.replace(b"gw-attestation", b"gw-atestation"))
    assert "did you mean gw-attestation?" in misspelt.stderr


def test_a_bad_row_is_named_and_left_out():
    for row, message in [
        ({"content": PLAIN}, "label"),
        ({"content": PLAIN, "label": "perhaps"}, "label"),
        ({"content": PLAIN, "second": PLAIN, "label": "hold"}, "content"),
        ({"content": "", "label": "hold"}, "content"),
        ({"content": PLAIN, "label": "hold", "sourse": "user"}, "source"),
        ({"record": PLAIN, "label": "hold"}, "record"),
        ({"content": PLAIN, "label": "hold", "class": 3}, "class"),
        ({"content": PLAIN, "label": "hold", "headers": {}}, "headers"),
        ({"record": {"content": PLAIN}, "label": "hold", "headers": {"a": 1}}, "headers"),
        ({"content": PLAIN, "label": "hold", "earlier": [""]}, "content"),
    ]:
        good = {"content": PLAIN, "label": "approve"}
        result = run(rows=[good, row, good], status=1)
        assert result.stdout.startswith("2 rows: 2 to approve, 0 to hold; 1 bad, left out")
        assert "line 2: " in result.stderr
        assert message in result.stderr


def test_a_row_has_the_line_of_its_file():
    data = b'\n{"content": "a", "label": "hold"}\n'
    assert [row.line for row in read_labelled_records(data)] == [2]


def test_each_label_names_at_least_one_outcome_and_every_outcome_is_wanted_by_some_label():
    assert all(EXPECTED.values())
    assert set().union(*EXPECTED.values()) == set(LabelledOutcome)
