"""Texts that mean harm are shown as text, responses are judged from their pages, and pages fit a telephone."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.site import (
    HOSTILE,
    LEAD,
    OWNER,
    TENANT,
    board_of,
    eventually,
    faulty_response,
    hostile_board,
    in_review,
)

NARROW = {"width": 320, "height": 700}


@pytest.mark.smoke
def test_list_and_page_of_a_hostile_text_show_it_as_text_as_wide_as_the_window_and_load_nothing(
    consoles, people
) -> None:
    board, ids = hostile_board()
    console = consoles.start(board=board, undo_seconds=60)
    reader = people(console, viewport=NARROW)
    page = reader.page
    assert sorted(reader.ids()) == sorted(ids.values())
    assert reader.fits()
    for name, item in ids.items():
        excerpt = page.locator(f'[data-id="{item}"] .excerpt')
        assert excerpt.text_content()[:60] == HOSTILE[name][:60]
        expect(excerpt).to_have_css("unicode-bidi", "isolate")
    for name, text in HOSTILE.items():
        reader.open(f"/items/{ids[name]}")
        assert page.title() == f"{name} · Groundwire"
        assert page.locator("#text").text_content() == text
        assert page.locator("#text *:not(mark)").count() == 0
        expect(page.locator("#text")).to_have_css("unicode-bidi", "isolate")
        assert reader.fits(), name
        addresses = page.locator("a").evaluate_all("all => all.map(a => a.href)")
        assert [one for one in addresses if not one.startswith(console.url)] == []
        if name == "turned":  # a text that hides characters is not approved
            continue
        reader.press("e")
        assert page.locator("#content").input_value() == text
        assert reader.fits(), name
        page.keyboard.press("Control+End")
        page.keyboard.type("!")
        reader.go("Control+Enter")
    consoles.stop(console)
    sent = {one.subject_id: one.content for one in console.reviews.sent}
    assert sent == {name: f"{text}!" for name, text in HOSTILE.items() if name != "turned"}, (
        "it hides characters"
    )
    assert reader.complaints == []


@pytest.mark.smoke
def test_the_browser_itself_would_refuse_a_script_that_got_into_a_page(consoles, people) -> None:
    reader = people(consoles.start())
    reader.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 1\">');"
        "const s = document.createElement('script'); s.textContent = 'window.ran = 2'; document.body.append(s)"
    )

    def refused() -> int:
        return sum("Content Security Policy" in text for text in reader.complaints)

    # what a page says is heard while it is asked for something
    eventually(lambda: reader.page.evaluate("1") and refused() == 2)
    assert reader.page.evaluate("window.ran ?? null") is None


def test_on_a_telephone_what_decides_stays_in_view_and_is_large_enough_for_a_thumb(consoles, people) -> None:
    console = consoles.start_full()
    for width in (320, 390):
        reader = people(console, console.invite(LEAD), viewport={"width": width, "height": 640})
        reader.open("/?reason=conflicting_near_duplicate&sort=newest")
        reader.page.locator("a.open").filter(has_text="400 entries").click()
        approve = reader.page.locator("#approve button")
        for place in (0, 300, 10_000):
            reader.page.evaluate("top => scrollTo(0, top)", place)
            box = approve.bounding_box()
            assert 0 <= box["y"] <= 640 - box["height"]
        assert reader.fits()


def test_on_a_telephone_no_page_scrolls_sideways_no_target_is_lower_than_44_pixels_and_undo_is_in_view(
    consoles, people
) -> None:
    low = """() => [...document.querySelectorAll(
        "button, summary, select, label.choice, .retract, .exports a, textarea"
      )].filter(one => one.checkVisibility() && one.getBoundingClientRect().height < 43.9).map(one => one.outerHTML)"""
    reader = people(consoles.start_full(undo_seconds=60), viewport=NARROW)
    reader.open("/?kind=claim&sort=oldest")
    reader.go("Enter")
    reader.press("e", "Control+End")
    reader.page.keyboard.type(" More.")
    reader.go("Control+Enter")
    undo = reader.page.locator(".outcome.held button").bounding_box()
    assert undo["x"] + undo["width"] <= NARROW["width"]
    small = {"/item": (reader.page.evaluate(low), reader.fits())}
    for path in ("/?kind=response", "/responses", "/approved", "/blocked", "/dead-letters", "/status"):
        reader.open(path)
        small[path] = (reader.page.evaluate(low), reader.fits())
    assert {path: found for path, found in small.items() if found != ([], True)} == {}
    reader.press("?")
    assert reader.fits()
    assert reader.complaints == []


@pytest.mark.smoke
def test_by_keyboard_or_pointer_one_sees_what_the_source_says_of_each_fault(consoles, people) -> None:
    decided = in_review([faulty_response()])
    reader = people(consoles.start(board=board_of(decided)))
    reader.open(f"/items/{decided[0].decision_id}")
    lit = reader.page.locator(".place.lit")
    for key, says in (
        ("f", "The pump in Lyon runs at 40 bar."),
        ("f", "Visitors are not allowed in the pump hall."),
        ("F", "The pump in Lyon runs at 40 bar."),
    ):
        reader.press(key)
        expect(lit).to_have_text(says)
        expect(lit).to_have_class("place lit against")
    reader.page.locator(".place", has_text="serviced every 30 days").hover()
    expect(reader.page.locator("#answer .lit")).to_contain_text("It is serviced every 30 days")
    assert reader.complaints == []


def test_an_answer_and_sources_that_mean_harm_are_shown_as_text_and_fit_a_telephone(consoles, people) -> None:
    records = []
    for number, text in enumerate(HOSTILE.values()):
        chunk = {"chunk_id": text[:50], "file": text[:50], "content": text, "start_line": 1, "end_line": 1}
        harm = {"answer": f"{text} 7", "chunks": [chunk], "query": text}
        records.append(faulty_response(f"harm-{number}") | harm)
    made = in_review(records)
    reader = people(consoles.start(board=board_of(made)), viewport=NARROW)
    for record, one in zip(records, made, strict=True):
        reader.open(f"/items/{one.decision_id}")
        assert reader.page.locator("#answer").text_content() == record["answer"]
        assert reader.page.locator("#question").text_content() == record["query"]
        assert reader.page.locator("#answer *:not(mark, a.claim)").count() == 0
        assert reader.fits()
    assert reader.complaints == []


def test_each_answer_is_judged_as_its_planted_fault_demands_by_keyboard_from_what_its_page_shows(
    consoles, people
) -> None:
    kiln, owls = "The kiln reaches {} degrees after six hours.", "{} hunt {}."
    valve = "The relief valve must {}be opened by hand while the boiler is under pressure."
    roof = "The roof of the chapel was repaired by Brandt and Sons in 2011."
    mill, crane = "The mill grinds rye for three bakeries in the valley.", "The crane stood still for a day."
    bridge, lamp = (
        "The weight limit of the bridge is set by the county",
        "The lamp in the tower is a Fresnel lamp.",
    )
    said = "We stopped the crane at {} because of the wind."
    quote = {"transcript": f"Driver: {said.format('seven')}", "evidence": {"safety": [said.format("eleven")]}}
    files = {"sources": [{"file": "notes.md"}, {"file": "config/bridge_limits.yaml"}]}
    lamps = {"entities": [{"id": "phantom-lamp"}], "corpus_index": {"tower-lamp": {"confidence": 0.9}}}
    # question, source, answer, what the page has to name of the fault (None: there is none), and more of the record
    sitting = (
        ("How hot does the kiln get?", kiln.format(1240), kiln.format(1420), "1240", {}),
        ("May it be opened by hand?", valve.format("not "), valve.format(""), "must not be opened", {}),
        ("Who repaired the roof?", f"{roof} The work took nine weeks.", roof, None, {}),
        (
            "Who hunts?",
            owls.format("Owls", "polecats"),
            owls.format("Polecats", "owls"),
            "Owls hunt polecats",
            {},
        ),
        ("What is made?", mill, f"{mill} Its miller won a medal for saffron bread in Vienna.", "saffron", {}),
        ("What did the driver say?", crane, crane, "eleven", quote),
        (
            "Where is the limit?",
            f"{bridge}.",
            f"{bridge}, see config/bridge_limits.yaml.",
            "bridge_limits.yaml",
            files,
        ),
        ("Which lamp is it?", lamp, lamp, "phantom-lamp", lamps),
    )
    records, planted = [], {}
    for n, (question, source, answer, shows, given) in enumerate(sitting):
        chunk = {"chunk_id": "c1", "file": "notes.md", "content": source, "start_line": 1, "end_line": 2}
        record = {"tenant_id": TENANT, "user_id": OWNER.name, "response_id": f"r-{n}", "confidence": 0.9}
        record |= {"query": question, "answer": answer, "chunks": [chunk], "sources": [{"file": "notes.md"}]}
        records.append(record | given)
        planted[f"r-{n}"] = shows
    console = consoles.start(board=board_of(in_review(records)), undo_seconds=0)
    reader, judged = people(console), {}
    reader.open("/?sort=oldest")
    reader.go("Enter")
    faults = "#faults li, #quotes li, #entities tr:has(.badge), #why .check.failed, .warnings li"
    while len(judged) < len(sitting):
        name = reader.subject
        assert name not in judged, "it was decided already"
        wrong = " ".join(one.inner_text() for one in reader.page.locator(faults).all())
        assert planted[name] is None or planted[name] in wrong, (name, planted[name], wrong)
        judged[name] = "reject" if wrong.strip() else "approve"
        reader.go(*(("r", "1", "Enter") if wrong.strip() else ("a",)))
    expect(reader.page.locator("#total")).to_have_text("0")
    eventually(lambda: len(console.reviews.sent) == len(sitting))
    sent = {one.subject_id: one.action for one in console.reviews.sent}
    assert sent == {name: "reject" if shows else "approve" for name, shows in planted.items()}
    assert reader.complaints == []
