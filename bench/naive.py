"""The gate as one would first write it: a record at a time, a Redis command at a time, a regex a phrase.

Near-duplicates are found by datasketch's own Redis storage. It decides what plain claims of the default policy need
and nothing else: no attestation, no citations that ask anybody, no deferral, no people, no rebuild. What it decides
must be what the gate decides of the same records: `bench/parts/process.py` insists on it.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import uuid
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from datasketch import MinHash, MinHashLSH
from pydantic import BaseModel, ConfigDict, Field
from redis import Redis

from groundwire.policy import TRUSTED_SOURCES

_THRESHOLD: Final = 0.92
MINHASH_PERMUTATIONS: Final = 128

_BLOCK: Final = """
i think|i guess|i believe|i assume|i suppose|i suspect|i presume|i imagine|i reckon|i doubt|i wonder|we think|
we guess|we believe|we assume|we suspect|i don't know|i do not know|i'm not sure|i am not sure|not certain|not sure|
i don't remember|i have no idea|no idea|unsure|dunno|afaik|afaict|iirc|imo|imho|my guess|in my opinion|my hunch|maybe|
if memory serves|if i recall|to the best of my knowledge|as far as i know|it seems to me|pretty sure|fairly sure
"""
_REVIEW: Final = """
may|might|perhaps|typically|often|usually|sometimes|occasionally|ordinarily|probably|possibly|presumably|potentially|
conceivably|arguably|supposedly|apparently|seemingly|allegedly|likely|unlikely|generally|normally|frequently|commonly|
seems to|seem to|appears to|appear to|tends to|tend to|approximately|approx|roughly|circa|ballpark|more or less|
give or take
"""
_CITATIONS: Final = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (r"\[?ADR-?\s?(\d+)\]?", r"\b[0-9a-f]{7,40}\b", r"https?://[^\s<>\"]+", r"(?:GH-|#)\d+\b")
]
_WORD: Final = re.compile(r"\w+")


def naive_minhash(words: Iterable[str]) -> MinHash:
    """Return a MinHash as datasketch's documentation makes it: word by word."""
    made = MinHash(num_perm=MINHASH_PERMUTATIONS)
    for word in words:
        made.update(word.encode())
    return made


def phrases() -> list[re.Pattern[str]]:
    return _phrases(_BLOCK) + _phrases(_REVIEW)


def _phrases(text: str) -> list[re.Pattern[str]]:
    found = " ".join(text.split()).replace("| ", "|").split("|")
    return [re.compile(rf"\b{re.escape(phrase)}\b", re.IGNORECASE) for phrase in found]


class NaiveClaim(BaseModel):
    model_config = ConfigDict(extra="forbid")

    claim_id: str = Field(min_length=1, max_length=200)
    user_id: str = Field(min_length=1, max_length=200)
    content: str = Field(min_length=1)
    source: str
    tenant_id: str = "default"
    memory_type: str = "fact"
    metadata: dict[str, Any] = {}


class NaiveGate:
    """Decides one record after the other.

    Args:
        url: of Redis; keys begin with `prefix`.
    """

    def __init__(self, url: str, prefix: str) -> None:
        self._redis: Redis = Redis.from_url(url)
        self._prefix = prefix
        parts = urlsplit(url)
        self._storage = {"type": "redis", "redis": {"host": parts.hostname, "port": parts.port}}
        self._indexes: dict[str, MinHashLSH] = {}
        self._block, self._review = _phrases(_BLOCK), _phrases(_REVIEW)

    def decide(self, value: bytes) -> tuple[str, bytes]:
        """Return the verdict on a record, and its decision as bytes."""
        claim = NaiveClaim.model_validate(json.loads(value))
        name = f"{self._prefix}s:{claim.tenant_id}:{claim.user_id}:{claim.claim_id}"
        print_ = hashlib.sha256(json.dumps(claim.model_dump(), sort_keys=True).encode()).hexdigest()
        recorded = self._redis.get(name)
        if recorded:
            return json.loads(recorded)["verdict"], recorded
        hedges = [pattern.pattern for pattern in self._block + self._review if pattern.search(claim.content)]
        blocked = any(pattern.search(claim.content) for pattern in self._block)
        cited = [found.group() for pattern in _CITATIONS for found in pattern.finditer(claim.content)]
        same = self._duplicates(claim)
        verdict, reason = self._verdict(claim, hedges, [state for _, state in same], blocked=blocked)
        decision = json.dumps(
            {
                "decision_id": str(uuid.uuid4()),
                "verdict": verdict,
                "reason": reason,
                "claim": claim.model_dump(),
                "fingerprint": print_,
                "hedges": hedges,
                "citations": cited,
                "duplicates": same,
                "decided_at": time.time(),
            }
        ).encode()
        self._redis.set(name, decision)
        if verdict == "review":
            self._redis.incr(f"{self._prefix}q:{claim.user_id}")
            self._redis.incr(f"{self._prefix}q")
        if verdict != "blocked" and not same:
            self._remember(claim, verdict)
        return verdict, decision

    def close(self) -> None:
        self._redis.close()

    @staticmethod
    def _verdict(claim: NaiveClaim, hedges: list[str], same: list[str], *, blocked: bool) -> tuple[str, str]:
        if blocked:
            return "blocked", "speculation"
        if "approved" in same:
            return "blocked", "duplicate"
        if hedges:
            return "review", "technical_hedge"
        if "review" in same:
            return "review", "pending_duplicate"
        if claim.source in TRUSTED_SOURCES:
            return "approved", "trusted_source"
        return "review", "ungrounded"

    def _index(self, claim: NaiveClaim) -> MinHashLSH:
        scope = f"{claim.tenant_id}:{claim.user_id}:{claim.memory_type}"
        if scope not in self._indexes:
            storage = {**self._storage, "basename": f"{self._prefix}{scope}".encode()}
            self._indexes[scope] = MinHashLSH(
                threshold=_THRESHOLD, num_perm=MINHASH_PERMUTATIONS, params=(16, 8), storage_config=storage
            )
        return self._indexes[scope]

    @staticmethod
    def _words(claim: NaiveClaim) -> set[str]:
        return set(_WORD.findall(claim.content.lower()))

    def _duplicates(self, claim: NaiveClaim) -> list[tuple[str, str]]:
        """Return near-duplicates, each with what became of it."""
        own, found = self._words(claim), []
        for name in self._index(claim).query(naive_minhash(self._words(claim))):
            stored = json.loads(self._redis.get(f"{self._prefix}t:{name}") or b"{}")
            words = set(stored["words"])
            if len(own & words) / len(own | words) >= _THRESHOLD:
                found.append((str(name), stored["verdict"]))
        return found

    def _remember(self, claim: NaiveClaim, verdict: str) -> None:
        name = f"{claim.user_id}:{claim.claim_id}"
        self._index(claim).insert(name, naive_minhash(self._words(claim)))
        stored = {"verdict": verdict, "words": sorted(self._words(claim))}
        self._redis.set(f"{self._prefix}t:{name}", json.dumps(stored))
