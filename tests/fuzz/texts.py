"""Strings and bytes that have broken programs before, and a few that only look harmless."""

from __future__ import annotations

from random import Random
from typing import Final

CANARY: Final = "Kanarienvogel"
"""Stands in the texts of records, and must stand in no log."""

ODD: Final = (
    *(
        "",
        " ",
        "\t\n\r\x0b\x0c",
        "\x00",
        "\x1b[2J\x1b]0;x\x07",
        "\x7f",
        "\x85",
        "\u2028",
        "\ufeff",
        "\ufffd",
        "\uffff",
    ),
    *("\u200b", "\u200d", "\u2066a\u2069", "\u202e3 si ti", "\u00ad", "\U000e0041", "\ufe0f", "\u0301" * 40),
    *(
        "\ud800",
        "\udfff\ud83d",
        "\U0010ffff",
        "\U0001f468\u200d\U0001f469",
        "\u0130\u0131\u017f\u212a",
        "\ufdfa",
    ),
    *(
        "\u0660\u0661",
        "\uff11\uff0e\uff15",
        "\u00b2",
        "\u215b",
        "\u3000",
        "0",
        "-0",
        "1e999",
        "NaN",
        "null",
        "true",
    ),
    *(
        "../../../etc/passwd",
        "C:\\con",
        "file:///etc/passwd",
        "--help",
        "-",
        "$(id)",
        "`id`",
        "%s%n",
        "{0}",
        "{{7*7}}",
    ),
    *(
        "<script>alert(1)</script>",
        "' OR 1=1 --",
        "a\r\nset-cookie: x",
        "__proto__",
        "__class__",
        "constructor",
    ),
)
WORDS: Final = (
    *(
        "the API returns JSON",
        "maybe",
        "I feel",
        "we decided",
        "retries 5 times",
        "not",
        "within 30 s",
        "ADR-003",
    ),
    *(
        "commit abcdef1234",
        "see https://docs.example.org/a",
        "#12",
        "[source:1]",
        "[source:1,3-9]",
        "`top_k`",
        "e.g.",
    ),
    *(
        "https://[::1]/",
        "http://0x7f.1/",
        "1,000 USD",
        "2026-01-31T12:00:00Z",
        "v1.2.3",
        "- item\n",
        "| a | b |\n",
    ),
    *(
        "```\ncode\n```\n",
        "\n\n",
        "~~~",
        "([{",
        "**",
        "__",
        "%",
        "/api/v1",
        "a.b.c",
        "\u201cquoted\u201d",
        "isn\u2019t",
    ),
)
NUMBERS: Final = (
    *(
        0,
        -0.0,
        1,
        -1,
        0.3,
        0.7,
        1.0000001,
        2**31,
        2**53 + 1,
        -(2**63),
        2**64,
        10**40,
        1e308,
        5e-324,
        True,
        False,
    ),
)
TIMES: Final = (
    *(
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00.123456789Z",
        "2026-01-31T12:00:00+14:00",
        "1969-12-31T23:59:59Z",
    ),
    *(
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59.999999Z",
        "9999-12-31T23:59:59-23:59",
    ),
    *(
        "2026-02-30T00:00:00Z",
        "2016-12-31T23:59:60Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31",
        "2026-01-31 12:00",
        "0",
    ),
    *("2026-01-31t12:00:00z", "2026-01-31T12:00:00", "-2026-01-31T12:00:00Z", "12026-01-31T12:00:00Z"),
)


def text(rng: Random, longest: int = 400) -> str:
    """Make a text of words and oddities; now and then one that says the same thing over and over."""
    kind = rng.random()
    if kind < 0.25:
        return rng.choice(ODD)
    if kind < 0.33:
        unit = rng.choice((*ODD, *WORDS, rng.choice("()[]{}<>.,:;-_*~`'\"#|/\\ 0a1e")))
        return unit * length(rng, 20 * longest, per=len(unit))
    pieces = [rng.choice(WORDS if rng.random() < 0.85 else ODD) for _ in range(rng.randint(1, 12))]
    return rng.choice(("", " ", ". ", " ")).join(pieces)[: 10 * longest]


def length(rng: Random, longest: int, *, per: int = 1) -> int:
    """Return how often something is repeated: mostly a few times, seldom until the longest is reached."""
    return int(longest ** (rng.random() ** 2)) // max(1, per) + 1


def scratched(rng: Random, data: bytes) -> bytes:
    """Break a few bytes: changed, cut out, doubled, cut off."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(5):
            case 0:
                out[at:at] = rng.choice(
                    (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\x00", b'"', b"{", b"[", b",", b"\\u")
                )
            case 1:
                del out[at : at + rng.randint(1, 8)]
            case 2:
                out[at:at] = out[at : at + rng.randint(1, 40)]
            case 3:
                out[at : at + 1] = bytes([rng.randrange(256)])
            case _:
                del out[at:]
    return bytes(out)
