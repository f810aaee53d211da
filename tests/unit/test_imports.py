"""Who may import whom: records know nothing, decisions know no service, and neither knows Kafka or Redis."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "src/groundwire"

ALLOWED = {
    "messages": {"errors", "messages"},
    "decide": {"checks", "epistemic", "messages", "policy", "decide"},
    "checks": {"checks", "messages"},
}
SERVICES = {"faust", "aiokafka", "redis", "httpx", "structlog", "asyncio"}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module


FILES = [path for folder in ALLOWED for path in sorted((ROOT / folder).glob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_records_checks_and_decisions_import_only_what_is_below_them(path):
    for name in imports(path):
        top, _, rest = name.partition(".")
        assert top not in SERVICES, f"{path.name} imports {name}"
        if top == "groundwire":
            assert rest.split(".")[0] in ALLOWED[path.parent.name], f"{path.name} imports {name}"


@pytest.mark.parametrize("folder", ["gate", "verify", "state"])
def test_the_gate_knows_neither_kafka_nor_faust(folder):
    for path in (ROOT / folder).glob("*.py"):
        assert not {name.split(".")[0] for name in imports(path)} & {"faust", "aiokafka", "mode"}
