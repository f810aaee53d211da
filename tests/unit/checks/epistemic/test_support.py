"""What evidence supports: sides of verbs, additions, force of statements, what is no claim, seeded edits."""

from __future__ import annotations

import json

from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from bench.quality.edits import edits
from groundwire.checks.reading.adjuncts import adjuncts
from groundwire.checks.reading.force import Force
from groundwire.checks.support.score import ENOUGH
from groundwire.checks.support.verify import check_answer
from groundwire.cli.main import main
from groundwire.epistemic.plan import plan_response
from groundwire.epistemic.types import VerificationConfig
from groundwire.text.refusals import lack_of
from tests.unit.checks.tables import differing, failing

NOUNS = ["falcons", "ministers", "tourists", "farmers", "pirates", "teachers"]
VERBS = ["praise", "follow", "photograph", "fear"]


def is_hard(answer, evidence, **options):
    return any(claim.hard for claim in check_answer(answer, evidence, **options).claims)


LINKS = [
    "if",
    "unless",
    "in",
    "case",
    "only",
    "when",
    "should",
    "except",
    "but",
    "the",
    "before",
    "after",
    ",",
    ".",
    "it",
]


@given(st.lists(st.sampled_from(LINKS), max_size=30))
def test_an_adjunct_and_its_clause_are_apart_and_within_the_sentence(texts):
    for _, link, own, clause in adjuncts(texts):
        assert link < own.start <= own.stop <= len(texts)
        assert clause.start <= clause.stop
        assert clause.stop <= len(texts) or not clause
        assert set(clause).isdisjoint(own)


def test_an_adjunct_belongs_to_the_clause_in_front_or_to_the_one_behind_its_comma():
    cases = [
        ("the match is off if it rains", "it rains", "the match is off"),
        ("the match is off , if it rains", "it rains", "the match is off"),
        ("if it rains , the match is off", "it rains", "the match is off"),
        ("in case it rains , the match is off .", "it rains", "the match is off"),
        ("the shop opens apart from sundays", "sundays", "the shop opens"),
    ]

    def read(sentence):
        texts = sentence.split()
        ((_, _, own, clause),) = adjuncts(texts)
        return " ".join(texts[at] for at in own), " ".join(texts[at] for at in clause)

    assert [sentence for sentence, *told in cases if read(sentence) != tuple(told)] == []


@given(st.permutations(NOUNS), st.sampled_from(VERBS))
def test_an_exchange_of_the_sides_of_a_verb_is_hard_and_the_statement_itself_is_not(nouns, verb):
    one, other, place, *_ = nouns
    assume(one != other)
    evidence = [f"In the valley of the {place} the {one} {verb} the {other} every spring."]
    assert not is_hard(f"The {one} {verb} the {other} every spring.", evidence)
    assert is_hard(f"The {other} {verb} the {one} every spring.", evidence)


def test_what_the_evidence_says_of_another_name_day_or_measure_is_hard():
    """No passive, list or other order of the same statement is."""
    school = [
        "Rosa Lind teaches Greek on Mondays; Tom de Vries teaches carpentry on Fridays.",
        "In 2014 Norden Steel bought Ahlen Tools. Pia Ahlen stayed on as chair, her brother Nils sued Norden Steel.",
        "The seal is replaced after 900 hours, the belt after 300 hours.",
        "The script moves files from the disk to the vault.",
    ]  # fmt: skip
    coins = "The clerks are paid with {} coins in late spring and with {} coins in early autumn."
    cells = "Red Blood Cells carry oxygen to the tissue. RBCs are round."
    cases = [
        ("Tom de Vries teaches Greek on Mondays.", school, True), ("Rosa Lind teaches Greek on Fridays.", school, True),
        ("Norden Steel was bought by Ahlen Tools in 2014.", school, True),
        ("The seal is replaced after 300 hours.", school, True),
        ("The script moves files from the vault to the disk.", school, True),
        (coins.format("copper", "silver"), [coins.format("silver", "copper")], True),
        ("On Mondays, Rosa Lind teaches Greek.", school, False),
        ("Ahlen Tools was bought by Norden Steel in 2014.", school, False),
        ("After 900 hours the seal is replaced.", school, False),
        ("The script moves files to the vault from the disk.", school, False),
        ("Two photographs are submitted by applicants.", ["Applicants submit two photographs."], False),
        ("The dish holds salt, pepper and garlic.", ["The dish holds garlic, pepper and salt."], False),
        ("Claims above 500 euros are approved by Ada Lind.", ["Ada Lind approves claims above 500 euros."], False),
        ("RBCs carry oxygen to the tissue.", [cells], False),  # initials are no other name
    ]  # fmt: skip
    assert differing(is_hard, cases) == []


def test_a_part_that_no_passage_has_a_word_of_counts_however_much_is_held_beside_it():
    said = "The lamp Vega was built in 1998 by the engineer Ada Quist, and its beam reaches 40 metres."
    padded = said.replace(", and", ", explodes without warning, and")
    evidence = [f"{said} It weighs 9 kg."]
    assert check_answer(said, evidence).support == 1.0
    assert check_answer(padded, evidence).support < 0.7


def test_what_an_answer_adds_or_moves_is_held_against_it():
    ferry = {
        "one": "The ferry Aurora sails to Visk in 2 hours. The captain, Jonas Berg, has commanded her since 2015. The "
        "ship holds a bar, a kiosk, a sauna and a nursery. The upper deck is free; a blue flag means delay.",
        "two": "The mates, Lena Voss and Per Holt, sell tickets for 45 pounds. The owner keeps a third of the price. A "
        "red flag means that the harbour is closed to all ships in the morning.",
    }

    def holds(answer: str) -> bool:
        found = check_answer(answer, ferry)
        return found.support >= ENOUGH and not any(claim.hard for claim in found.claims)

    cases = [
        ("The ship holds a bar, a kiosk, a casino, a sauna and a nursery.", False),
        ("The ferry Aurora sails to Visk in 2 hours with Erik Lund.", False),
        ("Lund commanded the ferry Aurora since 2015.", False),
        ("A blue flag means that the harbour is closed to all ships in the morning.", False),
        # the same in another form
        ("The owner keeps one third of the price.", True),
        ("The first passage notes that Jonas Berg has commanded the ferry since 2015.", True),
        ("The ship holds a sauna, a nursery, a kiosk and a bar.", True),
        ("Jonas Berg has commanded the Aurora since 2015.", True),
        ("Here is a brief overview of the facts:\n- The upper deck is free.", True),
    ]  # fmt: skip
    assert differing(holds, cases) == []


def test_a_name_of_neither_evidence_nor_question_is_hard_and_an_adjective_of_one_is_not():
    evidence = ["The embassy of Libya moved to a house at the river last year."]
    assert not is_hard("The house of the Libyan embassy is at the river.", evidence)
    assert is_hard("The embassy moved to a house in Bergen last year.", evidence)
    asked = "Is the embassy in Bergen?"
    assert not is_hard("The embassy in Bergen moved to a house.", evidence, question=asked)


def test_words_of_the_question_and_values_that_look_alike_approve_nothing():
    cases = [
        ("Is it safe to eat the berries?", "It is unsafe to eat the berries.", "| Safe to eat | Yes |"),
        ("What rose?", "Rents rose in a quarter.", "Rents rose by 25 %."),
        ("Who teaches?", "The school teaches fifth and sixth graders.", "The school teaches six sixth graders."),
        ("Is it safe?", "The report denies that the pool is safe.", "The report confirms that the pool is safe."),
        ("What does it give?", "The mill gives backup power.", "The mill gives no backup power."),
    ]  # fmt: skip

    def check(question, evidence, answer):
        opening = "The museum lies by the river."
        record = {
            "response_id": "r",
            "user_id": "u",
            "query": question,
            "answer": f"{opening} {answer}",
            "chunks": [
                {
                    "chunk_id": "a",
                    "file": "a",
                    "content": f"{opening} {evidence}",
                    "start_line": 1,
                    "end_line": 1,
                }
            ],
        }
        told = CliRunner().invoke(main, ["check", "-"], input=json.dumps(record))
        assert json.loads(told.stdout)["verdict"] == "review"

    assert failing(check, cases) == []


def test_what_evidence_does_not_assert_is_a_hard_fault_of_a_claim_that_asserts_it():
    def forces(answer, evidence):
        return [claim.force for claim in check_answer(answer, [evidence]).claims]

    pairs = {
        Force.OPEN: [
            ("Neighbours allege that the club plays music until three.", "The club plays music until three."),
            ("Ivo accused his partner of forging the signature.", "His partner forged the signature."),
            ("The goalkeeper reportedly signed for Velmar.", "The goalkeeper signed for Velmar."),
            ("Legend has it that a blind mason carved the portal.", "A blind mason carved the portal."),
            ("The widow believed her husband had been poisoned.", "Her husband had been poisoned."),
            ("The fire may have started in the drying room.", "The fire started in the drying room."),
            ("The coin was probably minted in Thessaly.", "The coin was minted in Thessaly."),
            ("Has the roof been insured against hail?", "The roof has been insured against hail."),
            ("Auditors examine whether the clinic billed patients twice.", "The clinic billed patients twice."),
            ("The concert will move indoors unless the rain stops.", "The concert will move indoors."),
            ("The match is off, if it rains.", "The match is off."),
            ("Had the sluice been opened, the town would have stayed dry.", "The town stayed dry."),
            ("The clerk alleged last week that the vault had been emptied.", "The vault had been emptied."),
            ("According to the union, fitters work in unlit shafts.", "Fitters work in unlit shafts."),
            ("The toll would double the price of bread.", "The toll doubled the price of bread."),
            ("If the dam leaks, engineers will lower the lake.", "The dam leaked, and engineers lowered the lake."),
        ],
        Force.PLANNED: [
            ("The museum plans to open a second wing in Torsby.", "The museum opened a second wing in Torsby."),
            ("Engineers recommended replacing the north span.", "Engineers replaced the north span."),
            ("The council asked Brenn Rail to electrify the branch.", "Brenn Rail electrifies the branch."),
            ("Work on the mole is to begin in May.", "Work on the mole began in May."),
        ],
        Force.DENIED: [
            ("The mayor denied that the bridge had been closed.", "The bridge had been closed."),
            ("There is no evidence that the herb lowers blood pressure.", "The herb lowers blood pressure."),
            ("It is a myth that the tower leans due to an earthquake.", "The tower leans due to an earthquake."),
            ("The yacht nearly capsized off the cape.", "The yacht capsized off the cape."),
            ("The reactor was shut down in 1998.", "It is not true that the reactor was shut down in 1998."),
            ("The reactor was shut down in 1998.", "There is no evidence that the reactor was shut down in 1998."),
            ("The reactor was shut down in 1998.", "The reactor was almost shut down in 1998."),
            ("The guard wrongly opened the gate.", "It is not true that the guard opened the gate."),
        ],
        Force.NEGATED: [
            ("The surcharge does not apply to weekend stays.", "The surcharge applies to weekend stays."),
            ("The guard no longer locks the west gate at night.", "The guard locks the west gate at night."),
        ],
    }  # fmt: skip

    def check(force, evidence, answer):
        (claim,) = check_answer(answer, [evidence]).claims
        assert (claim.force, claim.hard) == (force, True)

    assert failing(check, [(force, *pair) for force, told in pairs.items() for pair in told]) == []
    said = [evidence for told in pairs.values() for evidence, _ in told]  # of the same force
    assert [evidence for evidence in said if any(forces(f"In short: {evidence}", evidence))] == []
    asserted = ["Otto alleged that Mara took the deposit.", "Mara took the deposit from the safe."]
    assert [claim.force for claim in check_answer("Mara took the deposit.", asserted).claims] == [None]
    # neither another fact nor an unconfirmed report makes evidence assert a claim
    alleged = "Inspectors allege that the mill polluted the brook."
    unconfirmed = [
        (f"{alleged} The mill was established in 1890.", "The mill polluted the brook."),
        ("The carrier pays a penalty of 500 EUR if delivery is late.", "The carrier pays a penalty of 500 EUR."),
        ("Unless the tenant objects, the rent rises by 5 %.", "The rent rises by 5 %."),
        ("There is no evidence that magnets cure gout.", "Magnets cure gout."),
    ]  # fmt: skip
    assert [(evidence, answer) for evidence, answer in unconfirmed if not any(forces(answer, evidence))] == []
    # a weaker clause beside it does not weaken what evidence asserts
    plain = [
        ("Inspectors allege that the mill polluted the brook. The court confirmed it.", "The mill polluted the brook."),
        ("The ship sank in 1871 and may have carried silver.", "The ship sank in 1871."),
        ("She claimed the prize in 1990.", "She claimed the prize in 1990, at last."),
        ("There are no retries.", "There are zero retries."),
        ("Growers expect the first frost in October.", "The first frost is expected in October."),
        ("The tour was not cancelled, but moved to Friday.", "The tour moved to Friday."),
        ("It is not true that the mill has shut: the mill grinds rye.", "The mill grinds rye."),
    ]  # fmt: skip
    assert [(evidence, answer) for evidence, answer in plain if any(forces(answer, evidence))] == []


EVIDENCE = [
    "The ferry to Hven leaves at 9:40 and takes 25 minutes. Bicycles travel free of charge.",
    "The museum on the island shows Brahe's instruments. It closes in October.",
]
QUESTION = "When does the ferry to Hven leave, and may I bring a dog?"


def test_what_is_planted_is_a_claim_and_what_frames_or_greets_is_none():
    # what frames greets asks again or tells what the sources lack is no claim
    talks = [
        "Of course! I hope this helps. Feel free to ask if you have any other questions.", "**Summary**",
        "Unfortunately, the provided context does not say whether dogs are allowed on board.",
        "There is no information about dogs in the passages.",
    ]  # fmt: skip
    assert [talk for talk in talks if check_answer(talk, EVIDENCE, question=QUESTION).claims != ()] == []
    # what is planted in any form is a claim without support
    planteds = [
        "# The captain was drunk", "**Bicycles are stolen daily**",
        "What a relief after the sinking of the old ship!",
        "The sources do not mention the price, and the mayor stole the money.",
    ]  # fmt: skip

    def check(planted):
        answer = f"The ferry takes 25 minutes.\n\n{planted}"
        claims = check_answer(answer, EVIDENCE, question=QUESTION).claims
        assert any(claim.support < ENOUGH for claim in claims)

    assert failing(check, planteds) == []


@given(
    st.sampled_from(
        ["I hope {0}.", "Feel free to {0}.", "Here is {0}:", "# {0}", "Sure, {0}!", "Thanks, {0}?"]
    ),
    st.lists(
        st.sampled_from(["ferry", "island", "captain", "drowned", "october", "mayor", "stole", "bicycles"]),
        min_size=1,
    ),
)
def test_what_is_exempt_holds_no_word_of_its_own(form, words):
    known = " ".join([*EVIDENCE, QUESTION]).lower()
    if not check_answer(form.format(" ".join(words)), EVIDENCE, question=QUESTION).claims:
        assert all(word in known for word in words)


@given(st.integers(1, 4))
def test_words_far_behind_in_a_sentence_are_looked_at(times):
    clause = "the ferry leaves at 9:40 and takes 25 minutes, bicycles travel free of charge, "
    answer = clause * 8 * times + "and vitriol cures seasickness."
    assert any(
        word.text == "vitriol" for claim in check_answer(answer, EVIDENCE).claims for word in claim.uncovered
    )


SHELF = {"1": "The shelf is 80 cm wide and carries 30 kg. It is made in Oslo."}


def test_reports_of_what_the_sources_lack_are_no_claims_in_any_wording():
    answers = [
        "Neither passage mentions its price.", "Prices do not appear in the passages, so I cannot answer that.",
        "I can't tell from these passages where the shop is; they don't mention one.",
        "The supplied documents leave open whether a lamp is included.", "I could not find who designed it.",
    ]  # fmt: skip
    assert [answer for answer in answers if check_answer(answer, SHELF).claims != ()] == []
    granted = [  # what a report takes for granted beside other claims is one
        "I could not find who stole it. The shelf carries 30 kg.",
        "The passages do not reveal how the designer drowned.", "It does not include screws.",
    ]  # fmt: skip
    assert [answer for answer in granted if check_answer(answer, SHELF).claims[0].support >= 0.9] == []
    denials = ["The API does not list users.", "There is no lifeguard.", "It cannot be refunded."]
    assert [clause for clause in denials if lack_of(clause) is not None] == []
    framed = "Going by the supplied documents, the shelf is 80 cm wide. Enjoy your shelf!"
    assert [claim.support for claim in check_answer(framed, SHELF).claims] == [1.0]


def test_a_report_that_the_sources_lack_a_time_count_or_frequency_is_contradicted_where_they_give_it():
    kiln = ["The kiln is cleaned every 40 firings. Its sensor was replaced in May 2023."]
    cases = [
        ("The documents do not say how often the kiln is cleaned.", True),
        ("The documents do not say how many firings pass before the kiln is cleaned.", False),
        ("The documents do not say when the sensor was replaced.", True),
        ("The documents do not say how often the sensor is replaced.", False),
        ("The documents do not say how many firings the sensor takes.", False),
    ]

    def check(answer, contradicted):
        claims = check_answer(answer, kiln).claims
        assert any(claim.verdict == "contradicted" for claim in claims) is contradicted

    assert failing(check, cases) == []


def test_an_answer_is_read_as_a_reader_sees_it():
    answers = [
        "The shelf is <b>80</b> cm w&#105;de.", "It carries 3&#48; kg.", "It is made in Os\u200blo.",
        "It is made in ⓄⓢⓛⓄ.",
    ]  # fmt: skip

    def check(answer):
        (claim,) = check_answer(answer, SHELF).claims
        assert claim.text == answer
        assert round(claim.support, 1) == 1.0

    assert failing(check, answers) == []
    (claim,) = check_answer("It carries 3&#57; kg.", SHELF).claims
    assert claim.hard
    assert [word.text for word in claim.uncovered] == ["3&#57; kg"]


def test_a_link_that_no_evidence_holds_is_cited_in_vain():
    cases = [
        ("It is made in Oslo, see www.shelf.example/buy.", True), ("https://shelf.example", True),
        ("Its page is https://oslo.example/shelf/.", False),
    ]  # fmt: skip

    def check(answer, invented):
        given = {"1": SHELF["1"] + " Its page: oslo.example/shelf"}
        plan = plan_response(answer, given, VerificationConfig(), ask=False)
        assert any(claim.phantom for claim in plan.claims) + plan.left_out == invented

    assert failing(check, cases) == []


def test_a_quote_stands_in_its_passage_and_its_edit_does_not_and_has_less_support():
    passages = [
        (
            "The bridge over the Liffey was opened in 1816 by the city. It is not closed at night for walkers. "
            "The toll of the bridge, said Watson, was dropped after 103 years."
        ),
        (
            "The railway to Howth was built by the company between 1846 and 1847. Its director, Mr. Dargan, lies in "
            "Dublin. The trains are painted green and they leave the station every hour."
        ),
        (
            "The lighthouse on the rock is tended by keepers called Murphy and Doyle. The lamp reaches ships 28 miles "
            "away. No keeper was lost there in the storm of February."
        ),
    ]
    made = list(edits(passages))
    assert made == list(edits(reversed(passages)))
    assert len({edit.kind for edit in made}) > 2
    for edit in made:
        assert edit.quote in edit.passage
        assert edit.edited not in edit.passage
        quote, edited = (check_answer(text, [edit.passage]).support for text in (edit.quote, edit.edited))
        assert quote == 1.0 > edited


def test_an_exception_a_contrast_and_an_order_told_by_dates_are_kept():
    lines = (
        "06:14 the points fail. 07:52 the points are reset. 08:03 the held train leaves. Every cabin but the last has "
        "a heater. Goats need no permit unless they graze on the dyke. All passengers pay, except children under six. "
        "The Arran berths at the mole; the Annan lies at the quay. The court did not, however, order a fine."
    )

    def holds(answer):
        found = check_answer(answer, [lines])
        return found.support >= ENOUGH and not any(claim.hard for claim in found.claims)

    cases = [
        ("The held train leaves before the points are reset.", False),
        ("The held train leaves after the points are reset.", True),
        ("Every cabin has a heater.", False),
        ("Every cabin but the last has a heater.", True),
        ("All passengers pay.", False),
        ("Goats need a permit if they graze on the dyke.", True),
        ("Goats need a permit unless they graze on the dyke.", False),
        ("The Arran berths at the mole, not at the quay.", True),
        ("The Arran berths at the quay, not at the mole.", False),
        ("The court did not order a fine.", True),
        ("The court ordered a fine.", False),
    ]  # fmt: skip
    assert differing(holds, cases) == []


def test_near_the_words_of_a_passage_no_fault_is_excused_and_none_invented():
    def holds(passage, answer):
        found = check_answer(answer, [passage])
        return found.support >= ENOUGH and not any(claim.hard for claim in found.claims)

    wrong = [
        ("A tenant alleged that the bank charged the fee twice.", "The bank charged the fee twice."),
        ("Acme plans to ship the order to Oslo.", "Acme shipped the order to Oslo."),
        ("The union claims that the firm dismissed ten workers.", "The firm dismissed ten workers."),
        ("The museum plans to open a wing in Torsby, free of charge.",
            "The museum opened a wing in Torsby, free of charge."),
        ("The clinic opens on Monday and on Tuesday.", "The clinic opens on Monday, not on Tuesday."),
        ("The plan includes storage and support.", "The plan includes storage, not support."),
        ("Refunds go to the card or cash.", "Refunds go to the card, not cash."),
        ("The drug treats asthma. It also treats gout.", "The drug treats asthma, not gout."),
        ("The drug is without doubt safe.", "The drug is not safe."),
        ("There is no doubt that the pipe is blocked.", "The pipe is not blocked."),
        ("Guests pay for breakfast, except members.", "Guests never pay for breakfast."),
        ("Goats do not need a permit, without doubt.", "Goats do need a permit."),
        ("Users can save and edit drafts.", "Users cannot edit drafts."),
        ("Except for logs, all files are kept.", "All files are kept."),
        ("Apart from logs, all files are kept.", "All files are kept."),
        ("Nobody but the driver pays.", "Nobody pays."),
        ("Everyone pays except the driver.", "Everyone pays."),
        ("The mayor spoke, but only after the council voted.", "The council voted after the mayor spoke."),
        ("A permit is needed and is provided at the lake.", "No permit is needed unless the lake is frozen."),
        ("Bob Stone wrote the report as Ada Byron led the mill.",
            "Ada Byron wrote the report as Bob Stone led the mill."),
        ("The Aurora is moored in Bergen. It has carried mail since 2015.", "Bergen has carried mail since 2015."),
    ]  # fmt: skip
    assert [(passage, answer) for passage, answer in wrong if holds(passage, answer)] == []
    right = [
        ("All rooms have wifi, but the signal is weak.", "All rooms have wifi."),
        ("All members vote, but the chair counts the votes.", "All members vote."),
        ("All staff get 30 days of leave, and unless agreed otherwise it must be taken by March.",
            "All staff get 30 days of leave."),
        ("Not all staff, but every nurse has a locker.", "Every nurse has a locker."),
        ("The pump failed at 11:50 pm. The alarm rang at 12:10 am.", "The pump failed before the alarm rang."),
        ("At 11:50 the pump failed. The alarm rang at 1:10.", "The pump failed before the alarm rang."),
        ("The bill was passed on 30 December. The law was signed on 2 January.",
            "The bill was passed before the law was signed."),
        ("08:00 the pump failed. 09:00 the pump was reset. 10:00 the pump failed.",
            "The pump failed before the pump was reset."),
        ("She would die in Paris in 1903.", "She died in Paris in 1903."),
        ("She was born in Oslo and would die in Rome.", "She was born in Oslo and died in Rome."),
        ("Every morning he would walk the dog by the river.", "Every morning he walked the dog by the river."),
        ("The role of the valve is to control pressure.", "The valve controls pressure."),
        ("The purpose of the fund is to help farmers.", "The fund helps farmers."),
        ("The chapel is to the left of the gate.", "The chapel is left of the gate."),
        ("The label states the dose is 5 mg.", "The dose is 5 mg."),
        ("Management said revenue rose to 5 million euros.", "Revenue rose to 5 million euros."),
        ("Tenants report leaks within two days.", "Leaks are reported by tenants within two days."),
        ("According to the tenant handbook, tenants pay the rent by the third day.",
            "Tenants pay the rent by the third day."),
        ("If parcels are damaged, they are replaced.", "Damaged parcels are replaced."),
        ("If a booking is cancelled, it is refunded in full.", "A cancelled booking is refunded in full."),
    ]  # fmt: skip
    assert [(passage, answer) for passage, answer in right if not holds(passage, answer)] == []
