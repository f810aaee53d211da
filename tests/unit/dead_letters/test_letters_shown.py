"""Which letters are selected, and what is shown of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import click
import pytest
from click.testing import CliRunner

from groundwire.cli.dead_letters import LetterPrinter, PlaceParam, content_json, content_lines, letter_json
from groundwire.cli.main import main
from groundwire.dead_letters.letters import LetterPlace, Redriven, RedrivenPlace, Selection, read_letter
from groundwire.errors import ErrorCode
from groundwire.messages.headers import InboundRecord
from tests.unit.dead_letters.fake_log import FakeLog

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[red]x[/red]\r\nnew line"
SECRET = "my salary is 1234"


def buried(value=b'{"tenant_id": "acme", "user_id": "ann"}', **options):
    return read_letter(FakeLog().bury(value, **options))


def test_a_letter_is_selected_where_every_condition_holds():
    cases = (
        (Selection(), True),
        (Selection(codes={"worker_crash", "invalid_json"}), True),
        (Selection(codes={"invalid_json"}), False),
        (Selection(topic="t.claims"), True),
        (Selection(topic="claims"), False),
        (Selection(tenant="acme"), True),
        (Selection(tenant="acm"), False),
        (Selection(key=b"acme:ann"), True),
        (Selection(key=b"acme:an"), False),
        (Selection(partition=0), True),
        (Selection(partition=1), False),
        (Selection(places={LetterPlace(0, 0)}), True),
        (Selection(places={LetterPlace(0, 1)}), False),
        (Selection(end=1), True),
        (Selection(end=0), False),
        (Selection(end=datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC)), True),
        (Selection(end=datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)), False),
        (Selection(codes={"worker_crash"}, tenant="globex"), False),
    )
    assert [(one, selected) for one, selected in cases if (buried() in one) is not selected] == []
    unsure = (
        (b"acme:ann", b'{"tenant_id": "globex", "user_id": "ann"}'),
        (None, b'{"tenant_id": "acme", "user_id": "ann"}'),
        (b"\xff:ann", b"{}"),
        (b"acme", b"{}"),
    )
    for key, value in unsure:
        letter = buried(value, key=key)
        assert [letter in Selection(tenant=name) for name in ("acme", "globex")] == [False, False]
        assert letter_json(letter, None)["tenant_id"] is None


def test_no_more_is_read_than_where_the_named_letters_stand():
    one = Selection(places={LetterPlace(2, 17)}).narrowed()
    assert (one.start, one.end, one.partition) == (17, 18, 2)
    two = Selection(places={LetterPlace(2, 17), LetterPlace(0, 3)}).narrowed()
    assert (two.start, two.end, two.partition) == (3, 18, None)
    given = Selection(start=5, places={LetterPlace(2, 17)})
    assert given.narrowed() == given
    assert Selection().narrowed() == Selection()


def test_wrong_options_are_refused_by_name():
    for text in ("", "1", "@", "1@", "@1", "a@1", "1@2@3", "-1@2", "1@1" + "0" * 18, "²@1"):
        with pytest.raises(click.BadParameter, match="2@17"):
            PlaceParam().convert(text, None, None)
    assert str(PlaceParam().convert("2@17", None, None)) == "2@17"
    wrong = [
        *(["list", "--to", text] for text in ("earliest", "latest", "yesterday", "2026-01-01")),
        *(
            ["redrive", *one]
            for one in (["--rate", "0"], ["--max-attempts", "0"], ["--limit", "0"], ["--code", "x"])
        ),
    ]
    for arguments in wrong:
        result = CliRunner().invoke(main, ["dead-letters", *arguments])
        assert (arguments, result.exit_code, arguments[1] in result.stderr) == (arguments, 2, True)


REDRIVEN = Redriven(datetime(2026, 1, 2, tzinfo=UTC), HOSTILE, RedrivenPlace("t.claims", 1, 5))


def test_the_value_is_shown_only_where_it_is_asked_for():
    letter = buried(SECRET.encode())
    assert SECRET not in "".join(content_lines(letter, None, value=False))
    assert content_lines(letter, None, value=True)[-1] == SECRET
    assert SECRET not in json.dumps({**letter_json(letter, None), **content_json(letter, value=False)})
    assert content_json(letter, value=True)["value"] == SECRET


def test_headers_are_shown_as_the_record_had_them():
    letter = buried(headers=[("traceparent", b"00-a"), ("raw", b"\xff\n"), ("gw-attempts", b"1")])
    assert content_json(letter, value=False)["headers"] == [
        {"name": "traceparent", "value": "00-a"},
        {"name": "raw", "value_base64": "/wo="},
    ]
    lines = content_lines(letter, None, value=False)
    assert any(line.split() == ["header", "raw", r"\xff\n"] for line in lines)
    assert any(line.split() == ["attempts", "2"] for line in lines)


def test_nothing_in_a_letter_acts_on_a_terminal():
    for text in (HOSTILE, "\ud800"):
        data = text.encode("utf-8", "surrogatepass")
        letter = buried(data, key=data, headers=[("name" + HOSTILE, data)])
        for line in content_lines(letter, REDRIVEN, value=True):
            assert line.isprintable(), line


def test_a_table_has_a_line_for_each_letter_with_what_became_of_it(capsys):
    printer = LetterPrinter("table")
    printer.letter(buried(key=HOSTILE.encode()), None)
    printer.letter(buried(), REDRIVEN)
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split()[:4] == ["letter", "error", "attempts", "state"]
    assert first.split()[:5] == ["0@0", "worker_crash", "1", "open", "t.claims[2]@7"]
    assert second.split()[:5] == ["0@0", "worker_crash", "1", "redriven", "t.claims[1]@5"]
    assert "\x1b" not in first


def test_json_has_one_object_a_line_without_the_value(capsys):
    LetterPrinter("json").letter(buried(SECRET.encode(), key=b"\xff"), REDRIVEN)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "letter": "0@0",
        "at": "2026-01-01T00:00:01Z",
        "error": "worker_crash",
        "message": "why",
        "attempts": 1,
        "topic": "t.claims",
        "partition": 2,
        "offset": 7,
        "key_base64": "/w==",
        "tenant_id": None,
        "user_id": None,
        "size": len(SECRET),
        "state": "redriven",
        "redriven": {
            "at": "2026-01-02T00:00:00Z",
            "actor": HOSTILE,
            "topic": "t.claims",
            "partition": 1,
            "offset": 5,
        },
    }


def test_a_letter_without_value_and_key_can_be_shown():
    record = InboundRecord("t.dead-letter", 0, 0, -1, None, None, ())
    letter = read_letter(record)
    assert letter.attempts is None
    assert content_lines(letter, None, value=True)
    assert content_json(letter, value=True) == {"headers": [], "value": None}
    assert letter_json(letter, None)["error"] == "unknown"
    assert "unknown" not in set(ErrorCode)
