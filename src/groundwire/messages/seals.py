"""Seals: what a worker signs of a stretch of an input partition, so that others can tell what it published.

A seal names the offsets that were read and, by hash, the records published for them: the leaves of a Merkle tree as in
RFC 6962, so that one is proved without the others. It names the seal before it by hash, so that removing one is
detected. The head of the seal is signed, in canonical JSON (RFC 8785).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from groundwire.messages.base import Time, canonical_json, sha256_hex
from groundwire.messages.decisions import AuditEvent
from groundwire.messages.topics import TopicName

MAX_OUTPUTS: Final = 2_000
"""Records that one seal names: about 300 kB."""
MAX_AT_ONCE: Final = 8
"""Seals of a partition in one commit, all of which a crash may repeat: a backlog is sealed over several commits."""

SEALED: Final = (
    *(TopicName.APPROVED, TopicName.REVIEW, TopicName.BLOCKED),
    *(TopicName.RETRACTIONS, TopicName.REGENERATE, TopicName.AUDIT),
)
"""Topics whose records have an id."""

_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Number = Annotated[int, Field(ge=0, lt=2**53)]
_OUTPUT: Final = re.compile(
    r"([0-9]{1,16}) ([a-z-]{1,20})/([0-9]{1,9}) ([0-9a-f-]{36}) ([0-9a-f]{64})", re.ASCII
)


class SealedOutput(NamedTuple):
    """A record that a worker published; key and `ce_type` follow from its value and topic.

    Attributes:
        offset: of the input record that it came of.
        topic: where it was published, without the deployment's prefix.
        partition: of that topic.
        id: its `ce_id`.
        sha256: of its value.
    """

    offset: int
    topic: str
    partition: int
    id: str
    sha256: str

    @classmethod
    def parse(cls, text: str) -> SealedOutput:
        """Read an output as `str` writes it. Raises: ValueError."""
        found = _OUTPUT.fullmatch(text)
        if found is None:
            raise ValueError("an output is '<offset> <topic>/<partition> <id> <sha256>'")
        return cls(int(found[1]), found[2], int(found[3]), found[4], found[5])

    def __str__(self) -> str:
        """Return the text in a seal; its bytes are a leaf of the tree."""
        return f"{self.offset} {self.topic}/{self.partition} {self.id} {self.sha256}"


class SealHead(BaseModel):
    """What is signed.

    Attributes:
        at: the worker's clock.
        before: hash of the head of the partition's seal before this one; None where the chain begins.
        count: outputs, of which `root` is the Merkle tree's.
        first: offset of the input partition with which the stretch begins.
        end: offset behind its last record: where the next seal begins.
        key: id of the key that signs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, hide_input_in_errors=True)

    at: Time
    before: _Hash | None
    count: _Number
    end: _Number
    first: _Number
    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
    partition: _Number
    root: _Hash
    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
    version: Literal["1"] = "1"

    def to_bytes(self) -> bytes:
        """Return the bytes that are signed and hashed."""
        return canonical_json(self.model_dump(mode="json"))

    @property
    def sha256(self) -> str:
        """The seal's name in the next one."""
        return sha256_hex(self.to_bytes())

    @property
    def input(self) -> str:
        """The input partition, as in `groundwire.claims/0`: the key on `heads`."""
        return f"{self.topic}/{self.partition}"


class SignedHead(BaseModel):
    """A head as `heads` and files elsewhere hold it, one JSON object a record or line."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    seal: SealHead
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]


@dataclass(frozen=True, slots=True)
class Seal:
    """A head, its signature, and the outputs under its root."""

    head: SealHead
    signature: bytes
    outputs: tuple[SealedOutput, ...]

    @classmethod
    def of(cls, event: AuditEvent) -> Seal:
        """Read the seal of an audit event. Raises: ValueError, it holds none; the message holds none of its text."""
        detail = event.detail
        try:
            head = SealHead.model_validate(detail["seal"])
            signature = bytes.fromhex(detail["signature"])
            outputs = tuple(map(SealedOutput.parse, detail["outputs"]))
        except ValidationError as exc:
            where = ".".join(map(str, exc.errors(include_input=False)[0]["loc"]))
            raise ValueError(f"seal.{where} cannot be read") from None
        except (LookupError, TypeError, ValueError):
            raise ValueError("the event holds no seal") from None
        return cls(head, signature, outputs)

    @property
    def fits(self) -> bool:
        """Whether count and root of the head are those of the outputs."""
        return (len(self.outputs), root_of(self.outputs)) == (self.head.count, self.head.root)

    @property
    def signed(self) -> SignedHead:
        """The head as it is kept elsewhere."""
        return SignedHead(seal=self.head, signature=self.signature.hex())

    def detail(self) -> dict[str, object]:
        """Return `detail` of the audit event."""
        return {**self.signed.model_dump(mode="json"), "outputs": list(map(str, self.outputs))}


class EventSignature(BaseModel):
    """The signature of an event that comes of no input record, in its `detail`: no stretch of a partition holds it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    key: str
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]


def signed_bytes(event: AuditEvent) -> bytes:
    """Return what is signed of an event: its canonical form without the signature."""
    detail = {name: value for name, value in event.detail.items() if name != "signed"}
    return canonical_json({**event.model_dump(mode="json"), "detail": detail})


def seal_of(value: bytes) -> Seal | None:
    """Return the seal of a record on `audit`; None where it is another event, or cannot be read."""
    try:
        event = AuditEvent.of_type(value, "seal")
        return Seal.of(event) if event else None
    except ValueError:
        return None


def root_of(outputs: Iterable[SealedOutput]) -> str:
    """Return the hash of the Merkle tree over outputs, in hexadecimal (RFC 6962, 2.1)."""
    level = [_leaf(output) for output in outputs]
    if not level:
        return hashlib.sha256().hexdigest()
    while len(level) > 1:
        level = _above(level)
    return level[0].hex()


class PathStep(NamedTuple):
    """A sibling on the path from a leaf to the root."""

    side: Literal["left", "right"]
    sha256: str


def path_of(outputs: Sequence[SealedOutput], index: int) -> list[PathStep]:
    """Return the nodes with which the root follows from one output alone, from the leaf up (RFC 6962, 2.1.1)."""
    level = [_leaf(output) for output in outputs]
    path: list[PathStep] = []
    while len(level) > 1:
        beside = index ^ 1
        if beside < len(level):
            path.append(PathStep("left" if beside < index else "right", level[beside].hex()))
        level, index = _above(level), index // 2
    return path


def root_by(output: SealedOutput, path: Iterable[PathStep]) -> str:
    """Return the root to which a path leads from an output. Raises: ValueError, a step holds no hash."""
    node = _leaf(output)
    for side, text in path:
        beside = bytes.fromhex(text)
        node = _node(beside, node) if side == "left" else _node(node, beside)
    return node.hex()


def _leaf(output: SealedOutput) -> bytes:
    return hashlib.sha256(b"\0" + str(output).encode()).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def _above(level: list[bytes]) -> list[bytes]:
    """Return the nodes above; the last one goes up by itself where their number is odd."""
    paired = [_node(*pair) for pair in zip(level[::2], level[1::2], strict=False)]
    return paired + level[-1:] if len(level) % 2 else paired
