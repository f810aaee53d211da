"""How the cost of a regular expression grows with its text, read from its parse tree.

A backtracking matcher is slow where one text can be read in many ways. The expression becomes an automaton, and a
word is sought that can be repeated at will and read in two ways each time (exponential), or that leads from one loop,
or from the next start of a search, to another while both go on (polynomial): Weber and Seidl's criteria. What is left
out of the model (atomic groups, lookarounds of several characters) only adds ways. A match that succeeds after it has
read far in vain, at each start of a `finditer` (`a(?:.*b)?`), is sought by itself: `pumped_in_vain`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

Guard = Callable[[str, str], bool]
"""Tells of the characters before and after a place whether a match may go through it."""

_SAMPLES: Final = "\u00a0\u00b5\u00e9\u0130\u0131\u017f\u0301\u0660\u200b\u2028\u212a\u4e00\U0001f600"
_CATEGORIES: Final = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_NOT_WORD: r"\W",
}
_ONE_CHARACTER: Final = {sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY}
_REPEATS: Final = {sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT}
_ACCEPT: Final = 0


class Automaton:
    """An alternative of an expression as nodes with empty edges, and nodes that read a character.

    A repeat of more than `unbounded` counts as one without end. `search`: a match may start anywhere. `whole`: it must
    end with the text.
    """

    def __init__(
        self,
        pattern: re.Pattern[Any],
        tree: Any,
        *,
        unbounded: int,
        search: bool = False,
        whole: bool = False,
    ) -> None:
        self.whole = whole
        self._unbounded = unbounded
        self._groups: dict[int, tuple[Any, int]] = {}
        self._edges: list[list[tuple[int, tuple[Guard, ...]]]] = [[]]
        self._reads: dict[int, tuple[frozenset[str], int]] = {}
        self._characters = frozenset(_alphabet(tree))
        self._sets: set[frozenset[str]] = set()
        self._known: dict[str, frozenset[str]] = {}
        self.looping: list[int] = []
        start = self._node()
        self._join(self._sequence(tree, pattern.flags, start), _ACCEPT)
        self.prefix = self._read(start, self._characters, back=True) if search else -1
        signs = {tuple(c in members for members in self._sets): c for c in sorted(self._characters)[::-1]}
        self.alphabet = sorted(signs.values())
        self.closure = cache(self._closure)
        self.step = cache(self._step)
        self.is_sure = cache(self._is_sure)

    def _node(self) -> int:
        self._edges.append([])
        return len(self._edges) - 1

    def _join(self, one: int, other: int, *guards: Guard) -> None:
        self._edges[one].append((other, guards))

    def _read(self, at: int, members: frozenset[str], *, back: bool = False) -> int:
        self._sets.add(members)
        reading, after = self._node(), self._node()
        self._reads[reading] = members, after
        if back:  # any character, then the start again
            self._join(after, reading)
            self._join(after, at)
        else:
            self._join(at, reading)
        return after

    def _sequence(self, tree: Iterable[Any], flags: int, at: int) -> int:
        for op, argument in tree:
            at = self._item(op, argument, flags, at)
        return at

    def _item(self, op: Any, argument: Any, flags: int, at: int) -> int:
        if op in _ONE_CHARACTER:
            return self._read(at, self._members(op, argument, flags))
        if op in _REPEATS:
            least, most, body = argument
            return self._repeat(least, most, body, flags, at)
        if op is sre.SUBPATTERN:
            group, added, removed, body = argument
            self._groups[group] = body, (flags | added) & ~removed
            return self._sequence(*self._groups[group], at)
        if op is sre.ATOMIC_GROUP:
            return self._sequence(argument, flags, at)
        if op is sre.BRANCH:
            return self._branch(argument[1], flags, at)
        if op is sre.GROUPREF_EXISTS:
            return self._branch([argument[1], argument[2] or []], flags, at)
        if op is sre.GROUPREF:  # anything that the group can match
            return self._sequence(*self._groups[argument], at)
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            direction, body = argument
            return self._look(op is sre.ASSERT, direction, body, flags, at)
        assert op is sre.AT, op
        end = self._node()
        self._join(at, end, self._place(argument, flags))
        return end

    def _branch(self, bodies: Iterable[Any], flags: int, at: int) -> int:
        end = self._node()
        for body in bodies:
            first = self._node()
            self._join(at, first)
            self._join(self._sequence(body, flags, first), end)
        return end

    def _repeat(self, least: int, most: int, body: Any, flags: int, at: int) -> int:
        endless = most > self._unbounded
        for _ in range(min(least, self._unbounded) - endless):
            at = self._sequence(body, flags, at)
        end = self._node()
        if endless:
            loop = self._node()
            self._join(at, loop)
            last = self._sequence(body, flags, loop)
            self.looping += [after for _, after in self._reads.values() if after > loop]
            self._join(last, loop)
            self._join(loop if least == 0 else last, end)
            return end
        for _ in range(most - least):
            self._join(at, end)
            at = self._sequence(body, flags, at)
        self._join(at, end)
        return end

    def _look(self, wanted: bool, direction: int, body: Any, flags: int, at: int) -> int:  # noqa: FBT001 - of `re`
        """Read what is ahead as a way that ends nowhere; guard with the one character that is known."""
        if direction > 0:
            first = self._node()
            self._join(at, first)
            self._sequence(body, flags, first)
        bodies = _alternatives(body)
        nearest = [items[0 if direction > 0 else -1] for items in bodies if items]
        plain = len(nearest) == len(bodies) and all(op in _ONE_CHARACTER for op, _ in nearest)
        end = self._node()
        if plain and (wanted or all(len(items) == 1 for items in bodies)):
            allowed = frozenset[str]().union(
                *(self._members(op, argument, flags) for op, argument in nearest)
            )
            allowed = allowed if wanted else self._characters - allowed
            self._sets.add(allowed)
            self._join(at, end, (lambda _, c: c in allowed) if direction > 0 else (lambda c, _: c in allowed))
        else:
            self._join(at, end, lambda *_: True)  # not certain all the same
        return end

    def _place(self, place: Any, flags: int) -> Guard:
        if place in (sre.AT_BOUNDARY, sre.AT_NON_BOUNDARY):
            word = self._members(sre.IN, [(sre.CATEGORY, sre.CATEGORY_WORD)], flags)
            self._sets.add(word)
            differ = place is sre.AT_BOUNDARY
            return lambda before, after: ((before in word) != (after in word)) is differ
        self._sets.add(frozenset("\n"))
        if place is sre.AT_BEGINNING and flags & re.MULTILINE:
            return lambda before, _: before == "\n"
        if place is sre.AT_END:
            return lambda _, after: after == "\n"
        return lambda *_: False  # not in the midst of what is repeated

    def _members(self, op: Any, argument: Any, flags: int) -> frozenset[str]:
        key = repr((op, argument, flags))
        if key not in self._known:
            found = frozenset(c for c in self._characters if _is_member(op, argument, flags, c))
            self._known[key] = found
        return self._known[key]

    def _closure(self, state: int) -> list[tuple[int, tuple[Guard, ...]]]:
        """Return the nodes that read, and `_ACCEPT`, with what guards each way to them, once for each way."""
        found = []
        ways: list[tuple[int, tuple[Guard, ...], frozenset[tuple[int, int]]]] = [(state, (), frozenset())]
        while ways:
            node, guards, used = ways.pop()
            if node in self._reads or node == _ACCEPT:
                found.append((node, guards))
            for number, (other, more) in enumerate(self._edges[node]):
                if (node, number) not in used:
                    ways.append((other, guards + more, used | {(node, number)}))
        return found

    def _step(self, state: int, before: str, character: str) -> list[int]:
        """Return the states after a character, each as often as there are ways to it."""
        return [
            self._reads[node][1]
            for node, guards in self.closure(state)
            if node != _ACCEPT
            and character in self._reads[node][0]
            and all(guard(before, character) for guard in guards)
        ]

    def graph(self, left_out: Callable[[int], bool] | None = None) -> dict[int, frozenset[int]]:
        """Return the states that follow each, by default less those at which no match can fail any more."""
        left_out = left_out or self.is_sure
        states = {after for _, after in self._reads.values() if not left_out(after)}
        return {
            state: frozenset(self._reads[n][1] for n, _ in self.closure(state) if n != _ACCEPT) & states
            for state in states
        }

    def may_end(self, state: int) -> bool:
        return any(node == _ACCEPT for node, _ in self.closure(state))

    def _is_sure(self, state: int) -> bool:
        """Tell whether a match is certain here: what was tried before is never tried again."""
        if state == self.prefix or not any(n == _ACCEPT and not g for n, g in self.closure(state)):
            return False
        return not self.whole or all(state in self.step(state, c, c) for c in self.alphabet)


def alternatives(pattern: re.Pattern[Any]) -> list[Any]:
    """Return the trees of an expression's alternatives.

    Nothing leads from one to another, and at each start of a search each is tried once: their costs add up.
    """
    return _alternatives(parser.parse(pattern.pattern, pattern.flags))


def _alternatives(body: Any) -> list[Any]:
    items = list(body)
    return [list(b) for b in items[0][1][1]] if len(items) == 1 and items[0][0] is sre.BRANCH else [items]


def _alphabet(tree: Any) -> Iterator[str]:
    """Yield all of ASCII, samples of other kinds, and what the expression tells apart from its neighbours."""
    yield from map(chr, range(128))
    yield from _SAMPLES
    parts = [tree]
    for part in parts:
        if isinstance(part, parser.SubPattern | list | tuple):
            parts.extend(part)
        elif isinstance(part, int) and not isinstance(part, sre._NamedIntConstant) and part > 127:
            yield from (chr(n) for n in (part - 1, part, part + 1) if n < 0x110000)


def _is_member(op: Any, argument: Any, flags: int, character: str) -> bool:
    if op is sre.ANY:
        return character != "\n" or bool(flags & re.DOTALL)
    if op is sre.NOT_LITERAL:
        return not _is_member(sre.LITERAL, argument, flags, character)
    if op is sre.IN:
        negated = argument[0][0] is sre.NEGATE
        return negated is not any(_is_member(o, a, flags, character) for o, a in argument[negated:])
    if op is sre.CATEGORY:
        return bool(re.fullmatch(_CATEGORIES[argument], character, flags & re.ASCII))
    cases = {character, character.lower(), character.upper()} if flags & re.IGNORECASE else {character}
    low, high = argument if op is sre.RANGE else (argument, argument)
    return any(len(c) == 1 and low <= ord(c) <= high for c in cases)


def pumped(automaton: Automaton) -> str | None:
    """Return a word by which the cost grows faster than its repetitions, or None where there is none."""
    if not automaton.looping:
        return None
    graph = automaton.graph()
    back = _turned(graph)
    loops = {
        s: (_reach(graph, s), _reach(back, s)) for s in {automaton.prefix, *automaton.looping} & graph.keys()
    }
    for one, (ahead, behind) in loops.items():
        loop = ahead & behind
        if one != automaton.prefix and loop and (word := _walk(automaton, one, loop)) is not None:
            return word
        for other in loops.keys() & ahead - {one, automaton.prefix}:
            following, leading = loops[other]
            rooms = loop, ahead & leading, following & leading
            if all(rooms) and (word := _walk(automaton, one, *rooms[:1], other, *rooms[1:])) is not None:
                return word
    return None


def pumped_in_vain(automaton: Automaton) -> str | None:
    """Return a word that is read on and on behind what matches, at each start of a search, or None.

    A loop in which no match may end reads in vain: the match ends before it, and the next start reads it again.
    """
    graph = automaton.graph(automaton.may_end)
    everything = automaton.graph(lambda _: False)
    ahead, back = _reach(everything, automaton.prefix), _turned(everything)
    starts = ahead & _reach(back, automaton.prefix)
    for one in automaton.looping:
        if one in graph.keys() & ahead - {automaton.prefix}:
            loop = _reach(graph, one) & _reach(_turned(graph), one)
            rooms = starts, ahead & _reach(back, one), loop
            if loop and (word := _walk(automaton, automaton.prefix, *rooms[:1], one, *rooms[1:])) is not None:
                return word
    return None


def _turned(graph: Mapping[int, Collection[int]]) -> dict[int, set[int]]:
    back: dict[int, set[int]] = {state: set() for state in graph}
    for state, following in graph.items():
        for other in following:
            back[other].add(state)
    return back


def _reach(graph: Mapping[int, Collection[int]], state: int) -> frozenset[int]:
    seen: set[int] = set()
    todo = [state]
    while todo:
        fresh = set(graph[todo.pop()]) - seen
        todo.extend(fresh)
        seen |= fresh
    return frozenset(seen)


def _walk(
    automaton: Automaton,
    one: int,
    loop: frozenset[int],
    other: int | None = None,
    between: frozenset[int] = frozenset(),
    last: frozenset[int] = frozenset(),
) -> str | None:
    """Return a word that can be read in the loop in two ways, or in it, from it to another loop, and in that."""
    rooms = (loop, loop) if other is None else (loop, between, last)
    end: tuple[int, ...] = (one, one, True) if other is None else (one, other, other, True)
    start: tuple[int, ...] = (one, one, False) if other is None else (one, one, other, True)
    for first in automaton.alphabet:
        begin = (start, first)
        seen: dict[tuple[tuple[int, ...], str], str] = {begin: ""}
        todo: list[tuple[tuple[int, ...], str]] = [begin]
        for at, before in todo:
            for character in automaton.alphabet:
                for to in _together(automaton, at, before, character, rooms):
                    if to == end and character == first:
                        return seen[at, before] + character
                    if (to, character) not in seen:
                        seen[to, character] = seen[at, before] + character
                        todo.append((to, character))
    return None


def _together(
    automaton: Automaton, at: tuple[int, ...], before: str, character: str, rooms: tuple[frozenset[int], ...]
) -> Iterator[tuple[int, ...]]:
    """Yield where readers side by side can be after a character; the last item tells whether two ways differ."""
    *states, differ = at
    steps = [
        [t for t in automaton.step(s, before, character) if t in room]
        for s, room in zip(states, rooms, strict=True)
    ]
    if len(rooms) == 3:
        yield from {(a, b, c, True) for a in steps[0] for b in steps[1] for c in steps[2]}
        return
    for number, one in enumerate(steps[0]):
        for second, other in enumerate(steps[1]):
            parted = one != other or (states[0] == states[1] and number != second)
            yield one, other, bool(differ) or parted
