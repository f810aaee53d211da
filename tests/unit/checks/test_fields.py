"""Fields of an answer: what counts as a mention, and what is found where (S2-09..S2-14, S2-16, S2-18, C-50)."""

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.fields import FieldChecker
from tests.unit.checks.tables import differing

CHECKER = FieldChecker()


def chunk(content):
    return {"chunk_id": "c1", "file": "a.ts", "content": content, "start_line": 1, "end_line": 1}


def test_each_of_the_four_ways_to_name_a_field_is_seen():
    cases = [
        ("the parameter topN", ["topN"]),
        ("the Field  topN and an OPTION\nother_one", ["topN", "other_one"]),
        ("call client.flushAll() now", ["flushAll"]), ("the parameter field topK", ["topK"]),
    ]  # fmt: skip
    assert differing(CHECKER.extract_mentioned_fields, cases) == []


def test_fields_come_in_the_order_of_their_first_mention_once_each_in_exact_case():
    answer = "parameter zeta, then `alpha`, .beta(), `zeta`, `Alpha` and alpha: string"
    assert CHECKER.extract_mentioned_fields(answer) == ["zeta", "alpha", "beta", "Alpha"]


def test_plain_words_are_no_fields():
    answers = [
        "There is an option to retry.",
        "An Option To Skip. The parameter THAT matters. option 2, parameter 1.",
        "Note: string values are trimmed. Type: number. One of: string, number.",
        "adoption rate, subfield x, metaparameter y", "name: stringent rules, size: numbers",
    ]  # fmt: skip
    assert [answer for answer in answers if CHECKER.extract_mentioned_fields(answer) != []] == []


def test_code_spans_and_calls_know_no_stop_list():
    assert CHECKER.extract_mentioned_fields("`is` and x.to(y)") == ["is", "to"]


def test_a_name_that_begins_like_a_plain_word_is_a_field():
    assert CHECKER.extract_mentioned_fields("parameter toName, option isOpen") == ["toName", "isOpen"]


def test_confidence_is_the_share_of_fields_found():
    result = CHECKER.verify_fields(["a", "b", "c", "d"], [chunk("a = c")])
    assert result == (["a", "c"], ["b", "d"], 0.5)
    assert result.message == "Unverified fields: [b, d]"


def test_no_field_is_full_confidence():
    assert CHECKER.verify_fields([], []) == ([], [], 1.0)


def test_a_field_is_a_whole_name_in_exact_case():
    contents = ["topKey", "TOPK", "topk", "topK2"]
    assert [
        content
        for content in contents
        if CHECKER.verify_fields(["topK"], [chunk(content)]).unverified != ["topK"]
    ] == []


def test_a_field_is_found_wherever_its_whole_name_stands():
    contents = ["topK", "{topK:3}", "$topK", "# topK\n"]
    assert [
        content
        for content in contents
        if CHECKER.verify_fields(["topK"], [chunk("other"), chunk(content)]).verified != ["topK"]
    ] == []


@given(st.lists(st.from_regex(r"[a-z]{1,3}", fullmatch=True)), st.text("abc ._-", max_size=60))
def test_every_field_is_verified_or_not_and_counted_once(names, content):
    result = CHECKER.verify_fields(names, [chunk(content)])
    assert sorted(result.verified + result.unverified) == sorted(set(names))
    total = len(set(names))
    assert result.confidence == (len(result.verified) / total if total else 1.0)


@given(st.text("`.ab:(1 option string parameter\n", max_size=80))
def test_what_is_extracted_stands_in_the_answer(answer):
    found = CHECKER.extract_mentioned_fields(answer)
    assert all(name in answer for name in found)
    assert len(set(found)) == len(found)
