"""Names that the documentation mentions exist: settings, files, topics, headers, checks, public names."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import groundwire
from groundwire.cli.environment import unknown_variables
from groundwire.errors import ErrorCode, RecordError
from groundwire.gate import report as checks
from groundwire.gate.build import MAX_BYTES, MAX_ENTRIES
from groundwire.gate.report import report_of
from groundwire.gate.response_case import ResponseCase
from groundwire.gate.response_checks import read_response
from groundwire.messages import headers
from groundwire.messages.decisions import Facts
from groundwire.messages.decode import MAX_VALUE_BYTES
from groundwire.messages.records import Claim, LlmResponse
from groundwire.policy import Policy
from schemas.asyncapi import asyncapi
from tests.unit.docs.pages import DOCS, PAGES, ROOT, name

TEXTS = {page: page.read_text("utf-8") for page in PAGES}
WIRE = (DOCS / "reference" / "wire.md").read_text("utf-8")
MESSAGES = asyncapi()["components"]["messages"]


def rows(start: str) -> list[list[str]]:
    """Return the cells of the first table of the wire contract after a sentence."""
    table = WIRE.partition(start)[2].partition("\n|")[2].partition("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def unknown(names_of: Callable[[str], Iterable[str]], known: Callable[[str], bool]) -> dict[str, list[str]]:
    """Return, for each page, the names on it that are not known."""
    found = {name(page): [one for one in names_of(text) if not known(one)] for page, text in TEXTS.items()}
    return {page: wrong for page, wrong in found.items() if wrong}


def test_every_variable_that_a_page_names_is_read_by_something() -> None:
    variable = re.compile(r"\bGROUNDWIRE_[A-Z]+(?:_[A-Z]+)*\b")
    assert unknown(variable.findall, lambda one: not unknown_variables({one: ""})) == {}


def test_every_file_of_the_repository_that_a_page_names_exists() -> None:
    folders = "agents|deploy|demo|docs|examples|schemas|src|topics"
    path = re.compile(rf"`((?:{folders})/[\w./-]*[\w]|[A-Z]{{4,}}\.md)`")
    assert unknown(path.findall, lambda one: (ROOT / one).exists() or one.startswith("docs/adrs")) == {}


def test_every_test_that_a_page_names_exists() -> None:
    written = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    tests = set(re.findall(r"def (test_\w+)\(", written))
    assert unknown(re.compile(r"`(test_\w+)`").findall, tests.__contains__) == {}


def test_the_headers_of_the_wire_contract_are_those_of_the_published_description() -> None:
    sent = {code for row in rows("Headers that the gate reads") for code in codes(row[0])}
    assert sent == set(MESSAGES["claim"]["headers"]["properties"])
    published = {code for row in rows("Every output record has these headers") for code in codes(row[0])}
    assert published == set(MESSAGES["decision"]["headers"]["properties"])
    types = next(row[1] for row in rows("Every output record has these headers") if "`ce_type`" in row[0])
    kinds = ("decision", "retraction", "regenerate", "audit")
    assert codes(types) == [MESSAGES[kind]["headers"]["properties"]["ce_type"]["const"] for kind in kinds]


def test_the_headers_of_a_dead_letter_are_those_that_it_carries() -> None:
    error = RecordError(ErrorCode.INVALID_JSON, "no")
    source = inspect.getsource(headers)
    carried = set(re.findall(r'"(__connect\.errors\.[a-z.]+)"', source)) | {"gw-error", headers.ATTEMPTS}
    told: set[str] = set()
    for row in rows("A dead letter keeps the key"):
        first, *others = codes(row[0])
        told |= {first, *(f"__connect.errors{other}" for other in others)}
    assert told == carried
    assert error.code in (DOCS / "reference" / "records.md").read_text("utf-8")


def test_the_checks_of_the_wire_contract_are_those_that_decisions_list() -> None:
    listed = {
        re.sub(r":.*", "", node.value)
        for node in ast.walk(
            ast.parse(inspect.getsource(checks).partition("def list_response_checks")[0])
        )  # of claims
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"[a-z]+(_[a-z]+)+(: )?|(duplicate|expired)(: )?", node.value)
    }
    listed -= {name for name in listed if name.endswith("_unavailable")} | {"user_type"}
    told = {
        code.partition(":")[0]
        for row in rows("These are the names of")
        for cell in row[1:]
        for code in codes(cell)
    }
    assert len(listed) > 20
    assert told - {""} == listed


def test_the_sizes_of_the_wire_contract_are_those_that_the_code_keeps() -> None:
    sizes = {row[0]: row[1] for row in rows("## Sizes")}
    parents = Claim.model_json_schema()["properties"]["derived_from"]["maxItems"]
    assert sizes["an input value"] == f"{MAX_VALUE_BYTES:,} bytes"
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
    told = {code for row in table for code in codes(row[0])}
    assert told == set(groundwire.__all__) - {"__version__"}
