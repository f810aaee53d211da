"""Source tags: which are read, which count no chunk, and which claims lack one (S2-20, S2-21, S2-23, C-51)."""

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.marks import LARGEST, Citable
from groundwire.checks.source_tags import check_tags as check
from groundwire.text.refusals import is_claim, is_refusal
from tests.unit.checks.tables import failing


def check_tags(answer, chunks, *, required):
    return check(answer, Citable(["docs/config.py"], chunks), required=required)


def missing(answer, chunks=3, *, required=False):
    return [answer[start:end] for start, end in check_tags(answer, chunks, required=required).missing]


def test_a_tag_is_read_however_it_is_spaced():
    cases = [
        ("[source:1] [source:3]", (1, 3)), ("[source:1,3]", (1, 3)), ("[source:config.py]", ("config.py",)),
        ("[source:]", ()),
    ]  # fmt: skip

    def check(written, tags):
        report = check_tags(f"The cache is small {written}.", 3, required=False)
        assert report.tags == tags
        assert report.present
        assert report.phantom == ()
        assert report.coverage == (1.0 if tags else 0.0)
        assert report.missing == ()

    assert failing(check, cases) == []


def test_what_is_no_tag_is_none():
    writtens = ["source:1", "[resource:1]", "[source:1", "[x]", ""]

    def check(written):
        report = check_tags(f"The cache is small {written}.", 3, required=False)
        assert (report.tags, report.present, report.missing, report.warnings) == ((), False, (), ())

    assert failing(check, writtens) == []


def test_a_tag_that_counts_no_chunk_is_a_phantom():
    cases = [("0", 0), ("-1", -1), ("\u22122", -2), ("9" * 5_000, LARGEST)]

    def check(written, number):
        report = check_tags(
            f"A is big [source:{written}]. B is small [source:{written}] [source:3].", 3, required=False
        )
        assert report.phantom == (number,)
        [warning] = report.warnings
        assert warning.type == "PHANTOM_FILE"
        assert warning.details == {"tags": [number], "chunks": 3}
        assert report.missing == ()
        assert report.coverage == 1.0

    assert failing(check, cases) == []


def test_a_paragraph_of_claims_without_a_mark_beside_tagged_ones_is_missing_one_and_coverage_counts_it():
    answer = (
        "The timeout is 30 s. The retries default to 5 [source:1].\n\nIt stops at 9. Backoff doubles.\n\n"
        "The queue holds 7 [2]."
    )
    report = check_tags(answer, 2, required=False)
    assert missing(answer) == ["It stops at 9.", "Backoff doubles."]
    assert (report.claims, report.coverage, report.present) == (5, 0.6, True)
    [warning] = report.warnings
    assert warning.type == "SOURCE_TAG_MISSING"
    assert warning.details["missing"] == 2
    assert warning.details["places"][0] == {"start": 59, "end": 73}


def test_a_mark_serves_its_paragraph_a_lead_in_its_list_and_a_closing_list_the_answer():
    answers = [
        "The timeout is 30 s. [source:1] It stops at 9.",
        "The limits are [source:1]:\n\n- the timeout is 30 s\n- it stops at 9",
        "The timeout is 30 s [source:1].\n\nIt stops at 9.\n\nSources: config.py",
        "The timeout is 30 s [1].\n\nIt stops at 9.",
        "The timeout is 30 s [source:1].\n\nIf you need anything else, please let me know!",
    ]  # fmt: skip
    assert [answer for answer in answers if missing(answer) != []] == []


def test_an_answer_without_any_tag_lacks_none_unless_tags_are_required():
    answer = "The timeout is 30 s. The cache is warm at start."
    assert missing(answer) == []
    assert missing(answer, required=True) == ["The timeout is 30 s.", "The cache is warm at start."]
    assert check_tags(answer, 2, required=True).present is False


def test_a_refusal_needs_no_tag():
    report = check_tags("Not found in provided sources.", 0, required=True)
    assert (report.claims, report.coverage, report.missing, report.warnings) == (0, 1.0, (), ())


def test_a_sentence_that_only_says_that_the_sources_lack_something_is_a_refusal():
    sentences = [
        "The answer was not found in the provided sources.",
        "Unfortunately, the default of `retries` isn\u2019t documented in the given context.",
        "I could not find the default value or its unit in the provided documents.",
        "The passages do not mention a default.",
    ]  # fmt: skip

    def check(sentence):
        assert is_refusal(sentence)
        assert not is_claim(sentence)

    assert failing(check, sentences) == []


def test_a_refusal_that_states_something_else_too_is_a_claim():
    sentences = [
        "The timeout is 30, the retries are not found in provided sources.",
        "The client uses backoff; retries not found in provided sources.",
        "The provided sources do not mention it, which means that it is off.",
        "The passages do not mention it, which means that it is off.",
    ]  # fmt: skip

    def check(sentence):
        assert not is_refusal(sentence)
        assert is_claim(sentence)

    assert failing(check, sentences) == []


def test_what_states_nothing_is_no_claim():
    texts = ["## Timeouts 2.0", "**Configuration**", "---", "I hope this helps!"]
    assert [text for text in texts if is_claim(text)] == []


def test_what_states_something_is_a_claim():
    texts = ["Kafka keeps the order.", "`retries`: 5", "See src/app.py", "Yes, it does so."]
    assert [text for text in texts if not is_claim(text)] == []


def test_rows_are_claims_of_their_own_and_their_head_is_none():
    answer = (
        "# Defaults\n\nThe defaults are:\n\n- timeout is 30 s [source:1]\n- retries are 5\n\n"
        "| option | default value | unit |\n|---|---|---|\n| limit | 7 | s |\n| burst | 9 | s |\n"
    )
    assert missing(answer) == ["| limit | 7 | s |", "| burst | 9 | s |"]


def test_a_code_block_is_a_claim_that_its_neighbour_may_tag():
    cases = [
        ("Call it so [source:1]. For example:\n```\nf(1)\n```", 0),
        ("```\nf(1)\n```\nThis is how [source:1].", 0), ("```\nf(1)  # [source:2]\n```", 0),
        ("It is so [source:1].\n\nCall it so.\n```\nf(1)\n```\nThat is all there is.", 2),
        ("It is so [source:1].\n```\n```", 0),
    ]  # fmt: skip
    assert [(answer, got) for answer, bare in cases if (got := len(missing(answer))) != bare] == []


@given(
    st.lists(st.tuples(st.sampled_from(["A holds 5.", "B is warm now.", "C `x` runs."]), st.integers(-1, 4))),
    st.integers(0, 3),
    st.booleans(),
)
def test_tags_phantoms_and_coverage_add_up(parts, chunks, required):
    answer = "\n\n".join(text + (f" [source:{tag}]" if tag >= 0 else "") for text, tag in parts)
    report = check_tags(answer, chunks, required=required)
    tags = [tag for _, tag in parts if tag >= 0]
    assert report.tags == tuple(tags)
    assert set(report.phantom) == {tag for tag in tags if not 1 <= tag <= chunks}
    assert report.claims == len(parts)
    held = sum(1 <= tag <= chunks for _, tag in parts)
    assert report.coverage == (held / len(parts) if parts else 1.0)
    assert len(report.missing) == (len(parts) - len(tags) if tags or required else 0)
    assert bool(report.warnings) == bool(report.phantom or report.missing)


def test_zeros_before_a_number_say_nothing():
    cases = [("0", 0), ("000", 0), ("0" * 50 + "3", 3), ("-00", 0)]
    assert [
        (body, tag)
        for body, tag in cases
        if check_tags(f"It is so [source:{body}].", 3, required=True).tags != (tag,)
    ] == []
