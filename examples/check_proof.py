"""Checks what `groundwire verify --decision ID` prints: that a gate published this decision, and when.

    python examples/check_proof.py proof.json public.toml

It needs no Groundwire, no Kafka and no network: only the gate's public keys, as `groundwire keys public` prints them,
and the package `cryptography`. The proof holds the decision's bytes, a leaf that names their hash, the path from the
leaf to the root of a Merkle tree (RFC 6962), and the head that a gate signed over that root (Ed25519, canonical JSON).
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import sys
import tomllib
from datetime import datetime
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def fault(proof: dict, keys: dict) -> str | None:
    """Return what is wrong with a proof; None where it holds."""
    try:
        return _fault(proof, keys)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as exc:
        return f"it is no proof: {type(exc).__name__}"


def _fault(proof: dict, keys: dict) -> str | None:
    decision = proof["decision"].encode()
    _, topic, name, digest = proof["output"].split(" ")
    if hashlib.sha256(decision).hexdigest() != digest:
        return "the decision is not the one of the leaf"
    told = json.loads(decision)
    if (told["decision_id"], told["verdict"]) != (name, topic.partition("/")[0]):
        return "the leaf is of another decision"
    node = hashlib.sha256(b"\0" + proof["output"].encode()).digest()
    for side, text in proof["path"]:
        beside = bytes.fromhex(text)
        pair = beside + node if side == "left" else node + beside
        node = hashlib.sha256(b"\1" + pair).digest()
    head = proof["seal"]
    if node.hex() != head["root"]:
        return "the path does not lead to what was signed"
    key = keys.get(head["key"])
    if key is None or "seal" not in key["roles"]:
        return "no gate has this key"
    at = datetime.fromisoformat(head["at"])
    if ("not_before" in key and at < key["not_before"]) or ("not_after" in key and at > key["not_after"]):
        return "it was sealed outside of its key's time"
    signed = json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key["public_key"]))
        public.verify(bytes.fromhex(proof["signature"]), signed)
    except InvalidSignature:
        return "the signature is not the key's"
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Checks that a gate published a decision.")
    parser.add_argument("proof", type=Path, help="what `groundwire verify --decision ID` prints")
    parser.add_argument("public", type=Path, help="what `groundwire keys public` prints")
    files = parser.parse_args()
    given, held = json.loads(files.proof.read_text()), tomllib.loads(files.public.read_text())
    wrong = fault(given, held["keys"])
    print(wrong or f"{given['output'].split(' ')[2]} was published, sealed at {given['seal']['at']}")
    sys.exit(bool(wrong))
