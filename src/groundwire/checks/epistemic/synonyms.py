"""Words that stand for each other: other forms of one verb, and near-synonyms of everyday English.

Written by hand, to be read and amended; a line is a group. What is only sometimes the same is left out: a claim in
other words than its evidence is rather looked at by a person than passed.
"""

from __future__ import annotations

from typing import Final

from groundwire.checks.values_words import stem

_GROUPS: Final = """
go goes went gone; take took taken; make made create creates created; build built construct; begin began begun start;
write wrote written writer author; say said says tell told state stated; find found; win won winner; know knew known;
grow grew grown; speak spoke spoken talk; give gave given; hold held; keep kept; leave left; lose lost; meet met;
run ran; see saw seen; send sent; sell sold; sit sat; teach taught; think thought; become became; bring brought;
buy bought purchase; choose chose chosen select; come came; draw drew drawn; drive drove driven; eat ate eaten;
fall fell fallen; fly flew flown; get got gotten receive obtain; hear heard; lead led; rise rose risen; sing sang sung;
die died dies death dead; birth born; marry marriage married wedding; kill killed; old age aged;
call called name named known referred; usual usually normally typically often commonly generally;
type kind sort; big large; small little; movie film; child children kid kids; person people individual; man men;
woman women; need require; show shows showed shown display; use uses used using utilize employ; help assist aid;
located situated; establish established founded founder; release released launch launched publish published;
country nation; company firm corporation business; job occupation; area region; allow allows permit let enable;
increase rise grow; decrease reduce decline drop; fast quick rapid; important significant major key;
doctor physician; want wants wish aim aims strive intend;
famous well-known popular; tv television; around approximately; finish end complete;
own owned owner; include includes contain contains comprise consist; originally initially first; get reach reached;
because due; attorney lawyer; car vehicle automobile; home house; picture image photo photograph; song single track;
show series program programme; student pupil; teacher professor; city town; road street; money cash;
error mistake fault;
delete remove; fix repair; choose pick; ask request; answer reply response; change modify alter; stop halt cease;
"""


def _groups() -> dict[str, frozenset[str]]:
    """Return stem -> the stems that stand for it; groups that share a word stay groups of their own."""
    table: dict[str, frozenset[str]] = {}
    for group in _GROUPS.split(";"):
        stems = frozenset(stem(word) for word in group.split())
        for one in stems:
            table[one] = table.get(one, frozenset()) | stems
    return table


SAME: Final = _groups()
"""Stem -> all stems that stand for it, itself among them."""
