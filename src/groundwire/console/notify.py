"""Webhooks of a tenant: items wait too long, or the tenant's queue fills up.

```toml
[tenants.acme]
waits_hours = 4                              # when an item waits for longer
fills_to = 0.8                               # when so much of the tenant's limit is taken
[[tenants.acme.webhooks]]
url = "https://hooks.acme.example/review"    # or url_env, url_file
secret_env = "ACME_WEBHOOK_SECRET"           # or secret_file
[[tenants.acme.webhooks]]
url_file = "/run/secrets/acme-slack"
form = "slack"                               # {"text": ...}, for Slack and compatible receivers
```

Requests are signed as Standard Webhooks says: HMAC-SHA256 of id, timestamp and body. A notice is sent at least once,
under one id; Redis keeps what was sent, so that neither a restart nor another console sends it again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import os
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

import httpx
import structlog
from prometheus_client import Counter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from groundwire.console.live import Shared
from groundwire.console.words import number
from groundwire.errors import UsageError
from groundwire.messages.base import TenantId, format_time
from groundwire.messages.identity import NAMESPACE
from groundwire.review.board import Board
from groundwire.toml_files import parse_toml

logger = structlog.get_logger(__name__)

SENT: Final = Counter("groundwire_notifications", "Requests to webhooks of tenants, by result.", ["result"])
for _result in ("sent", "failed"):
    SENT.labels(_result)

_EVERY: Final = 30.0  # seconds between two looks at the queue
_AGAIN: Final = timedelta(days=1)  # after which a notice of what still holds is sent again
_SHELF: Final = "notified"
_LONGEST: Final = 600.0  # seconds between two attempts
_PATIENCE: Final = 10.0  # seconds for an answer
_LEAST_SECRET: Final = 24  # characters
_PREFIX: Final = "whsec_"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Webhook(_Strict):
    url: str | None = Field(None, repr=False)
    url_env: str | None = None
    url_file: Path | None = None
    secret_env: str | None = None
    secret_file: Path | None = None
    form: Literal["json", "slack"] = "json"

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if sum(one is not None for one in (self.url, self.url_env, self.url_file)) != 1:
            raise ValueError("url, url_env or url_file: exactly one")
        if sum(one is not None for one in (self.secret_env, self.secret_file)) != (self.form == "json"):
            raise ValueError("secret_env or secret_file: exactly one, and none with form = 'slack'")
        parts = urlsplit(self.address)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError("url: must be an http or https address without a password")
        if self.form == "json" and len(self.key) < _LEAST_SECRET:
            raise ValueError(f"secret: must have {_LEAST_SECRET} bytes or more")
        return self

    @property
    def address(self) -> str:
        return self.url or _given("url", self.url_env, self.url_file)

    @property
    def key(self) -> bytes:
        text = _given("secret", self.secret_env, self.secret_file)
        try:
            return base64.b64decode(text.removeprefix(_PREFIX)) if text.startswith(_PREFIX) else text.encode()
        except binascii.Error:
            raise ValueError(f"secret: {_PREFIX} must be followed by base64") from None


class Notices(_Strict):
    waits_hours: Annotated[float, Field(gt=0)] | None = None
    fills_to: Annotated[float, Field(gt=0, le=1)] | None = None
    webhooks: Annotated[list[Webhook], Field(min_length=1)]


class _NoticesFile(_Strict):
    tenants: dict[TenantId, Notices]


def load_notices(path: Path) -> dict[str, Notices]:
    """Read the webhooks of tenants. Raises: UsageError naming the key at fault, never an address or a secret."""
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise UsageError(f"{path}: {exc.strerror or 'cannot be read'}") from None
    return parse_toml(_NoticesFile, data, str(path)).tenants


def _given(what: str, variable: str | None, file: Path | None) -> str:
    try:
        found = file.read_text("utf-8").strip() if file else os.environ.get(variable or "", "")
    except (OSError, UnicodeDecodeError):
        found = ""
    if not found:
        raise ValueError(f"{what}: {file or variable} is empty, or cannot be read")
    return found


class Notifier:
    """Looks at the queue of each tenant and sends the notices that its webhooks lack.

    `limit`: places of a tenant; `ready`: whether the board shows what waits now; `console`: its address, for a link.
    """

    def __init__(
        self,
        notices: Callable[[], Mapping[str, Notices]],
        board: Board,
        shared: Shared,
        *,
        transport: httpx.AsyncBaseTransport,
        limit: Callable[[], int],
        ready: Callable[[], bool],
        console: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._notices, self._board, self._shared = notices, board, shared
        self._limit, self._ready, self._console = limit, ready, console
        self._clock = clock
        self._client = httpx.AsyncClient(transport=transport, follow_redirects=False, trust_env=False)
        self._failed: dict[str, tuple[int, datetime]] = {}  # attempts, and when to try again

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self.look()
                except Exception as exc:  # noqa: BLE001 - whatever it is, the next look may work
                    logger.warning("notifications.failed", error=type(exc).__name__)
                await asyncio.sleep(_EVERY)
        finally:
            await self._client.aclose()

    async def look(self) -> None:
        """Look at every tenant once."""
        kept = await self._shared.read(_SHELF) if self._ready() else None
        if kept is None:  # else a console that cannot know what was sent would send it again
            return
        looks = []
        for tenant, notices in self._notices().items():
            waiting, since = await asyncio.to_thread(self._board.waiting_of, tenant)
            seconds = (self._clock() - since).total_seconds() if since else 0.0
            limit = self._limit()
            found = {
                "tenant_id": tenant,
                "waiting": waiting,
                "oldest_seconds": round(seconds),
                "limit": limit,
            }
            holding = (
                ("waiting", notices.waits_hours is not None and seconds > notices.waits_hours * 3600),
                ("filling", notices.fills_to is not None and waiting >= notices.fills_to * limit),
            )
            looks += [
                self._tell(hook, {"type": f"groundwire.review.{kind}", **found}, holds=holds, kept=kept)
                for kind, holds in holding
                for hook in notices.webhooks
            ]
        await asyncio.gather(*looks)

    async def _tell(
        self, hook: Webhook, found: Mapping[str, Any], *, holds: bool, kept: Mapping[str, str]
    ) -> None:
        """Begin a notice where something holds, send it until it is taken, and forget it where nothing holds."""
        name = hashlib.sha256(
            json.dumps([found["type"], found["tenant_id"], hook.address]).encode()
        ).hexdigest()
        state = kept.get(name, "")
        if state == "sent":
            if not holds:
                await self._shared.put(_SHELF, {name: ""}, _AGAIN)
            return
        if not state and not holds:
            return
        if not state:
            at = format_time(self._clock())
            # the same id from every console that sees the same within an hour
            notice_id = str(uuid.uuid5(NAMESPACE, f"{name} {at[:13]}"))
            state = json.dumps({"id": notice_id, "at": at, **found, "console": self._console})
            if not await self._shared.put(_SHELF, {name: state}, _AGAIN):
                return
        now = self._clock()
        attempts, due = self._failed.get(name, (0, now))
        if now < due:
            return
        if await self._send(hook, json.loads(state)):
            self._failed.pop(name, None)
            await self._shared.put(_SHELF, {name: "sent"}, _AGAIN)
        else:
            pause = min(_LONGEST, 2.0 ** min(attempts, 20) * _EVERY / 2)
            self._failed[name] = attempts + 1, now + timedelta(seconds=pause)

    async def _send(self, hook: Webhook, notice: Mapping[str, Any]) -> bool:
        body = json.dumps({"text": sentence(notice)} if hook.form == "slack" else notice).encode()
        headers = {"content-type": "application/json", "user-agent": "groundwire"}
        if hook.form == "json":
            at = str(round(self._clock().timestamp()))
            signature = hmac.digest(hook.key, f"{notice['id']}.{at}.".encode() + body, hashlib.sha256)
            headers |= {"webhook-id": notice["id"], "webhook-timestamp": at}
            headers["webhook-signature"] = f"v1,{base64.b64encode(signature).decode()}"
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await self._client.post(hook.address, content=body, headers=headers)
            why = None if answer.is_success else f"HTTP {answer.status_code}"
        except Exception as exc:  # noqa: BLE001 - of a network, a resolver, a file: it is tried again
            why = type(exc).__name__
        SENT.labels("failed" if why else "sent").inc()
        if why:
            logger.warning("notification.failed", tenant=notice["tenant_id"], type=notice["type"], error=why)
        return why is None


def sentence(notice: Mapping[str, Any]) -> str:
    """Return a notice for people."""
    tenant, waiting, hours = notice["tenant_id"], number(notice["waiting"]), notice["oldest_seconds"] / 3600
    if notice["type"].endswith("filling"):
        said = f"the review queue has {waiting} of {number(notice['limit'])} items."
    else:
        said = f"{waiting} items wait for review, the oldest one for {hours:.1f} hours."
    return f"{tenant}: {said} {notice['console']}"
