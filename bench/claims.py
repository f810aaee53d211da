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


def claims(count: int, *, seed: int = 7) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of claims: a third trusted, a third hedged, a third ungrounded; some are duplicates."""
    random_ = random.Random(seed)
    for number in range(count):
        user = f"user-{random_.randrange(_USERS)}"
        words = random_.sample(_WORDS, 18)
        text = f"The {' '.join(words[:9])} and then {' '.join(words[9:])}."
        if number % 3 == 1:
            text += " This may take a while."
        claim = {
            "claim_id": f"claim-{number}",
            "user_id": user,
            "content": text,
            "source": "user" if number % 3 == 0 else "ai_synthesis",
            "metadata": {"trace": f"{random_.getrandbits(64):016x}", "model": "example-1"},
        }
        yield f"default:{user}".encode(), json.dumps(claim).encode()
