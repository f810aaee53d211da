"""The AsyncAPI 3.0 document: every topic with its key, its headers and the schema of its records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from groundwire.messages.headers import TRACE
from groundwire.messages.topics import TopicName

Document = dict[str, Any]

VERSION: Final = "1.0.0"
PREFIX: Final = "groundwire."

_STRING: Final = {"type": "string"}
_PLAIN_KEY: Final = re.compile(
    r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[a-z][a-z-]*", re.ASCII | re.IGNORECASE
)
_USER_KEY: Final = "`{tenant_id}:{user_id}`"


class Channel(NamedTuple):
    """A topic as the document tells it.

    Attributes:
        action: what the gate does: `receive`, `send`, or `both` for a topic of its own.
        message: name of the message among the components.
        key: what the records' key is.
        description: what the topic is for.
    """

    action: str
    message: str
    key: str
    description: str


CHANNELS: Final = {
    TopicName.CLAIMS: Channel("receive", "claim", _USER_KEY, "Statements that somebody asks to have stored."),
    TopicName.LLM_RESPONSES: Channel(
        "receive", "llm-response", _USER_KEY, "Answers of language models, with what they were grounded on."
    ),
    TopicName.REVIEW_DECISIONS: Channel(
        "receive",
        "review-decision",
        _USER_KEY,
        "What people decided of records in review; each must be signed.",
    ),
    TopicName.DEFERRED: Channel(
        "both",
        "deferred",
        "that of the input record",
        "Input records that wait. Internal: do not produce here.",
    ),
    TopicName.APPROVED: Channel("send", "decision", _USER_KEY, "Decisions with the verdict approved."),
    TopicName.REVIEW: Channel("send", "decision", _USER_KEY, "Decisions with the verdict review."),
    TopicName.BLOCKED: Channel("send", "decision", _USER_KEY, "Decisions with the verdict blocked."),
    TopicName.RETRACTIONS: Channel("send", "retraction", _USER_KEY, "Approvals that were withdrawn."),
    TopicName.REGENERATE: Channel("send", "regenerate", _USER_KEY, "Prompts to answer again, grounded."),
    TopicName.AUDIT: Channel("send", "audit", "`{tenant_id}`, empty where none", "Who did what, and when."),
    TopicName.HEADS: Channel(
        "send",
        "head",
        "`{topic}/{partition}` of the input",
        "The last seal of each input partition, under an ACL of its own.",
    ),
    TopicName.DEAD_LETTER: Channel(
        "send", "dead-letter", "that of the input record", "Records that could not be decided, byte for byte."
    ),
}

_INPUTS: Final = {"claim": "Claim", "llm-response": "LlmResponse", "review-decision": "ReviewDecision"}
_EVENTS: Final = {
    "decision": ("Decision", "decision_id"),
    "retraction": ("Retraction", 'uuid5 of [decision_id, "retraction"]'),
    "regenerate": ("RegenerateRequest", "request_id"),
    "audit": ("AuditEvent", "event_id"),
}


def asyncapi() -> Document:
    """Return the document; payloads refer to the JSON Schema files beside it."""
    messages = dict(_messages())
    if unknown := {channel.message for channel in CHANNELS.values()} - messages.keys():
        raise ValueError(f"no message is described as {', '.join(sorted(unknown))}: see _EVENTS")
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Groundwire",
            "version": VERSION,
            "description": (
                f"A streaming gate between AI agents and the knowledge base they write to. Addresses carry the "
                f"default prefix `{PREFIX}`. Consumers drop repeated `ce_id`s, keep the highest `revision` of "
                f"(tenant_id, user_id, kind, subject_id) and ignore fields that they do not know."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {str(topic): _channel(topic, channel) for topic, channel in CHANNELS.items()},
        "operations": dict(_operations()),
        "components": {"messages": messages},
    }


def _channel(topic: TopicName, channel: Channel) -> Document:
    reference = {"$ref": f"#/components/messages/{channel.message}"}
    return {
        "address": f"{PREFIX}{topic}",
        "description": f"{channel.description} Key: {channel.key}.",
        "messages": {channel.message: reference},
    }


def _operations() -> Iterator[tuple[str, Document]]:
    for topic, channel in CHANNELS.items():
        for action in ("receive", "send"):
            if channel.action in {action, "both"}:
                yield f"{action}-{topic}", {"action": action, "channel": {"$ref": f"#/channels/{topic}"}}


def _messages() -> Iterator[tuple[str, Document]]:
    for name, title in _INPUTS.items():
        yield name, _message(title, _headers(_input_headers()), {"$ref": f"./{name}/1.0.json"})
    for name, (title, event_id) in _EVENTS.items():
        headers = _headers(_event_headers(name, event_id), required=True)
        yield name, _message(title, headers, {"$ref": f"./{name}/1.0.json"})
    raw = {"oneOf": [{"$ref": "./claim/1.0.json"}, {"$ref": "./llm-response/1.0.json"}]}
    yield "deferred", _message("The input record as it came", _headers(_deferred_headers()), raw)
    yield (
        "head",
        _message("The signed head of a seal", _headers({"content-type": {"const": "application/json"}}), {}),
    )
    letter = _message("The input record as it came, readable or not", _headers(_dead_letter_headers()), {})
    yield "dead-letter", {**letter, "contentType": "application/octet-stream"}


def _message(title: str, headers: Document, payload: Document) -> Document:
    key = {"kafka": {"key": _STRING, "bindingVersion": "0.5.0"}}
    return {"title": title, "headers": headers, "payload": payload, "bindings": key}


def _headers(fields: dict[str, str | Document], *, required: bool = False) -> Document:
    """Describe headers, whose values are UTF-8 text: each by a sentence or by a schema."""
    schemas = {
        name: {**_STRING, "description": field} if isinstance(field, str) else {**_STRING, **field}
        for name, field in fields.items()
    }
    names = [name for name in fields if name not in TRACE]
    return {"type": "object", "properties": schemas, **({"required": names} if required else {})}


def _input_headers() -> dict[str, str | Document]:
    return {
        "gw-attestation": {
            "description": "Optional: key id and hexadecimal HMAC-SHA256 or Ed25519 signature of the value's bytes.",
            "pattern": "^[A-Za-z0-9._-]{1,100}:([0-9A-Fa-f]{64}|[0-9A-Fa-f]{128})$",
        },
        "traceparent": "Optional: W3C trace context, passed on to what is published.",
        "tracestate": "Optional: what goes with traceparent.",
    }


def _event_headers(name: str, event_id: str) -> dict[str, str | Document]:
    return {
        "ce_specversion": {"const": "1.0"},
        "ce_id": event_id,
        "ce_type": {"const": f"groundwire.{name}.v1"},
        "ce_source": "Who published it.",
        "ce_time": "When it was decided, RFC 3339.",
        "ce_subject": "Id of the claim or response.",
        "ce_dataschema": {"const": f"https://groundwire.dev/schemas/{name}/1.0.json"},
        "content-type": {"const": "application/json"},
        "traceparent": "W3C trace context of the input record, where it had one.",
        "tracestate": "What goes with traceparent.",
    }


def _deferred_headers() -> dict[str, str | Document]:
    names = ("topic", "partition", "offset", "timestamp")
    return {**{f"gw-origin-{name}": f"The input record's {name}." for name in names}, **_input_headers()}


def _dead_letter_headers() -> dict[str, str | Document]:
    errors = {
        "topic": "Where the record stood.",
        "partition": "Where the record stood.",
        "offset": "Where the record stood.",
        "timestamp": "The record's time in milliseconds.",
        "exception.message": "What is wrong, without the record's text.",
    }
    return {
        "gw-error": "Error code.",
        "gw-attempts": "How often the record has failed.",
        "gw-value-omitted": "SHA-256 and bytes of a value that the topic does not take, and the letter lacks.",
        **{f"__connect.errors.{name}": description for name, description in errors.items()},
    }


def to_yaml(document: Document) -> str:
    """Write a document of objects, lists and scalars as YAML, the same text every time.

    Strings are quoted as in JSON, which YAML reads the same; so no value is ever taken for another type.
    """
    return "\n".join(_yaml(document, "")) + "\n"


def _yaml(value: Any, indent: str) -> Iterator[str]:  # noqa: ANN401 - any JSON value is the domain
    if isinstance(value, dict):
        for key, child in value.items():
            name = key if _PLAIN_KEY.fullmatch(key) else json.dumps(key)
            yield from _entry(f"{indent}{name}:", child, indent)
    else:
        for child in value:
            yield from _entry(f"{indent}-", child, indent)


def _entry(start: str, child: Any, indent: str) -> Iterator[str]:  # noqa: ANN401 - as above
    if isinstance(child, dict | list) and child:
        yield start
        yield from _yaml(child, indent + "  ")
    else:
        yield f"{start} {json.dumps(child, ensure_ascii=False)}"
