"""Marks of citation in an answer: where they are, and which passages they name.

A mark is a reference, never a value, a name or a word of its sentence. Checks of the answer read it with its marks
blanked (`without_marks`), which keeps every position.

| form | read as a mark |
|---|---|
| `[source:2]`, `[citation: a.md]`, `[doc3]`, `(Source: f.pdf, page 12)` | always: it says so |
| `【1†source】`, `<cite>f.pdf</cite>`, `[^1]` and its definition | always |
| `[f.pdf#page=4]`, `(f.pdf, p. 4)`, `[handbook]` | where each part names a file, or what was retrieved |
| `[1]`, `[1, 2]`, a raised digit | behind a word; not as an operand, an array index or a count ("[2] pets") |
| `[text](target)` | the text too, where it is a reference itself |
| "Sources: a.pdf", a closing list below "References" | the entries that name a file, or what was retrieved |

A bracket that may be a value (`a[3]`, `[0, 1]`) is checked as one. In code only the forms of the first row count.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple
from urllib.parse import unquote

from groundwire.text.clauses import AUXILIARIES, FUNCTION_WORDS
from groundwire.text.lists import words_in
from groundwire.text.stems import CARDINALS
from groundwire.text.work import spend

LARGEST: Final = 10**9
"""A number beyond it is read as this one: nothing has so many passages."""

Reference = int | str
"""What a mark refers to: a passage by its number, or a name as it is written."""


class Mark(NamedTuple):
    """A mark of citation, `text[start:end]`, with what it refers to, in order.

    `missing` are the references that name nothing that was retrieved. `tag`: it is a `[source:N]`, the form that the
    gate asks generators for. `closing`: it is in a list of sources, which serves the whole answer.
    """

    start: int
    end: int
    references: tuple[Reference, ...] = ()
    missing: tuple[Reference, ...] = ()
    tag: bool = False
    closing: bool = False


_NUMBER: Final = r"[-\u2212]?[0-9]+"
_LABEL: Final = (
    r"(?:sources?|src|cit(?:es?|ed|ations?)|ref(?:erence)?s?|evidence|doc(?:ument)?s?|chunks?|passages?|contexts?|"
    r"excerpts?|snippets?)"
)
_SAID: Final = re.compile(rf"\s*{_LABEL}\s*[:\uff1a]\s*", re.IGNORECASE)
_TAG: Final = re.compile(r"\s*sources?\s*[:\uff1a]", re.IGNORECASE)
_COUNTED: Final = re.compile(
    rf"(?:{_LABEL}[\s._#-]{{0,4}}(?:[:\uff1a]\s{{0,4}})?)?[#^]?({_NUMBER})", re.IGNORECASE
)
_RANGE: Final = re.compile(r"(?<=[0-9])\s{0,3}[-\u2013]\s{0,3}(?=[0-9])")
_SEPARATOR: Final = re.compile(r"[,;|&\u3001]|\band\b", re.IGNORECASE)
_PAGE: Final = re.compile(
    r"(?:[\s,(]{0,4}#(?:page|slide|p)=?|[\s,(#:-]{0,4}(?:\b(?:pp?\.?|pages?|slides?|pgs?\.?|seiten?|s\.|sections?|sec\.|chapters?|ch\.)|\u00a7)\s{0,2})"
    r"(?P<first>[0-9]{1,5})(?:\s?[-\u2013]\s?(?P<last>[0-9]{1,5}))?\)?$",
    re.IGNORECASE,
)
_PAGE_BEHIND: Final = re.compile(
    r",? ?\(?((?:pp?\.|pages?) ?[0-9]{1,5}(?:\s?[-\u2013]\s?[0-9]{1,5})?)(?!\w)\)?"
)
_LINES: Final = re.compile(
    r"(?::|#l|[\s,]{1,4}(?:lines?\s|l))[0-9]{1,9}(?:[-\u2013]l?[0-9]{1,9})?$", re.IGNORECASE
)
_EXTENSION: Final = re.compile(
    r"\.(?:pdf|docx?|odt|rtf|md|mdx|rst|adoc|txt|tex|html?|pptx?|odp|xlsx?|ods|csv|tsv|jsonl?|ya?ml|toml|ini|xml|epub|"
    r"eml|msg|log|png|jpe?g|svg|ipynb|sql|py|js|ts|java|go|rs|rb|php|cs?|h|cpp|kt|swift|scala|sh)$",
    re.IGNORECASE,
)
_FILE_WORDS: Final = 8  # of a file's name, at most
_LEADING: Final = re.compile(
    r"\s*(?:see(?: also)?|cf\.?|from|in|per|as per|according to|via)\s+", re.IGNORECASE
)
_QUOTES: Final = " \t`'\"*_<>\u201c\u201d\u2018\u2019\u2020."
_WITHIN: Final = re.compile(r"[\s_\-]+|(?<=[^\W\d_])(?=[0-9])|(?<=[0-9])(?=[^\W\d_])")
_DIGITS: Final = re.compile(r"[0-9]+")
_BRACKET: Final = re.compile(r"\[[^\[\]\n]{1,40}\]|(?<=\])\([^()\s]{1,500}\)")
_NO_TITLE: Final = re.compile(r"[^a-z\u00df-\u024f]+")
_LONGEST: Final = 500  # characters of a name that is compared in parts
_FOLDERS: Final = 8
_PAGES: Final = 50  # of a range

_CODE: Final = re.compile(r"```(?:[^`]|`(?!``))*(?:```)?|`[^`\n]*`")
_INLINE: Final = re.compile(
    r"\u3010(?P<wide>[^\u3010\u3011\n]{0,200})\u3011"
    r"|\[(?P<text>\[[^\[\]\n]{1,100}\]|[^\[\]\n]{1,200})\]\((?P<target>[^()\s]{1,500})(?:\s\"[^\"\n]{0,100}\")?\)"
    r"|\[(?P<body>\s{0,4}sources?\s{0,4}[:\uff1a][^\[\]]*|[^\[\]\n]{0,200})\]"
    r"|\((?P<paren>[^()\n]{1,200})\)"
    r"|<cite(?:\s+(?:id|class|data-[\w-]{1,20})=\"[\w.#-]{0,40}\"){0,3}\s*>(?P<cite>[^<>\n]{0,200})</cite>"
    r"|<sup>(?P<sup>[^<>\n]{1,100})</sup>"
    r"|(?P<raised>[\u00b9\u00b2\u00b3\u2070\u2074-\u2079]{1,3}(?:[,\u02d2][\u00b9\u00b2\u00b3\u2070\u2074-\u2079]{1,3})*)",
    re.IGNORECASE,
)
_OPENERS: Final = re.compile(
    r"[\[(\u3010\u00b9\u00b2\u00b3\u2070\u2074-\u2079]|<(?:cite|sup)\b|"
    r"\b(?:sources?|references?|citations?|bibliography|footnotes?|cited|consulted|used)[ \t*_]{0,4}(?::|$)",
    re.IGNORECASE | re.MULTILINE,
)
_RAISED: Final = str.maketrans(
    "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u02d2", "0123456789,"
)
_PLAIN_NUMBERS: Final = re.compile(r"\s*[0-9]{1,3}(?:\s?[,;\u2013-]\s?[0-9]{1,3}){0,9}\s*")
_LAST_WORD: Final = re.compile(r"[\w.]{0,39}\w$")
_REACH: Final = 40  # characters before a bracket that tell what it is
_OPERAND: Final = words_in(__package__, "operand")
_PAIRED: Final = _OPERAND | {"in", "from", "within", "over", "on", "of", "to"}
_BEFORE: Final = frozenset(
    ".;!?)]}\"'%*_>|\u2026\u201d\u2019\u00bb\u3011\u3002\uff01\uff1f\u20ac$\u00a3\u00b0+"
)
_BEHIND: Final = frozenset(".,;:!?)]|[(\n*_<\u3010\u3002\uff0c")
_NEXT_WORD: Final = re.compile(r"[*_]{0,2} ([a-z]+)(?![\w'])")
_MEASURING: Final = [
    [word] for word in ("most", "least", "than", "about", "only", "exactly", "nearly", "almost")
]
_LENGTHS: Final = words_in(__package__, "lengths")
_LONG: Final = 4  # letters of a word that a raised digit may follow

_HEAD: Final = re.compile(
    r"(?:^[ \t>*_#-]{0,8}|(?<=[.!?)\]] )[*_]{0,2})(?:sources?|references?|citations?|bibliography|footnotes?|"
    r"works cited|(?:sources?|references?|documents?) (?:used|cited|consulted|referenced)|source documents?)"
    r"[ \t*_]{0,4}(?::[ \t*_]{0,4}|$)",
    re.IGNORECASE | re.MULTILINE,
)
_NAME: Final = r"[0-9]{1,3}|[A-Za-z]{1,3}[0-9]{0,3}|(?<=\^)[\w-]{1,20}"
"""How a list names an entry: a number, initials, or what a footnote is called: no words that assert something."""

_DEFINITION: Final = re.compile(
    rf"^[ \t]{{0,3}}\[\^?(?P<name>{_NAME})\]:[ \t]{{0,8}}(?P<body>\S[^\n]{{0,300}})$", re.MULTILINE
)
_ITEM: Final = re.compile(
    rf"[ \t]*(?:[-*+\u2022][ \t]+)?(?:(?:\(?(?P<number>[0-9]{{1,3}})[.):]|\[\^?(?P<name>{_NAME})\]:?)[ \t]+)?"
    r"(?P<body>\S[^\n]*)?"
)
_LINK: Final = re.compile(r"\[(?P<text>[^\[\]\n]{1,200})\]\((?P<target>[^()\s]{1,500})\)")
_REMARK: Final = re.compile(r"\s(?:[-\u2013\u2014]|\()")  # behind an entry of a list
_UNBRACKET: Final = re.compile(r"[\[\]]")
_ENTRIES: Final = 200  # of a closing list


class Citable:
    """The passages that an answer was given, as it may cite them: by number, id, file and page.

    Files are compared as people write them: letter case, a path in front, blanks, and where one file alone has the
    name, the extension do not count. What the `texts` of the passages hold themselves is no mark of the answer's.
    """

    def __init__(self, names: Iterable[str], count: int, texts: Iterable[str] = ()) -> None:
        self.count = count
        self._texts = texts
        self._pages: dict[str, set[int]] = defaultdict(set)  # 0: of a name without one
        self._paths: set[str] = set()
        stems: dict[str, set[str]] = defaultdict(set)
        for name in names:
            key, pages = _key(name)
            self._paths.add(key)
            for end in _ends(key):
                self._pages[end].update(pages or {0})
                stems[_EXTENSION.sub("", end)].add(key)
        self._remote = any("://" in name for name in names)
        for stem, files in stems.items():
            if stem not in self._pages and len(files) == 1:
                self._pages[stem] = self._pages[next(iter(files))]
        self._shapes = {_shape(key) for key in self._pages} - {""}

    def names(self, name: str) -> bool:
        return self._found(name)[0] is not None

    def holds(self, reference: Reference) -> bool:
        if isinstance(reference, int):
            return 1 <= reference <= self.count or str(reference) in self._pages
        there, asked = self._found(reference)
        return there is not None and (not asked or 0 in there or not asked.isdisjoint(there))

    def looks_like(self, name: str) -> bool:
        """Return whether a name equals one of those that were retrieved except for its digits."""
        return _shape(_key(name)[0]) in self._shapes

    @cached_property
    def titles(self) -> str:
        """The words of the files' names: an answer may refer to a file by its title."""
        files = sorted(path for path in self._paths if _EXTENSION.search(path))
        return "\n".join(_NO_TITLE.sub(" ", _EXTENSION.sub("", path.rpartition("/")[2])) for path in files)

    def quotes(self, bracket: str) -> bool:
        return bracket in self._brackets

    def tells(self, name: str) -> bool:
        """Return whether a passage has a name in its text: "Article 17" there is no citation of one."""
        return name.casefold() in self._told

    @cached_property
    def _told(self) -> str:
        return "\n".join(self._texts).casefold()

    def missing(self, text: str) -> tuple[Reference, ...]:
        """Return what a text cites and nobody retrieved, once each, in order."""
        return tuple(dict.fromkeys(name for mark in marks(text, self) for name in mark.missing))

    @cached_property
    def _brackets(self) -> set[str]:
        return {found for text in self._texts for found in _BRACKET.findall(text)}

    def _found(self, name: str) -> tuple[set[int] | None, set[int]]:
        key, asked = _key(name)
        for form in dict.fromkeys((key, _key(_LINES.sub("", name.strip(_QUOTES)))[0])):
            ends = (form, *(end for end in _ends(form) if end in self._paths))
            file = form.rpartition("/")[2]
            if "://" in name and not self._remote:
                ends = (*ends, file)
            for end in ends:  # the last: a file that was retrieved without its extension
                if end in self._pages:
                    return self._pages[end], asked
            bare = _EXTENSION.sub("", file)
            if bare != file and bare in self._paths:
                return self._pages[bare], asked
        return None, asked


def marks(text: str, sources: Citable | None = None) -> list[Mark]:
    """Return the marks of citation of a text, in order and without overlaps; links to elsewhere are never `missing`."""
    if _OPENERS.search(text) is None:
        return []
    spend(len(text))
    return _MarkReader(text, sources).read()


def blanked(text: str, found: Iterable[Mark]) -> str:
    """Return a text of the same length with blanks for marks, and for the markers of items that are but marks."""
    pieces = []
    done = 0
    for mark in found:
        pieces += [text[done : mark.start], re.sub(r"[^\n]", " ", text[mark.start : mark.end])]
        done = mark.end
    if not pieces:
        return text
    shown = "".join((*pieces, text[done:]))
    return _EMPTY_ITEM.sub(lambda item: " " * len(item[0]), shown)


def without_marks(text: str, sources: Citable | None = None) -> str:
    return blanked(text, marks(text, sources))


_EMPTY_ITEM: Final = re.compile(
    r"^[ \t]*(?:[-*+\u2022]|\(?[0-9]{1,3}[.):])(?=  )[ \t.,;:*_()]*$", re.MULTILINE
)


class _MarkReader:
    def __init__(self, text: str, sources: Citable | None) -> None:
        self._text = text
        self._sources = sources
        self._given = sources or Citable((), 0)
        self._code = [place for span in _CODE.finditer(text) for place in span.span()] if "`" in text else []
        self._defined: set[str] = set()

    def read(self) -> list[Mark]:
        listed = [*self._listed()] if self._sources else []
        found = [*listed, *self._inline([(mark.start, mark.end) for mark in listed])]
        return sorted(found)

    def _mark(
        self,
        start: int,
        end: int,
        references: Iterable[Reference],
        *,
        tag: bool = False,
        closing: bool = False,
    ) -> Mark:
        named = tuple(references)
        sources = self._sources
        missing = tuple(
            name for name in named if sources and str(name) not in self._defined and not sources.holds(name)
        )
        return Mark(start, end, named, missing, tag, closing)

    # -- lists of sources, and definitions of footnotes

    def _listed(self) -> Iterator[Mark]:
        entries: list[tuple[int, int, tuple[Reference, ...], bool]] = []
        for found in _DEFINITION.finditer(self._text):
            used = self._text.count(f"[^{found['name']}]") != 1
            entry = self._entry(found["body"], found.start("body")) if used else None
            if entry and not self._in_code(found.start()):
                self._defined.add(found["name"])
                entries.append((found.start(), entry[0], entry[1], False))
        for head in _HEAD.finditer(self._text):
            if not self._in_code(head.start()):
                entries += self._below(head)
        done = -1
        for start, end, references, closing in sorted(entries):
            if start >= done:
                yield self._mark(start, end, references, closing=closing)
                done = end

    def _below(self, head: re.Match[str]) -> Iterator[tuple[int, int, tuple[Reference, ...], bool]]:
        text = self._text
        stop = _line_end(text, head.end())
        if text[head.end() : stop].strip():
            item = _ITEM.match(text, head.end(), stop)
            first = item.start("body") if item and item["body"] else head.end()
            if stop - first <= _LONGEST and (entry := self._entry(text[first:stop], first, numbers=True)):
                yield head.start(), entry[0], entry[1], True
            return
        named = False
        for _ in range(_ENTRIES):
            start, stop = stop + 1, _line_end(text, stop + 1)
            if start > len(text):
                break
            item = _ITEM.fullmatch(text, start, stop)
            if item is None or not item["body"]:
                if text[start:stop].strip():
                    break
                continue
            entry = self._entry(item["body"], item.start("body"), numbers=item["body"].startswith("["))
            if entry is None:
                break
            if not named:
                yield head.start(), head.end(), (), True
            named = True
            self._defined.update(filter(None, (item["number"], item["name"])))
            yield start, entry[0], entry[1], True

    def _entry(
        self, body: str, start: int, *, numbers: bool = False
    ) -> tuple[int, tuple[Reference, ...]] | None:
        """Return where an entry's reference ends, and what it refers to; None where it names nothing."""
        if link := _LINK.match(body.lstrip()):
            offset = start + len(body) - len(body.lstrip())
            for name in (link["target"], link["text"]):
                if self._given.names(name):
                    return offset + link.end(), (name,)
            return None
        remark = _REMARK.search(body)
        for piece in (body, body[: remark.start()] if remark else ""):
            references = self._references(_UNBRACKET.sub(" ", piece), said=False, numbers=numbers)
            if references:
                return start + len(piece.rstrip()), references
        return None

    # -- marks within sentences

    def _inline(self, done: Sequence[tuple[int, int]]) -> Iterator[Mark]:
        place = 0
        listed = iter([*done, (len(self._text) + 1, 0)])
        start, end = next(listed)
        position = 0
        while found := _INLINE.search(self._text, position):
            inside = found["paren"] and not self._in_parentheses(found["paren"])  # "(see [1])"
            position = found.start() + 1 if inside else found.end()
            while end and end <= found.start():
                start, end = next(listed)
            if found.start() < place or (start <= found.start() < end):
                continue
            if self._in_code(found.start()) and not (found["wide"] or _SAID.match(found["body"] or "")):
                continue
            for mark in self._of(found):
                page = _PAGE_BEHIND.match(self._text, mark.end) if mark.references else None
                if page and isinstance(name := mark.references[-1], str):  # "[f.pdf], p. 4"
                    names = (*mark.references[:-1], f"{name}, {page[1]}")
                    mark = self._mark(mark.start, page.end(), names, tag=mark.tag)  # noqa: PLW2901
                yield mark
                place = mark.end

    def _of(self, found: re.Match[str]) -> Iterator[Mark]:
        start, end = found.span()
        kind = found.lastgroup
        body = found[kind or 0]
        if kind == "target":
            yield from self._link(found)
        elif kind == "wide":
            wide = self._wide(body)
            if not self._belongs(start, end, wide):
                yield self._mark(start, end, wide)
        elif kind in {"sup", "raised"}:
            numbers = _numbers(body.translate(_RAISED).strip("[]"))
            raised = numbers and self._is_raised_mark(start, end) and not self._counts(start, end)
            if self._sources and raised and self._all_held(numbers):
                yield self._mark(start, end, numbers)
        elif kind == "cite":
            cited = _numbers(body) or self._references(body, said=False)
            if cited and not self._belongs(start, end, cited):
                yield self._mark(start, end, cited)
        elif kind == "paren":
            numbers = _numbers(body)
            ends = self._text[end : end + 1] in _BEHIND and self._text[start - 1 : start] == " "
            if self._sources and (references := self._in_parentheses(body)):
                yield self._mark(start, end, references)
            elif self._sources and ends and numbers and self._all_held(numbers):
                if self._is_numbered_mark(start, end, numbers) and not self._repeats(start):
                    yield self._mark(start, end, numbers)
            elif self._sources and ends and _PAGE.fullmatch(body):  # of what is cited before
                yield self._mark(start, end, ())
        else:
            yield from self._bracket(start, end, body)

    def _link(self, found: re.Match[str]) -> Iterator[Mark]:
        """Yield the parts of a link that refer: its target, and its text where that is no part of the sentence."""
        start, end = found.span()
        inner, target = found["text"].strip("[]"), found["target"]
        references = _numbers(inner) or (self._references(inner, said=False) if self._sources else None)
        if references and self._belongs(start, end, references):
            references = None
        is_file = _EXTENSION.search(_key(target)[0]) is not None
        held = self._given.names(target)
        if not (held or is_file or "://" in target or target.startswith("#")):
            return  # "tel:": part of what is said
        # a link to elsewhere is looked for in the evidence, as any other
        elsewhere = "://" in target or not is_file or self._given.quotes(f"({target})")
        named = (target,) if held or not elsewhere else ()
        behind = found.end("text")
        yield self._mark(start, behind + 1 if references else start + 1, references or ())
        yield self._mark(behind + 1 if references else behind, end, named)

    def _bracket(self, start: int, end: int, body: str) -> Iterator[Mark]:
        said = _SAID.match(body)
        if said:
            tag = _TAG.match(body) is not None
            yield self._mark(
                start, end, self._references(body[said.end() :], said=True, numbers=True) or (), tag=tag
            )
        elif body.startswith("^"):
            yield self._mark(start, end, self._references(body[1:], said=True, numbers=True) or ())
        elif numbers := _numbers(body):
            if self._is_numbered_mark(start, end, numbers):
                yield self._mark(start, end, numbers)
        elif (
            self._sources
            and (references := self._references(body, said=False, numbers=_PAGE.search(body) is not None))
            and not self._belongs(start, end, references)
        ):
            yield self._mark(start, end, references)

    def _belongs(self, start: int, end: int, references: Sequence[Reference]) -> bool:
        """Return whether what looks like a mark is a word or a number of its sentence: "is in [Berlin]", "[2] pets"."""
        if any(isinstance(name, str) and _is_file(name) for name in references):
            return False
        word = _LAST_WORD.search(self._text[max(0, start - _REACH) : start].rstrip(" "))
        led = word is not None and word[0].lower() in FUNCTION_WORDS
        named = any(isinstance(name, str) and not _DIGITS.search(name) for name in references)
        counts = all(isinstance(name, int) for name in references) and self._counts(start, end)
        return (named and led) or counts

    def _repeats(self, start: int) -> bool:
        """Return whether a number in digits repeats the one in letters before it: "two (2)"."""
        word = _LAST_WORD.search(self._text[max(0, start - _REACH) : start].rstrip(" "))
        return word is not None and word[0].lower() in CARDINALS

    def _counts(self, start: int, end: int) -> bool:
        words = self._text[max(0, start - _REACH) : start].lower().split()
        behind = _NEXT_WORD.match(self._text, end)
        counted = behind is not None and behind[1] not in FUNCTION_WORDS and behind[1] not in AUXILIARIES
        return counted or words[-1:] in _MEASURING or words[-2:] == ["up", "to"]

    def _in_parentheses(self, body: str) -> tuple[Reference, ...] | None:
        said = _SAID.match(body)
        led = None if said else _LEADING.match(body)
        inner = body[(said or led).end() :] if said or led else body  # type: ignore[union-attr]
        references = self._references(inner, said=False, numbers=said is not None)
        if references is None or self._sources is None:
            return None
        files = all(isinstance(name, int) or _EXTENSION.search(_key(name)[0]) for name in references)
        paged = any(isinstance(name, str) and _key(name)[1] for name in references)
        years = any(isinstance(name, str) and _DIGITS.search(name) for name in references)  # (Smith 2020)
        return references if said or files or paged or years else None

    def _wide(self, body: str) -> tuple[Reference, ...]:
        number, _, name = body.rpartition("\u2020")
        if name and (
            not number
            or not re.fullmatch(r"sources?|l[0-9]{1,6}(?:\s?[-\u2013]\s?l?[0-9]{1,6})?", name, re.IGNORECASE)
        ):
            return self._references(name, said=True, numbers=True) or ()
        count = re.fullmatch(r"\s*([0-9]{1,5}):([0-9]{1,5})\s*", number)
        if count:  # of a message and of a result, which is counted from 0
            return (int(count[2]) + 1,)
        return self._references(number or body, said=True, numbers=True) or ()

    def _references(self, body: str, *, said: bool, numbers: bool = False) -> tuple[Reference, ...] | None:
        whole = body.strip(_QUOTES)
        if whole and not whole.isdigit() and self._given.names(whole):
            return (whole,)
        found: list[Reference] = []
        for part in _SEPARATOR.split(
            body if _PAGE.search(body) or _LINES.search(body) else _RANGE.sub(",", body)
        ):
            name = part.strip(_QUOTES)
            if not name:
                continue
            bare = numbers or (found and isinstance(found[-1], int))  # "Documents 1, 2"
            counted = _COUNTED.fullmatch(name) if bare or not name.isdigit() else None
            if (
                found
                and isinstance(found[-1], str)
                and (
                    _PAGE.fullmatch(name) is not None
                    or (name.isdigit() and _PAGE.search(found[-1]) is not None)
                )
            ):
                found[-1] += f", {name}"
            elif found and _PAGE.fullmatch(name):
                continue  # of a numbered passage
            elif not name.isdigit() and self._given.names(name):
                found.append(name)
            elif counted and (self._all_held([_count(counted[1])]) or not self._given.looks_like(name)):
                found.append(_count(counted[1]))
            elif said or _is_file(name) or (self._given.looks_like(name) and not self._given.tells(name)):
                found.append(name)
            else:
                return None
        return tuple(found) or None

    def _is_numbered_mark(self, start: int, end: int, numbers: Sequence[int]) -> bool:
        text, behind = self._text, self._text[end : end + 1]
        before = text[max(0, start - _REACH) : start]
        bare = before.rstrip(" ")
        held, attached = self._all_held(numbers), bare == before
        if 0 in numbers or behind.isalnum() or behind in {"_", "=", "("}:
            return False
        if bare[-1:] in {"", "\n"}:  # "[1] The pool opens at 7."
            return held and behind != ":" and self._sources is not None
        if attached and behind == "." and text[end + 1 : end + 2].isalpha():
            return False
        if last := _LAST_WORD.search(bare):
            word = last[0]
            plain = len(word) > 1 and word.isalpha() and (word[1:].islower() or word.isupper())
            operand = word.lower() in (_PAIRED if len(numbers) > 1 else _OPERAND)
            cited = not operand and (not attached or word.isdigit() or plain)
        else:
            framed = bare[-1] + behind in {"()", "(,", "(;", "[]"} or (
                bare[-1] == "," and bare[-2:-1].isalpha()
            )
            cited = framed or bare[-1] in _BEFORE
        if not cited or self._counts(start, end):
            return False
        ends = not attached and (not behind or behind in _BEHIND)
        return held or (ends and self._sources is not None and not self._given.quotes(text[start:end]))

    def _is_raised_mark(self, start: int, end: int) -> bool:
        """Return whether raised digits are a mark: behind a blank, a full stop, or a word that is no length."""
        before, behind = self._text[max(0, start - _REACH) : start], self._text[end : end + 1]
        bare = before.rstrip(" ")
        word = _LAST_WORD.search(bare)
        if behind.isalnum() or word is None or bare != before:
            return not behind.isalnum() and (word is not None or bare[-1:] in _BEFORE or bare[-1:] == ",")
        plain = word[0].lower()
        return plain.isalpha() and len(plain) >= _LONG and plain not in _LENGTHS

    def _all_held(self, numbers: Iterable[Reference]) -> bool:
        sources = self._sources
        return sources is None or all(str(name) in self._defined or sources.holds(name) for name in numbers)

    def _in_code(self, place: int) -> bool:
        return bisect_right(self._code, place) % 2 == 1


def _numbers(body: str) -> tuple[int, ...]:
    if _PLAIN_NUMBERS.fullmatch(body) is None:
        return ()
    return tuple(map(int, _DIGITS.findall(body)))


def _count(digits: str) -> int:
    sign, bare = digits[:1] in {"-", "\u2212"}, digits.lstrip("-\u2212").lstrip("0") or "0"
    number = int(bare) if len(bare) <= len(str(LARGEST)) - 1 else LARGEST
    return -number if sign else number


def _is_file(name: str) -> bool:
    bare = _LINES.sub("", _PAGE.sub("", name).rstrip(_QUOTES + ","))
    return _EXTENSION.search(bare) is not None and len(bare.split()) <= _FILE_WORDS


def _key(name: str) -> tuple[str, set[int]]:
    plain = name.strip(_QUOTES)
    pages: set[int] = set()
    if len(plain) > _LONGEST:
        return plain.casefold(), pages
    while (place := _PAGE.search(plain)) and place.start():
        first, last = int(place["first"]), int(place["last"] or place["first"])
        pages.update(range(first, min(last, first + _PAGES) + 1))
        plain = plain[: place.start()].rstrip(_QUOTES + ",")
    path = unquote(plain).casefold().replace("\\", "/").rstrip("/")
    scheme, remote, rest = path.partition("://")
    path = rest.removeprefix("www.").partition("?")[0].partition("#")[0] if remote else scheme
    return _WITHIN.sub(" ", path.removeprefix("./")), pages


def _ends(key: str) -> Iterator[str]:
    yield key
    parts = key.rsplit("/", _FOLDERS)
    yield from ("/".join(parts[at:]) for at in range(1, len(parts)))


def _shape(key: str) -> str:
    """Return a name without the values of its digits; empty where it has none, or no letters."""
    return _DIGITS.sub("0", key) if _DIGITS.search(key) and any(map(str.isalpha, key)) else ""


def _line_end(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end
