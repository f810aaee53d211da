"""Names that the documentation mentions exist, its tables list what there is, and the generated page is current."""

import ast
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import reduce
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest

import groundwire
from groundwire.cli.environment import unknown_variables
from groundwire.errors import ErrorCode
from groundwire.gate import claim_case
from groundwire.gate.build import MAX_BYTES, MAX_ENTRIES, REVIEW_PLACE, Checks
from groundwire.gate.response_case import ResponseCase, report_of
from groundwire.gate.response_checks import read_response
from groundwire.messages import headers
from groundwire.messages.decisions import Facts, ReasonCode
from groundwire.messages.decode import MAX_DEPTH, MAX_ELEMENTS, MAX_VALUE_BYTES
from groundwire.messages.records import Claim, LlmResponse
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from schemas.__main__ import FIELDS, INPUTS, OUTPUTS
from schemas.asyncapi import asyncapi
from schemas.records_page import main, page
from tests.unit.docs.pages import DOCS, PAGES, ROOT, blocks, name
from tests.unit.gate.world import World, verifier

MAP = (DOCS / "develop" / "architecture.md").read_text("utf-8")
WIRE = (DOCS / "reference" / "wire.md").read_text("utf-8")
PLACE = re.compile(r"`([a-z_]+(?:\.[a-z_]+)*):([A-Za-z_]+(?:\.[A-Za-z_]+)*)`")
"""`module:name`, as the map and the glossary write it."""


def rows(start: str, text: str = WIRE) -> list[list[str]]:
    """Return the cells of the first table after a sentence, heading or comment."""
    table = text.partition(start)[2].partition("\n|")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[2:]]


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_variable_file_and_test_that_a_page_names_is_there() -> None:
    texts = {page: page.read_text("utf-8") for page in PAGES}

    def unknown(pattern: str, known: Callable[[str], bool]) -> Iterable[str]:
        found = re.compile(pattern)
        return (
            f"{name(p)}: {one}" for p, text in texts.items() for one in found.findall(text) if not known(one)
        )

    folders = "agents|deploy|demo|docs|examples|schemas|src|topics"
    written = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    tests = set(re.findall(r"def (test_\w+)\(", written))
    wrong = [
        *unknown(r"\bGROUNDWIRE_[A-Z]+(?:_[A-Z]+)*\b", lambda one: not unknown_variables({one: ""})),
        *unknown(
            rf"`((?:{folders})/[\w./-]*[\w]|[A-Z]{{4,}}\.md)`",
            lambda one: (ROOT / one).exists() or one.startswith("docs/adrs"),
        ),
        *unknown(r"`(test_\w+)`", tests.__contains__),
    ]
    assert wrong == []


def test_the_map_and_the_glossary_name_what_exists_and_each_word_once() -> None:
    glossary = (DOCS / "reference" / "glossary.md").read_text("utf-8")
    wrong = []
    for module, attribute in sorted({pair for text in (MAP, glossary) for pair in PLACE.findall(text)}):
        prefix = (
            "" if module.partition(".")[0] in {"agents", "topics", "schemas", "deploy"} else "groundwire."
        )
        try:
            reduce(getattr, attribute.split("."), import_module(prefix + module))
        except (ImportError, AttributeError) as error:
            wrong.append(f"{module}:{attribute}: {error}")
    lines = [
        line for line in glossary.splitlines() if line.startswith("| ") and not line.startswith("| word |")
    ]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    wrong += [row[0] for row in cells if len(row) != 3 or not PLACE.search(row[-1])]
    words = [word for row in cells for word in row[0].split(", ")]
    assert (wrong, len(words)) == ([], len(set(words)))


def test_the_map_has_walks_of_ten_steps_the_layers_in_their_order_and_every_fact() -> None:
    for heading in ("## One claim", "## One response", "## One review decision"):
        steps = rows(heading, MAP)
        assert int(steps[-1][0]) == 10, heading
        assert [step for step in steps if not PLACE.search(" ".join(step))] == []
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one.get("containers") == ["groundwire"])
    order = [room for row in rows("<!-- layers -->", MAP) for room in re.findall(r"`(\w+)/?`", row[0])]
    for layer in layers:
        if layer != "__main__":
            allowed = set(re.split(r" [:|] ", layer))
            assert {order.pop(0) for _ in allowed} == allowed
    assert order == []
    named = {code for row in rows("## Where facts come from", MAP) for code in re.findall(r"`(\w+)`", row[0])}
    assert named == set(Facts.model_fields)


def test_the_headers_of_the_wire_contract_are_those_that_records_carry() -> None:
    messages = asyncapi()["components"]["messages"]
    sent = {code for row in rows("Headers that the gate reads") for code in codes(row[0])}
    assert sent == set(messages["claim"]["headers"]["properties"])
    every = rows("Every output record has these headers")
    assert {code for row in every for code in codes(row[0])} == set(
        messages["decision"]["headers"]["properties"]
    )
    types = next(row[1] for row in every if "`ce_type`" in row[0])
    kinds = ("decision", "retraction", "regenerate", "audit")
    assert codes(types) == [messages[kind]["headers"]["properties"]["ce_type"]["const"] for kind in kinds]
    carried = set(re.findall(r'"(__connect\.errors\.[a-z.]+)"', inspect.getsource(headers)))
    named: set[str] = set()
    for row in rows("A dead letter keeps the key"):
        first, *others = codes(row[0])
        named |= {first, *(f"__connect.errors{other}" for other in others)}
    assert named == carried | {"gw-error", headers.ATTEMPTS, headers.VALUE_OMITTED}


def test_the_checks_of_the_wire_contract_are_those_that_decisions_list() -> None:
    source = inspect.getsource(claim_case)
    of_claims = f'"{REVIEW_PLACE}"\n{dedent(inspect.getsource(Checks.add_place))}'
    of_claims += source[source.index("def list_checks") :]
    listed = {
        re.sub(r":.*", "", node.value)
        for node in ast.walk(ast.parse(of_claims))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"[a-z]+(_[a-z]+)+(: )?|(duplicate|expired)(: )?", node.value)
    }
    listed -= {name for name in listed if name.endswith("_unavailable")} | {"user_type"}
    cells = [cell for row in rows("These are the names of") for cell in row[1:]]
    named = {code.partition(":")[0] for cell in cells for code in codes(cell)}
    assert len(listed) > 20
    assert named - {""} == listed


def test_the_sizes_of_the_wire_contract_are_those_that_the_code_keeps() -> None:
    sizes = {row[0]: row[1] for row in rows("## Sizes")}
    parents = Claim.model_json_schema()["properties"]["derived_from"]["maxItems"]
    elements = f"{MAX_ELEMENTS:,} elements (members of all its lists and objects), {MAX_DEPTH} levels"
    assert sizes["an input value"] == f"{MAX_VALUE_BYTES:,} bytes, {elements}"
    assert sizes["a Decision"].startswith(f"{MAX_BYTES // 1000} kB")
    assert sizes["citations that are looked up"].startswith(f"the first {MAX_ENTRIES} ")
    assert sizes["lists in a Decision"].startswith(f"{MAX_ENTRIES} entries")
    assert sizes["`derived_from`"] == f"{parents}"


def test_the_report_of_the_wire_contract_has_the_sections_that_a_report_has() -> None:
    record = {"response_id": "r", "user_id": "ann", "answer": "Yes."}
    response, policy = LlmResponse.model_validate(record), Policy()
    clock = datetime(2026, 1, 31, tzinfo=UTC)
    case = ResponseCase(response, read_response(response, policy), policy, Facts(clock=clock))
    assert [codes(row[0])[0] for row in rows("### Report")] == list(report_of(case))


def test_the_library_page_lists_every_public_name_and_no_other() -> None:
    """A new name needs a line there, so that people find it."""
    overview = (DOCS / "use" / "library" / "index.md").read_text("utf-8").partition("\n## ")[0]
    table = [line.split(" | ") for line in overview.splitlines() if line.startswith("| `")]
    named = {code for row in table for code in codes(row[0])}
    assert named == set(groundwire.__all__) - {"__version__"}


def test_the_records_page_is_current_and_has_a_meaning_of_every_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, place = page(), DOCS / "reference" / "records.md"
    assert main(["check", str(place)]) == 0
    for name_ in [*TopicName, *ReasonCode, *ErrorCode]:
        assert f"| `{name_}` |" in text
    for model in [*INPUTS.values(), *OUTPUTS.values()]:
        whole = text.partition(f"## {model.__name__} 1.0\n")[2].partition("\n## ")[0]
        lines = whole.partition("\n### ")[0].splitlines()
        fields = {line.split("`")[1]: line.split(" | ") for line in lines if line[:3] == "| `"}
        assert set(fields) == {field.alias or name_ for name_, field in model.model_fields.items()}
        assert all(cell.strip(" |") for cells in fields.values() for cell in cells)
    file = tmp_path / "records.md"
    assert main(["write", str(file)]) == 0
    assert file.read_bytes() == place.read_bytes()
    file.write_text(file.read_text().replace("30 days", "31 days"))
    assert main(["check", str(file)]) == 1
    assert "make generate" in capsys.readouterr().err


def test_a_field_without_a_meaning_and_a_meaning_without_a_field_are_named() -> None:
    texts = tomllib.loads(FIELDS.read_text("utf-8"))
    claim = {field: text for field, text in texts["Claim"].items() if field != "content"}
    more = {**texts["Claim"], "colour": "Its colour."}
    for changed, named in (
        ({"Claim": claim}, r"\[Claim\].*content"),
        ({"Claim": more}, r"\[Claim\].*colour"),
        ({"Nothing": {}}, "Nothing"),
    ):
        with pytest.raises(ValueError, match=named):
            page(texts | changed)


def test_what_the_table_says_of_a_claim_is_what_the_page_shows_and_each_row_is_a_claim_of_the_file() -> None:
    """S0-160: a miss that is fixed, or a catch that is lost, shows here.

    S0-161: an agent that was taught to avoid hedges lands in review.
    """
    limits = DOCS / "trust" / "limits.md"
    table = [line for line in limits.read_text("utf-8").splitlines() if re.match(r"\| .*\| `\w+`", line)]
    misses = [row.split(" | ") for row in table]
    block = next(block for block in blocks(limits) if "evasions.jsonl" in block.text)
    claims = [json.loads(line)["claim_id"] for line in block.text.splitlines() if line[0] == "{"]
    lines = (block.shown or "").splitlines()[1:]
    shown = {one: line.split()[0] for one, line in zip(claims, lines, strict=False)}
    named = {claim for row in misses for claim in re.findall(r"`(\w+)`", row[2])}
    # `page` needs a web server: the test below; `stored` is what the paraphrase repeats
    assert (len(misses) >= 5, named | {"stored"}) == (True, {*claims, "page"})
    words = {"approved": ("approved", "not a duplicate"), "review": ("review",), "blocked": ("blocked",)}
    wrong = [
        claim
        for row in misses
        for claim in set(re.findall(r"`(\w+)`", row[2])) - {"page", "stored"}
        if not any(word in row[3] for word in words[shown[claim]])
    ]
    assert wrong == []
    assert (shown["taught"], shown["confident"]) == ("review", "review")


async def test_a_page_of_the_authors_choosing_approves_unless_its_words_are_asked_for() -> None:
    """S0-160, the row `page`."""
    url = "https://made.example/up"
    found = {}
    for relevance, status in ((False, 200), (False, 404), (True, 200)):
        world = World(policy=Policy(verify_claim_relevance=relevance), verifier=verifier(urls={url: status}))
        (decision,) = await world.decide(world.claim("page", f"All data lives on the moon, see {url}"))
        found[relevance, status] = decision.verdict
    assert found == {(False, 200): "approved", (False, 404): "review", (True, 200): "review"}
