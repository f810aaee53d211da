"""Citations: what a claim points at (S0-46..S0-63, C-18).

Detection decides nothing: only a verified citation gives credit, and only where the claim rests on it
(`groundwire.checks.reliance`). A token that could be something else is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from string import hexdigits
from typing import Literal, NamedTuple

from groundwire.arguments import takes
from groundwire.checks.reliance import DENIED, denied, leads
from groundwire.text.normalise import nfkc
from groundwire.text.page import unseen
from groundwire.text.quantities import MONTHS
from groundwire.text.stems import words_of
from groundwire.text.visible import seen

CitationType = Literal["adr", "commit", "url", "issue", "doi", "arxiv", "pmid", "rfc", "cve", "ticket"]

MAX_CREDITED = 100
"""Citations of a text that are verified; the rest give no credit."""

_SHORT_SHA = 7  # characters of a commit in a source id (S0-55)


class Citation(NamedTuple):
    """One citation; `original[start:end]` is the match as written, positions in characters (S0-53).

    `value` is, for an ADR or an issue, the digits as written, or the file `0003-x.md`, the entry `decisionLog.md#x` or
    the issue `owner/repo#4`; for a commit its hash in lower case (S0-60); for a URL the URL without the punctuation
    that ends the sentence (S0-62); else the id. `doubt` says why it gives no credit whether or not it exists, in a few
    words: the claim does not rest on it; empty where it may. `url` is where a ticket is looked up.
    """

    type: CitationType
    value: str
    start: int
    end: int
    doubt: str = ""
    url: str = ""

    @property
    def label(self) -> str:
        return f"{self.type}:{self.value}"

    @property
    def source_id(self) -> str:
        """What evidence calls it: "ADR-003", "commit:a1b2c3d", the URL, or "issue:123" (S0-55)."""
        match self.type:
            case "adr" if self.value.isdigit():
                return f"ADR-{self.value}"
            case "adr" | "ticket":
                return self.value
            case "commit":
                return f"commit:{self.value[:_SHORT_SHA]}"
            case "url":
                return self.value
            case _:
                return self.label


# A URL runs to white space, <, > or " (S0-49), or to an HTML entity for one of these. In brackets, quotes or
# backticks it ends with them at the latest: "[https://x.io](https://x.io),...". Repetitions of repetitions
# below are of disjoint alternatives with nothing behind them, so matching never goes back.
_SCHEME = r"http(?-i:[sS])?://(?=\w|\[[0-9a-f:.]{2,45}\])"
_AMPERSAND = "&(?!(?:lt|gt|quot|apos|#34|#39);)"
_URL = re.compile(
    rf"(?<=\(){_SCHEME}(?:[^\s<>\"&()]+|{_AMPERSAND}|\([^\s<>\"()]{{0,500}}\))+|"
    rf"(?<=['`]){_SCHEME}(?:[^\s<>\"&'`]+|{_AMPERSAND})+|"
    rf"{_SCHEME}(?:[^\s<>\"&\]]+|{_AMPERSAND}|\](?!\())+",
    re.IGNORECASE,
)
_TRAILING = frozenset(
    ".,;:!?'\"*`|\u2018\u2019\u201c\u201d\u00bb\u2026\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f\u200b\ufeff"
)
_BRACKETS = {")": "(", "]": "[", "}": "{", "\uff09": "\uff08", "\u300d": "\u300c", "\u3011": "\u3010"}
# URLs that cite nothing, but whose paths must not be searched either.
_OTHER_URL = re.compile(r"(?<![^\W_])[a-z][a-z0-9+.-]{1,15}://\S+", re.IGNORECASE)

_HEX = "[0-9a-f]"
# What a word is made of, less the scripts that write without spaces: there a citation touches its neighbours.
_W = r"0-9A-Za-z_\u00c0-\u1fff"
_TOKEN = re.compile(
    rf"(?<![{_W}])(?=[\[0-9a-gms])(?:"  # this line is for speed: what follows starts a word
    # [ADR-003], ADR-003, ADR 003, ADR #3 (S0-47, S0-61)
    r"(?P<bracket>\[)?ADR(?:[-\u2010-\u2014_]|\s{1,2})?#?(?P<adr>[0-9]{1,5})"
    rf"(?(bracket)\]|(?!(?!_)[{_W}]))|"
    # Also GH-456 (S0-50)
    rf"(?<![&#/])GH-(?P<gh>[0-9]{{1,10}})(?![{_W}]|\.[0-9])|"
    # No citation: a UUID, and a digest that names its algorithm (S0-59)
    rf"(?P<other>{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}(?![{_W}])|"
    r"(?:sha-?(?:224|256|384|512)|sha3-\d{3}|md5|blake\w{1,3}|crc-?32)\W{1,3}"
    rf"{_HEX}{{4,128}})|"
    rf"(?P<commit>{_HEX}{{7,40}})(?![{_W}]))|"
    r"(?=[#&])(?:"
    # No citation: an HTML entity, and a colour with a letter (S0-51, S0-59, S0-63)
    rf"(?P<entity>&#x?{_HEX}{{1,8}};)|"
    rf"(?P<colour>#(?=[0-9]{{0,7}}[a-f])(?:{_HEX}{{8}}|{_HEX}{{6}}|{_HEX}{{3,4}})(?![{_W}]))|"
    # #123; not owner/repo#12, which is another tracker's, nor page#12 (S0-50, S0-63)
    rf"(?<![{_W}&#/])#(?P<issue>[0-9]{{1,10}})(?![{_W}]|\.[0-9]))",
    re.IGNORECASE,
)
# Works, standards, vulnerabilities and issues that anybody can look up; and a decision by its file or log entry.
_DECISION_FILE = r"[0-9]{1,4}[-_][\w.-]{1,150}?\.(?:md|markdown|adoc|rst)"
_PUBLIC = re.compile(
    rf"(?<![{_W}./-])(?:"
    r"(?:doi:\s?)?(?P<doi>10\.[0-9]{4,9}/[^\s\"<>]{1,200})|"
    r"arXiv:\s?(?P<arxiv>[0-9]{4}\.[0-9]{4,5}(?:v[0-9]{1,3})?|[a-z-]{2,20}(?:\.[A-Z]{2})?/[0-9]{7})|"
    r"PMID:?\s?(?P<pmid>[1-9][0-9]{0,8})|"
    r"RFC[\s-]?(?P<rfc>[1-9][0-9]{0,4})|"
    r"(?P<cve>CVE-[0-9]{4}-[0-9]{4,19})|"
    r"(?P<issue>[a-z0-9][a-z0-9-]{0,38}/[a-z0-9_.-]{1,100}#[1-9][0-9]{0,9})|"
    rf"(?:[\w.-]{{1,100}}/){{0,8}}(?:adrs?|decisions?)/(?P<adr>{_DECISION_FILE})|"
    r"(?P<log>[a-z_-]{0,40}decision[a-z_-]{0,40}\.(?:md|markdown))"
    r"(?:#(?P<anchor>[\w-]{1,150})|[,:]?\s\(?(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2}))"
    rf")(?![{_W}]|[-.][0-9a-z])",
    re.IGNORECASE,
)
_SIGNS_OF_PUBLIC = ("10.", "arxiv", "pmid", "rfc", "cve-", "#", ".md", ".adoc", ".rst", ".markdown")
_JOINT = (
    r"(?:[\W_]{1,4}(?:is|was|are|in|at|by|as|from|of|with|to|the|id|hash|code|value|set)){0,3}[\W_]{1,4}$"
)
# An "x" for each hexadecimal digit, a space for each other character; and the least that a commit is.
_HEX_DIGITS = bytes(ord("x" if chr(code) in hexdigits else " ") for code in range(256))
_LEAST_HEX = _SHORT_SHA * b"x"
_COMMIT_CUE = re.compile(
    r"(?<![^\W_])(?:commit(?:s|ted)?|shas?|revs?|revisions?|changesets?|fix(?:ed|es)? in|merged?|merges|"
    rf"cherry[- ]?pick(?:s|ed)?|revert(?:s|ed)?){_JOINT}",
    re.IGNORECASE,
)
_COLOUR_CUE = re.compile(
    rf"(?<![^\W_])(?:colou?rs?|hex|rgba?|background|bg|foreground|fill|stroke){_JOINT}", re.IGNORECASE
)
_COLOUR_BEHIND = re.compile(r"\W{0,2}(?:colou?rs?|hex|background|fill)\b", re.IGNORECASE)
# What else is numbered: parts of a document, and standards. No issue, so no credit for one of that number.
_NUMBERED = re.compile(
    r"(?<![^\W_])(?:pages?|chapters?|sections?|figures?|tables?|steps?|lines?|rows?|columns?|PKCS|UTS|UTR|UAX)"
    r"[ \u00a0]$",
    re.IGNORECASE,
)
# Also with a part before or behind: that of somebody else, a version, a draft. Lists and file names are none.
_LONGER_BEFORE = re.compile(rf"(?<![{_W}])([{_W}]+)[-./:@~+\\#$%^=]$")
_PATH_BEFORE = re.compile(r"[.~/\\][/\\]$")
_NO_NAME_BEFORE = re.compile(
    r"(?:see|per|cf|refs?|sources?|by|and|or|adrs?|decisions?|issues?|gh|\d+):?", re.IGNORECASE
)
_LONGER_BEHIND = re.compile(
    r"(?!(?:-[\w-]{1,100})?\.md\b)(?:"
    r"(?:[-_/@~+#\\$%^=]|\.(?=(?-i:[0-9a-z])))(?!(?:ADR|GH)\b|#)\w|[/\\][./\\]|[:!?](?=[v\w])|'(?!s\b)(?=\w)|"
    r"\s{1,2}\(?(?:v\.?\s?[0-9]|(?:version|rev|revision)\.?\s[0-9]|draft\b))",
    re.IGNORECASE,
)
# "commit:" and "rev/"; a revision beside a commit is another one, and a path behind a colon is a file in it
_NO_NAME_OF_COMMIT = re.compile(
    rf"{_NO_NAME_BEFORE.pattern}|commits?|shas?|revs?|revisions?|changesets?|{_HEX}{{7,40}}", re.IGNORECASE
)
_LONGER_COMMIT = re.compile(r"[~^]|[-_/@+#\\$%=]\w|\.(?=(?-i:[a-z]))|[/\\][./\\]", re.IGNORECASE)
_LONGER = {False: (_NO_NAME_BEFORE, _LONGER_BEHIND), True: (_NO_NAME_OF_COMMIT, _LONGER_COMMIT)}
# GitHub's own words for closing count: "Fixed in #12".
_ISSUE_CUE = re.compile(
    r"(?<![^\W_])(?:issues?|bugs?|tickets?|defects?|PRs?|(?:pull|merge)[- ]requests?|GH|GitHub|GitLab|Jira|tracker|"
    rf"close[sd]?|fix(?:e[sd])?|resolve[sd]?|refs?|reported|filed|tracked){_JOINT}",
    re.IGNORECASE,
)
_ISSUE_BEHIND = re.compile(r"[\s)]{1,2}(?:issue|bug|ticket|defect)\b", re.IGNORECASE)
UNNAMED = "no word makes it an issue"
"""Why a bare number gives no credit."""
UNSHOWN = "struck out or not shown"
"""Why a citation that no reader sees gives no credit."""
_IN_TAG = re.compile(r"<!--[^<>]*-->|</?[A-Za-z][A-Za-z0-9]{0,9}[^<>]*>")
_COMMENT = re.compile(r"\{#.{0,500}?#\}|%%.{0,500}?%%|/\*.{0,500}?\*/", re.DOTALL)
"""Comments of templates and notes, which no page shows."""
FOREIGN = "reads like that of another project"
"""Why a citation beside a name gives no credit."""
# A name in front: "Globex ADR-003", "Initech's ADR-003", "(acme ADR-003)"; or behind: "ADR-003 of Globex".
_NAME_BEFORE = re.compile(
    r"(?P<opened>[(\[]?)(?<![^\W_])(?P<name>[^\W\d_][\w-]{0,30})(?P<owns>['\u2019]s)?[ \u00a0]{1,2}$"
)
_OWN = words_of(
    "team project company repo repository organisation organization department group product service system platform "
    "engineering architecture backend frontend today yesterday week month quarter year sprint author document page"
)
"""Whose ADR is one's own: "the team's ADR-003", "today's ADR-003"."""
_IDENTIFIER = re.compile(r"[^\W\d_]+-?\d[\w-]*")  # of another citation: "ADR-002 ADR-003"
_NAME_BEHIND = re.compile(
    r"\]?[ \u00a0](?:(?:of|at)[ \u00a0](?P<name>[A-Z][a-z]{2,30})|\((?P<in>[A-Z]\w{2,30})\))"
)
_NAME_LEADING = re.compile(
    r"(?:^|\W)(?:per|by|from|at|with|see|says|according to)[ \u00a0](?P<name>[^\W\d_][\w-]{2,30})[,:][ \u00a0]$",
    re.IGNORECASE,
)
_OTHERS_OWN = words_of("their his her theirs")
_FULL_WIDTH = (
    "".join(chr(code) for code in range(0xFF01, 0xFF5F) if chr(code).isalnum()) + "\uff03\uff0d\uff3f"
)
_NARROW = {ord(char): ord(char) - 0xFEE0 for char in _FULL_WIDTH}
_AND = re.compile(r"\W{0,2}(?:,|/|&|\.\.|and|or|to)\W{0,2}", re.IGNORECASE)
_SHARES = re.compile(r"\W{1,2}(?:and|or|nor|&|/)\W{1,2}", re.IGNORECASE)
_WINDOW = 48  # characters before a token in which a cue word counts
_COLOUR_LENGTHS = frozenset({3, 4, 6, 8})


class CitationDetector:
    """Finds citations. It holds no state: one instance serves all.

    Args:
        trackers: `KEY=URL` for each project of a tracker whose tickets count, `{key}` for the ticket in the URL.
    """

    def __init__(self, trackers: Iterable[str] = ()) -> None:
        self._trackers = dict(tracker.split("=", 1) for tracker in trackers)
        keys = "|".join(sorted(map(re.escape, self._trackers)))
        self._tickets = (
            re.compile(rf"(?<![{_W}./-])(?P<ticket>(?P<key>{keys})-[1-9][0-9]{{0,6}})(?![{_W}]|[-.][0-9a-z])")
            if keys
            else None
        )

    @takes(text=str)
    def detect(self, text: str) -> list[Citation]:
        """Return the citations of a text, in text order and without overlaps (S0-54).

        They are looked for in what a reader sees (`groundwire.text.visible`); positions are those of the text.
        """
        shown, starts, ends = seen(text)
        shown = shown if shown.isascii() else shown.translate(_NARROW)
        # as most claims; this costs less than the patterns
        if not _may_cite(shown) and not (self._tickets and self._tickets.search(shown)):
            return _in_tags(text)
        urls: list[Citation] = []
        pieces: list[str] = []
        position = 0
        while "://" in shown and (match := _URL.search(shown, position)):
            start, behind = match.start(), position
            position = start + len(_trim(match.group()))
            urls.append(Citation("url", shown[start:position], start, position))
            pieces += [shown[behind:start], " " * (position - start)]
        # S0-52: a hash or an anchor in a URL is no citation of its own
        rest = "".join([*pieces, shown[position:]])
        if "://" in rest:
            rest = _OTHER_URL.sub(lambda match: " " * len(match.group()), rest)
        public = sorted(self._public(rest), key=lambda citation: citation.start)
        pieces, position = [], 0
        for cited in public:
            pieces += [rest[position : cited.start], " " * (cited.end - cited.start)]
            position = cited.end
        rest = "".join([*pieces, rest[position:]])
        found = _doubted(shown, sorted([*urls, *public, *_others(rest)], key=lambda citation: citation.start))
        placed = [cited._replace(start=starts[cited.start], end=ends[cited.end - 1]) for cited in found]
        hidden = unseen(text, [cited.end - 1 for cited in placed])
        commented = placed and any(mark in text for mark in ("{#", "%%", "/*"))
        for comment in _COMMENT.finditer(text) if commented else ():
            hidden.update(cited.end - 1 for cited in placed if comment.start() < cited.end < comment.end())
        marked = [cited._replace(doubt=UNSHOWN) if cited.end - 1 in hidden else cited for cited in placed]
        held = [cited for cited in _in_tags(text) if all(other.start != cited.start for other in placed)]
        return sorted([*marked, *held], key=lambda cited: cited.start) if held else marked

    def _public(self, text: str) -> Iterator[Citation]:
        small = text.lower()
        for match in _PUBLIC.finditer(text) if any(sign in small for sign in _SIGNS_OF_PUBLIC) else ():
            start, end = match.span()
            if match["doi"]:
                value = _trim(match["doi"])
                yield Citation("doi", value.lower(), start, end - len(match["doi"]) + len(value))
            elif match["log"]:
                yield Citation("adr", f"{match['log']}#{match['anchor'] or match['day']}", start, end)
            elif match["cve"]:
                yield Citation("cve", match["cve"].upper(), start, end)
            else:
                for kind in ("arxiv", "pmid", "rfc", "issue", "adr"):
                    if match[kind]:
                        yield Citation(kind, match[kind], start, end)
        for match in self._tickets.finditer(text) if self._tickets else ():
            url = self._trackers[match["key"]].replace("{key}", match["ticket"])
            yield Citation("ticket", match["ticket"], *match.span(), url=url)

    @takes(text=str)
    def summary(self, text: str) -> dict[str, list[Citation]]:
        """Return the citations of a text by type; the types of the seed are always keys (S0-46)."""
        found: dict[str, list[Citation]] = {"adr": [], "commit": [], "url": [], "issue": []}
        for citation in self.detect(text):
            found.setdefault(citation.type, []).append(citation)
        return found


def _may_cite(text: str) -> bool:
    return (
        "://" in text
        or "#" in text
        or _LEAST_HEX in text.encode("ascii", "replace").translate(_HEX_DIGITS)
        or "adr" in (small := text.lower())
        or "gh-" in small
        or any(sign in small for sign in _SIGNS_OF_PUBLIC)
    )


def _in_tags(text: str) -> list[Citation]:
    return [
        Citation("adr", match["adr"], *match.span(), UNSHOWN)
        for tag in (_IN_TAG.finditer(text) if "<" in text else ())
        for match in _TOKEN.finditer(text, *tag.span())
        if match["adr"]
    ]


def _trim(url: str) -> str:
    surplus = {closing: url.count(closing) - url.count(opening) for closing, opening in _BRACKETS.items()}
    end = len(url)
    while url[end - 1] in _TRAILING or surplus.get(url[end - 1], 0) > 0:
        end -= 1
        if url[end] in surplus:
            surplus[url[end]] -= 1
    return url[:end]


def _others(text: str) -> Iterator[Citation]:
    last: Citation | None = None
    colour_end = -1  # where the last colour ended
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        before = text[max(0, start - _WINDOW) : start]
        kind = match.lastgroup
        if kind == "colour" or (kind in {"issue", "commit"} and _is_colour(match, before, colour_end)):
            colour_end = end
            continue
        citation = None
        if _is_longer(match, before):
            continue
        if kind == "adr":
            citation = Citation("adr", match["adr"], start, end)
        elif kind == "gh" or (kind == "issue" and not _NUMBERED.search(before)):
            named = kind == "gh" or _is_issue(match, before, last)
            citation = Citation("issue", match[kind], start, end, "" if named else UNNAMED)
        elif kind == "commit" and _is_commit(match, before, last):
            citation = Citation("commit", match["commit"].lower(), start, end)
        if citation is not None:
            last = citation
            yield citation


def _doubted(text: str, citations: Iterable[Citation]) -> Iterator[Citation]:
    """Yield the citations with the doubt of those that are denied; one that is joined to a denied one is, too."""
    last: Citation | None = None
    for place, citation in enumerate(citations):
        if place >= MAX_CREDITED:  # nothing more gives credit
            yield citation
            continue
        joined = (
            last is not None
            and last.doubt == DENIED
            and _SHARES.fullmatch(text, last.end, citation.start) is not None
        )
        named = citation.type == "adr"
        doubt = DENIED if joined else denied(text, citation.start, citation.end, led=named) or citation.doubt
        if named and doubt != DENIED and _is_foreign(text, citation):
            doubt = FOREIGN
        last = citation._replace(doubt=doubt)
        yield last


def _is_foreign(text: str, citation: Citation) -> bool:
    """Return whether a name beside an ADR says whose it is: "Globex ADR-003", "(acme ADR-003)", "ADR-003 of Globex"."""
    behind = _NAME_BEHIND.match(text, citation.end)
    name = str(behind["name"] or behind["in"]).lower() if behind else ""
    if behind and name not in MONTHS and (behind["name"] or not (leads(name) or name in _OWN)):
        return True
    before = nfkc(text[max(0, citation.start - _WINDOW) : citation.start])
    if (said := _NAME_LEADING.search(before)) and not (leads(said["name"]) or said["name"].lower() in _OWN):
        return True
    found = _NAME_BEFORE.search(before)
    if found and found["name"].lower() in _OTHERS_OWN:
        return True
    if not found or leads(found["name"]) or _IDENTIFIER.fullmatch(found["name"]):
        return False
    lead = before[: found.start()].rstrip(" \n*_#>-")
    first = not found["opened"] and (not lead or lead[-1] in ".:!?;")  # any word has a capital there
    named = found["name"][0].isupper() and not first
    owned = found["owns"] and (found["name"][0].isupper() or found["name"].lower() not in _OWN)
    return bool(named or found["opened"] or owned)


def _is_longer(match: re.Match[str], before: str) -> bool:
    kind = match.lastgroup
    if kind not in {"adr", "gh", "issue", "commit"}:
        return False
    name, (leading, behind) = _LONGER_BEFORE.search(before), _LONGER[kind == "commit"]
    if _PATH_BEFORE.search(before) or (name is not None and not leading.fullmatch(name[1])):
        return True
    return behind.match(match.string, match.end()) is not None


def _is_issue(match: re.Match[str], before: str, last: Citation | None) -> bool:
    text, (start, end) = match.string, match.span()
    if _ISSUE_CUE.search(before) or _ISSUE_BEHIND.match(text, end):
        return True
    listed = last is not None and last.type == "issue" and not last.doubt
    return last is not None and listed and _AND.fullmatch(text, last.end, start) is not None


def _is_colour(match: re.Match[str], before: str, colour_end: int) -> bool:
    """Return whether a token of digits is a colour: beside a word for colours, or listed after one (C-19)."""
    digits = match["issue"] or match["commit"]
    if len(digits) not in _COLOUR_LENGTHS:
        return False
    if _COLOUR_CUE.search(before):
        return True
    if match["issue"] is None:
        return False
    text, (start, end) = match.string, match.span()
    listed = colour_end >= 0 and _AND.fullmatch(text, colour_end, start)
    # "issue #123 fill in" is no colour: behind the token the word counts only where the token is long enough.
    return bool(listed) or (len(digits) >= 6 and _COLOUR_BEHIND.match(text, end) is not None)


def _is_commit(match: re.Match[str], before: str, last: Citation | None) -> bool:
    """Return whether 7 to 40 hex digits are a commit: after a cue word, or of digits and letters (C-20)."""
    text, (start, end) = match.string, match.span()
    if _COMMIT_CUE.search(before):
        return True
    if last is not None and last.type == "commit" and _AND.fullmatch(text, last.end, start):
        return True  # "commits deadbeef and defaced"
    value = match["commit"]
    # Glued to a word by a hyphen it is part of some other identifier: a shortened UUID, a pod's name.
    glued = re.search(r"\w-$", before) or re.match(r"-\w", text[end : end + 2])
    return not (glued or value.isdigit() or value.isalpha())
