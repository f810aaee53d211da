import asyncio

import pytest

from groundwire.verify.pacing import HostPausedError, NotReachedError, Pacer, PacingLimits


class Time:
    """A clock that moves only when somebody sleeps on it or sets it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def time():
    return Time()


def make(time, **limits):
    return Pacer(PacingLimits(**{"spacing": 0.0, **limits}), clock=time, sleep=time.sleep)


async def ask(pacer, host="h", *, ok=True, error=None):
    async with pacer.visit(host) as visit:
        if error:
            raise error
        visit.ok = ok


async def test_no_more_visits_at_once_than_allowed_per_host_and_in_total(time):
    pacer = make(time, per_host=2, total=3)
    now, most = {"a": 0, "b": 0}, {"a": 0, "b": 0, "all": 0}

    async def visit(host):
        async with pacer.visit(host) as visit:
            now[host] += 1
            most[host] = max(most[host], now[host])
            most["all"] = max(most["all"], sum(now.values()))
            await asyncio.sleep(0.001)
            now[host] -= 1
            visit.ok = True

    await asyncio.gather(*(visit(h) for h in "ab" * 10))
    assert most == {"a": 2, "b": 2, "all": 3}


async def test_visits_to_one_host_keep_their_distance_and_other_hosts_do_not_wait(time):
    pacer = make(time, spacing=0.5)
    starts = []
    for host in ("a", "a", "b", "a"):
        async with pacer.visit(host) as visit:
            starts.append(time.now)
            visit.ok = True
    assert starts == [0.0, 0.5, 0.5, 1.0]


async def test_a_slow_host_does_not_hold_the_places_of_others(time):
    pacer = make(time, per_host=1, total=2)
    gate = asyncio.Event()

    async def stuck():
        async with pacer.visit("slow") as visit:
            await gate.wait()
            visit.ok = True

    waiting = [asyncio.ensure_future(stuck()) for _ in range(10)]
    await asyncio.sleep(0)
    async with asyncio.timeout(1):
        await ask(pacer, "fast")
    gate.set()
    await asyncio.gather(*waiting)


async def test_failures_in_a_row_pause_the_host_and_only_that_host(time):
    pacer = make(time, failures=3, pause=30.0)
    for _ in range(3):
        await ask(pacer, ok=False)
    with pytest.raises(HostPausedError):
        await ask(pacer)
    await ask(pacer, "other")


async def test_a_success_between_failures_keeps_the_host_open(time):
    pacer = make(time, failures=2)
    for ok in (False, True, False, True, False):
        await ask(pacer, ok=ok)
    await ask(pacer)


async def test_an_exception_counts_as_a_failure_and_a_cancelled_visit_does_not(time):
    pacer = make(time, failures=1)
    with pytest.raises(asyncio.CancelledError):
        await ask(pacer, error=asyncio.CancelledError())
    with pytest.raises(OSError, match="x"):
        await ask(pacer, error=OSError("x"))
    with pytest.raises(HostPausedError):
        await ask(pacer)


async def test_after_the_pause_one_visit_finds_out_and_the_others_wait_for_its_answer(time):
    pacer = make(time, failures=1, pause=30.0)
    await ask(pacer, ok=False)
    time.now = 31.0
    async with pacer.visit("h") as probe:
        with pytest.raises(HostPausedError):
            await ask(pacer)
        probe.ok = True
    await ask(pacer)


async def test_a_probe_that_fails_pauses_again(time):
    pacer = make(time, failures=1, pause=30.0)
    await ask(pacer, ok=False)
    time.now = 31.0
    await ask(pacer, ok=False)
    time.now = 60.0
    with pytest.raises(HostPausedError):
        await ask(pacer)


async def test_those_who_wait_when_the_host_is_paused_are_sent_away(time):
    pacer = make(time, per_host=1, failures=1)

    async def fail():
        async with pacer.visit("h"):
            await asyncio.sleep(0.01)

    outcomes = await asyncio.gather(*(fail() for _ in range(5)), return_exceptions=True)
    assert [type(o) for o in outcomes] == [type(None)] + [HostPausedError] * 4


async def test_waiting_ends_at_the_deadline_and_gives_every_place_back():
    pacer = Pacer(PacingLimits(per_host=1, total=1, spacing=0.0))
    async with pacer.visit("h") as visit:
        for host in ("h", "other"):
            with pytest.raises(NotReachedError):
                async with pacer.visit(host, deadline=pacer.clock() + 0.02):
                    pass
        visit.ok = True
    async with asyncio.timeout(1):
        await ask(pacer, "h")
        await ask(pacer, "other")


async def test_remembered_hosts_are_bounded(time):
    pacer = make(time, hosts=10)
    for n in range(1000):
        await ask(pacer, f"h{n}")
    assert len(pacer._idle) <= 10


async def test_failures_of_one_tenant_pause_the_host_for_no_other(time):
    """Whoever cites what does not answer pauses only their own citations of that host."""
    pacer = make(time, failures=1)
    async with pacer.visit("h", tenant="bad"):
        pass
    with pytest.raises(HostPausedError):
        async with pacer.visit("h", tenant="bad"):
            pass
    async with pacer.visit("h", tenant="good") as visit:
        visit.ok = True


async def test_a_tenant_whose_hosts_hang_leaves_places_to_others(time):
    """One tenant holds at most `per_tenant` requests, however many hosts they cite."""
    pacer = make(time, per_tenant=2, total=3)
    gate = asyncio.Event()

    async def stuck(host):
        async with pacer.visit(host, tenant="bad") as visit:
            await gate.wait()
            visit.ok = True

    hanging = [asyncio.ensure_future(stuck(f"h{n}")) for n in range(10)]
    await asyncio.sleep(0)
    async with asyncio.timeout(1), pacer.visit("h0", tenant="good") as visit:
        visit.ok = True
    gate.set()
    await asyncio.gather(*hanging)


async def test_what_tenants_have_in_flight_is_counted_and_so_is_what_a_limit_refused(time):
    refused = []
    pacer = make(time, per_tenant=1, failures=1, pause=30.0)
    pacer.on_refusal = refused.append
    async with pacer.visit("a", tenant="acme") as visit:
        visit.ok = True
        assert pacer.in_flight == {"acme": 1}
        with pytest.raises(NotReachedError):
            async with pacer.visit("b", deadline=0.0, tenant="acme"):
                pass
    assert not pacer.in_flight
    await ask(pacer, ok=False)
    assert pacer.paused == 1
    with pytest.raises(HostPausedError):
        await ask(pacer)
    assert refused == ["requests", "hosts"]
    time.now += 31
    assert pacer.paused == 0
