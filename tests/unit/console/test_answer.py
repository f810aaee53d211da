"""A reviewer sees all of a response, and each fault beside what the sources say."""

from __future__ import annotations

import asyncio
import json

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from groundwire.cli.review_text import print_original
from groundwire.console.answer import Excerpts, answer_view
from groundwire.console.markdown import blocks
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
    base = {"response_id": "r1", "tenant_id": "acme", "user_id": "ana", "answer": ANSWER, "query": "How hot?"}
    given = base | {"context": SOURCES} | changes
    return LlmResponse.model_validate({name: value for name, value in given.items() if value is not None})


def shown(**changes):
    policy = Policy()
    decision = make_decision("r1", kind="response", policy={"version": "default", "sha256": policy.sha256})
    return answer_view(Original(OriginalState.READ, response(**changes)), decision, policy)


def parts_of(view):
    return [part for run in view["answer"] for part in run["segments"]]


def text_of(view):
    return "".join(part["text"] for part in parts_of(view))


def fault_of(view, text):
    return next(fault for fault in view["faults"] if text in fault["text"])


def test_a_wrong_value_a_lost_denial_and_what_no_source_says_are_marked_beside_the_nearest_place() -> None:
    view = shown()
    assert (view["question"], text_of(view)) == ("How hot?", ANSWER)
    value, denial, doubt = (fault_of(view, text) for text in ("1,500", "Children are admitted", "sailor"))
    assert [one["hard"] for one in (value, denial, doubt)] == [True, True, False]
    assert value["instead"][0].startswith("1,200")
    assert [one["says"] for one in (value, denial, doubt)] == [
        "The kiln in Delft reaches 1,200 degrees.",
        "Children are not admitted to the workshop.",
        None,
    ]
    marked = {kind: [] for kind in ("value", "uncovered")}
    for part in parts_of(view):
        for kind in marked.keys() & set(part["kinds"]):
            marked[kind].append(part["text"])
    assert marked["value"][0].startswith("1,500")
    assert {"famous", "sailor"} <= {word for text in marked["uncovered"] for word in text.split()}


def test_each_claim_points_at_its_passage_once_and_a_source_on_which_nothing_rests_comes_last() -> None:
    view = shown()
    text = {
        part["at"]: part["text"] for passage in view["passages"] for part in passage["parts"] if part["at"]
    }
    places = [part["at"] for passage in view["passages"] for part in passage["parts"] if part["at"]]
    assert len(places) == len(text)
    assert {run["at"] for run in view["answer"] if run["at"]} <= set(places)
    held = next(run for run in view["answer"] if run["segments"][0]["text"].startswith("It is fired"))
    assert text[held["at"]] == "It is fired every 14 days by one potter."
    last = view["passages"][-1]
    assert (last["name"], last["pointed"]) == ("long", 0)
    cut = [part for part in last["parts"] if part["cut"]]
    assert [len(part["text"]) for part in cut] == [part["cut"] for part in cut]
    assert "".join(part["text"] for part in last["parts"]) == SOURCES["long"]


def test_quotes_entities_and_relations_stand_beside_what_the_transcript_and_the_corpus_hold() -> None:
    quotes = ["The kiln has cracked in nine winters", "We sweep it on Fridays, after lunch."]
    claim = {"subject": "kiln", "relation": "stands in", "object": "Delft", "version": "1"}
    view = shown(
        transcript=TRANSCRIPT,
        evidence={"care": quotes},
        entities=[{"id": "kiln", "role": "oven"}, {"id": "gryphon"}],
        corpus_index={"kiln": {"confidence": 0.9, "role": "oven"}},
        claims=[claim],
        relations=[claim | {"version": "2"}],
    )
    (quote,), (relation,) = view["quotes"], view["relations"]
    assert (view["quotes_found"], quote["quote"]) == (1, quotes[0])
    lost = "".join(one["text"] for one in quote["changes"] if one["operation"] == "delete")
    assert lost.split() == ["Ada:", "never", "."]
    assert [(row["id"], row["why"], row["holds"]) for row in view["entities"]] == [
        ("gryphon", "not_found", None),
        ("kiln", None, "role oven, confidence 0.9"),
    ]
    assert (relation["why"], relation["holds"]) == (
        ["version_mismatch"],
        ["kiln stands in Delft (version 2)"],
    )


def test_a_quote_behind_a_negation_stands_in_its_sentence_with_the_negation_marked() -> None:
    view = shown(transcript=TRANSCRIPT, evidence={"care": ["cracked in nine winters"]})
    (quote,) = view["quotes"]
    assert (quote["why"], quote["nearest"]) == (
        "quote_polarity",
        "Ada: The kiln has never cracked in nine winters.",
    )
    marked = [part["text"] for part in quote["segments"] if "hard" in part["kinds"]]
    assert marked == ["never"]


CHUNK = {
    "chunk_id": "k",
    "file": "kiln.py",
    "content": "heat = 30\nfire(heat)",
    "start_line": 1,
    "end_line": 2,
}


def test_a_cited_passage_that_differs_stands_beside_the_nearest_one_and_a_stale_file_with_both_revisions() -> (
    None
):
    source = {"file": "kiln.py", "snippet": "heat = 300", "start_line": 4, "end_line": 5}
    view = shown(
        chunks=[CHUNK | {"revision": "r1"}],
        sources=[source],
        current_revisions={"kiln.py": "r2"},
        context=None,
    )
    (cited,), (stale,) = view["cited"], view["stale"]
    new = "".join(one["text"] for one in cited["changes"] if one["operation"] == "insert")
    assert (cited["lines"], cited["given"], new) == ("lines 4 to 5", ["lines 1 to 2"], "300")
    assert (stale["file"], stale["indexed"], stale["current"]) == ("kiln.py", "r1", "r2")


def test_a_tag_of_a_source_that_was_not_given_is_marked_and_a_wrong_name_has_that_of_the_source() -> None:
    chunk = CHUNK | {"content": "The kiln was built by Lena Vogt in Delft."}
    view = shown(answer="The kiln was built by Karl Meyer in Delft [source:7].", chunks=[chunk], context=None)
    tag = next(fault for fault in view["faults"] if fault["text"] == "[source:7]")
    name = fault_of(view, "Karl Meyer")
    assert (tag["note"], tag["start"]) == ("cites source 7, but only 1 was given", 42)
    assert (name["why"], name["instead"]) == ("other_name", ["Lena Vogt"])
    assert [part["text"] for part in parts_of(view) if "source 7" in part["title"]] == ["[source:7]"]


def test_what_the_corpus_holds_is_shown_beside_an_id_that_it_lacks_and_a_relation_of_one_of_the_two() -> None:
    view = shown(
        entities=[{"id": "kiln-8"}],
        corpus_index={"kiln-7": {"confidence": 0.9}},
        claims=[{"subject": "kiln", "relation": "stands in", "object": "Delft"}],
        relations=[{"subject": "kiln", "relation": "stands in", "object": "Gouda"}],
    )
    assert "kiln-7" in view["entities"][0]["holds"]
    assert view["relations"][0]["holds"] == ["kiln stands in Gouda"]


def test_a_word_of_the_source_is_no_name_in_place_of_another() -> None:
    chunk = CHUNK | {"file": "search.py", "content": "def search(query, top_k=10): return find(query)"}
    view = shown(answer="Pass `top_k` or `fuzziness` to `search` [source:1].", chunks=[chunk], context=None)
    fault = fault_of(view, "Pass")
    assert (fault["why"], fault["instead"]) == ("partial_support", [])
    assert fault["says"]


def test_fields_and_files_that_no_source_has_are_marked_where_they_stand_as_words_and_listed_once() -> None:
    chunk = {"chunk_id": "k", "file": "kiln.py", "content": "def fire(): ...", "start_line": 1, "end_line": 1}
    view = shown(answer="Invalid heat is `id`, and id again. Set the `id` first.", chunks=[chunk])
    marked = [part["text"] for part in parts_of(view) if "name" in part["kinds"]]
    assert marked == ["id", "id", "id"]
    fields = [one for one in view["faults"] if one["why"] == "unverified_field"]
    assert [(one["text"], one["start"], one["hard"]) for one in fields] == [("id", 17, False)]
    for answer, start in (("See lost.py, not my/lost.py.", 4), ("Nothing.", None)):
        view = shown(answer=answer, chunks=[chunk], sources=[{"file": "lost.py"}])
        fault = fault_of(view, "lost.py")
        assert (fault["hard"], fault["why"], fault["start"]) == (True, "phantom_source", start)
        marked = [part["text"] for part in parts_of(view) if "missing source" in part["title"]]
        assert marked == ["lost.py"] * (start is not None)
    view = shown(steps=[{"claim": "The kiln was bought from a circus.", "cites": ["kiln"]}])
    assert fault_of(view, "circus")["start"] is None, "a step of reasoning that does not hold is listed"


MARKDOWN = """# Kilns

| kiln | heat |
|---|---|
| Delft | 1,500 degrees |

1. The kiln in Delft reaches **1,500 degrees**.
2. See [here](javascript:alert(1)) and <img src=x>.

```python
heat = 9
```
"""


def rendered(view):
    return "".join(run["tag"] or "".join(part["text"] for part in run["segments"]) for run in view["blocks"])


def test_markdown_is_shown_as_blocks_with_the_marks_on_it_and_nothing_else_of_the_answer_as_markup() -> None:
    view = shown(answer=MARKDOWN)
    assert {str(run["tag"]) for run in view["blocks"] if "<" in run["tag"]} >= {
        "<th>",
        "<td>",
        "<pre>",
        "<strong>",
    }
    assert "[here](javascript:alert(1)) and <img src=x>" in rendered(view), (
        "as it is written, and escaped by the page"
    )
    assert all("img" not in run["tag"] and "href" not in run["tag"] for run in view["blocks"])
    marked = [
        part["text"] for run in view["blocks"] if not run["tag"] for part in run["segments"] if part["kinds"]
    ]
    assert sum("1,500" in text for text in marked) == 2
    assert text_of(view) == MARKDOWN
    for plain in (
        "Nothing to mark up.\nReally.",
        "| a | b |\n|---|---|\n| c | d | never shown |",
        "*a*\u200b",
    ):
        lost = plain.startswith("|")
        assert (shown(answer=plain)["blocks"] is None) == (lost or "*" not in plain), plain


@given(st.text(alphabet="ab1 *_`|-#>\\[]()!<&;:\n~.+\t\u200b", max_size=120))
def test_blocks_show_every_word_of_an_answer_in_its_order_or_there_are_none(answer) -> None:
    found = blocks(answer, [])
    if found is not None:
        said = "".join(answer[one.start : one.end] for one in found)
        assert [char for char in said if char.isalnum()] == [char for char in answer if char.isalnum()]
        assert {str(one.tag) for one in found} <= TAGS


BLOCKS = "p ul ol li blockquote pre code strong em s table thead tbody tr th td hr br"
TAGS = {f"<{name}>" for name in BLOCKS.split()} | {f"</{name}>" for name in BLOCKS.split()}
TAGS |= {'<p class="heading">', '<div class="table"><table>', "</table></div>", "\n", "None"}


def test_another_policy_is_said_and_of_a_record_that_cannot_be_read_back_only_that() -> None:
    decision = make_decision("r1", kind="response")
    view = answer_view(Original(OriginalState.READ, response()), decision, Policy())
    assert "another policy" in view["note"]
    for state in (OriginalState.GONE, OriginalState.DIFFERS, OriginalState.AWAY):
        assert set(answer_view(Original(state), decision, Policy())) == {"state", "note"}


odd = st.sampled_from("<>&\"'. \n\u202e\u200b\U0001f600e\u0301-*#|`[1]")
texts = st.text(alphabet=st.one_of(odd, st.characters(codec="utf-8", exclude_characters="\x00")), max_size=80)


@given(texts, st.lists(texts, max_size=3))
def test_of_any_answer_and_any_sources_nothing_is_lost_or_changed(answer, sources) -> None:
    given = {str(n): text for n, text in enumerate(sources)}
    view = shown(answer=answer, context=given)
    assert text_of(view) == answer
    passages = {one["name"]: "".join(part["text"] for part in one["parts"]) for one in view["passages"]}
    assert passages == given


@given(st.lists(texts, min_size=1, max_size=4), texts)
def test_a_nearest_place_always_lies_within_its_text_and_is_as_long_as_the_phrase(sources, phrase) -> None:
    place = Places(sources).nearest(phrase)
    assert place is None or 0 <= place.start < place.end <= len(sources[place.text])
    text = "The boat leaves at noon. It carries tea. It returns on Sunday. The crew sleeps."
    place = Places([text]).nearest("It carries coffee. It returns on Monday.")
    assert place is not None
    assert text[place.start : place.end] == "It carries tea. It returns on Sunday."


async def test_page_api_and_list_show_a_response_as_its_topic_has_it_and_read_it_once(room, lead) -> None:
    hostile = "<script>alert(1)</script> The kiln reaches 9 degrees. " + "a kiln was built. " * 40
    value = response(answer=hostile).model_dump_json(exclude_none=True).encode()
    origin = {"topic": "t", "partition": 0, "offset": 7, "timestamp": "2026-01-31T10:00:00.000Z"}
    asked = []

    async def read_back(*place):
        asked.append(place)
        return value

    decision_id, _ = room.add(
        make_decision("r1", kind="response", origin=origin | {"sha256": sha256_hex(value)}),
        make_decision("r2", kind="response", origin=origin | {"sha256": "0" * 64}),
    )
    unread = Html((await lead.get(f"/items/{decision_id}")).text)
    assert unread.one(id="text")["data-state"] == "away", "this console reads no topic"
    before = (await lead.get("/api/export/queue.jsonl")).text
    room.site.read, room.site.excerpts = read_back, Excerpts(read_back)
    for _ in range(2):
        items = (await lead.get("/api/queue")).json()["items"]
        found = {one["subject_id"]: one["excerpt"] for one in items}
    assert found["r1"].startswith("<script>alert(1)</script> The kiln reaches")
    assert (found["r1"][-1], len(found["r1"]), found["r2"]) == ("…", 200, "A sentence about it")
    assert asked == [("t", 0, 7)] * 2, "each is read once"
    assert (await lead.get("/api/export/queue.jsonl")).text == before, "a file does not depend on who looked"
    page = (await lead.get(f"/items/{decision_id}")).text
    twin = (await lead.get(f"/api/items/{decision_id}")).json()["original"]
    assert ("<script>alert" in page, Html(page).one(id="answer").text) == (False, hostile)
    assert (twin["state"], text_of(twin)) == ("read", hostile)

    async def slow(*_):
        await asyncio.Event().wait()

    room.site.excerpts = Excerpts(slow, patience=0.01)
    items = (await lead.get("/api/queue")).json()["items"]
    assert {one["excerpt"] for one in items} == {"A sentence about it"}, "a list does not wait for a broker"


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


def test_a_word_that_tells_the_reader_what_to_do_is_no_fault() -> None:
    view = shown(answer="Call `find`; see `find`. The find is odd.", context={"a.py": "def find(query): ..."})
    marked = {part["text"] for part in parts_of(view) if "uncovered" in part["kinds"]}
    assert "odd" in marked
    assert marked.isdisjoint({"Call", "see"})


def test_a_statement_turned_into_its_opposite_is_wrong_and_a_transcript_stands_below_its_quotes() -> None:
    view = shown(
        answer="Children are admitted to the workshop.", transcript=TRANSCRIPT, evidence={"care": ["No."]}
    )
    assert [fault["hard"] for fault in view["faults"]] == [True]
    assert view["transcript"] == TRANSCRIPT
    view = shown(answer="Glazed ware may be stacked.", context={"kiln": "Glazed ware must not be stacked."})
    assert [(fault["why"], fault["hard"]) for fault in view["faults"]] == [("sources_say_the_opposite", True)]
