"""`groundwire review` without a broker: what is printed, and what is refused before anything is read."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from groundwire.cli import review as commands
from groundwire.cli.main import main
from groundwire.cli.options import AgeParam
from groundwire.cli.review import review
from groundwire.cli.review_text import (
    OutcomeNotes,
    age,
    item_json,
    outcome_json,
    print_item,
    print_outcome,
    print_page,
    row_json,
)
from groundwire.errors import UsageError
from groundwire.keys.file import new_key
from groundwire.messages.headers import InboundRecord
from groundwire.policy import Policy
from groundwire.review import session
from groundwire.review.actions import SENTENCES, ActionOutcome, speculation_in
from groundwire.review.board import Board
from groundwire.review.model import Item, Query
from groundwire.review.session import BoardSnapshot, Session
from tests.unit.review.world import ADMIN, NOW, audit, decision, records, retraction, reviewed

HOSTILE = "\x1b[31mred\x07\x9b2J\u202eback [bold]x[/bold]:smile:\ttab"
COMMANDS = ["list", "show", "approve", "reject", "edit", "retract", "replace"]


def board(*made) -> Board:
    result = Board(clock=lambda: NOW)
    result.add(records(*made))
    return result


def item(*made, name="a") -> Item:
    found = board(*made).item(ADMIN, decision(name).decision_id)
    assert found is not None
    return found


def printed(function, *arguments, terminal=False) -> str:
    out = io.StringIO()
    system = {"force_terminal": True, "color_system": "standard"} if terminal else {}
    function(Console(file=out, highlight=False, width=100 if terminal else None, **system), *arguments)
    return out.getvalue()


def near(name, text, **changes):
    match = {"subject_id": "m", "inter": 4, "union": 5, "difference": "negation", "class": "approved"}
    facts = {"dedup": {"status": "ok", "scheme": "s", "matches": [match]}}
    return decision(name, text=text, facts=facts, conflicting_memory_id="m", similarity_score=0.8, **changes)


def refused(code: str) -> ActionOutcome:
    return ActionOutcome("i", applied=False, code=code, revision=1, verdict=None, decision_id=None)


def test_the_example_of_a_command_has_all_that_it_needs_to_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    new_key(tmp_path / "keys.toml", "desk", tenants=["acme"], roles=["reviewer"])
    for name in COMMANDS:
        example = " ".join(review.commands[name].help.partition("Example: ")[2].split())
        away = ["--brokers", "127.0.0.1:1", "--timeout", "0.1"]
        given = shlex.split(example.removeprefix("groundwire review "))
        result = CliRunner().invoke(review, [*given, *away], env={"GROUNDWIRE_REVIEWER": ""})
        assert "127.0.0.1:1 did not answer" in result.stderr, result.output
        assert name == "list" or {"--tenant", "--user"} < set(given)


def test_an_outcome_is_told_in_words_of_a_terminal_with_the_command_to_run_next() -> None:
    (row,) = board(decision("a", user="an o'dd user")).pending(ADMIN, Query()).rows
    for code in (*SENTENCES, "of_a_later_version"):
        text = printed(print_outcome, row, refused(code))
        assert not re.search("reload|page|browser|click|Somebody", text)
        following = text.splitlines()[1:]
        assert following or "look at" not in refused(code).sentence, (
            "what can be looked at comes with the command"
        )
        for line in following:
            words = shlex.split(line)
            assert words[:2] == ["next", "groundwire"]
            assert CliRunner().invoke(main, [*words[2:4], "--help"]).exit_code == 0


def test_an_outcome_says_what_to_look_at_or_to_send_instead_and_what_rests_on_what_was_retracted() -> None:
    response = decision("r", kind="response")
    row = board(response).item(ADMIN, response.decision_id).current
    for code in ("unknown", "not_pending"):
        text = printed(print_outcome, row, refused(code))
        assert "is not pending; look at its state." in text
        assert "There is no such item" not in text
        assert text.splitlines()[1].split() == ["next", "groundwire", "review", "show", response.decision_id]
    (row,) = board(decision("a")).pending(ADMIN, Query()).rows
    notes = OutcomeNotes(objection=speculation_in("I think it is wet.", Policy()))
    text = printed(print_outcome, row, refused("personal_speculation"), notes)
    assert "It says “I think”." in text
    assert "groundwire review edit a --tenant acme --user ann --content -" in text
    heir = decision("b", verdict="approved", reason_code="trusted_source", derived_from=["m"])
    made = board(decision("m", verdict="approved", reason_code="trusted_source"), heir)
    row = made.item(ADMIN, decision("m").decision_id).current
    outcome = replace(refused("retracted"), applied=True, revision=2, verdict="blocked")
    notes = OutcomeNotes(affected=made.dependents(ADMIN, row))
    assert f"rests on it  b (approved)  {heir.decision_id}" in printed(print_outcome, row, outcome, notes)
    assert json.loads(outcome_json(row, "i", outcome, notes))["affected"][0]["name"] == "b"


async def test_after_a_retraction_its_record_is_waited_for_and_names_what_the_topics_do_not_reach(
    monkeypatch,
) -> None:
    made = board(decision("m", verdict="approved"), reviewed("m", "retract"))
    row = made.item(ADMIN, decision("m").decision_id).current
    coming = [retraction("other", "x"), retraction("m", "old"), retraction("m", "late")]

    async def follow(_brokers, starts, *_how) -> AsyncGenerator[InboundRecord, None]:
        (topic,) = starts
        assert topic == "x.retractions"
        while coming:
            yield replace(coming.pop(0), topic=topic)

    monkeypatch.setattr(session, "follow", follow)
    desk = Session("admin", "acme", None, None, None, "b:1", "x.", timedelta(days=7), 60)
    done = replace(refused("retracted"), applied=True, revision=2, decision_id=row.decision_id)
    outcomes = [None, refused("stale"), done]
    await BoardSnapshot(made).read_retractions(desk, outcomes)
    assert [one.name for one in made.dependents(ADMIN, row).rows] == ["old"]
    await BoardSnapshot(made).read_retractions(desk, outcomes[:2])
    assert len(coming) == 1


async def test_without_a_keys_file_a_reviewer_is_told_why_they_may_see_nothing() -> None:
    desk = Session("ann", None, None, None, "desk", "127.0.0.1:1", "x.", timedelta(days=7), 1.0)
    (warning,) = desk.warnings
    assert "GROUNDWIRE_KEYS_FILE" in warning
    assert "'ann'" in warning
    assert desk.scope.sees("default", "ann")
    assert not desk.scope.sees("default", "bob")
    with pytest.raises(UsageError, match="GROUNDWIRE_KEYS_FILE"):
        desk.signer()


def test_a_list_for_somebody_who_is_delegated_for_nothing_says_so(monkeypatch, tmp_path) -> None:
    keys, nobody = tmp_path / "keys.toml", Board(clock=lambda: NOW)
    new_key(keys, "desk", tenants=["acme"], roles=["reviewer"])
    keys.write_text(keys.read_text() + '\n[reviewers]\nacme = ["admin"]\n')
    monkeypatch.setattr(commands, "load_snapshot", lambda _session: BoardSnapshot(nobody))

    def listed(reviewer: str) -> str:
        given = ["list", "--reviewer", reviewer, "--tenant", "acme", "--keys-file", str(keys)]
        return str(CliRunner().invoke(commands.review, given).stderr)

    assert "'ann' is delegated for nothing in acme" in listed("ann")
    assert listed("admin") == ""


def test_wrong_use_ends_with_status_2_and_says_what_to_give() -> None:
    ann, desk = ["--reviewer", "ann"], ["--reviewer", "ann", "--key", "desk"]
    wrong = []
    for arguments, told in (
        (["list"], "--reviewer"),
        (["approve", "x", *ann], "--key"),
        (["approve", *ann], "ID..."),
        (["reject", "x", *ann], "--reason"),
        (["reject", "x", *ann, "--reason", "because"], "incorrect"),
        (["edit", "x", *ann], "--content"),
        (["edit", "x", *ann, "--content", " \u200b"], "blank"),
        (["replace", "x", *ann, "--reason", "outdated"], "MEMORY"),
        (["replace", "x", "y", *ann], "--reason"),
        (["list", *ann, "--limit", "201"], "--limit"),
        (["list", *ann, "--reason", "nonsense"], "technical_hedge"),
        (["list", *ann, "--min-age", "soon"], "--min-age"),
        (["list", *ann, "--days", "nan"], "--days': 'nan'"),
        (["list", *ann, "--timeout", "inf"], "--timeout"),
        (["approve", "x", *ann, "--wait", "nan"], "--wait': 'nan'"),
        (["approve", "x", *desk], "GROUNDWIRE_KEYS_FILE"),
        (["approve", "x", *desk, "--keys-file", "/dev/null"], "GROUNDWIRE_REVIEWER_KEY"),
        (["list", *ann, "--brokers", ":x"], "host:port"),
        (["list", *ann, "--keys-file", "/no/such/file"], "/no/such/file"),
        (["list", *ann, "--brokers", "127.0.0.1:1", "--timeout", "0.2"], "127.0.0.1:1"),
    ):
        result = CliRunner().invoke(review, arguments, env={"GROUNDWIRE_REVIEWER": ""})
        if result.exit_code != 2 or told not in result.stderr:
            wrong.append((arguments, result.output))
    assert wrong == []
    helped = CliRunner().invoke(main, ["review", "--help"]).output
    assert [name for name in COMMANDS if f"  {name} " not in helped] == []


def test_ages_are_a_number_and_a_unit_and_printed_in_their_largest_unit() -> None:
    days = timedelta(days=1)
    for text, span in (
        *(("90s", days / 960), ("30m", days / 48), ("12h", days / 2), ("7d", 7 * days)),
        ("999999999d", 10_000 * days),
    ):
        assert AgeParam().convert(text, None, None) == span
    for text in ("", "d", "7", "-1d", "1.5h", "7w", "\u0663d", "7 d", "9" * 12 + "d"):
        with pytest.raises(click.BadParameter):
            AgeParam().convert(text, None, None)
    spans = [timedelta(seconds=-5), timedelta(seconds=59), timedelta(minutes=61), timedelta(days=9, hours=5)]
    assert [age(span) for span in spans] == ["0s", "59s", "1h", "9d"]


def test_the_queue_is_a_table_with_the_riskiest_first() -> None:
    conflict = decision("b", text="Contradicts", reason_code="conflicting_near_duplicate")
    made = board(decision("a", text="Plain"), conflict, decision("c", text="Third"))
    head, first, second, _, total = printed(print_page, made.pending(ADMIN, Query(limit=2)), NOW).splitlines()
    assert head.split() == ["risk", "reason", "age", "tenant:user", "id", "decision", "source", "text"]
    assert first.split()[:5] == ["high", "conflicting_near_duplicate", "1h", "acme:ann", "b"]
    assert second.split()[4:6] == ["a", decision("a").decision_id]
    assert head.index("decision") == first.index(decision("b").decision_id)
    assert total == "2 of 3 waiting"


def test_no_text_of_a_record_acts_on_the_terminal_and_colours_are_for_terminals_alone() -> None:
    changes = {"user": "u\x1b[2J", "source": "s\x9b", "checks_failed": [f"duplicate: {HOSTILE}"]}
    made = near("a", f"{HOSTILE}\nsecond line", **changes)
    shown = board(made, decision("m", verdict="approved", text=HOSTILE, user="u\x1b[2J"))
    found, page = shown.item(ADMIN, made.decision_id), shown.pending(ADMIN, Query())
    for terminal in (False, True):
        text = printed(print_item, found, terminal=terminal)
        text += printed(print_page, page, NOW, terminal=terminal)
        text += printed(print_outcome, found.current, refused(HOSTILE), terminal=terminal)
        assert ("\x1b[" in text) is terminal
        assert "[bold]x[/bold]:smile:" in text
        assert text.count(r"\x1b[31mred") >= 3, "the record's text is written out"
        text = re.sub(r"\x1b\[[0-9;]*m", "", text) if terminal else text  # our own styles
        assert not any(char in text for char in "\x1b\x07\x9b\u202e\t")
        assert "second line" in text


def test_an_item_shows_what_bears_on_it() -> None:
    claim = "The cache may never expire, see ADR-003"
    hedge = {"text": "may", "category": "technical", "action": "review", "start": 10, "end": 13}
    cited = {"type": "adr", "value": "003", "start": 32, "end": 39, "state": "not_found", "checked_at": None}
    made = near("a", claim, hedges=[hedge], citations=[{**cited, "detail": "no such file"}])
    memory = decision("m", verdict="approved", text="The cache may expire, see ADR-003")
    shown = board(made, memory)
    shown.add([audit("a", "reject", applied=False)])
    text = printed(print_item, shown.item(ADMIN, made.decision_id))
    for expected in (
        "waiting for a review",
        "may (technical)",
        "✗ adr 003: no such file",
        "failed  citation_missing",
        "m (approved, 80% of the words in common, differs in a negation)",
        "The cache may {+never +}expire, see ADR-003",
        "1 approved, 0 blocked, 0 approved by people, 0 rejected by people",
        "published  review partition 0 offset 0",
        "refused  unauthorized by mallory: reject",
    ):
        assert expected in text, expected


def test_a_memory_that_was_retracted_since_is_not_told_as_approved_and_a_superseded_item_says_by_what() -> (
    None
):
    then = decision("m", verdict="approved", reason_code="trusted_source")
    assert "m (approved, 80%" in printed(print_item, item(near("a", "Text."), then))
    since = item(near("a", "Text."), then, reviewed("m", "retract"))
    assert "m (approved then; retracted since, 80%" in printed(print_item, since)
    rejected = reviewed("a", "reject", reviewer="bob", reason="outdated")
    text = printed(print_item, item(decision("a"), rejected))
    assert f"by {rejected.decision_id} (revision 2): blocked, human_rejected" in text
    assert "human_rejected by bob: outdated" in text
    assert "waiting for a review" not in text


def test_an_item_names_what_it_rests_on_and_what_rests_on_it_as_they_stand_now() -> None:
    made = board(
        decision("m", verdict="approved", reason_code="trusted_source"),
        reviewed("m", "retract"),
        decision("a", derived_from=["m", "gone"]),
        decision("b", verdict="approved", reason_code="trusted_source", derived_from=["m"]),
        decision("c", verdict="blocked", reason_code="ungrounded", derived_from=["m"]),
        decision("o", verdict="approved", reason_code="trusted_source", derived_from=["m"], user="other"),
    )
    child = made.item(ADMIN, decision("a").decision_id)
    parent = made.item(ADMIN, decision("m").decision_id)
    resting = made.dependents(ADMIN, parent.current)
    assert [(one.name, one.state) for one in child.parents] == [("m", "retracted"), ("gone", "")]
    assert [(one.name, one.state) for one in resting.rows] == [("b", "approved")]
    assert "m (retracted)" in printed(print_item, child)
    assert "gone (not available)" in printed(print_item, child)
    assert "b (approved)" in printed(print_item, parent, resting)
    assert json.loads(item_json(parent, resting))["resting"][0]["name"] == "b"


def test_json_is_one_line_that_holds_everything_and_a_risk_of_what_waits_alone() -> None:
    found = item(near("a", "Zwölf"), decision("m", verdict="approved"))
    told = json.loads(item_json(found))
    assert "\n" not in item_json(found)
    assert told["decision"]["evidence"]["claim"] == "Zwölf"
    assert (told["pending"], told["nearest"]["subject_id"]) == (True, "m")
    row = json.loads(row_json(found.current))
    assert (row["since"], row["risk"]["level"]) == ("2026-03-01T11:00:00Z", "low")
    retracted = item(decision("a", verdict="approved"), reviewed("a", "retract"))
    assert json.loads(item_json(retracted))["current"]["risk"] is None
    changes = {"applied": True, "revision": 2, "verdict": "approved", "decision_id": "d2"}
    row = found.current
    told = json.loads(outcome_json(row, "i", replace(refused("human_approved"), **changes)))
    assert (told["item"], told["decision_id"], told["applied"]) == (row.decision_id, "d2", True)
    assert told["revision"] == 2
    unheard = {"applied": None, "item": row.decision_id, "action_id": "i"}
    assert json.loads(outcome_json(row, "i", None)) == unheard
