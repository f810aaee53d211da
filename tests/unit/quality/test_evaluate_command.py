"""`groundwire evaluate`: verdicts against labels, and thresholds that are written where they were asked for."""

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
    Scored,
    held_out,
    judge,
    read_labelled,
)
from groundwire.policy import load_policy

GOOD = {"claim": "It retries 3 times.", "evidence": "It retries 3 times.", "label": "supported"}
BAD = GOOD | {"claim": "It retries 5 times.", "label": "contradicted"}
ROWS = [row | {"group": f"g{number}"} for number in range(20) for row in (GOOD, BAD)]


def data(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def run(*arguments, rows=ROWS, status=0, env=None):
    result = CliRunner(env=env).invoke(evaluate, ["--draws", "20", *map(str, arguments)], input=data(*rows))
    assert result.exit_code == status, result.output
    return result


def test_the_verifier_is_told_beside_baselines_that_know_nothing_of_the_evidence():
    found = json.loads(run("--format", "json").stdout)
    assert (found["rows"], found["sources"], found["bad_rows"]) == (40, 20, 0)
    assert list(found["methods"]) == ["all positive", "length", "verifier"]
    values = {name: figures["auroc"]["value"] for name, figures in found["methods"].items()}
    assert values == {"all positive": 0.5, "length": 0.5, "verifier": 1.0}
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


def test_baselines_are_measured_with_thresholds_of_other_sources():
    """What tells one source's rows apart is of no use for the other's."""
    rows = [
        Scored(score, positive, group)
        for group, base in (("a", 0.0), ("b", 10.0))
        for score, positive in ((base + 1, False), (base + 2, True))
    ]
    flagged = {row.score: row.flagged for row in held_out(rows)}
    assert flagged == {1.0: False, 2.0: False, 11.0: True, 12.0: True}


def test_the_threshold_in_force_is_the_policys(tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text("[verification]\nsupport_threshold = 0.0\n")
    rows = [GOOD, GOOD | {"claim": "It retries 3 times in MongoDB.", "label": False}]
    told = run("--policy", policy, rows=rows).stdout
    assert "at support_threshold = 0, balanced being in force:" in told
    assert "balanced         0 of 1 (0.0 % [0.0, 79.3])  1 of 1 (100.0 %" in told


_TRUE = (
    "The gate retries failed writes 3 times before it gives up and tells the operator. Each attempt is waited for, and "
    "its outcome is written to the log of the worker. Whoever reads the log sees which broker refused the record."
)
ONE_DOUBT = {"answer": f"{_TRUE} It is fast.", "evidence": _TRUE, "label": "unsupported"}


def test_verdicts_are_counted_at_each_operating_point_and_told_at_the_one_in_force(tmp_path):
    """One doubtful claim of four flags at strict alone."""
    missed = {}
    for point in ("strict", "balanced", "lenient"):
        policy = tmp_path / "policy.toml"
        policy.write_text(f'[verification]\noperating_point = "{point}"\n')
        rows = [GOOD, ONE_DOUBT]
        found = json.loads(run("--policy", policy, "--format", "json", rows=rows).stdout)
        assert found["operating_point"] == point
        assert {at: count["missed"] for at, count in found["points"].items()} == {
            "strict": 0, "balanced": 1, "lenient": 1,
        }  # fmt: skip
        missed[point] = found["verdicts"]["missed"]
        assert f"{point} being in force" in run("--policy", policy, rows=rows).stdout
    assert missed == {"strict": 0, "balanced": 1, "lenient": 1}


def test_misses_name_the_line_and_what_it_came_to_and_rows_of_both_kinds_are_refused_by_line():
    told = run("--misses", rows=[GOOD, BAD, ONE_DOUBT]).stdout.splitlines()[-1]
    assert told.startswith("3     not supported  passed")
    assert _TRUE[:60] in told
    told = run(rows=[GOOD, {"content": "It retries.", "label": "hold"}], status=2).stderr
    assert "line 1 is a statement with its evidence" in told
    assert "line 2 a record for the gate" in told


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


def test_a_file_of_another_form_is_refused_as_a_whole():
    for given, form, told in [
        (json.dumps(ROWS, indent=1), "jsonl", "single JSON document"),
        ("claim;evidence;label\na;a;supported\n", "csv", "claim;evidence;label"),
        ("claim,evidence,label\na,a,supported\n", "tsv", "claim,evidence,label"),
        ("Claim,Evidence,Label\na,a,supported\n", "csv", "Claim, Evidence, Label"),
    ]:
        result = CliRunner().invoke(evaluate, ["--input", form], input=given)
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert told in line


def test_a_file_of_responses_is_told_what_reads_it():
    response = {"answer": "It retries.", "context": {"a": "It retries."}}
    assert "groundwire audit" in run(rows=[response, response], status=2).stderr
    for rows in ([GOOD | {"evidence": 5}], [response | {"label": "supported"}]):
        assert "groundwire audit" not in run(rows=rows, status=2).stderr
    assert "groundwire audit" not in run(rows=[response, *ROWS], status=1).stderr


# what can be read, and what is said of what cannot


def one(row, form="jsonl"):
    data = row if isinstance(row, bytes) else json.dumps(row).encode()
    (found,) = read_labelled(data, form)
    return found


def test_evidence_is_a_text_several_or_texts_by_id_and_a_label_says_whether_it_supports_all_of_the_row():
    for evidence, read in (
        ("a", {"1": "a"}),
        (["a", "b"], {"1": "a", "2": "b"}),
        ({"x": "a"}, {"x": "a"}),
        ([], {}),
    ):
        assert one(GOOD | {"evidence": evidence}).evidence == read
    for label in [*LABELS, True, False, " Supported "]:
        expected = label if isinstance(label, bool) else label.strip().lower() in {"supported", "true"}
        assert one(GOOD | {"label": label}).supported is expected


def test_rows_of_the_same_evidence_are_one_group_unless_the_row_names_another():
    first = one(GOOD | {"evidence": ["a", "b"]})
    assert first.group == one(GOOD | {"evidence": {"2": "b", "1": "a"}}).group
    assert first.group != one(GOOD).group
    assert one(GOOD | {"group": "g"}).group == "g"
    assert one(GOOD | {"id": 7, "annotator": "ann"}) == one(GOOD), "fields of one's own"
    assert one(GOOD).declared
    answer = {"answer": "It retries. It waits.", "evidence": "", "label": False}
    assert not one(answer).declared, "an answer holds several claims"


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


def test_tables_name_their_columns_in_the_first_line():
    for form, mark in [("csv", ","), ("tsv", "\t")]:
        cells = ["label", "claim", "evidence\r\nsupported", '"It, ""a"""', "b"]
        row = one("\ufeff".encode() + mark.join(cells).encode(), form)
        assert (row.line, row.text, row.evidence, row.supported) == (2, 'It, "a"', {"1": "b"}, True)
        short = one(f"claim{mark}evidence{mark}label\na{mark}b\n".encode(), form)
        assert (short.line, short.error.field) == (2, "label")
        assert isinstance(one(b"claim\n\xff\n", form), BadRow)
