"""Word lists of the verifier: who speaks, how sure, how many, and what is the opposite of what. English only.

A list is a rule that a reader can check: nothing here is learnt.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from groundwire.checks.values_words import stem, words_of

SPEAKER: Final = words_of(
    "i me my mine myself we us our ours ourselves i'm i've i'd i'll 'm we're we've we'd we'll you your yours you're "
    "you've you'd you'll"
)
"""A statement about who speaks, or to whom, rests on no evidence that speaks of neither."""
PRONOUNS: Final = words_of("he she they it him her them his their theirs hers its")
"""They stand for a name that the claim does not say."""

INTERJECTIONS: Final = words_of(
    "yes yeah yea yep no nope ok okay oh ah aha wow hmm haha lol well sure right indeed hi hello hey thanks thank "
    "please sorry absolutely certainly exactly definitely"
)
"""Courtesy and assent: nothing that evidence could hold."""
ASSENT: Final = words_of("yes yeah yea yep nope")
"""They answer a question that the evidence may not answer."""
APPRAISALS: Final = frozenset(
    map(stem, words_of("true really agree agreed interesting cool great nice funny amazing"))
)
"""Stems of words with which an answer takes up what was said: "that's true", "I agree"."""
CONTRACTED: Final = frozenset(
    f"{word}'{ending}"
    for word in words_of("i you he she it we they that this there here who what where when how")
    for ending in words_of("s m re ve d ll")
)
"""Two function words in one."""
LIGHT: Final = frozenset(
    map(
        stem,
        words_of(
            "based according passage passages provided provide provides context contexts document documents source "
            "sources text texts article articles excerpt snippet information info details mentioned mention mentions "
            "stated state states described listed summary summarize conclusion question answer response additionally "
            "furthermore moreover therefore thus hence finally lastly firstly secondly overall example examples "
            "instance including includes include following follow various different important note noted specific "
            "specifically particular particularly essentially basically actually namely such"
        ),
    )
)
"""Stems of words by which an answer speaks of itself and its sources, or that say little in any sentence."""

STRONG: Final = words_of(
    "all every each always only never none no must entirely completely fully exclusively solely everyone everybody "
    "everything guaranteed guarantees certainly definitely proves proven proved any whenever"
)
"""They say more than the words of `WEAK`."""
WEAK: Final = words_of(
    "some most many several few often usually sometimes typically generally may might can could possibly probably "
    "likely perhaps partly partially mostly mainly largely almost nearly about seldom rarely should suggests "
    "suggested appears appeared seems seemed reportedly allegedly"
)
"""A statement with one of these does not support the same statement with a word of `STRONG` instead."""

_OPPOSITES: Final = """
increase decrease; increases decreases; increased decreased; rise fall; rose fell; rising falling; raise lower;
raised lowered; grow shrink; grew shrank; gain lose; gained lost; win lose; won lost; buy sell; bought sold;
accept reject; accepts rejects; accepted rejected; allow deny; allows denies; allowed denied; permit forbid;
approve reject; approved rejected; allow block; allows blocks; allowed blocked; open close; opens closes; opened closed;
start stop; started stopped; start end; started ended; begin end; began ended; arrive leave; arrived left;
enter leave; entered left; love hate; loved hated; support oppose; supports opposes; supported opposed;
succeed fail; succeeds fails; succeeded failed; pass fail; passed failed; remember forget; import export;
upload download; push pull; lock unlock; attach detach; grant revoke; granted revoked; add remove; adds removes;
added removed; create delete; creates deletes; created deleted; insert delete; encrypt decrypt; include exclude;
higher lower; high low; highest lowest; larger smaller; largest smallest; big small; bigger smaller; long short;
longer shorter; longest shortest; old new; older newer; oldest newest; older younger; oldest youngest; early late;
earlier later; earliest latest; fast slow; faster slower; strong weak; stronger weaker; better worse; best worst;
good bad; maximum minimum; max min; upper lower; first last; inside outside; internal external; public private;
synchronous asynchronous; sync async; mandatory optional; required optional; legal illegal; guilty innocent;
alive dead; positive negative; present absent; male female; man woman; men women; mother father; son daughter;
brother sister; husband wife; north south; northern southern; east west; eastern western; left right; local remote;
hot cold; warm cold; rich poor; safe dangerous; true false; success failure; profit loss; majority minority;
acquit convict; acquitted convicted; above below; before after; under over; more less; more fewer; with without;
enabled disabled; enables disables; enable disable; blocking nonblocking; client server; sender receiver;
producer consumer; read write; reads writes; input output; request response; source destination; parent child;
"""
_BARE: Final = words_of("above below before after under over more less fewer with without")


def _pairs() -> dict[str, frozenset[str]]:
    """Return word (function words as they are, others as stems) -> its opposites."""
    table: dict[str, set[str]] = {}
    for entry in _OPPOSITES.split(";"):
        if names := [word if word in _BARE else stem(word) for word in entry.split()]:
            one, other = names
            if one != other:
                table.setdefault(one, set()).add(other)
                table.setdefault(other, set()).add(one)
    return {word: frozenset(others) for word, others in table.items()}


OPPOSITES: Final = _pairs()
"""Stems, and some function words, with what contradicts them in the same place."""
MARKERS: Final = STRONG | WEAK | _BARE
"""Function words that a window keeps, as their stems are empty."""
KEPT: Final = frozenset(chain(MARKERS, SPEAKER, PRONOUNS))
