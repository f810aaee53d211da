"""`groundwire audit`: verdicts on the claims of answers, as a person and as a program reads them (S4-62)."""

import io
import json
from unicodedata import category

from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from groundwire.cli.audit import AuditPrinter, audit
from groundwire.epistemic.model import Model, ModelAnswer, ModelFault
from groundwire.epistemic.types import UncoveredWord
from groundwire.library.epistemic import detect_hallucinations
from groundwire.messages.records import LlmResponse

CHUNK = {"chunk_id": "a", "file": "docs/retries.md", "content": "It retries 3 times."}
CHUNK |= {"start_line": 3, "end_line": 9}
RECORD = {"answer": "It retries 5 times.", "chunks": [CHUNK]}


def run(*arguments, data=b"", status=0):
    result = CliRunner().invoke(audit, list(arguments), input=data)
    assert result.exit_code == status, result.output
    return result.stdout


def lines(*records):
    return b"\n".join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in records)


def as_json(*records, status=0):
    found = run("--format", "json", data=lines(*records), status=status)
    return [json.loads(line) for line in found.splitlines()]


def test_a_claim_is_printed_with_verdict_support_gap_evidence_and_the_words_not_covered():
    shown = run(data=lines(RECORD)).splitlines()
    assert shown[0].startswith("record 1: 1 claim, 1 flagged")
    assert shown[1].startswith("  contradicted ")
    assert "support 0." in shown[1]
    assert "bits, suspicious" in shown[1]
    assert shown[1].endswith("docs/retries.md:3-9")
    assert shown[2:4] == ["    claim 1: It retries 5 times.", "    not covered: 5 times"]
    assert shown[-1] == "1 audited: 1 claim, 1 flagged"


def test_what_a_program_reads_is_the_report_of_the_library_with_the_places_of_the_evidence():
    (found,) = as_json(RECORD | {"response_id": "r"})
    expected = detect_hallucinations(RECORD["answer"], {"a": CHUNK["content"]})
    assert found["line"] == 1
    assert found["evidence"] == {"a": "docs/retries.md:3-9"}
    assert found["report"]["response_id"] == "r"
    (claim,), (same,) = found["report"]["claims"], expected.model_dump(mode="json")["claims"]
    assert claim | {"claim_id": ""} == same | {"claim_id": ""}


def test_the_context_is_the_evidence_where_there_is_one_and_ids_are_its_places():
    record = RECORD | {"context": {"span-1": "It retries 5 times."}}
    (found,) = as_json(record)
    assert (found["report"]["flagged_claims"], found["evidence"]) == (0, {"span-1": "span-1"})
    assert "span-1\n" in run(data=lines(record))
    bare, silent = as_json({"answer": "It retries 3 times."}, {"answer": None, "chunks": []})
    assert (bare["report"]["flagged_claims"], silent["report"]["total_claims"]) == (1, 0)
    assert "no evidence given" in run(data=lines({"answer": "It retries 3 times."}))


def test_steps_are_audited_and_missing_citations_are_named():
    steps = [{"claim": "It retries 3 times.", "cites": ["b"]}]
    shown = run(data=lines(RECORD | {"answer": None, "steps": steps}))
    for message in ("phantom_citation", "b (not there)", "step 1: It retries 3 times."):
        assert message in shown


def test_a_file_is_one_record_a_line_or_a_single_document():
    first, second = RECORD | {"response_id": "one"}, RECORD | {"response_id": "two"}
    for data, expected in (
        (lines(first, b"", second), [(1, "one"), (3, "two")]),
        (json.dumps(first, indent=2).encode(), [(1, "one")]),
        (json.dumps([first, second]).encode(), [(1, "one"), (2, "two")]),
        (b"", []),
        (b"\xef\xbb\xbf" + lines(first) + b"\r\n", [(1, "one")]),
    ):
        found = [json.loads(line) for line in run("--format", "json", data=data).splitlines()]
        assert [(one["line"], one["report"]["response_id"]) for one in found] == expected


def test_a_record_that_cannot_be_read_is_named_with_its_field_and_the_others_are_audited():
    bad = RECORD | {"chunks": [CHUNK | {"start_line": "x"}]}
    found = as_json(b"{", bad, {"answr": "x"}, b"7", RECORD, status=1)
    fields = [one["error"]["field"] for one in found[:4]]
    assert fields == [None, "chunks.0.start_line", "answr", None]
    assert [one["line"] for one in found] == [1, 2, 3, 4, 5]
    assert found[4]["report"]["flagged_claims"] == 1
    shown = run(data=lines(bad, RECORD), status=1)
    assert "record 1: invalid_record: chunks.0.start_line" in shown
    assert shown.splitlines()[-1] == "1 audited, 1 bad: 1 claim, 1 flagged"


def test_sources_and_tags_that_are_missing_are_reported_as_by_the_gate():
    record = RECORD | {"answer": "It retries 3 times [source:7].", "sources": [{"file": "docs/none.md"}]}
    (found,) = as_json(record)
    assert [warning["type"] for warning in found["warnings"]] == ["PHANTOM_FILE", "PHANTOM_FILE"]
    assert found["warnings"][1]["details"] == {"tags": [7], "chunks": 1}
    shown = run(data=lines(record)).splitlines()
    assert "  phantom_file         Citations of what was not retrieved: [7]" in shown
    assert shown[-1] == "1 audited: 1 claim, 1 flagged; 1 with a warning about sources"
    (held,) = as_json(RECORD | {"answer": "It retries 3 times [source:1]."})
    assert held["warnings"] == []


def test_a_file_of_labelled_rows_is_refused_with_the_command_that_reads_it():
    row = {"claim": "It retries.", "evidence": "It retries.", "label": True}
    for data, hinted in (
        (lines(row, row), True),
        (lines(row, {"answr": 1}), False),
        (lines(row, b"{"), False),
    ):
        result = CliRunner().invoke(audit, [], input=data)
        assert result.exit_code == 1
        assert ("groundwire evaluate" in result.stderr) is hinted


def test_thresholds_and_required_source_tags_are_those_of_the_policy(tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text("require_source_tags = true\n[verification]\nsupport_threshold = 0\n")
    doubtful = lines({**RECORD, "answer": "It retries whenever the moon is full."})
    shown = run("--policy", str(policy), data=doubtful)
    assert "0 flagged" in shown
    assert "  source_tag_missing " in shown
    assert "1 flagged" in run(data=doubtful)
    policy.write_text("[verification]\nsupport_treshold = 0\n")
    result = CliRunner().invoke(audit, ["--policy", str(policy)], input=lines(RECORD))
    assert (result.exit_code, "support_threshold" in result.stderr) == (2, True)


def test_words_not_covered_are_marked_once_and_colours_appear_on_a_terminal_only(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    response = LlmResponse.model_validate(RECORD | {"response_id": "r", "user_id": "u"})
    report = detect_hallucinations(RECORD["answer"], {"a": CHUNK["content"]})
    words = [UncoveredWord(text="5 times", start=11, end=18), UncoveredWord(text="times", start=13, end=18)]
    doubled = report.claims[0].model_copy(update={"uncovered": words})
    terminal, file = Terminal(), io.StringIO()
    AuditPrinter(terminal).report(response, report)
    AuditPrinter(file).report(response, report.model_copy(update={"claims": [doubled]}))
    assert "\x1b[1;4;31m5 times\x1b[0m" in terminal.getvalue()
    assert "\x1b" not in file.getvalue()
    assert ": It retries 5 times.\n" in file.getvalue(), "words that overlap do not repeat"


@settings(max_examples=15)
@given(
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=80),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=20),
)
def test_nothing_of_a_record_reaches_a_terminal_but_as_text(answer, name):
    record = {"answer": answer + " \x1b[2J retries 5 times.", "context": {name: answer}, "response_id": name}
    data = lines(record | {"steps": [{"claim": answer, "cites": [name, name + "x"]}]})
    for shown in (run(data=data), run("--format", "json", data=data)):
        assert [
            char for char in shown if not (char.isprintable() or char == "\n" or category(char) == "Zs")
        ] == []


def test_a_configured_model_is_asked_and_its_cost_and_missing_answers_are_reported(
    monkeypatch, tmp_path, caplog
):
    class Configured(Model):
        """Answers every question alike; replaces a model behind an HTTP API."""

        trouble, asked, fault = "HTTP 404", 0, None

        async def answer(self, request):
            self.asked += request.model == "haiku"
            if self.fault:
                raise ModelFault(self.fault)
            return ModelAnswer('{"verdict": "unsupported", "probability": 0.9}', 100, 20)

        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            pass

    text = "The gateway of the service retries each failed request 3 times, and it waits 30 seconds before it does."
    due = {"answer": text, "context": {"a": text}}
    policy = tmp_path / "policy.toml"
    policy.write_text('[verification]\nmode = "full"\nmodel_scope = "all"\n')
    asking, model = f"--policy={policy}", Configured()
    monkeypatch.setattr("groundwire.cli.audit.load_model", lambda _, network: model if network else None)
    shown, asked = run(asking, data=lines(due)), model.asked
    assert asked > 0
    assert "  unsupported " in shown
    assert f"model: {asked} questions, $0.0" in shown
    assert "supported" in run("--no-network", asking, data=lines(due))
    run(asking, data=lines(due | {"verify": False}))
    assert model.asked == asked
    message = run(data=lines(RECORD)).splitlines()[-1]
    assert message.startswith("model: not asked, as no claim is due: ")
    assert "model" not in run("--no-network", data=lines(RECORD))
    model = Configured()
    model.fault = "rejected"
    result = CliRunner().invoke(audit, [asking], input=lines(due))
    assert f"; {model.asked} rejected (last: HTTP 404)" in result.stdout.splitlines()[-1]
    assert "  verifier_unavailable support " in result.stdout
    assert (result.stderr, caplog.records) == ("", []), "printed once"


def test_claims_that_were_not_looked_at_are_part_of_the_summary(monkeypatch):
    monkeypatch.setattr("groundwire.checks.support.verify.JUDGED", 1)
    two = {"answer": "It retries 3 times. It waits 2 seconds.", "context": {"a": "It retries 3 times."}}
    assert run(data=lines(two, two)).splitlines()[-1] == "2 audited: 4 claims, 0 flagged, 2 not looked at"


def test_evidence_in_another_form_is_refused_with_the_form_that_is_read():
    for field, value, message in [
        ("context", "It retries 3 times.", "object of ids and texts"),
        ("context", {"a": 3}, "object of ids and texts"),
        ("evidence", "It retries 3 times.", "context or chunks"),
        ("evidence", {"a": "It retries 3 times."}, "context or chunks"),
    ]:
        (found,) = as_json({"answer": "It retries 3 times.", field: value}, status=1)
        assert found["error"]["field"].startswith(field)
        assert message in found["error"]["message"]
