"""A reviewer sees all of a response, and each fault beside what the sources say."""

from __future__ import annotations

import asyncio
import json

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from groundwire.cli.review_text import print_original
from groundwire.console.answer import Excerpts, answer_view
from groundwire.console.words import Places
from groundwire.messages.base import sha256_hex
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy
from groundwire.review.originals import Original, OriginalState
from tests.unit.console.rooms import Html, make_decision

SOURCES = {
    "kiln": "The kiln in Delft reaches 1,200 degrees. It is fired every 14 days by one potter.",
    "shop": "Children are not admitted to the workshop. The shop opens at ten.",
    "long": "Clay comes from the river. " * 100,
}
ANSWER = (
    "The kiln in Delft reaches 1,500 degrees. It is fired every 14 days by one potter. "
    "Children are admitted to the workshop. Its chimney was painted by a famous sailor."
)
TRANSCRIPT = "Ada: The kiln has never cracked in nine winters. Bo: We sweep it on Fridays, after lunch."


def response(**changes):
    base = {
        "response_id": "r1",
        "tenant_id": "acme",
        "user_id": "ana",
        "answer": ANSWER,
        "query": "How hot is it?",
    }
    return LlmResponse.model_validate(base | {"context": SOURCES} | changes)


def shown(policy=None, **changes):
    policy = policy or Policy()
    decision = make_decision("r1", kind="response", policy={"version": "default", "sha256": policy.sha256})
    return answer_view(Original(OriginalState.READ, response(**changes)), decision, policy)


def text_of(view):
    return "".join(part["text"] for run in view["answer"] for part in run["segments"])


def fault_of(view, text):
    return next(fault for fault in view["faults"] if text in fault["text"])


def test_a_wrong_value_a_lost_denial_and_what_no_source_says_are_marked_beside_the_nearest_place() -> None:
    view = shown()
    assert (view["question"], text_of(view)) == ("How hot is it?", ANSWER)
    value, denial, doubt = (fault_of(view, text) for text in ("1,500", "Children are admitted", "sailor"))
    assert [one["hard"] for one in (value, denial, doubt)] == [True, True, False]
    assert value["instead"][0].startswith("1,200")
    assert [one["says"] for one in (value, denial, doubt)] == [
        "The kiln in Delft reaches 1,200 degrees.",
        "Children are not admitted to the workshop.",
        None,
    ]
    marked = {kind: [] for kind in ("value", "uncovered")}
    for part in (part for run in view["answer"] for part in run["segments"]):
        for kind in marked.keys() & set(part["kinds"]):
            marked[kind].append(part["text"])
    assert marked["value"][0].startswith("1,500")
    assert {"famous", "sailor"} <= {word for text in marked["uncovered"] for word in text.split()}


def test_each_claim_points_at_the_passage_that_it_rests_on_and_each_place_is_there_once() -> None:
    view = shown()
    places = [part["at"] for passage in view["passages"] for part in passage["parts"] if part["at"]]
    assert len(places) == len(set(places))
    assert {run["at"] for run in view["answer"] if run["at"]} <= set(places)
    held = next(run for run in view["answer"] if run["segments"][0]["text"].startswith("It is fired"))
    text = {part["at"]: part["text"] for passage in view["passages"] for part in passage["parts"]}
    assert text[held["at"]] == "It is fired every 14 days by one potter."


def test_a_source_on_which_nothing_rests_comes_last_and_what_is_cut_of_it_is_counted() -> None:
    last = shown()["passages"][-1]
    assert (last["name"], last["pointed"]) == ("long", 0)
    cut = [part for part in last["parts"] if part["cut"]]
    assert [len(part["text"]) for part in cut] == [part["cut"] for part in cut]
    assert "".join(part["text"] for part in last["parts"]) == SOURCES["long"]


def test_a_rejected_quote_stands_beside_the_nearest_place_of_the_transcript() -> None:
    quotes = ["The kiln has cracked in nine winters", "We sweep it on Fridays, after lunch."]
    view = shown(transcript=TRANSCRIPT, evidence={"care": quotes})
    (quote,) = view["quotes"]
    assert (view["quotes_found"], quote["quote"]) == (1, quotes[0])
    assert "".join(one["text"] for one in quote["changes"] if one["operation"] == "delete").split() == [
        "Ada:", "never", ".",
    ]  # fmt: skip


def test_entities_and_relations_stand_beside_what_the_corpus_holds() -> None:
    claim = {"subject": "kiln", "relation": "stands in", "object": "Delft", "version": "1"}
    view = shown(
        entities=[{"id": "kiln", "role": "oven"}, {"id": "gryphon"}],
        corpus_index={"kiln": {"confidence": 0.9, "role": "oven"}},
        claims=[claim],
        relations=[claim | {"version": "2"}],
    )
    assert [(row["id"], row["why"], row["holds"]) for row in view["entities"]] == [
        ("gryphon", "not_found", None),
        ("kiln", None, "role oven, confidence 0.9"),
    ]
    (relation,) = view["relations"]
    assert (relation["why"], relation["holds"]) == (["version_mismatch"], ["kiln stands in Delft (2)"])


def test_a_field_that_no_source_has_is_marked_wherever_it_stands_as_a_word_and_listed_once() -> None:
    chunk = {"chunk_id": "k", "file": "kiln.py", "content": "def fire(): ...", "start_line": 1, "end_line": 1}
    view = shown(answer="Invalid heat is `id`, and id again. Set the `id` first.", chunks=[chunk])
    marked = [part["text"] for run in view["answer"] for part in run["segments"] if "name" in part["kinds"]]
    assert marked == ["id", "id", "id"]
    assert [(one["text"], one["start"], one["hard"]) for one in view["faults"] if one["why"] == "unverified_field"] == [
        ("id", 17, False)
    ]  # fmt: skip


def test_a_file_that_was_not_retrieved_is_marked_where_the_answer_names_it_and_listed_anyway() -> None:
    chunk = {"chunk_id": "k", "file": "kiln.py", "content": "Nothing.", "start_line": 1, "end_line": 1}
    for answer, start in (("See lost.py, not my/lost.py.", 4), ("Nothing.", None)):
        view = shown(answer=answer, chunks=[chunk], sources=[{"file": "lost.py"}])
        fault = fault_of(view, "lost.py")
        assert (fault["hard"], fault["why"], fault["start"]) == (True, "phantom_source", start)
        parts = [part for run in view["answer"] for part in run["segments"]]
        marked = [part["text"] for part in parts if "missing source" in part["title"]]
        assert marked == ["lost.py"] * (start is not None)


def test_a_step_of_reasoning_that_does_not_hold_is_listed() -> None:
    view = shown(steps=[{"claim": "The kiln was bought from a circus.", "cites": ["kiln"]}])
    assert fault_of(view, "circus")["start"] is None


def test_another_policy_is_said_and_of_a_record_that_cannot_be_read_back_only_that() -> None:
    decision = make_decision("r1", kind="response")
    assert (
        "another policy" in answer_view(Original(OriginalState.READ, response()), decision, Policy())["note"]
    )
    for state in (OriginalState.GONE, OriginalState.DIFFERS, OriginalState.AWAY):
        assert set(answer_view(Original(state), decision, Policy())) == {"state", "note"}


odd = st.sampled_from("<>&\"'. \n\u202e\u200b\U0001f600e\u0301-*#|`[1]")
texts = st.text(alphabet=st.one_of(odd, st.characters(codec="utf-8", exclude_characters="\x00")), max_size=80)


@given(texts, st.lists(texts, max_size=3))
def test_of_any_answer_and_any_sources_nothing_is_lost_or_changed(answer, sources) -> None:
    view = shown(answer=answer, context={str(n): text for n, text in enumerate(sources)})
    assert text_of(view) == answer
    assert {
        passage["name"]: "".join(part["text"] for part in passage["parts"]) for passage in view["passages"]
    } == {str(n): text for n, text in enumerate(sources)}


@given(st.lists(texts, min_size=1, max_size=4), texts)
def test_a_nearest_place_always_lies_within_its_text(sources, phrase) -> None:
    place = Places(sources).nearest(phrase)
    assert place is None or 0 <= place.start < place.end <= len(sources[place.text])


def test_the_nearest_place_is_as_long_as_the_phrase() -> None:
    text = "The boat leaves at noon. It carries tea. It returns on Sunday. The crew sleeps."
    place = Places([text]).nearest("It carries coffee. It returns on Monday.")
    assert place is not None
    assert text[place.start : place.end] == "It carries tea. It returns on Sunday."


async def test_page_and_api_show_a_response_as_its_topic_has_it(room, lead) -> None:
    hostile = "<script>alert(1)</script> The kiln reaches 9 degrees."
    value = response(answer=hostile).model_dump_json(exclude_none=True).encode()
    origin = {"topic": "groundwire.llm-responses", "partition": 0, "offset": 7, "sha256": sha256_hex(value)}
    origin["timestamp"] = "2026-01-31T10:00:00.000Z"

    async def read_back(*place):
        return value if place == ("groundwire.llm-responses", 0, 7) else None

    room.site.read = read_back
    (decision_id,) = room.add(make_decision("r1", kind="response", origin=origin))
    page = (await lead.get(f"/items/{decision_id}")).text
    twin = (await lead.get(f"/api/items/{decision_id}")).json()["original"]
    assert "<script>" not in page
    assert Html(page).one(id="answer").text == hostile
    assert (twin["state"], text_of(twin)) == ("read", hostile)


async def test_lists_show_the_beginning_of_an_answer_and_read_it_once(room, lead) -> None:
    value = (
        response(answer="Long ago " + "a kiln was built. " * 40).model_dump_json(exclude_none=True).encode()
    )
    asked = []

    async def read_back(*place):
        asked.append(place)
        return value

    room.site.excerpts = Excerpts(read_back)
    origin = {"topic": "t", "partition": 0, "offset": 7, "timestamp": "2026-01-31T10:00:00.000Z"}
    origin["sha256"] = sha256_hex(value)
    room.add(make_decision("r1", kind="response", origin=origin))
    room.add(make_decision("r2", kind="response", origin=origin | {"sha256": "0" * 64}))
    for _ in range(2):
        items = (await lead.get("/api/queue")).json()["items"]
        found = {one["subject_id"]: one["excerpt"] for one in items}
    assert found["r1"].startswith("Long ago a kiln was built.")
    assert (found["r1"][-1], len(found["r1"])) == ("…", 200)
    assert found["r2"] == "A sentence about it"
    assert len(asked) == 2


async def test_a_list_does_not_wait_for_a_slow_broker(room, lead) -> None:
    async def read_back(*_):
        await asyncio.Event().wait()

    room.site.excerpts = Excerpts(read_back, patience=0.01)
    room.add(make_decision("r1", kind="response"))
    (shown,) = (await lead.get("/api/queue")).json()["items"]
    assert shown["excerpt"] == "A sentence about it"


async def test_a_console_that_reads_no_topic_says_so_on_the_page_of_a_response(room, lead) -> None:
    (decision_id,) = room.add(make_decision("r1", kind="response"))
    assert Html((await lead.get(f"/items/{decision_id}")).text).one(id="text")["data-state"] == "away"


def test_a_terminal_shows_answer_faults_and_quotes_and_no_control_character(capsys) -> None:
    view = shown(
        answer=f"{ANSWER}\x1b[31m",
        transcript=TRANSCRIPT,
        evidence={"care": ["The kiln has cracked in nine winters"]},
    )
    print_original(Console(highlight=False, width=200), json.loads(json.dumps(view)))
    printed = capsys.readouterr().out
    assert "\x1b[31m" not in printed
    assert "kiln: 1,200" in printed
    assert "[-never -]" in printed
