"""Places at hosts, their spacing and their breakers, for each tenant on its own (C-15)."""

import asyncio
from types import SimpleNamespace

import pytest

from groundwire.verify.pacing import HostPausedError, NotReachedError, Pacer, PacingLimits


@pytest.fixture
def time():
    return SimpleNamespace(now=0.0)


def make(time, **limits):
    async def sleep(seconds):
        time.now += seconds
        await asyncio.sleep(0)

    return Pacer(PacingLimits(**{"spacing": 0.0, **limits}), clock=lambda: time.now, sleep=sleep)


async def ask(pacer, host="h", *, ok=True, error=None, gate=None, **where):
    async with pacer.visit(host, **where) as visit:
        if gate:
            await gate.wait()
        if error:
            raise error
        visit.ok = ok


async def is_paused(pacer, host="h", **where):
    try:
        await ask(pacer, host, **where)
    except HostPausedError:
        return True
    return False


async def test_visits_are_limited_at_each_host_and_in_total_and_spaced(time):
    pacer = make(time, per_host=2, total=3)
    now, most = {"a": 0, "b": 0}, {"a": 0, "b": 0, "all": 0}

    async def visit(host):
        async with pacer.visit(host) as visit:
            now[host] += 1
            most[host] = max(most[host], now[host])
            most["all"] = max(most["all"], sum(now.values()))
            await asyncio.sleep(0)
            now[host] -= 1
            visit.ok = True

    await asyncio.gather(*(visit(h) for h in "ab" * 10))
    assert most == {"a": 2, "b": 2, "all": 3}
    # visits to one host keep their distance, and other hosts do not wait
    pacer = make(time, spacing=0.5)
    starts = []
    for host in ("a", "a", "b", "a"):
        async with pacer.visit(host) as visit:
            starts.append(time.now)
            visit.ok = True
    assert starts == [0.0, 0.5, 0.5, 1.0]


async def test_a_tenant_with_enough_requests_waiting_is_refused_at_once_and_no_other_is(time):
    gate, refused = asyncio.Event(), []
    pacer = make(time, per_tenant=1, waiting=2)
    pacer.on_refusal = refused.append
    *asking, last = (asyncio.ensure_future(ask(pacer, f"h{n}", gate=gate, tenant="bad")) for n in range(4))
    await ask(pacer, "h3", tenant="good")
    for _ in range(10):
        await asyncio.sleep(0)
    assert last.done()
    assert isinstance(last.exception(), NotReachedError)
    gate.set()
    await asyncio.gather(*asking)
    await ask(pacer, "h3", tenant="bad")
    assert refused == ["requests"]


async def test_neither_a_slow_host_nor_a_tenant_whose_hosts_hang_holds_the_places_of_others(time):
    gate = asyncio.Event()
    hosts = [{"host": f"h{n}", "tenant": "bad"} for n in range(10)]
    for pacer, hanging, free in (
        (make(time, per_host=1, total=2), [{"host": "slow"}] * 10, {"host": "fast"}),
        (make(time, per_tenant=2, total=3), hosts, {"host": "h0", "tenant": "good"}),
    ):
        waiting = [asyncio.ensure_future(ask(pacer, gate=gate, **where)) for where in hanging]
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await ask(pacer, **free)
        assert not any(one.done() for one in waiting)
        gate.set()
        await asyncio.gather(*waiting)
        gate.clear()


async def test_failures_in_a_row_pause_the_host_for_that_tenant_and_after_the_pause_one_visit_finds_out(time):
    """Whoever cites what does not answer pauses only their own citations of that host."""
    pacer = make(time, failures=3, pause=30.0)
    for _ in range(3):
        await ask(pacer, ok=False, tenant="bad")
    assert await is_paused(pacer, tenant="bad")
    assert not await is_paused(pacer, "other", tenant="bad")
    assert not await is_paused(pacer, tenant="good")
    pacer = make(time, failures=2)
    for ok in (False, True, False, True, False):
        await ask(pacer, ok=ok)
    assert not await is_paused(pacer), "a success between failures keeps the host open"
    # an exception counts as a failure, and a cancelled visit does not
    pacer = make(time, failures=1)
    with pytest.raises(asyncio.CancelledError):
        await ask(pacer, error=asyncio.CancelledError())
    with pytest.raises(OSError, match="x"):
        await ask(pacer, error=OSError("x"))
    assert await is_paused(pacer)
    time.now = 0.0  # after the pause one visit finds out, and the others wait for its answer
    pacer = make(time, failures=1, pause=30.0)
    await ask(pacer, ok=False)
    time.now = 31.0
    await ask(pacer, ok=False)
    time.now = 60.0
    assert await is_paused(pacer), "a probe that fails pauses again"
    time.now = 62.0
    async with pacer.visit("h") as probe:
        assert await is_paused(pacer)
        probe.ok = True
    assert not await is_paused(pacer)
    # those who wait when the host is paused are refused
    pacer, gate = make(time, per_host=1, failures=1), asyncio.Event()
    waiting = [asyncio.ensure_future(ask(pacer, ok=False, gate=gate)) for _ in range(5)]
    await asyncio.sleep(0)
    gate.set()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(o) for o in outcomes] == [type(None)] + [HostPausedError] * 4


async def test_waiting_ends_at_the_deadline_and_what_is_in_flight_or_refused_by_a_limit_is_counted(time):
    refused = []
    pacer = make(time, per_tenant=1, failures=1, pause=30.0)
    pacer.on_refusal = refused.append
    async with pacer.visit("a", tenant="acme") as visit:
        visit.ok = True
        assert pacer.in_flight == {"acme": 1}
        with pytest.raises(NotReachedError):
            await ask(pacer, "b", deadline=0.0, tenant="acme")
    assert not pacer.in_flight
    await ask(pacer, ok=False)
    assert pacer.paused == 1
    assert await is_paused(pacer)
    assert refused == ["requests", "hosts"]
    time.now += 31
    assert pacer.paused == 0
    pacer = make(time, hosts=10, failures=1)
    for n in range(1000):
        await ask(pacer, f"h{n}", ok=False)
    assert pacer.paused <= 10, "remembered hosts are bounded"
    pacer = Pacer(PacingLimits(per_host=1, total=1, spacing=0.0))
    async with pacer.visit("h") as visit:
        for host in ("h", "other"):
            with pytest.raises(NotReachedError):
                await ask(pacer, host, deadline=pacer.clock() + 0.02)
        visit.ok = True
    async with asyncio.timeout(60):
        await ask(pacer, "h")
        await ask(pacer, "other")
