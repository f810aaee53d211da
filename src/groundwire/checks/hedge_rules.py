"""The grammar of hedges, read: the rules of `hedge_grammar.txt`, by the word that each is filed under.

The file says how it is written; of requirements, "perhaps" in it is for C-01 and "around" for C-24. A text without
any of the words holds no hedge, so most texts cost one look.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from importlib.resources import files
from typing import Final

from groundwire.checks.hedge_tokens import START

_GAP: Final = "(?: (?:[,()\"'`\u2013-] ){0,2})"
_NAME: Final = re.compile(r"\{([A-Z]+)\}")
_OPTIONAL: Final = re.compile(r"(\w)\?|\[(\w+)\]")
_OPENED: Final = re.compile(r"(\\.|\[[^\[\]]+\])|\((?!\?)")


class HedgeRule:
    """A category of hedges, and what must stand around the word that the rule is filed under.

    The patterns are compiled when a text first holds the word: all of them take half a second.
    """

    def __init__(self, category: str, before: str, after: str) -> None:
        self.category = category
        self._before, self._after = before, after

    @cached_property
    def before(self) -> re.Pattern[str] | None:
        """What must stand up to the word, the gap included."""
        return re.compile(f"(?:(?<= )|^){_compiled(self._before)}$") if self._before else None

    @cached_property
    def after(self) -> re.Pattern[str] | None:
        """What must follow the word."""
        return re.compile(f"{_compiled(self._after)}(?= )") if self._after else None

    @cached_property
    def _edges(self) -> tuple[frozenset[str] | None, ...]:
        before = _expanded(self._before)
        firsts = edge(before, 1)
        return (
            None if firsts and _ADVERB in firsts else firsts,
            edge(before, -1),
            edge(_expanded(self._after), 1),
        )

    def may_stand(self, left: str, right: str) -> bool:
        """Tell at small cost whether the word may be a hedge between two tokens, as `HedgeTokens.beside` gives them."""
        _, lefts, rights = self._edges
        return (rights is None or right in rights) and (lefts is None or left in lefts)

    def may_begin(self, before: list[str]) -> bool:
        """Tell at small cost whether the hedge may begin at one of the tokens before the word."""
        firsts = self._edges[0]
        return firsts is None or not firsts.isdisjoint(before)

    def match(self, before: list[str], behind: str) -> tuple[int, int] | None:
        """Return how many tokens of the hedge stand before its word and behind it, or None."""
        last = 0
        if self.after is not None:
            found = self.after.match(behind)
            if found is None:
                return None
            last = found.end()
        if self.before is None:
            return 0, behind.count(" ", 0, last)
        front = " ".join([*before, ""]).lstrip(START)  # a text begins with a space
        opened = self.before.search(front)
        return (front.count(" ", opened.start()), behind.count(" ", 0, last)) if opened else None


_PIECE: Final = re.compile(r"\\u[0-9a-f]{4}|\\.|\[[^\[\]]+\]|\{[\d,]+\}|.")
_MARKS: Final = frozenset(",()\"'`\u2013-")
_ADVERB: Final = "-ly"
_LETTER: Final = re.compile(r"[^\\^\[({]\??")
_ABSENT: Final = re.compile(r"\(\?<?!")


def edge(pattern: str, step: int) -> frozenset[str] | None:
    """Return the tokens of which a match of a pattern has one at its edge, or None where it may have any."""
    found = _edge(_atoms(pattern.replace(r"\w{1,15}ly", _ADVERB)), step)
    return None if found is None or "" in found else frozenset(found | _MARKS)


def _edge(atoms: list[str], step: int) -> set[str] | None:
    """Return the tokens at the edge of a pattern, "" where it may match nothing; None where they are unknown."""
    found: set[str] = set()
    for branch in _split(atoms, "|"):
        for word in [word for word in _split(branch, " ") if word][::step]:
            tokens = _edge_of_word(word[::step], step)
            if tokens is None:
                return None
            found |= tokens - {""}
            if "" not in tokens:
                break
        else:
            found.add("")
    return found


def _edge_of_word(atoms: list[str], step: int) -> set[str] | None:
    found: set[str] = set()
    while atoms:
        atom, atoms = atoms[0], atoms[1:]
        optional = atom[-1] in "?*" or "{0," in atom.rpartition(")")[2]
        if atom[0] == "(":
            inner = _atoms(atom[1 : atom.rindex(")")].removeprefix("?="))
            if atoms and not all(part[::-step][0] == " " for part in _split(inner, "|")):
                return None
            tokens = _edge(inner, step)
        elif atom == "^":
            tokens = {START}
        else:
            letters = [atom]
            while atoms and _LETTER.fullmatch(atoms[0]):
                letters.append(atoms.pop(0))
            optional = False
            is_word = all(map(_LETTER.fullmatch, letters)) and not (atoms and atoms[0][1:2] != " ")
            tokens = set(_spellings("".join(letters[::step]))) if is_word else None
        if tokens is None:
            return None
        found |= tokens
        if not optional and "" not in tokens:
            return found
    return found | {""}


def _atoms(pattern: str) -> list[str]:
    atoms: list[str] = []
    depth = 0
    for piece in _PIECE.findall(pattern):
        if depth or (atoms and piece[0] in "?*+{"):
            atoms[-1] += piece
        else:
            atoms.append(piece)
        depth += (piece == "(") - (piece == ")")
    return [atom for atom in atoms if not _ABSENT.match(atom)]


def _split(atoms: list[str], mark: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for atom in atoms:
        if atom.rstrip("?") == mark:
            parts.append([])
        else:
            parts[-1].append(atom)
    return parts


def _lines() -> Iterator[str]:
    whole = ""
    for line in (files("groundwire.checks") / "hedge_grammar.txt").read_text("utf-8").splitlines():
        if line.startswith("    "):
            whole += line[4:]
        elif line and not line.startswith("#"):
            if whole:
                yield whole
            whole = line
    yield whole


def _filed() -> tuple[dict[str, str], dict[str, list[HedgeRule]]]:
    classes: dict[str, str] = {}
    rules: dict[str, list[HedgeRule]] = {}
    category = ""
    for line in _lines():
        if line.startswith("[") and line.endswith("]"):
            category = line.strip("[]")
        elif category == "classes":
            name, _, words = line.partition(" = ")
            classes[name] = words
        else:
            before, heads, after = line.split("/")
            rule = HedgeRule(category, before, after)
            for word in _NAME.sub(lambda name: classes[name[1]].strip("()"), heads).split("|"):
                for spelling in _spellings(word):
                    rules.setdefault(spelling, []).append(rule)
    telling = {word: found for word, found in rules.items() if any(rule.category != "firm" for rule in found)}
    return classes, telling


def _spellings(word: str) -> list[str]:
    """Return the ways to write a word: "rumou?r" has two, "hypothesi[sz]e" too."""
    found = _OPTIONAL.search(word)
    if found is None:
        return [word]
    tails = _spellings(word[found.end() :])
    return [word[: found.start()] + letter + tail for letter in found[2] or (found[1], "") for tail in tails]


_CLASSES, RULES = _filed()


def _expanded(pattern: str) -> str:
    while _NAME.search(pattern):
        pattern = _NAME.sub(lambda name: _CLASSES[name[1]], pattern)
    return pattern


def _compiled(pattern: str) -> str:
    return _OPENED.sub(lambda found: found[1] or "(?:", _expanded(pattern)).replace(" ", _GAP)
