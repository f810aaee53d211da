"""Claims to measure with: varied, seeded, of the size of real ones."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

_WORDS = """
service queue token cache shard replica cluster ledger parser router broker schema index vector signal retry
lease quota budget window batch stream offset topic group leader follower epoch snapshot journal stores reads
writes keeps drops merges splits checks signs routes limits pauses resumes expires renews always every single
second daily nightly primary secondary remote local public private stable draft billing search catalog login
export import report audit mail payment order invoice profile session
""".split()  # noqa: SIM905 - a word list reads better as prose

_USERS = 500
_AGAIN = 20
"""One claim in so many says what its user has said before."""


def text(rng: random.Random, *, least: int = 10, most: int = 40) -> str:
    words = rng.choices(_WORDS, k=rng.randint(least, most) - 3)
    half = len(words) // 2
    return f"The {' '.join(words[:half])} and then {' '.join(words[half:])}."


def claims(
    count: int, *, seed: int = 7, users: int = _USERS, name: str = "claim", words: tuple[int, int] = (10, 40)
) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of claims of so many words: a third trusted, a third hedged, a third ungrounded.

    One in twenty repeats an earlier claim of its user under another id.
    """
    rng = random.Random(seed)
    said: dict[str, str] = {}
    for number in range(count):
        user = f"user-{rng.randrange(users)}"
        content = text(rng, least=words[0], most=words[1])
        if number % 3 == 1:
            content += " This may take a while."
        if number % _AGAIN == 0:
            content = said.get(user, content)
        said.setdefault(user, content)
        claim = {
            "claim_id": f"{name}-{number}",
            "user_id": user,
            "content": content,
            "source": "user" if number % 3 == 0 else "ai_synthesis",
            "metadata": {"trace": f"{rng.getrandbits(64):016x}", "model": "example-1"},
        }
        yield f"default:{user}".encode(), json.dumps(claim).encode()
