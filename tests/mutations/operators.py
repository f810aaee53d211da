"""Finds what can be broken in a module, and has it imported with a switch at each such place."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, Final, TypeVar

_SWITCH: Final = "mutation_switch"
_SIGNS: Final = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_NAMED: Final = 90  # characters of a place's own text that name it

_EMPTY: Final = {
    **dict.fromkeys(("list", "Sequence", "Iterable", "Collection"), "[]"),
    **dict.fromkeys(("dict", "Mapping"), "{}"),
    "tuple": "()",
    "set": "set()",
    "frozenset": "frozenset()",
    "str": "''",
    "int": "0",
    "float": "0.0",
    "None": "None",
}
"""Annotation -> what a function gives back that looks at nothing."""

_Node = TypeVar("_Node", bound=ast.AST)
ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One way to break one place.

    Its name is module, function, the place's own words, and what is done to it; no line numbers, so that it stays.
    """

    name: str
    path: str
    line: int
    group: str


@dataclass(frozen=True, slots=True)
class Mutants:
    tree: ast.Module
    mutants: list[Mutant]


def mutants_of(
    groups: Mapping[str, Mapping[str, Sequence[str]]], *, deep: bool = False
) -> dict[str, Mutants]:
    """Return the modules that are broken, by name; the first group that names a file has it.

    `groups`: name -> `inside` and `whole`, patterns of files below `src/groundwire/`. `deep`: break what is inside of
    functions in every group, not only in files under `inside`.
    """
    source = ROOT / "src"
    texts = {path.relative_to(source).as_posix(): path.read_text("utf-8") for path in source.rglob("*.py")}
    limits = frozenset().union(*(numbers(text) for text in texts.values()))
    found: dict[str, Mutants] = {}
    for path, text in sorted(texts.items()):
        name = path.removeprefix("groundwire/")
        for group, kinds in groups.items():
            inside = any(fnmatch(name, pattern) for pattern in kinds.get("inside", ()))
            if inside or any(fnmatch(name, pattern) for pattern in kinds.get("whole", ())):
                module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                found[module] = mutate(text, f"src/{path}", group, limits, inside=deep or inside)
                break
    return found


def mutate(source: str, path: str, group: str, limits: frozenset[str], *, inside: bool) -> Mutants:
    """Put a switch at each place of a module that can be broken.

    `limits`: names of constants that are numbers. `inside`: break conditions and the like within functions, too; else
    only functions as wholes.
    """
    tree = ast.parse(source)
    own = {target.id for node in tree.body for target in _targets(node) if isinstance(target, ast.Name)}
    switches = _Switches(path, group, (limits - own) | numbers(source), inside=inside)
    tree = switches.visit(tree)
    tree.body.insert(
        sum(map(_is_head, tree.body)), ast.ImportFrom("tests.mutations", [ast.alias(_SWITCH)], 0)
    )
    return Mutants(ast.fix_missing_locations(tree), switches.mutants)


def import_with_switches(modules: Mapping[str, Mutants]) -> None:
    """Have modules imported with their switches from now on; none may have been imported before."""
    assert not modules.keys() & sys.modules.keys()

    class Loader(SourceFileLoader):
        def get_code(self, fullname: str) -> CodeType:
            return compile(modules[fullname].tree, self.path, "exec", dont_inherit=True)

    class Finder(MetaPathFinder):
        def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
            spec = PathFinder.find_spec(fullname, path, target)
            if spec is None or spec.origin is None or fullname not in modules:
                return None
            spec.loader = Loader(fullname, spec.origin)
            return spec

    sys.meta_path.insert(0, Finder())


def numbers(source: str) -> set[str]:
    def is_number(leaf: ast.expr) -> bool:
        plain = isinstance(leaf, ast.Constant) and isinstance(leaf.value, int | float)
        return isinstance(leaf, ast.BinOp) or (plain and not isinstance(leaf.value, bool))  # type: ignore[attr-defined]

    names = set()
    for node in ast.parse(source).body:
        value = getattr(node, "value", None)
        leaves = [leaf for leaf in ast.walk(value) if isinstance(leaf, ast.expr)] if value else []
        if leaves and all(map(is_number, leaves)):
            names |= {target.id for target in _targets(node) if isinstance(target, ast.Name)}
    return {name for name in names if name.isupper()}


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def _is_head(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


class _Switches(ast.NodeTransformer):
    """Visits functions; what stands outside of them runs once, at import, and is data."""

    def __init__(self, path: str, group: str, limits: frozenset[str], *, inside: bool) -> None:
        self.mutants: list[Mutant] = []
        self._path, self._group, self._limits, self._inside = path, group, limits, inside
        self._where: list[str] = [path.removeprefix("src/groundwire/").removesuffix(".py").replace("/", ".")]
        self._depth = 0
        self._seen: Counter[str] = Counter()

    def _name(self, node: ast.AST, text: str, *kinds: str) -> ast.Constant:
        """Return the name of a place as a literal, and note its mutants; the same words twice are numbered."""
        name = f"{'.'.join(self._where)}: {' '.join(text.split())[:_NAMED]}"
        self._seen[f"{name}{kinds}"] += 1
        if (count := self._seen[f"{name}{kinds}"]) > 1:
            name = f"{name} #{count}"
        ends = [f" [{kind}]" for kind in kinds]
        line: int = getattr(node, "lineno", 0)
        self.mutants += [Mutant(name + end, self._path, line, self._group) for end in ends]
        return ast.Constant(name if len(kinds) > 1 else name + ends[0])

    def _call(self, function: str, *args: ast.expr) -> ast.Call:
        callee = ast.Attribute(ast.Name(_SWITCH, ast.Load()), function, ast.Load())
        return ast.Call(callee, list(args), [])

    def _on(self, node: ast.AST, text: str, kind: str) -> ast.Call:
        return self._call("on", self._name(node, text, kind))

    def _unless(self, node: ast.stmt, text: str, kind: str) -> ast.If:
        return ast.If(ast.UnaryOp(ast.Not(), self._on(node, text, kind)), [node], [])

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
            return node
        return self._within(node)

    def _within(self, node: _Node) -> _Node:
        self._where.append(node.name)  # type: ignore[attr-defined]
        node.body = [self.visit(child) for child in node.body]  # type: ignore[attr-defined]
        self._where.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self._depth += 1
        written = ast.unparse(node.returns) if node.returns else ""
        skip = 1 if ast.get_docstring(node) is not None else 0
        yields = any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in _own(node))
        node = self._within(node)
        self._depth -= 1
        if node.name.startswith("__"):
            return node
        self._where.append(node.name)
        breaks = [
            ast.If(
                self._on(node, f"gives {text or 'nothing'}", "gives"), ast.parse(f"return {text}").body, []
            )
            for text in _given_back(written, yields=yields)
        ]
        self._where.pop()
        node.body[skip:skip] = breaks
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that `ast` asks for

    @property
    def _open(self) -> bool:
        return self._inside and self._depth > 0

    def _tested(self, test: ast.expr) -> ast.expr:
        text = ast.unparse(test)
        if not self._open or text == "TYPE_CHECKING":
            return self.visit(test)
        name = self._name(test, text, "never", "always")
        return self._call("test", name, self.visit(test))

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self._tested(node.test)
        node.body = [self.visit(child) for child in node.body]
        node.orelse = [self.visit(child) for child in node.orelse]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        node.test = self._tested(node.test)
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.iter = self.visit(node.iter)
        node.ifs = [self._tested(test) for test in node.ifs]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        if not self._open:
            return self.generic_visit(node)
        neutral = ast.Constant(isinstance(node.op, ast.And))
        whole = ast.unparse(node)
        operands = []
        for operand in node.values:
            text = ast.unparse(operand)
            name = self._name(operand, f"{text} in {whole}", "left out")
            operands.append(self._call("part", name, self.visit(operand), neutral))
        node.values = list(operands)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        sign = _SIGNS.get(type(node.ops[0])) if len(node.ops) == 1 else None
        text = ast.unparse(node)
        self.generic_visit(node)
        if sign is None or not self._open:
            return node
        name = self._name(node, text, "bound shifted")
        return self._call("compare", name, node.left, ast.Constant(sign), node.comparators[0])

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not self._open or node.id not in self._limits or not isinstance(node.ctx, ast.Load):
            return node
        return self._call("limit", self._name(node, node.id, "lifted"), node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if not self._open or node.exc is None:
            return self.generic_visit(node)
        text = ast.unparse(node)
        return self._unless(self.generic_visit(node), text, "not raised")

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        text = ast.unparse(node)
        self.generic_visit(node)
        if not self._open or not isinstance(node.value, ast.Yield | ast.YieldFrom | ast.Call | ast.Await):
            return node
        return self._unless(node, text, "left out")

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        text = f"except {ast.unparse(node.type) if node.type else ''}"
        self.generic_visit(node)
        if self._open and not isinstance(node.body[0], ast.Raise):
            node.body.insert(0, ast.If(self._on(node, text, "not caught"), [ast.Raise()], []))
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        text = f"case {ast.unparse(node.pattern)}"
        node.guard = self._tested(node.guard) if node.guard else None
        node.body = [self.visit(child) for child in node.body]
        if self._open:
            off = ast.UnaryOp(ast.Not(), self._on(node.pattern, text, "skipped"))
            node.guard = ast.BoolOp(ast.And(), [off, node.guard]) if node.guard else off
        return node


def _own(function: ast.AST) -> Iterator[ast.AST]:
    todo = list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            todo += ast.iter_child_nodes(node)


def _given_back(annotation: str, *, yields: bool) -> list[str]:
    """Return what a function may give back, as source, that has not looked; "" is a bare return."""
    if yields or annotation == "None":
        return [""]
    if annotation == "bool":
        return ["True", "False"]
    arms = {arm.strip() for arm in annotation.split("|")}
    for arm, source in (("Skipped", "NOT_PROVIDED"), ("None", "None")):
        if arm in arms:
            return [source]
    head = annotation.partition("[")[0]
    if head == "tuple" and "..." not in annotation:
        return []
    return [_EMPTY[head]] if head in _EMPTY else []
