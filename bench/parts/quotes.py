"""Quotes in a transcript of 200 kB, beside two plain readings of the rule: each quote looked for as it comes.

One is what a team would write with the standard library, difflib included; the other has rapidfuzz and the gate's own
normal form, and is much harder to beat.

The longest stall is the longest time in which a second thread did not get the interpreter: with one thread that only
waits, that is how long an event loop would have stood still. What it is with no text is what the machine alone does.
"""

from __future__ import annotations

import html
import random
import re
import threading
import time
import unicodedata
from collections.abc import AsyncIterator, Callable
from difflib import SequenceMatcher
from functools import partial
from typing import Final

from rapidfuzz import fuzz

from bench.measure import Figure, Options, Part, Race, Target
from groundwire.checks.quote_text import normalize_for_quote_match
from groundwire.checks.quotes import QuoteRules, ground_quotes

Way = Callable[[list[str], str, QuoteRules], float | None]
CHARACTERS: Final = 200_000
_TICK: Final = 0.001  # seconds
_SOUNDS = random.Random(0)
WORDS = ["".join(_SOUNDS.choices("aeioustnrlmdk", k=_SOUNDS.randint(2, 9))) for _ in range(2000)]
_QUOTES: Final = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")
_PART: Final = 20
HOSTILE = {"marks": "\u0344\u0316", "ligatures": "\ufdfa", "brackets": "<a", "repeats": "ab", "clauses": ". "}


async def run(options: Options) -> AsyncIterator[Figure]:
    rng = random.Random(1)
    text = transcript(rng, CHARACTERS)
    few, many = quotes(rng, text, 5), quotes(rng, text, options.of(50, 1_000))
    mixed = [few["exact"][0], few["exact"][1], few["near"][0], few["near"][1], few["invented"][0]]
    for rules in (QuoteRules(), QuoteRules(mode="fuzzy")):
        ways: dict[str, Way] = {
            "naive build": naive,
            "the plain rule with the house's normal form": as_specified,
        }
        race = Race("ms", higher=False)
        for name, way in ways.items():
            race.add(f"five quotes, {rules.mode}: {name}", partial(_milliseconds, way, mixed, text, rules))
        target = Target(">=", 40, "ratio")
        race.add(
            f"five quotes, {rules.mode}: the gate",
            partial(_milliseconds, _ground, mixed, text, rules),
            target,
            f"quotes.{rules.mode}",
        )
        for figure in await race.figures(options.rounds):
            yield figure
    worst = {"no": timed(partial(time.sleep, 1))[1] * 1000}
    for rules in (QuoteRules(), QuoteRules(mode="fuzzy")):
        for kind, given in many.items():
            seconds, stall = timed(partial(_ground, given, text, rules))
            worst["speech"] = max(worst.get("speech", 0), stall * 1000)
            yield Figure(
                f"{len(given):,} {kind} quotes, {rules.mode}", "ms a quote", [seconds * 1000 / len(given)]
            )
    for unit in HOSTILE.values():
        source = unit * (CHARACTERS // len(unit.encode()))
        given = [source[:99] + str(number) for number in range(50)]
        _, stall = timed(partial(_ground, given, source, QuoteRules(mode="fuzzy")))
        worst["hostile"] = max(worst.get("hostile", 0), stall * 1000)
    for kind, stall in worst.items():
        most = Target("<=", 50) if kind != "no" else None
        yield Figure(f"longest stall of the event loop, {kind} text", "ms", [stall], (), most)


def transcript(rng: random.Random, characters: int) -> str:
    """Return sentences of about the size of speech, with what transcripts hold beside words."""
    parts: list[str] = []
    size = 0
    while size < characters:
        words = rng.choices(WORDS, k=rng.randint(4, 16))
        words.insert(
            rng.randrange(len(words)), rng.choice(["don\u2019t", "30 s", "<laughter>", "caf\u00e9", "5"])
        )
        parts.append(" ".join(words).capitalize() + ".")
        size += len(parts[-1]) + 1
    return "\n".join(parts)[:characters]


def quotes(rng: random.Random, text: str, count: int) -> dict[str, list[str]]:
    """Return quotes by kind: as they stand, with letters changed, and invented."""
    found: dict[str, list[str]] = {"exact": [], "near": [], "invented": []}
    for _ in range(count):
        start, length = rng.randrange(len(text) - 300), rng.randint(30, 200)
        exact = text[start : start + length]
        near = list(exact)
        for _ in range(length // 30):
            near[rng.randrange(length)] = rng.choice(",-xz")
        found["exact"].append(exact)
        found["near"].append("".join(near))
        found["invented"].append(" ".join(rng.choices(WORDS, k=length // 6 + 1)))
    return found


def as_specified(given: list[str], text: str, rules: QuoteRules) -> None:
    """Look for each quote by the plain rule: the transcript is brought into normal form for each."""
    for quote in given:
        source, form = normalize_for_quote_match(text), normalize_for_quote_match(quote)
        if form not in source and rules.mode == "fuzzy":
            fuzz.partial_ratio(form, source)


def naive(given: list[str], text: str, rules: QuoteRules) -> float:
    """Look for each quote with the standard library alone; a fuzzy one in windows of its own length.

    Returns:
        Seconds to add: windows are taken of a part of the text only, because all of them take minutes.
    """
    left_out = 0.0
    for quote in given:
        source, form = _normal(text), _normal(quote)
        if form not in source and rules.mode == "fuzzy":
            began = time.perf_counter()
            _windows(form, source[: len(source) // _PART])
            left_out += (time.perf_counter() - began) * (_PART - 1)
    return left_out


def _normal(text: str) -> str:
    plain = unicodedata.normalize("NFKC", html.unescape(text)).translate(_QUOTES)
    return " ".join(re.sub(r"</?[A-Za-z][^<>]{0,38}>", " ", plain).split()).lower()


def _windows(form: str, source: str) -> float:
    """Return the best similarity of a quote with a window of its length, by steps of a quarter."""
    step, matcher = max(1, len(form) // 4), SequenceMatcher(autojunk=False)
    matcher.set_seq2(form)
    best = 0.0
    for start in range(0, max(1, len(source) - len(form)), step):
        matcher.set_seq1(source[start : start + len(form)])
        best = max(best, matcher.ratio())
    return best


def _ground(given: list[str], text: str, rules: QuoteRules) -> None:
    ground_quotes({"bench": given}, text, rules)


def _milliseconds(work: Way, given: list[str], text: str, rules: QuoteRules) -> float:
    began = time.perf_counter()
    more = work(given, text, rules) or 0.0
    return (time.perf_counter() - began + more) * 1000


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Return how long something took and the longest time a second thread waited for its turn, in seconds."""
    stalls: list[float] = [0.0]
    done = threading.Event()

    def tick() -> None:
        last = time.perf_counter()
        while not done.is_set():
            time.sleep(_TICK)
            now = time.perf_counter()
            stalls.append(now - last - _TICK)
            last = now

    ticker = threading.Thread(target=tick)
    ticker.start()
    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    done.set()
    ticker.join()
    return seconds, max(stalls)


PART = Part("quotes", "quotes against a transcript of 200 kB, beside the plain way", run)
