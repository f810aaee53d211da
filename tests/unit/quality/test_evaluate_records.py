"""`groundwire evaluate` on labelled claims and responses: the gate's verdicts against what they should be."""

import hashlib
import hmac
import json

from click.testing import CliRunner

from groundwire.cli.evaluate import evaluate
from groundwire.library.verdicts import EXPECTED, LabelledOutcome, Share, read_labelled_records


def run(rows, *options, status=0):
    data = rows if isinstance(rows, bytes) else b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    result = CliRunner().invoke(evaluate, ["--no-network", *map(str, options)], input=data)
    assert result.exit_code == status, result.output
    return result


def found(rows, *options, status=0):
    return json.loads(run(rows, "--format", "json", *options, status=status).stdout)


def counts(figures, name):
    return figures[name]["found"], figures[name]["total"]


PLAIN = "The reactor stands in hall two."
HEDGED = "Maybe the reactor stands in hall two."


def test_leak_is_of_what_should_be_held_and_over_hold_of_what_should_be_approved():
    rows = [
        {"content": PLAIN, "label": "hold", "class": "a"},
        {"content": HEDGED, "label": "hold", "class": "a"},
        {"content": HEDGED, "label": "approve", "class": "b"},
    ]
    result = found(rows)
    assert (counts(result, "leak"), counts(result, "over_hold")) == ((1, 2), (1, 1))
    assert counts(result["classes"]["a"], "leak") == (1, 2)
    assert counts(result["classes"]["b"], "over_hold") == (1, 1)
    assert [(miss["line"], miss["outcome"]) for miss in result["misses"]] == [(1, "approved"), (3, "blocked")]
    assert (result["leak"]["low"], result["leak"]["high"]) == Share(1, 2).estimate[1:]
    assert PLAIN not in run(rows).stdout
    assert PLAIN in run(rows, "--misses").stdout


def test_claims_that_name_no_source_are_counted_as_the_users_own():
    rows = [
        {"content": PLAIN, "label": "approve"},
        {"content": PLAIN, "label": "hold", "source": "ai_synthesis"},
        {"record": {"content": PLAIN, "source": "ai_synthesis"}, "label": "hold"},
        {"record": {"answer": PLAIN, "context": {"a": PLAIN}}, "label": "approve"},
    ]
    assert found(rows)["source_assumed"] == 1
    assert 'claims that name no source: 1, taken for the user\'s own ("source": "user")' in run(rows).stdout


def test_rows_of_one_user_are_sent_in_order_and_rows_without_one_know_nothing_of_each_other():
    row = {"content": PLAIN, "label": "duplicate"}
    outcomes = [[m["outcome"] for m in found([row | user] * 2)["misses"]] for user in ({}, {"user_id": "u"})]
    assert outcomes == [["approved", "approved"], ["approved"]]
    for row in [
        {"content": PLAIN, "earlier": [PLAIN]},
        {"first": PLAIN, "second": PLAIN},
        {"text": PLAIN, "earlier": PLAIN},
    ]:
        assert found([row | {"expect": "duplicate"}])["misses"] == [], "it was sent earlier"


def test_a_conflict_counts_as_caught_only_where_it_is_the_reason():
    parts = " ".join(f"part{chr(letter)}" for letter in range(97, 123))
    other = f"The valve is open beside {parts}."
    rows = [
        {"first": other, "second": other.replace("is open", "is not open"), "expect": "conflict"},
        {"first": other, "second": HEDGED, "expect": "conflict"},
        {"first": other, "second": other, "expect": "conflict"},
    ]
    result = found(rows)
    assert counts(result, "conflicts_caught") == (1, 3)
    assert counts(result, "wrong_duplicates") == (1, 3)
    assert counts(result, "leak") == (0, 3)
    assert "conflicts caught: 1 of 3" in run(rows).stdout


def test_a_record_is_sent_as_it_is_a_response_too():
    chunk = {"chunk_id": "1", "file": "a", "content": PLAIN, "start_line": 1, "end_line": 1}
    rows = [
        {"record": {"answer": PLAIN, "chunks": [chunk]}, "label": "clean"},
        {"record": {"content": PLAIN, "source": "ai_synthesis"}, "label": "review"},
    ]
    assert found(rows)["misses"] == []


def test_a_policy_and_a_folder_of_decision_records_serve_as_with_check(tmp_path):
    (tmp_path / "ADR-003-halls.md").write_text(PLAIN)
    policy = tmp_path / "policy.toml"
    policy.write_text("auto_approve_ai_synthesis = false\n")
    row = {"content": f"{PLAIN} (ADR-003)", "source": "ai_synthesis", "label": "approve"}
    assert found([row], "--adr-dir", tmp_path)["misses"] == []
    assert len(found([row], "--adr-dir", tmp_path, "--policy", policy)["misses"]) == 1


def test_answers_among_the_rows_are_drawn_and_claims_alone_cannot_be(tmp_path):
    answers = [
        {"record": {"answer": answer, "context": {"a": PLAIN}}, "label": label}
        for answer, label in ((PLAIN, "approve"), ("The reactor stands in hall nine.", "hold"))
    ]
    drawn = tmp_path / "curve.svg"
    run([*answers, {"content": PLAIN, "label": "approve"}], "--plot", drawn)
    assert "2 answers of 3 rows" in drawn.read_text()
    refused = run([{"content": PLAIN, "label": "approve"}], "--plot", drawn, status=2)
    assert "some to approve and some to hold" in refused.stderr


SECRET = "0123456789abcdef0123456789abcdef"


def test_a_signed_record_is_decided_as_it_is_written_and_signatures_that_cannot_count_are_warned_of(tmp_path):
    """A signature is of bytes: two spaces are not one."""
    keys, policy = tmp_path / "keys.toml", tmp_path / "policy.toml"
    keys.write_text(f'[keys.docs]\nsecret = "{SECRET}"\ntenants = ["default"]\nsources = ["documentation"]\n')
    keys.chmod(0o600)
    policy.write_text('attestation = "hmac"\n')
    with_keys, with_policy = ("--keys", keys), ("--policy", policy)
    signing = (*with_keys, *with_policy)
    record = f'{{"claim_id": "s", "user_id":"w",  "source": "documentation", "content": "{PLAIN}"}}'

    value = f"docs:{hmac.new(SECRET.encode(), record.encode(), hashlib.sha256).hexdigest()}"
    signed = (
        f'{{"label": "approve", "headers": {{"gw-attestation": "{value}"}}, "record": {record}}}\n'.encode()
    )
    result = run(signed, *signing, "--format", "json")
    assert (json.loads(result.stdout)["misses"], result.stderr) == ([], "")
    changed = found(signed.replace(b"  ", b" "), *signing)
    assert [miss["reason_code"] for miss in changed["misses"]] == ["source_unattested"]
    unsigned = [{"record": json.loads(record), "label": "hold"}]
    assert "no record is signed" in run(unsigned, *signing).stderr
    assert "no keys" in run(unsigned, *with_policy).stderr
    assert "--keys changes nothing" in run(unsigned, *with_keys).stderr
    misspelt = run(signed.replace(b"gw-attestation", b"gw-atestation"), *signing)
    assert "did you mean gw-attestation?" in misspelt.stderr


def test_a_bad_row_is_named_and_left_out():
    for row, told in [
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
        result = run([good, row, good], status=1)
        assert result.stdout.startswith("2 rows: 2 to approve, 0 to hold; 1 bad, left out")
        assert "line 2: " in result.stderr
        assert told in result.stderr


def test_a_csv_file_names_the_fields_in_its_first_line_and_a_row_has_the_line_of_its_file(tmp_path):
    file = tmp_path / "claims.csv"
    file.write_text(f"content,label,class\n{PLAIN},approve,halls\n")
    assert json.loads(CliRunner().invoke(evaluate, [str(file), "--format", "json"]).stdout)["rows"] == 1
    data = b'\n{"content": "a", "label": "hold"}\n'
    assert [row.line for row in read_labelled_records(data)] == [2]


def test_each_label_names_at_least_one_outcome_and_every_outcome_is_wanted_by_some_label():
    assert all(EXPECTED.values())
    assert set().union(*EXPECTED.values()) == set(LabelledOutcome)
