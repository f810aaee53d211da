"""Words of which a thing is one or the other: enabled and disabled, mandatory and optional, bought and sold.

English only, and the one table of opposites for claims and for answers. Each line is one pair of opposites: words of
one side, a bar, words of the other. Verbs and nouns stand in their base form, and so in all forms. Words of one side
say nearly the same of a thing, so they are compared as one word. What a prefix denies is read by
`groundwire.text.negation` and takes the other side of the plain word: unlocked, illegal, disagree.

Signatures of stored claims depend on this table: whoever changes it changes
`groundwire.checks.dedup.signature.SIGNATURE`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from groundwire.text.clauses import forms_of, role_of, stem_of
from groundwire.text.negation import is_affixed, without_affix
from groundwire.text.stems import CARDINALS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# The two sides contradict each other: no thing is both at once.
_CONTRADICTIONS: Final = """
enable activate active | disable inactive
mandatory require compulsory obligatory | optional voluntary
accept adopt admit | reject decline refuse
+ approve ratify uphold pass | reject defeat veto dismiss overturn
+ allow permit authorise authorize | forbid prohibit ban deny refuse
+ grant | deny refuse revoke
+ succeed success pass | fail failure
writable read-write editable | read-only readonly
open | close shut
add append insert include | remove delete subtract exclude omit
+ keep retain preserve | drop discard delete abandon remove
+ install mount attach | uninstall remove detach
buy purchase acquire | sell
increase rise grow raise higher climb upward | decrease fall shrink reduce lower downward
accelerate | decelerate
public | private confidential
internal in-house | external outsource
local on-premises on-premise on-prem | remote cloud
manual manually by-hand | automatic automatically automate
synchronous sync synchronously | asynchronous async asynchronously
static | dynamic
stateful | stateless
temporary provisional | permanent
free gratis complimentary | pay chargeable
cheap inexpensive | expensive costly
hot warm heat | cold cool chill
wet damp | dry
full occupied | empty vacant
heavy | lightweight
big large huge | small little tiny
tall | short
long | brief
wide broad | narrow
deep | shallow
thick | thin
high | low
fast quick rapid | slow sluggish
old elderly | young
older elder | younger newer
taller longer | shorter
bigger larger greater | smaller
biggest largest longest tallest | smallest shortest
highest | lowest
oldest | youngest newest
faster quicker | slower
heavier | lighter
cheaper | dearer costlier
better | worse
best | worst
stronger | weaker
maximum max | minimum min
most | least
majority | minority
early earlier earliest | late later latest
inside indoor indoors | outside outdoor outdoors
upstream | downstream
before | after
above | below beneath
north northern | south southern
east eastern | west western
top upper | bottom
leftmost | rightmost
alive living | dead deceased
married | divorced unmarried
healthy | ill sick unwell
awake | asleep
present | absent missing
available | unavailable
online connect | offline disconnect
true correct | false incorrect wrong
valid | invalid void
legal lawful | illegal unlawful
safe secure | unsafe insecure dangerous hazardous
stable | unstable flaky
love enjoy | hate dislike detest
agree | disagree
confirm | refute
prove | disprove
guilty convict conviction | innocent acquit acquittal
praise commend applaud | condemn criticise criticize blame
approval acceptance permission | rejection refusal prohibition
arrival | departure
presence | absence
surplus | deficit shortage
inhabited | deserted
horizontal horizontally | vertical vertically
positive | negative
profit profitable | loss-making
strict | lenient lax
strong | weak
bright | dim dark
loud noisy | quiet silent
simple easy | complex complicated difficult
rare uncommon | common frequent frequently often
always | sometimes occasionally
vegetarian vegan meatless | carnivorous
opaque | transparent
rigid stiff | flexible
parallel concurrently | sequential sequentially serial serially
eager eagerly | lazy lazily
case-sensitive | case-insensitive
obey | disobey
comply compliant | violate breach non-compliant
widen | tighten
strengthen | weaken
improve | worsen deteriorate
opt-in | opt-out
block | unblock
appear | disappear vanish
polite | rude
rich wealthy | poor
happy glad | sad
satisfied | dissatisfied
uppercase upper-case | lowercase lower-case
lossless | lossy
start begin | stop end finish
arrive enter | depart exit
first | last
encrypt | plaintext cleartext decrypt
compress | decompress
visible show display | hide hidden conceal
support favour favor endorse | oppose
win gain | lose loss
clean | dirty
modern current up-to-date | outdated obsolete deprecated
working functional operational intact | broken defective faulty damage
fresh | stale rotten
honest truthful | dishonest deceitful
primary main | secondary
inclusive | exclusive
ascending ascend | descending descend
odd | even-numbered
clockwise | counterclockwise anticlockwise
upgrade | downgrade
promote | demote relegate
wired | wireless
publish | draft
whitelist allowlist | blacklist blocklist denylist
employ hire appoint | sack fire
join | leave quit
senior | junior
all every everyone everybody | some
benign | malignant
acidic | alkaline
fertile | sterile barren
edible | inedible poisonous toxic
mature | immature
elect | oust
fossil | renewable
nocturnal | diurnal
indigenous native | introduced
deciduous | evergreen
domesticated tame | wild feral
waterproof watertight | leaky
tidy neat | messy
introverted shy | extroverted outgoing
tolerant | allergic
continue resume | cease discontinue pause suspend
conscious | comatose
lend | borrow
lock | unlock
remember | forget
literate | illiterate
solvent | bankrupt insolvent
sober | drunk
wholesale | retail
import | export
raw uncooked | cooked
"""

# One of them put for the other says something else, but both may be true.
_COUNTERPARTS: Final = """
new | old second-hand
left | right
good | bad
male man boy | female woman girl
mother | father
son | daughter
brother | sister
husband | wife
client | server
sender | receiver
producer | consumer
read | write
input | output
request | response
source | destination
parent | child
upload | download
push | pull
create | delete
blocking | nonblocking
over | under
more | less fewer
with | without
"""

# Function words that say so only behind the verb: "is up", "switched off", "flows out of".
_PARTICLES: Final = """
up | down
on | off
into | out
above over | below under
more | less fewer
"""


class Side(NamedTuple):
    """A pair of opposites, named by its first word, and the side of it that a word is on."""

    pair: str
    first: bool


def _read(table: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the name of each pair, and the words of its sides; lines that begin with "+" continue a pair."""
    name = ""
    for line in table.strip().splitlines():
        one, other = (half.split() for half in line.removeprefix("+ ").split(" | "))
        name = name if line.startswith("+") else one[0]
        yield name, one, other


def _sides() -> dict[str, Side]:
    sides: dict[str, Side] = {}
    for name, one, other in _read(_CONTRADICTIONS):
        for word in one:
            sides.setdefault(stem_of(word), Side(name, first=True))
        for word in other:
            sides.setdefault(stem_of(word), Side(name, first=False))
    return sides


_SIDES: Final = _sides()
_SIDES_OF_PARTICLES: Final = {
    word: Side(name, first)
    for name, *sides in _read(_PARTICLES)
    for first, words in zip((True, False), sides, strict=True)
    for word in words
}
_LOOSE: Final = frozenset(("up", "down", "on", "off"))


def side_of(token: str) -> Side | None:
    """Return the pair of opposites that a token in lower case belongs to, if any."""
    side = _SIDES.get(stem_of(token))
    if side is None and is_affixed(token):
        bare = _SIDES.get(stem_of(without_affix(token)))
        return bare and Side(bare.pair, not bare.first)
    return side


def may_be_particle(token: str) -> bool:
    """Tell whether a function word has a side in some places: see `side_of_particle`."""
    return token in _SIDES_OF_PARTICLES


def side_of_particle(tokens: Sequence[str], place: int) -> Side | None:
    """Return the side of a function word behind the verb; none of "on Monday", "up to 30", "more than 30"."""
    behind = tokens[place + 1 : place + 3]
    bounds = any(word in CARDINALS or word[0].isdigit() for word in behind)
    free = not behind or role_of(behind[0]) or tokens[place] not in _LOOSE
    return _SIDES_OF_PARTICLES[tokens[place]] if free and not bounds else None


def opposite_words() -> Iterator[tuple[str, str]]:
    """Yield each word, in all its irregular forms too, with each that stands in for its opposite in a text."""
    for _, one, other in (*_read(_CONTRADICTIONS), *_read(_COUNTERPARTS)):
        others = [form for word in other for form in forms_of(word)]
        yield from ((form, opposed) for word in one for form in forms_of(word) for opposed in others)
