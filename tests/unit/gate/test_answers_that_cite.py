"""Well-grounded answers as RAG systems write them, in every style of citation, and each with a fault planted."""

import itertools
from datetime import UTC, datetime

from groundwire.gate.response_case import ResponseCase, extract
from groundwire.gate.response_checks import read_response
from groundwire.messages.decisions import Facts
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy

CHUNKS = {
    "docs/Pump_Manual.pdf#page=7": "Check the pump's oil level every 200 hours. Replace the inlet filter in March.",
    "lockout.md": "Only certified technicians may open the housing. It is not heated.",
    "Warranty-2023.pdf": "The warranty lasts 24 months from delivery. Seals are excluded.",
}


def decided(answer, chunks=CHUNKS):
    response = LlmResponse.model_validate({
        "response_id": "r", "user_id": "u", "query": "How is the pump maintained, and how long is its warranty?",
        "answer": answer,
        "chunks": [
            {"chunk_id": f"c{number}", "file": file, "content": text, "start_line": 1, "end_line": 1}
            for number, (file, text) in enumerate(chunks.items(), 1)
        ],
    })  # fmt: skip
    facts = Facts(clock=datetime(2026, 1, 1, tzinfo=UTC))
    return str(ResponseCase(response, read_response(response, Policy()), Policy(), facts).before_queue().code)


def test_a_grounded_answer_is_approved_in_every_style_and_planted_faults_and_phantom_sources_are_not():
    said_ = (
        (1, "Check the pump's oil level every 200 hours"),
        (1, "Replace the inlet filter in March"),
        (2, "Only certified technicians may open the housing"),
        (3, "The warranty lasts 24 months from delivery"),
    )
    styles = {
        "file and page": "[{file}]",
        "several in a row": "[{file}][lockout.md]",
        "number": "[{n}]",
        "numbers": "[{n}, 2]",
        "source tag": "[source:{n}]",
        "footnote": "[^{n}]",
        "citation": "[citation:{n}]",
        "doc": "[doc{n}]",
        "parentheses": "({name}, p. 7)",
        "source in parentheses": "(Source: {name}, page 7)",
        "assistants": "\u3010{n}\u2020source\u3011",
        "assistants with a file": "\u30104:0\u2020{name}\u3011",
        "tag": "<cite>{name}</cite>",
        "raised": "<sup>{n}</sup>",
        "link": "[{name}](https://files.example.com/{name})",
        "numbered link": "[[{n}]](https://files.example.com/{name})",
    }
    openings = (
        "",
        "Based on the provided sources, here is what I found:\n\n",
        "Sure! ",
        "Here is the answer to your question:\n\n",
    )
    closings = (
        "",
        "\n\nI hope this helps!",
        "\n\nLet me know if you have any other questions.",
        "\n\nIs there anything else you would like to know?",
    )
    files = [*CHUNKS]

    def answer_in(style, form):
        said = []
        for number, text in said_:
            file = files[number - 1]
            mark = styles[style].format(n=number, file=file, name=file.rpartition("/")[2].partition("#")[0])
            said.append((f"{text} {mark}.", f"{text}. {mark}", f"- {text} {mark}")[form % 3])
        body = ("\n" if form % 3 == 2 else " ").join(said)
        return openings[form % 4 if form % 3 != 2 else 1] + body + closings[(form // 3) % 4]

    faults = {
        "number": ("200 hours", "300 hours"),
        "unit": ("24 months", "24 weeks"),
        "negation": ("warranty lasts", "warranty does not last"),
        "name": ("certified technicians", "Lars Vinter"),
        "month": ("March", "April"),
    }
    wrong = []
    for style, form in itertools.product(styles, range(4)):
        answer = answer_in(style, form)
        right, false = [*faults.values()][(form + len(style)) % len(faults)]
        assert right in answer
        found = decided(answer), decided(answer.replace(right, false)) != "grounded"
        if found != ("grounded", True):
            wrong.append((style, form, found))
    assert wrong == []
    assert decided(answer_in("file and page", 0).replace("Pump_Manual", "Crane_Manual")) == "phantom_source"
    assert decided("The warranty lasts 24 months from delivery [7].") == "phantom_source"


def test_a_refusal_claims_nothing_and_an_agreement_or_hidden_statement_is_held():
    """Agreement with a question states what the question asks; a mark hides nothing within it or beside it."""
    agreements = ["Yes.", "No.", "Indeed, he did.", "Of course.", "Absolutely!", "Not at all.", "It does."]
    like_refusals = [
        "Die Dokumente sagen nicht, warum der Chef floh.",
        "No tengo un perro.",
        "I don't have the money that Lars stole.",
        "Would you like a pump that is heated with stolen gas?",
        "Here is what Lars stole:",
        "## Lars stole it",
        "".join(f"&#{ord(char)};" for char in "The director was arrested"),
    ]
    refusals = [
        "I'm unable to find details about the paint.",
        "Die vorliegenden Dokumente enthalten keine Angaben zum Parken.",
        "Les documents fournis ne mentionnent pas le parking.",
        "No tengo informaci\u00f3n sobre el aparcamiento.",
        "I'm sorry, but the passages do not say who designed the hall. Let me know if you have other questions.",
    ]
    hidden = [
        "The warranty lasts 24 months [and Lars stole the seals, lockout.md].",
        "The warranty lasts 24 months. [Lars stole the seals](lockout.md)",
        "The warranty lasts 24 months.\n\nSources:\n1. lockout.md\n2. Lars stole the seals at night",
        "The warranty lasts 24 months. \u30101\u2020L1 Lars stole the seals\u3011",
        "The warranty lasts 24 months. Call [the desk](tel:+49-30-999999).",
        "The warranty lasts in [24, 36] months.",
    ]
    warranty = "The warranty lasts 24 months from delivery."
    held = [*hidden, *agreements, *(f"{warranty} {text}" for text in like_refusals)]
    assert [answer for answer in refusals if decided(answer) != "grounded"] == []
    assert [answer for answer in held if decided(answer) == "grounded"] == []
    # nor is a heading that names the kind of the values below a claim
    assert decided("## Warranty time\n\nThe warranty lasts 24 months from delivery.") == "grounded"
    assert decided("According to the pump manual, check the pump's oil level every 200 hours.") == "grounded"
    response = LlmResponse.model_construct(
        response_id="r",
        user_id="u",
        answer="The warranty lasts 24 months [1]. The pump is quiet (lockout.md, p. 3).",
    )
    assert extract(response, 9) == ["The warranty lasts 24 months.", "The pump is quiet."]
