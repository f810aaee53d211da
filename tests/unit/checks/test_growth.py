"""The work of every check grows in proportion to its text, whatever the text holds."""

from datetime import UTC, datetime
from functools import partial
from itertools import product

import pytest

from groundwire.checks.citations import CitationDetector
from groundwire.checks.dedup.form import read_form
from groundwire.checks.dedup.signature import signature
from groundwire.checks.entities import ground_entities
from groundwire.checks.extraction import extract_claims
from groundwire.checks.hedges import HedgeDetector
from groundwire.checks.marks import Citable
from groundwire.checks.quote_text import comparison_form, standing
from groundwire.checks.reading.force import scopes
from groundwire.checks.reading.statements import statements
from groundwire.checks.relations import preserve_relations
from groundwire.checks.source_tags import check_tags, grounded_prompt
from groundwire.checks.sources import FieldChecker, verify_sources
from groundwire.checks.support.verify import check_answer
from groundwire.checks.values.answer import check_values
from groundwire.text.normalise import nfkc, normalise
from groundwire.text.sentences import sentences
from tests.unit.checks import growth
from tests.unit.checks.tables import failing


@pytest.mark.slow
def test_work_grows_in_proportion_to_the_text():
    combining = "\u0301\u0323\u0334"

    def claims(text):
        extract_claims(text, 10**6)

    def values(text):
        check_values(text, [f"a {text} b"])

    def answer(text):
        check_answer(text[:4_000], [text, text.upper()])

    def relation(text):
        claim = dict.fromkeys(("subject", "relation", "object", "version"), f"x{text}")
        preserve_relations([claim] * 2, [claim | {"version": "1"}, claim | {"version": "2"}, claim, claim])

    def role(text):
        ground_entities([{"id": "e", "role": f"x{text}"}], {"e": {"confidence": 1, "role": "y"}})

    def forces(text):
        for statement in statements(text[:3_900]):
            scopes(statement)

    def marks(text):
        Citable(["a.pdf"], 9).missing(text + "a")

    def signed(text):
        signature(read_form(text))

    def fences_of_ever_shorter_length(text):
        sentences(
            "\n".join("`" * length + " a" for length in range(int(len(text) ** 0.5), 3, -1)) + "\n" + text
        )

    def chunk(content):
        return {"chunk_id": "c", "file": "f", "content": content, "start_line": 1, "end_line": 1}

    def prompt(text):
        grounded_prompt(text, [chunk(text)])

    def inside_a_tag(text):
        check_tags(f"It is so [source:{text}x].", Citable((), 3), required=True)

    def tags(text):
        check_tags(text, Citable((), 3), required=True)

    def sources(text):
        verify_sources([{"file": "f", "snippet": text[len(text) // 2 :] + "x"}], [chunk(text)])

    def fields(text):
        FieldChecker().verify_fields(FieldChecker().extract_mentioned_fields("option" + text), [chunk(text)])

    def citations(text):
        CitationDetector().detect("https://x" + text)

    tables = {
        sentences: [
            *("a" + 99 * unit for unit in (" ", "`", "--", "aaa:", "* * ", ". [source:", "~", "(", "1,", "[1 e.g.]")),
            "a. ", "a.", "A\n", "\n", "``` a\n", "```\na\n```\n", "~~~~a\n", "- x\n", "1. ", "| ", "e.g. ",
            "A: ", "x:\n",
        ],
        fences_of_ever_shorter_length: ["```x\n"],
        fields: ["a", "a:", "a: ", "`a", "`", ".a", "option ", "parameter named ", " ", "_1", "x:string ", "é:"],
        sources: ["a", "a ", "-", ".", "1,000", "1.", "\n", "a\n", "(", "\u200b", "\u201c", "- ", "_("],
        prompt: ["{query}", "<<<", "a", "[source:1]\n"],
        tags: [
            "[source:", "[source:1]", "[ ", "[source:1,", "no a found ", "not found in provided ", "not find a ", "1-",
            "**a", "__", "sorry ", ", so i cannot answer it", "the provided sources do not ", "the passages do not ",
            "is ", "information about ", "a. ", "?* ", "|-|\n", "```\na\n```\n", "[source:1] a.",
        ],
        inside_a_tag: [" ", "0", "1", "source:", "#", "-", "1 - "],
        marks: [
            "[1]", "x. Sources: ", "(see [1]) ", "[", "(a.pdf, ", "Sources:\n", "a/", "[9] ", "`", "\u3010",
            "[a](b.pdf)", "Source: a.pdf\n",
        ],
        nfkc: [combining],
        normalise: [combining],
        signed: [
            combining, "<", "1-", "hundred ", "million ", "9", "!1a=", "-", "(a", "$", "un", "twenty-", "1,000 ",
        ],
        comparison_form: [
            "<a>", "<a", "<", " <", ">", "<a<b>", "<b>x", "²", "1²", "\u0344\u0316", "\u0f71\u0f72", "中", "é ", "a  ",
        ],
        claims: [
            "The API retries. ", "[source:", "**", "_a", "`", "> ", "a_", "* a", "[x](", "Not found ", "word ",
            "\n- x is y",
        ],
        citations: [
            "https://x", "(https://x(", "'https://x", ")", "&", "a.", "a://", "ADR ", "[", "#1 and ", "abcdef1 ",
            "commit ", "0123456789abcdef0123456789abcdef01234567-",
        ],
        HedgeDetector().find: [
            "I ", "I was ", "we, just, ", "may ", "not so ", "perhaps we ", "I could be a b c ", "if I ", "I\u200b ",
            "around ", "_", "\u0301",
        ],
        forces: [
            "he claims that the ", "not to ", "if a is b ", "if the ", "may ", "whether ", "denied and was ",
            "no sign of ",
        ],
        values: [
            "7 ", "Limit is 7. ", "1,000", "1.", "not ", "1 and ", "May ", "|1", "a_", "_", "-1", "[1", "k:\n",
            "\n  k: 1", "v1", "[source:", "https://", "aB", "'", "1-", "half a ", "no 5 or ", "x=1;", "9" * 50 + " ",
        ],
        role: ["CIO", "é", combining, "ﷺ", " \t"],
        relation: ["é", combining, "1.", "v ", "﷽"],
        answer: ["It retries 3 times in Berlin. ", "a; b not c\n\n", "no x9 by y or 5 ms, "],
    }  # fmt: skip
    cases = [(check, unit) for check, units in tables.items() for unit in units]
    assert failing(growth.assert_linear, cases) == []


@pytest.mark.slow
def test_work_grows_in_proportion_to_the_number_of_parts_not_with_their_product():
    def values(count):
        passages = [f"The x{n % 50} y costs {n} euros." for n in range(count)]
        answer = " ".join(f"The x{n % 50} y costs {count + n} euros." for n in range(count // 6))
        return partial(check_values, answer, passages)

    def quotes(count):
        quotes, source = [f"1{number * 7919 + 10**6:x}" for number in range(count)], "1" * 6 * count
        return lambda: any(dict(standing(quotes, source)).values())

    def entities(count):
        known = {f"e{n}": {"confidence": 0.9, "role": "CIO"} for n in range(0, count, 2)}
        return partial(ground_entities, [{"id": f"e{n}", "role": "CIO"} for n in range(count)], known)

    def relations(shape, rules, hit, count):
        truths = [shape(n) for n in range(count)]
        claims = truths if hit else [{**truth, "version": "none such", "qualifiers": {}} for truth in truths]
        return partial(preserve_relations, claims, truths, **rules)

    suit = {"subject": "a", "relation": "sued", "object": "b", "version": "v1"}
    shapes = [
        lambda n: suit | {"subject": f"s{n}", "object": f"o{n}"}, lambda n: suit | {"version": f"v{n}"},
        lambda n: suit | {"timestamp": datetime.fromtimestamp(n, UTC)}, lambda n: suit | {"relation": f"r{n}"},
        lambda n: suit | {"version": f"x-{n}-y"},
        lambda n: suit | {"version": f"x-{n}-y", "timestamp": datetime.fromtimestamp(n, UTC), "qualifiers": {"n": n}},
    ]  # fmt: skip
    rules = [{}, {"strict_versions": True, "require_qualifiers": True}]
    related = [partial(relations, *each) for each in product(shapes, rules, [True, False])]
    assert failing(growth.assert_tenfold, [(run, 200) for run in (values, quotes, entities, *related)]) == []
