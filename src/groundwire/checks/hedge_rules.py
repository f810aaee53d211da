"""The grammar of hedges: the words of a text as it sees them, and the rules of `hedge_grammar.txt` by their word.

Small letters, contractions written out, one token for each number (`N`), its unit (`UNIT`), identifier (`ID`) and
`URL`: so a rule says "i am not" once. The file explains its format; "perhaps" in it is for C-01, "around" for C-24.
"""

from __future__ import annotations

import re
from functools import cached_property
from importlib.resources import files
from itertools import accumulate, chain
from typing import Final

from groundwire.text.lists import words_in
from groundwire.text.stems import CARDINALS
from groundwire.text.tokens import PerToken

# Letters less the scripts that write without spaces: there a word may touch its neighbours.
_L: Final = r"[A-Za-z\u00c0-\u1fff]"
_W: Final = r"[0-9A-Za-z_\u00c0-\u1fff]"
_UNIT: Final = "(?:[KMGTP]i?B|[kMGT]?H[zZ]|[AaPp]M|[kKM]?[VAW]h?)"
# What names a file, so that "MEMORY.md" and "probably-fine.sh" are one, and the words beside a missing blank are not.
_FILE: Final = (
    "(?:md|txt|rst|adoc|log|csv|tsv|json|jsonl|ya?ml|toml|ini|cfg|conf|env|lock|xml|html?|css|sql|py|ipynb|sh|bash|jsx?|tsx?|"
    "go|rs|rb|php|java|kt|swift|c|cc|cpp|h|hpp|cs|lua|pl|proto|tf|pdf|docx?|xlsx?|png|jpe?g|svg|zip|gz|tar|bak)"
)
_TOKEN: Final = re.compile(
    rf"(?P<spelt>(?<!{_W})[A-Za-z](?:[._-][A-Za-z]){{3,30}}(?!{_W}))|"  # "m.a.y.b.e"
    # It ends at doubled punctuation, "x.io--maybe".
    r"(?P<URL>https?://(?:[\w~/?#@$&*+=%]|[-.:!](?=[\w/]))+)|"
    rf"(?P<ID>(?<!{_W})(?!(?:confidence|certainty|probability)=)(?:"  # those are said of what is claimed
    rf"(?<!\S)--?[A-Za-z](?:{_W}|-)*|[@$][A-Za-z]{_W}*|"  # an option, a handle or variable
    rf"{_W}+(?:(?:::|->|=|@|\\){_W}+)+|(?<!/)(?:{_W}+/){{2,}}{_W}+|"  # a qualified name, an assignment, a path
    rf"(?<!\S)/{_W}+(?:/{_W}+)+|"
    rf"[a-z]{_W}*(?:\.[a-z]{_W}+)+|{_W}+(?:-{_W}+){{0,8}}\.{_FILE}(?!{_W})|"  # a file, a field
    rf"{_W}*[0-9A-Za-z]_+[0-9A-Za-z]{_W}*|[a-z]+[A-Z]{_W}*|[A-Z][a-z]+[A-Z]{_W}*|"  # snake_case, camelCase
    rf"[A-Za-z]{_W}*\([^\s()]*\)|"  # a call
    rf"[A-Za-z]+[0-9]{_W}*|[0-9]+(?!{_UNIT}(?!{_W}))(?:[A-Z]{{2,}}|[A-Z][a-z]{{4,}})(?!{_W})))|"  # v2, 2FA, 1Password
    r"(?P<N>\.?\d(?:[\d.,:/]{0,60}\d)?)|"
    rf"(?P<UNIT>(?<=[0-9])(?!ish(?!{_L})){_L}+)|"
    rf"(?P<word>{_L}+(?:'{_L}+)*)|"
    r"(?P<mark>--+|[^\s\w*]|^\*$|[^\W_])"
)
_QUOTES: Final = dict.fromkeys('"\u201c\u201d\u201e\u00ab\u00bb', '"')
_BRACKETS: Final = {"[": "(", "{": "(", "]": ")", "}": ")"}
_DASHES: Final = dict.fromkeys("\u2013\u2014\u2015\u2012", "\u2013") | {"--": "\u2013", "---": "\u2013"}
_MARKS: Final = _QUOTES | _BRACKETS | _DASHES | {"\u2026": ".", "\uff1f": "?", "\u2010": "-", "\u2011": "-"}

_WHOLE: Final = {
    "can't": "can not", "cannot": "can not", "won't": "will not", "shan't": "shall not", "ain't": "is not",
    "cant": "can not", "dont": "do not", "doesnt": "does not", "didnt": "did not", "isnt": "is not",
    "arent": "are not", "wasnt": "was not", "werent": "were not", "havent": "have not", "hasnt": "has not",
    "hadnt": "had not", "wouldnt": "would not", "couldnt": "could not", "shouldnt": "should not",
    "im": "i am", "ive": "i have", "thats": "that is", "theres": "there is", "dunno": "i do not know",
    "idk": "i do not know", "kinda": "kind of", "sorta": "sort of", "prolly": "probably", "probs": "probably",
    "mightve": "might have", "mayve": "may have", "couldve": "could have", "shouldve": "should have",
    "shoulda": "should have", "lemme": "let me", "methinks": "i think", "percent": "%", "pct": "%",
    "hundred-percent": "100 %", "ive'": "i have",
}  # fmt: skip
_ENDINGS: Final = {"n't": "not", "'m": "am", "'re": "are", "'ve": "have", "'ll": "will", "'d": "would"}
_IS: Final = words_in(__package__, "is")
_BEFORE: Final = 14
_BEHIND: Final = 40
"""Tokens beside a word that a rule may look at."""
START: Final = "^"
"""The token for the beginning of a text."""
_CUT: Final = "\0"
_STOP: Final = "."

_STRETCHED: Final = re.compile(r"([a-z])\1{2,}")
_WILDCARD: Final = re.compile(r"\w\?[\w=&:,}\]]|^[\"'`*]+\?[\"'`*,]*$|^\W?\?\d|^\?$")
_KINDS: Final = ("N", "ID", "URL", "UNIT")


class HedgeTokens:
    """The tokens of a text in normal form (`groundwire.text.normalise`), read in linear time."""

    def __init__(self, text: str) -> None:
        self._chunks = text.split(" ")
        self._read = CHUNKS.of(self._chunks)
        self.each = list(chain.from_iterable([words for words, _ in self._read]))
        if self._chunks[-1] == "?":  # alone at the end it asks, elsewhere it is a wildcard
            self.each.append("?")

    def beside(self, index: int) -> tuple[str, str]:
        """Return the tokens before and behind one; a comma for adverbs in -ly, which like commas may be anywhere."""
        left = self.each[index - 1] if index else START
        right = self.each[index + 1] if index + 1 < len(self.each) else _STOP
        return "," if left.endswith("ly") else left, "," if right.endswith("ly") else right

    def around(self, index: int) -> tuple[list[str], list[str]]:
        """Return the tokens before one, in its sentence, and those behind it, as far as a rule may look.

        The first of those before it is the stop of the sentence before, `START`, or a substitute for words cut off;
        an empty one ends those behind it. A text ends with a stop, written or not.
        """
        first = max(0, index - _BEFORE)
        before = [_CUT if first else START, *self.each[first:index]]
        if "." in before:
            del before[: len(before) - 1 - before[::-1].index(".")]
        after = self.each[index + 1 : index + 1 + _BEHIND]
        return before, [*after, *([_STOP] if len(after) < _BEHIND else []), ""]

    def spans(self) -> list[tuple[int, int]]:
        starts = list(accumulate([len(chunk) + 1 for chunk in self._chunks], initial=0))
        spans = [
            (start + first, start + last)
            for start, (_, places) in zip(starts, self._read, strict=False)
            for first, last in places
        ]
        if len(spans) < len(self.each):
            spans.append((starts[-1] - 2, starts[-1] - 1))
        return spans


def _read_chunk(chunk: str) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    pieces: list[tuple[str, int, int]] = []
    if chunk.isascii() and chunk.isalpha() and (chunk.islower() or chunk[1:].islower()):
        word = _small(chunk)
        pieces = [(_WHOLE.get(word, word), 0, len(chunk))]
    elif chunk == "-":
        pieces = [("\u2013", 0, 1)]
    else:
        for match in _TOKEN.finditer(chunk):
            kind, written = match.lastgroup, match[0]
            if written == "?" and _WILDCARD.search(chunk):  # as a word of its own, or inside one
                continue
            if kind in _KINDS:
                written = kind
            elif kind == "spelt":
                written = _word(written[::2].lower())
            else:
                written = _MARKS.get(written, written) if kind == "mark" else _word(_small(written))
            pieces.append((written, *match.span()))
    split = [(word, (first, till)) for piece, first, till in pieces for word in piece.split()]
    return tuple(word for word, _ in split), tuple(place for _, place in split)


CHUNKS: Final = PerToken(_read_chunk, 1 << 14)
"""The tokens of the text between two blanks, and the place in it of each."""


def _small(word: str) -> str:
    """Return a word in small letters, and "maaaybe" as it is spelt; "III" is a numeral."""
    small = word.lower()
    return _STRETCHED.sub(r"\1", small) if len(set(small)) > 1 else small


def _word(word: str) -> str:
    if word.endswith("ish") and word[:-3] in CARDINALS:
        return f"{word[:-3]} ish"
    if word in _WHOLE or "'" not in word:
        return _WHOLE.get(word, word)
    for ending, meant in _ENDINGS.items():
        if word.endswith(ending):
            return f"{_word(word[: -len(ending)])} {meant}"
    if word.endswith("'s"):
        owner = word[:-2]
        return owner + (" is" if owner in _IS else " 's")
    return word


_GAP: Final = "(?: (?:[,()\"'`\u2013-] ){0,2})"
_NAME: Final = re.compile(r"\{([A-Z]+)\}")
_OPTIONAL: Final = re.compile(r"(\w)\?|\[(\w+)\]")
_OPENED: Final = re.compile(r"(\\.|\[[^\[\]]+\])|\((?!\?)")


class HedgeRule:
    """A category of hedges, and what must be around the word that the rule is filed under.

    The patterns are compiled when a text first holds the word: all of them take half a second.
    """

    def __init__(self, category: str, before: str, after: str) -> None:
        self.category = category
        self._before, self._after = before, after

    @cached_property
    def before(self) -> re.Pattern[str] | None:
        return re.compile(f"(?:(?<= )|^){_compiled(self._before)}$") if self._before else None

    @cached_property
    def after(self) -> re.Pattern[str] | None:
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
        """Cheap pre-check: return whether the word may be a hedge between two tokens from `HedgeTokens.beside`."""
        _, lefts, rights = self._edges
        return (rights is None or right in rights) and (lefts is None or left in lefts)

    def may_begin(self, before: list[str]) -> bool:
        firsts = self._edges[0]
        return firsts is None or not firsts.isdisjoint(before)

    def match(self, before: list[str], behind: str) -> tuple[int, int] | None:
        """Return how many tokens of the hedge are before its word and behind it, or None."""
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
_SIGNS: Final = frozenset(",()\"'`\u2013-")
_ADVERB: Final = "-ly"
_LETTER: Final = re.compile(r"[^\\^\[({]\??")
_ABSENT: Final = re.compile(r"\(\?<?!")


def edge(pattern: str, step: int) -> frozenset[str] | None:
    """Return the tokens of which a match of a pattern has one at its edge, or None where it may have any."""
    found = _edge(_atoms(pattern.replace(r"\w{1,15}ly", _ADVERB)), step)
    return None if found is None or "" in found else frozenset(found | _SIGNS)


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


def _filed() -> tuple[dict[str, str], dict[str, list[HedgeRule]]]:
    classes: dict[str, str] = {}
    rules: dict[str, list[HedgeRule]] = {}
    category = ""
    grammar = (files("groundwire.checks") / "hedge_grammar.txt").read_text("utf-8")
    for line in grammar.replace("\n    ", "").splitlines():
        if not line or line.startswith("#"):
            continue
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
