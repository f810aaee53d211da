"""Finds the places of a module that can be broken, and imports it with a switch at each, which `active` turns on.

All mutants are imported at once: nothing is imported again for the next one, and a run of the unchanged tests shows
which tests reach each.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, Final, NamedTuple, TypeVar

_SHIFTED: Final = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_LIMIT: Final = re.compile(
    r"^(_?[A-Z][A-Z\d_]*)(?:: [\w\[\]]+)? = [-(]*\d[\d_.e */+<()-]*(?:#.*)?$", re.MULTILINE
)
_EMPTY: Final = {
    **dict.fromkeys(("list", "Sequence", "Iterable", "Collection"), "[]"),
    **dict.fromkeys(("dict", "Mapping"), "{}"),
    **dict.fromkeys(("Iterator", "AsyncIterator", "Generator", "AsyncGenerator"), ""),
    "tuple": "()",
    "set": "set()",
    "frozenset": "frozenset()",
    "str": "''",
    "int": "0",
    "float": "0.0",
}
"""Head of an annotation -> what a function returns that looks at nothing; "" is a bare return."""
_Node = TypeVar("_Node", ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
ROOT: Final = Path(__file__).parents[2]

active: str | None = None
reached: set[str] = set()


def on(name: str) -> bool:
    reached.add(name)
    return active == name


def swap(name: str, value: Any, other: Any) -> Any:
    return other if on(name) else value


class Mutant(NamedTuple):
    """One way to break one place.

    Its name is module, function, the source of the place, and what is done to it: no line numbers, so it is stable.
    """

    name: str
    path: str
    line: int
    group: str


def mutants_of(
    groups: Mapping[str, Mapping[str, Sequence[str]]], *, deep: bool = False
) -> tuple[dict[str, ast.Module], list[Mutant]]:
    """Return modules with switches, by name, and all their mutants; the first group that names a file has it.

    `groups`: name -> `inside` and `whole`, patterns of files below `src/groundwire/`. `deep`: break the inside of
    functions in every group, not only in files under `inside`.
    """
    package = ROOT / "src" / "groundwire"
    texts = {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in package.rglob("*.py")}
    limits = {name for text in texts.values() for name in _LIMIT.findall(text) if name[0] != "_"}
    trees: dict[str, ast.Module] = {}
    mutants: list[Mutant] = []
    for path, text in sorted(texts.items()):
        for group, kinds in groups.items():
            inside = any(fnmatch(path, pattern) for pattern in kinds.get("inside", ()))
            if inside or any(fnmatch(path, pattern) for pattern in kinds.get("whole", ())):
                module = f"groundwire/{path}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                trees[module], found = mutate(text, path, group, limits, inside=deep or inside)
                mutants += found
                break
    return trees, mutants


def mutate(
    source: str, path: str, group: str, limits: set[str], *, inside: bool
) -> tuple[ast.Module, list[Mutant]]:
    """Put a switch at each place of a module that can be broken.

    `limits`: names of other modules' constants that are numbers. `inside`: break conditions and the like within
    functions, too; else only functions as wholes.
    """
    tree = ast.parse(source)
    switches = _Switches(path, group, limits.union(_LIMIT.findall(source)), inside=inside)
    switches.visit(tree)
    first = next((n for n, node in enumerate(tree.body) if not isinstance(node, ast.Expr)), 0)
    tree.body.insert(
        first + 1, ast.ImportFrom("tests.mutations", [ast.alias("operators", "mutation_switch")], 0)
    )
    return ast.fix_missing_locations(tree), switches.mutants


def import_with_switches(trees: Mapping[str, ast.Module]) -> None:
    """Import these modules with their switches from now on; none may have been imported before."""
    assert not trees.keys() & sys.modules.keys()
    of_file = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        if fullname not in trees:
            return of_file(self, fullname)
        return compile(trees[fullname], self.path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


class _Switches(ast.NodeTransformer):
    """Visits functions; what is outside of them runs once, at import, and is data."""

    def __init__(self, path: str, group: str, limits: set[str], *, inside: bool) -> None:
        self.mutants: list[Mutant] = []
        self._path, self._group, self._limits, self._inside = f"src/groundwire/{path}", group, limits, inside
        self._where = [path.removesuffix(".py").replace("/", ".")]
        self._depth = 0
        self._seen: Counter[str] = Counter()

    def _name(self, node: Any, text: str, kind: str) -> ast.Constant:
        name = f"{'.'.join(self._where)}: {' '.join(text.split())[:90]}"
        self._seen[name + kind] += 1
        if (count := self._seen[name + kind]) > 1:
            name = f"{name} #{count}"
        self.mutants.append(Mutant(f"{name} [{kind}]", self._path, node.lineno, self._group))
        return ast.Constant(self.mutants[-1].name)

    def _on(self, node: Any, text: str, kind: str) -> ast.Call:
        return _call("on", self._name(node, text, kind))

    @property
    def _open(self) -> bool:
        return self._inside and self._depth > 0

    def _within(self, node: _Node) -> _Node:
        self._where.append(node.name)
        node.body = [self.visit(child) for child in node.body]
        self._where.pop()
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        protocol = any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
        return node if protocol else self._within(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self._depth += 1
        self._within(node)
        self._depth -= 1
        if node.name.startswith("__"):
            return node
        self._where.append(node.name)
        for result in _results(ast.unparse(node.returns) if node.returns else ""):
            switch = self._on(node, f"gives {result or 'nothing'}", "gives")
            node.body.insert(
                1 if ast.get_docstring(node) else 0, ast.If(switch, ast.parse(f"return {result}").body, [])
            )
        self._where.pop()
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that `ast` asks for

    def _tested(self, test: ast.expr) -> ast.expr:
        text = ast.unparse(test)
        value = self.visit(test)
        if not self._open:
            return value
        never = _call("swap", self._name(test, text, "never"), value, ast.Constant(value=False))
        return _call("swap", self._name(test, text, "always"), never, ast.Constant(value=True))

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self._tested(node.test)
        node.body = [self.visit(child) for child in node.body]
        node.orelse = [self.visit(child) for child in node.orelse]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        node.test, node.body, node.orelse = (
            self._tested(node.test),
            self.visit(node.body),
            self.visit(node.orelse),
        )
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.iter, node.ifs = self.visit(node.iter), [self._tested(test) for test in node.ifs]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        whole, neutral = ast.unparse(node), ast.Constant(isinstance(node.op, ast.And))
        texts = [ast.unparse(operand) for operand in node.values]
        self.generic_visit(node)
        if self._open:
            node.values = [
                _call("swap", self._name(node, f"{text} in {whole}", "left out"), operand, neutral)
                for text, operand in zip(texts, node.values, strict=True)
            ]
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        text, shifted = ast.unparse(node), _SHIFTED.get(type(node.ops[0]))
        self.generic_visit(node)
        if not self._open or shifted is None or len(node.ops) > 1:
            return node
        other = ast.Compare(node.left, [shifted()], node.comparators)
        return ast.IfExp(self._on(node, text, "bound shifted"), other, node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not self._open or node.id not in self._limits or not isinstance(node.ctx, ast.Load):
            return node
        lifted = ast.parse(f"{node.id} * 1_000 + 1_000", mode="eval").body
        return ast.IfExp(self._on(node, node.id, "lifted"), lifted, node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return self._unless(node, "not raised") if node.exc else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        called = isinstance(node.value, ast.Yield | ast.YieldFrom | ast.Call | ast.Await)
        return self._unless(node, "left out") if called else node

    def _unless(self, node: ast.stmt, kind: str) -> ast.stmt:
        text = ast.unparse(node)
        self.generic_visit(node)
        return ast.If(ast.UnaryOp(ast.Not(), self._on(node, text, kind)), [node], []) if self._open else node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self.generic_visit(node)
        if self._open and not isinstance(node.body[0], ast.Raise):
            text = f"except {ast.unparse(node.type) if node.type else ''}"
            node.body.insert(0, ast.If(self._on(node, text, "not caught"), [ast.Raise()], []))
        return node


def _call(function: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name("mutation_switch", ast.Load()), function, ast.Load()), [*args], [])


def _results(annotation: str) -> list[str]:
    """Return what a function may return that has not looked, as source."""
    if annotation == "bool":
        return ["True", "False"]
    arms = {arm.strip() for arm in annotation.split("|")}
    for arm, result in (("Skipped", "NOT_PROVIDED"), ("None", "" if annotation == "None" else "None")):
        if arm in arms:
            return [result]
    head = annotation.partition("[")[0]
    fixed = head == "tuple" and "..." not in annotation
    return [_EMPTY[head]] if head in _EMPTY and not fixed else []
