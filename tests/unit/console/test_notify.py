"""Webhooks of tenants: signed, sent at least once, and by no restart a second time."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from groundwire.console.live import MemoryShared
from groundwire.console.notify import Notifier, load_notices
from groundwire.errors import UsageError
from groundwire.verify.ssrf import AddressGuard
from groundwire.verify.url import GuardedTransport
from tests.unit.console.rooms import make_decision, make_room

SECRET = "a secret of twenty-four bytes and more"


@contextmanager
def receiver():
    """A server that records what it gets, and answers with what `statuses` says, then with 200."""
    got, statuses = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(statuses.pop(0) if statuses else 200)
            self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - its name there; where a redirect would lead

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, got, statuses
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def notices_file(folder, port, form="json", **conditions):
    secret = folder / "secret"
    secret.write_text(SECRET)
    lines = [f"{name} = {value}" for name, value in (conditions or {"waits_hours": 4}).items()]
    hook = [f'url = "http://127.0.0.1:{port}/hook"', f'form = "{form}"']
    hook += [f'secret_file = "{secret}"'] if form == "json" else []
    path = folder / "notify.toml"
    path.write_text("\n".join(["[tenants.acme]", *lines, "[[tenants.acme.webhooks]]", *hook]))
    return path


def notifier(room, shared, path, port, *, networks=("127.0.0.0/8",), limit=10):
    notices = load_notices(path)
    return Notifier(
        lambda: notices,
        room.board,
        shared,
        transport=GuardedTransport(AddressGuard(networks, ports=[port])),
        limit=lambda: limit,
        ready=lambda: True,
        console="https://review.acme.example",
        clock=room.clock,
    )


async def test_what_waits_too_long_is_sent_once_signed_and_by_a_restart_not_again(tmp_path) -> None:
    room = make_room()
    room.add(make_decision("c-1", "Nobody may read this."))
    shared = MemoryShared(room.clock)
    with receiver() as (port, got, _):
        path = notices_file(tmp_path, port)
        for hours in (2, 2, 0, 5):  # it came an hour before the first look
            await notifier(room, shared, path, port).look()
            room.clock.forward(hours=hours)
        await notifier(room, shared, path, port).look()
        room.clock.forward(hours=24)  # it still waits
        await notifier(room, shared, path, port).look()
    assert len(got) == 2
    headers, body = got[0]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(SECRET.encode(), signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    told = json.loads(body)
    assert (told["type"], told["tenant_id"], told["waiting"]) == ("groundwire.review.waiting", "acme", 1)
    assert (told["id"], told["console"]) == (headers["webhook-id"], "https://review.acme.example")
    assert b"Nobody may read" not in body


async def test_what_a_receiver_did_not_take_is_sent_again_under_its_id_by_another_process_too(
    tmp_path,
) -> None:
    room = make_room()
    room.add(make_decision("c-1"))
    room.clock.forward(hours=9)
    shared = MemoryShared(room.clock)
    with receiver() as (port, got, statuses):
        path = notices_file(tmp_path, port)
        statuses += [500, 302, 503]
        first = notifier(room, shared, path, port)
        await first.look()
        await first.look()  # the pause is not over
        assert len(got) == 1
        room.clock.forward(minutes=10)
        await first.look()
        room.settle("c-1")  # decided before anybody took the notice
        await notifier(room, shared, path, port).look()
        room.clock.forward(minutes=10)
        await notifier(room, shared, path, port).look()
        await notifier(room, shared, path, port).look()
    assert len(got) == 4
    assert len({headers["webhook-id"] for headers, _ in got}) == len({body for _, body in got}) == 1


async def test_a_queue_that_fills_is_told_to_slack_again_once_it_was_emptier(tmp_path) -> None:
    room = make_room()
    room.add(*(make_decision(f"c-{n}") for n in range(8)))
    shared = MemoryShared(room.clock)
    with receiver() as (port, got, _):
        path = notices_file(tmp_path, port, "slack", fills_to=0.8)
        told = notifier(room, shared, path, port)
        await told.look()
        room.settle("c-0")
        await told.look()
        room.clock.forward(hours=2)
        room.add(make_decision("c-9"))
        await told.look()
    assert [json.loads(body) for _, body in got] == [
        {"text": "acme: the review queue has 8 of 10 items. https://review.acme.example"}
    ] * 2


async def test_no_address_of_this_network_is_asked_that_lookups_may_not_reach_nor_while_redis_is_away(
    tmp_path,
) -> None:
    room = make_room()
    room.add(make_decision("c-1"))
    room.clock.forward(hours=9)

    class Away(MemoryShared):
        async def read(self, shelf):  # noqa: ARG002 - its interface
            return None

    with receiver() as (port, got, _):
        path = notices_file(tmp_path, port)
        await notifier(room, MemoryShared(room.clock), path, port, networks=()).look()
        await notifier(room, Away(room.clock), path, port).look()
    assert got == []


@pytest.mark.parametrize(
    ("hook", "named"),
    [
        ('form = "slack"', "url, url_env or url_file"),
        ('url = "https://a.example"', "secret_env or secret_file"),
        ('url = "https://a.example"\nsecret_env = "GROUNDWIRE_NOT_SET"', "GROUNDWIRE_NOT_SET"),
        ('url = "ftp://a.example"\nform = "slack"', "http or https"),
        ('url = "https://me:key@a.example"\nform = "slack"', "without a password"),
        ('url = "https://a.example"\nform = "slack"\ncolour = "red"', "colour"),
    ],
)
def test_a_wrong_file_is_refused_and_the_key_at_fault_named(hook, named, tmp_path) -> None:
    path = tmp_path / "notify.toml"
    path.write_text(f"[[tenants.acme.webhooks]]\n{hook}")
    with pytest.raises(UsageError, match=named) as refused:
        load_notices(path)
    assert "me:key" not in str(refused.value)
