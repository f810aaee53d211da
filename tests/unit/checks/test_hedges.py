"""Hedges: what blocks, what goes to review, and what only looks like a hedge.

Requirements S0-78..S0-94, S0-96..S0-103, C-01, C-21..C-25.
"""

import re
from itertools import pairwise, product
from unicodedata import normalize

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from groundwire.checks.citations import CitationDetector
from groundwire.checks.dedup.form import read_form
from groundwire.checks.dedup.signature import signature
from groundwire.checks.hedge_rules import RULES, HedgeTokens, edge
from groundwire.checks.hedges import (
    LEXICONS,
    HedgeAction,
    HedgeDetector,
    HedgeResult,
    built_in,
    hedge_lexicon,
    may_begin,
)
from groundwire.gate.claim_case import read_claim
from groundwire.policy import Policy
from groundwire.text.normalise import normalise, tidy
from groundwire.text.visible import hidden
from tests.unit.checks.tables import ANY_TEXT, failing

DETECTOR = HedgeDetector()
ADDED = HedgeDetector(
    block=["could", "should", "reportedly"], review=["around", "in theory", "a.c", "(x", "也许"]
)
BLOCK, REVIEW, CONTINUE = HedgeAction


def outcome(text, detector=DETECTOR):
    return detector.analyze(text).action


def test_a_result_lists_each_hedge_as_written_once_in_text_order_and_the_strictest_action():
    assert [action.value for action in (BLOCK, REVIEW, CONTINUE)] == ["block", "review", "none"]
    cases = [
        ("I think we should use Redis", (True, BLOCK, ["I think"])),
        ("The API may return errors under load", (True, REVIEW, ["may"])),
        ("Often MAYBE, often maybe, maybe Often", (True, BLOCK, ["Often", "MAYBE", "often", "maybe"])),
        ("I  \n think", (True, BLOCK, ["I think"])), ("I don’t know", (True, BLOCK, ["I don’t know"])),
    ]  # fmt: skip
    assert [
        (text, expected) for text, expected in cases if DETECTOR.analyze(text) != HedgeResult(*expected)
    ] == []


def test_the_first_person_supposing_is_personal_speculation_whatever_stands_between():
    verbs = ["guess", "'ve always believed", "*think*", "feel like"]

    def check(speaker, verb):
        [hedge] = DETECTOR.find(
            f"{speaker} {verb} it is so".replace(f"{speaker} '", f"{speaker}'").replace(" ,", ",")
        )
        assert (hedge.category, hedge.action) == ("personal_speculation", BLOCK)

    assert failing(check, product(["I", "we"], verbs)) == []


def test_a_hedge_that_a_name_or_a_report_holds_is_listed_and_decides_nothing():
    # a hedge in a name is listed and decides nothing
    texts = [
        "Justin May said so", "The May issue is out", "I Think Inc. signed",
        "The cafe Perhaps opens at nine",
    ]  # fmt: skip

    def check(text):
        assert [hedge.action for hedge in DETECTOR.find(text)] in ([], [CONTINUE])
        assert outcome(text) is CONTINUE

    assert failing(check, texts) == []
    # a hedge that the sentence reports is listed and decides nothing
    texts = [
        'The form asks "Have you eaten?" first.', "The <code>maybe</code> type is lazy.",
        "Might & Daughters repaired the pump.", "The sign says \u201cDogs may bite\u201d.",
    ]  # fmt: skip

    def check(text):
        assert [hedge.action for hedge in DETECTOR.find(text)] == [CONTINUE]
        assert DETECTOR.analyze(text) == HedgeResult(is_speculative=False, action=CONTINUE, hedge_words=[])

    assert failing(check, texts) == []


def test_characters_without_width_and_compatible_letters_hide_nothing():
    cases = [
        ("may\u00adbe so", ["maybe"]), ("ｉ\u3000ｔｈｉｎｋ so", ["ｉ ｔｈｉｎｋ"]), ("我们maybe用", ["maybe"]),
        ("P.r.o.b.a.b.l.y so", ["P.r.o.b.a.b.l.y"]), ("for İ#2´may", ["may"]),
    ]  # fmt: skip
    assert [
        (text, got) for text, words in cases if (got := DETECTOR.analyze(text).hedge_words) != words
    ] == []


@given(st.lists(st.sampled_from([
    "caf\u00e9", "I", "th\u00ednk", "\u0163hink", "maybe", "\ufb01nal", "per", "ADR-003", "don\u00b4t", "know",
    "\uff21\uff24\uff32\uff0d\uff17", "5", "\u00b5g", "\u338f", "\u2167", "\u212b", "\uac00", "\u017fo", "\u2026",
    "5\u2103", "\uff4d\uff41\uff59", "not", "n\u00ba", "\u2011", "\u1e9e",
]), max_size=8))  # fmt: skip
def test_the_normal_forms_of_unicode_get_one_reading(words):
    """But for powers, fractions and the trade mark, which NFKC writes as other digits and letters."""
    readings = set()
    for name in ("NFC", "NFD", "NFKC", "NFKD"):
        text = normalize(name, " ".join(words))
        cited = tuple((one.label, one.doubt) for one in CitationDetector().detect(text))
        readings.add((outcome(text), cited, signature(read_form(text)), bool(hidden(text))))
    assert len(readings) == 1


def test_an_operators_words_are_literal_whole_words_and_make_nothing_milder():
    # an operators words are literal whole words with the same exemptions
    cases = [
        ("Reportedly so", BLOCK, ["Reportedly"]), ("so, in\u00a0Theory", REVIEW, ["in Theory"]),
        ("我们也许用", REVIEW, ["也许"]), ("unreportedly, is_reportedly", CONTINUE, []),
    ]  # fmt: skip
    assert [
        (text, action, words)
        for text, action, words in cases
        if ADDED.analyze(text) != HedgeResult(bool(words), action, words)
    ] == []
    # an operator can make a built in hedge stricter but not milder
    detector = HedgeDetector(block=["may", " "], review=["maybe", "think"])
    assert [(h.text, h.action) for h in detector.find("It may end, May 2024. I think maybe")] == [
        ("may", BLOCK), ("I think", BLOCK), ("maybe", BLOCK),
    ]  # fmt: skip


@settings(deadline=None)  # many phrases take their time to compile
@given(st.lists(st.text(min_size=1), max_size=5), ANY_TEXT)
def test_no_phrase_of_an_operator_is_read_as_a_pattern(phrases, text):
    wanted = {normalise(phrase).text.strip() for phrase in phrases} - {""}
    for hedge in HedgeDetector(review=phrases).find(text):
        if hedge.category == "configured":
            forms = {normalise(hedge.text, split=split).text for split in (False, True)}
            forms |= {re.sub(r"[*_]{0,3} [*_]{0,3}", " ", form) for form in forms}  # emphasis at a gap
            assert any(re.search(re.escape(word), form, re.IGNORECASE) for word in wanted for form in forms)


@given(ANY_TEXT)
@example("*M*AY")
def test_every_hedge_is_a_slice_of_the_original_and_analysis_agrees_with_it(text):
    for detector in (DETECTOR, ADDED):
        hedges = detector.find(text)
        assert all(text[hedge.start : hedge.end] == hedge.text for hedge in hedges)
        assert all(before.end <= after.start for before, after in pairwise(hedges))
        result = detector.analyze(text)
        hedges = [hedge for hedge in hedges if hedge.action is not CONTINUE]
        assert result.is_speculative == bool(hedges) == bool(result.hedge_words)
        assert result.action == min((h.action for h in hedges), key=list(HedgeAction).index, default=CONTINUE)
        # words are told as a reader sees them: without emphasis inside
        squeezed = {re.sub(r"[\s*_]", "", tidy(hedge.text)) for hedge in hedges}
        assert {re.sub(r"[\s*_]", "", word) for word in result.hedge_words} == squeezed


PIECES = [*RULES, *"_1 -é", "ı", "MAY", "\u2c6d", "isn't", " I am "]
TRIGGERED = ANY_TEXT | st.lists(st.sampled_from(PIECES)).map("".join)


@given(TRIGGERED)
def test_a_look_at_the_words_alone_hides_no_hedge(text):
    reading = normalise(text).text
    assert may_begin(reading) or not list(built_in(reading))


def test_whatever_apostrophe_or_white_space_stands_in_or_beside_a_hedge_it_is_found():
    # whatever apostrophe stands in or before a hedge it is found
    def check(apostrophe):
        detector = HedgeDetector()
        for text in (f"They aren{apostrophe}t sure.", f"{apostrophe}maybe{apostrophe} it ends"):
            assert detector.analyze(text).hedge_words, text

    assert failing(check, "'\u2018\u2019\u201b\u2032\u02b9\u02bb\u02bc\u02bd\u00b4\ua78c") == []
    # whatever white space stands in or beside a hedge it is found
    spaces = [chr(code) for code in range(0x3001) if chr(code).isspace()]

    def check(space):
        for text in (f"It{space}may{space}fail.", f"maybe{space}it ends", f"I{space}think it ends"):
            assert DETECTOR.find(text), ascii(text)

    assert failing(check, spaces) == []


BESIDE = ANY_TEXT.map(lambda text: re.sub("[-\"'`‘’‚‛“”„«»´]", " ", normalise(text).text))


@given(BESIDE, st.sampled_from(["I think", "maybe", "I don’t know", "perhaps we could"]), BESIDE)
def test_nothing_around_a_hedge_takes_it_back_but_quotation_marks(before, hedge, after):
    assert outcome(f"{before}. {hedge} {after}") is BLOCK


def test_a_scientific_hedge_sends_a_claim_to_review_where_the_lexicon_is_asked_for():
    """What was found is none, and the lexicon makes nothing that is built in milder."""
    scientific = HedgeDetector(review=hedge_lexicon("scientific"))
    found = [
        "The factor binds the promoter.", "The antibody could not be detected.", "Cells were grown in May 2019.",
    ]  # fmt: skip
    assert [text for text in found if scientific.analyze(text).action is not CONTINUE] == []
    assert scientific.analyze("I think it may bind.").action is BLOCK
    hedged = [
        "We asked for the likelihood of relapse.", "The authors propose another route.",
        "Potential targets for repair were examined.", "Its possibility was examined in mice.",
    ]  # fmt: skip

    def check(sentence):
        assert scientific.analyze(sentence).action is REVIEW
        assert HedgeDetector().analyze(sentence).action is CONTINUE

    assert failing(check, hedged) == []


def test_a_lexicon_is_asked_for_by_its_name():
    # a lexicon holds each phrase once in lower case
    def check(name):
        phrases = hedge_lexicon(name)
        assert len(phrases) == len(set(phrases)) > 0
        assert all(phrase == phrase.lower() and not phrase.startswith("#") for phrase in phrases)

    assert failing(check, LEXICONS) == []
    # no lexicon is empty and an unknown one is named
    assert hedge_lexicon("none") == ()
    with pytest.raises(ValueError, match="hedge_lexicon must be none or scientific, got 'poetic'"):
        hedge_lexicon("poetic")
    # a policy adds a lexicon to its own words and only where it names one
    said = "The authors propose that the kinase binds."
    assert not read_claim(said, Policy()).hedges
    policy = Policy.model_validate({"hedges": {"lexicon": "scientific", "review": ["gut feeling"]}})
    assert read_claim(said, policy).hedges
    assert read_claim("A gut feeling says so.", policy).hedges


def test_each_class_of_hedges_is_found_and_only_first_persons_block():
    classes = {
        "technical_hedge": [
            # impersonal
            "It would seem the pump leaks.", "It is thought that the pump leaks.", "It cannot be ruled out that it is.",
            "The pump is believed to leak.", "The pump appears to leak.", "There seems to be a leak.",
            # nouns of any subject, chances and odds
            "The suspicion is that the pump leaks.", "In all likelihood the pump leaks.", "Odds are the pump leaks.",
            "There is a 60 % chance that the pump leaks.", "The chances of a leak are slim.",
            "The likely cause is the pump.",
            # modals that speculate, predictions
            "The pump might leak.", "The pump could have leaked.", "The clerk may have forgotten it.",
            "The patch should fix the leak.", "The parcel should be here by Monday.", "The pump ought to hold.",
            "Somebody must have opened it.", "The bridge is expected to reopen.",
            # what is foretold: nobody can know yet
            "The mill is set to be sold.", "Tenants are expected to leave the house.", "I expect him to move out.",
            "Economists anticipate a poor harvest.", "The board expects the rent to rise.", "Should work again.",
            "They are bound to complain again.", "The pump should not affect the boiler.",
            "She should sign within days.", "The news could actually worsen the queue.",
            "The dry spring could touch the mill too.", "The bakers expect higher prices.",
            "Millers worry that the river will dry up.", "The miller predicts a wet autumn.",
            "The fine could ultimately vary.",
            "The union expects the rent to be halved.",
            # what is told as possible
            "Police think a cat opened the tap.", "They have reasons to believe that the pump is new.",
            "There is speculation that the mill closes.", "The cellar is the home of a possible thief.",
            "There is a potential leak in the cellar.", "The stain indicates a possible leak.",
            "The tap was closed due to a suspected leak.", "After the flood, it appears there is a leak.",
            "The plumber claims that the pump is new.", "Speculation has it that the pump leaks.",
            "The old printer may not support colours.", "Name of the plumber: to be filled in.",
            # hearsay
            "Rumour has it the pump leaks.", "Someone said the pump leaks.", "I was told the pump leaks.",
            "According to a colleague the pump leaks.", "A neighbour told me that the pump leaks.",
            # looks
            "It looks like the pump leaks.", "The pump looks broken.", "By the looks of it the pump leaks.",
            # labels
            "Cause: TBD", "Unconfirmed: the pump leaks.", "The pump leaks (needs verification).",
            "The cause has not been confirmed yet.", "The owner is still to be determined.",
            # what others believe, and what nothing but evidence says
            "The plumbers believe the pump leaks.", "Ann thinks the valve is shut.", "Support suspects that it leaks.",
            "The clerk is convinced that it leaks.", "Many tenants claim that it leaks.",
            "It must be the pump, given the noise.", "The jury is still out on it.", "All signs are that it leaks.",
            # conditions nobody looked at, tails
            "Suppose the pump is old.", "Unless someone has moved it, it is here.", "It is a pump, or something.",
            # hope
            "I hope the pump holds.", "With any luck the pump holds.",
        ],
        "approximation": [
            "It has 500-ish litres.", "It has ~500 litres.", "It has some 500 litres.", "It has 500 or so.",
            "Ballpark, it has 500 litres.",
            "It has on the order of 500 litres.", "It has just under 500 litres.", "It has close to 500 litres.",
        ],
        "question": ["Does the pump leak?", "The pump leaks, right?", "Owner: ???", "Is it the pump that leaks",
                     "What if the pump leaks.", "Could Bob be the owner"],
        "suggestion": ["maybe", "Maybe it should be 5", "(maybe)", "Perhaps, they just might"],
        "personal_speculation": [
            "I’d say so", "IMHO X", "It seems to me", "Pretty sure it is",
            "My understanding is that it leaks.", "As I see it, it leaks.", "I'm under the impression that it leaks.",
            "I'd wager it leaks.", "I am 80 percent sure it leaks.", "If you ask me, it leaks.",
            "Best guess: the pump leaks.", "It leaks, I take it.",
        ],
        "admitted_uncertainty": [
            "I'm not 100% sure", "I could be wrong", "we may have misread it", "it isn't certain whether",
            "IIRC it is 5", "as far as I know",
            "I vaguely remember a leak.", "Off the top of my head it leaks.", "Don't quote me on this, it leaks.",
            "Take it with a grain of salt.", "If memory serves, it leaks.", "I haven't double-checked it.",
        ],
    }  # fmt: skip
    cases = [(category, text) for category, texts in classes.items() for text in texts]

    def check(category, text):
        found = DETECTOR.find(text)
        assert category in {hedge.category for hedge in found}
        blocking = category in {"suggestion", "personal_speculation", "admitted_uncertainty"}
        assert outcome(text) is (BLOCK if blocking else REVIEW)

    assert failing(check, cases) == []


def test_rules_are_filed_under_single_small_words_and_can_be_compiled():
    def check(word):
        assert word == word.lower()
        assert " " not in word
        for rule in RULES[word]:
            assert rule.after is None or rule.after.pattern
            assert rule.before is None or rule.before.pattern

    assert failing(check, sorted(RULES)) == []


@given(
    st.lists(st.sampled_from([*PIECES, "the", "of", "a", "I", ",", ".", "that", "is"]), max_size=12).map(
        " ".join
    )
)
def test_a_cheap_look_at_the_neighbours_rejects_no_rule_that_matches(text):
    tokens = HedgeTokens(text)
    for index, word in enumerate(tokens.each):
        before, after = tokens.around(index)
        behind = " ".join(["", *after])
        for rule in RULES.get(word, ()):
            looked = rule.may_stand(*tokens.beside(index)) and rule.may_begin(before)
            assert looked or rule.match(before, behind) is None


def test_the_edge_of_a_pattern_is_read_from_how_it_is_written():
    cases = [
        ("i( (do|did)){0,2} ", -1, {"i", "do", "did"}), ("i( (do|did)){0,2} ", 1, {"i"}),
        ("(?= (that|it is) )", 1, {"that", "it"}), ("(^|but) ?", -1, {"^", "but"}),
        ("goes?|went", 1, {"goe", "goes", "went"}),
    ]  # fmt: skip

    anything = [r"\w+", "( very)? ", "", "a(b|c)", "[^a]"]
    assert [pattern for pattern in anything if edge(pattern, 1) is not None] == []

    def check(pattern, step, tokens):
        found = edge(pattern, step)
        assert found is not None
        assert {token for token in found if token.isalpha() or token == "^"} == tokens

    assert failing(check, cases) == []


def test_only_the_speakers_own_doubt_blocks_and_what_is_open_waits_for_review():
    nothing = "no hedge is listed"
    doubt = {
        "no assertion takes speculation back": (BLOCK, [
            f"{marker}: I think we should use Redis, {marker}"
            for marker in ("definitely", "certainly", "confirmed", "verified", "ADR-003")
        ]),
        "the speaker's own doubt": (BLOCK, [
            "From memory, the gate shuts at six.", "The code is 4711, from memory.",
            "Best guess for the noise: the pump.", "My read is that the mill closes.",
        ]),
        "a URL hides no word that follows it": (BLOCK, [
            "https://x.io--maybe we should", "https://x.io—maybe", "(https://x.io) maybe",
        ]),
        "a suggestion": (BLOCK, ["maybe", "Maybe it should be 5", "(maybe)", "Perhaps, they just might"]),
        "technical hedges": (REVIEW, ["Perhaps it ends", "It is likely", "may-fail", "MAY"]),
        "who is said to be sure, and a rough time or amount": (REVIEW, [
            "The job is almost certain to fail", "The model is fairly confident", "It runs around noon",
            "about one-third", *(f"It takes around {amount}" for amount in ("5 workers", "€ 5", "**5** pods", "ten")),
        ]),
        "a program is permitted nothing": (REVIEW, [
            "The worker may drop late orders.", "Agents may loop.", "Agents may loop at four.", "Clients may fail.",
            "Hosts may refuse calls.",
        ]),
        "the doubt of others": (REVIEW, [
            "The clerk is not sure whether it leaks.", "Ida said maybe to the picnic.",
            "The page was unclear about the fee.",
        ]),
        "undecided": (REVIEW, [
            "Leaning towards oak for the door.", "Decision pending: who pays.", "We have not decided on a colour.",
            "Waiting for Ida to confirm the date.", "Proposal: paint it red.", "Draft decision: paint it red.",
            "Paint is an option.", "Ideally we would paint it.", "[Your name here] - summary.",
        ]),
        "foretold, estimated, guessed, without a subject": (REVIEW, [
            "Estimated cost: 40 euros.", "ETA: Friday.", "Expected to open on Friday.", "Should open on Friday.",
            "Fits at the projected usage.", "The lamp is off (possible short).", "Suspected short in the cellar.",
            "Suspect the pump is old.", "The ages are guessed.", "Untested on Sundays.", "Looks fine so far.",
            "Cause unclear; the pump stopped.", "The bell rang, need to check who came.", "confidence=0.4 it leaks",
        ]),
        "not known, or made up": (REVIEW, [
            "Beats me why it leaks.", "Heaven knows why it leaks.", "I made this up: it leaks.", "Imagine it leaks.",
            "The model hallucinated that it leaks.", "Not 100% on this: it leaks.",
        ]),
        "where may could be either": (REVIEW, ["the state it is in may change", "may 5", "It may 20245", "May 5x"]),
        "quotation marks and code that nothing introduces": (REVIEW, [
            'We "probably" use it.', "We `probably` use it.",
        ]),
        "the same, of the speaker's own doubt": (BLOCK, ["I `think` we use it.", '"Maybe" we use it.', 'I "think" so']),
        "letters that look like others or are drawn out": (BLOCK, ["M\u0430yb\u0435 so", "I th\u00ednk so"]),
        "a clause in quotation marks that may be another's": (REVIEW, [
            '"I don\'t remember that visit"', 'Keep the rows for now ("not sure if they stay").',
        ]),
        "a rough number that is all there is to the claim": (REVIEW, ["~6 MB", "Size: ~6 MB", "It has ~500 litres."]),
        "a rounded number beside what is claimed": (CONTINUE, [
            "The small model is ~6 MB.", "The bake took ~30 min.", "~60 frames drop at start.", "Adds ~10 lines to it.",
        ]),
        "a shrug": (REVIEW, ["It ends on Monday \U0001f937"]),
        "digits for letters are missed, as documented": (CONTINUE, ["I th1nk so"]),
        "other words with these letters": (CONTINUE, ["M\u00e1y ch\u1ee7 ch\u1ea1y", "Henry III ruled"]),
        "around elsewhere": (CONTINUE, [
            "wrap around the buffer", "around(5)", "around one another", "turn around", "around v2",
        ]),
        "places, topics and knowledge bases": (CONTINUE, [
            "The menu appears to the right", "Learn about two-factor logins",
            "They add it to my knowledge base",
        ]),
        "permission, ability, rules and other senses": (CONTINUE, [
            "Pupils may use a calculator.", "The client MAY send it twice.", "TBC stands for to be confirmed.",
            "A kind of bread is baked there.", "The 95 % confidence interval is small.",
            "Does and bucks graze there.", "The monks believe in angels.", "She thinks in Dutch.",
            "I think in pictures.", "May has 31 days.", "He replaced Haskell's Maybe.",
            "Look to the left before you cross.", "Clients may bring a friend.", "Readers may copy up to ten pages.",
        ]),
        "nobody doubts what is claimed": (CONTINUE, [
            "Eve raves about 3Mills and its bread.", "Please confirm the table with the cook.",
            '"I guess it leaks" is what the guest wrote.', "The type is {name, size?: int}.",
            "Every TODO has an owner.", "The TODO scanner runs at night.",
            "The placeholder text of the form is grey.", "Low-confidence rows are dropped.",
            "The permit is filed (not approved yet).", "Expected output: 5 loaves.",
            "Second pass, low-confidence (0.25-0.5) rows.", "The lamp lights normally.", "Use speculative decoding.",
            "Unsure which key fits → read the tag first", "The new lamp will look good.",
        ]),
        "parts of identifiers, other speakers, facts": (nothing, [
            "The AI thinks so", "might_be and is_maybe and i_think", "We are supposed to", "It couldn't end",
            "It couldn’t end", "should be 5",
        ]),
        "the month of May": (nothing, ["May 2024", "May 5, 2024", "of May", "mid-May"]),
        "what only looks like permission or a report": ("not continue", [
            "The burst may be associated with the frost of last night.",
            "The sample may be contaminated by handling it.", "The output of the furnace 'may' be wrong.",
            "The member must sign the form or may wait in the hall for weeks.",
            "Taken from memory, the hall seats 400.",
        ]),
    }  # fmt: skip

    def check(action, text):
        if action is nothing:
            assert DETECTOR.find(text) == []
        elif action == "not continue":
            assert outcome(text) is not CONTINUE
        else:
            assert outcome(text) is action

    assert failing(check, [(action, text) for action, texts in doubt.values() for text in texts]) == []
