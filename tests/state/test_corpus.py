"""The corpus in Redis: whole or not there, one tenant's own, in bounded calls; and the command that loads it."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from deploy.embedded import RedisServer
from groundwire.checks.entities import ground_entities
from groundwire.checks.relations import preserve_relations
from groundwire.cli.corpus import corpus as command
from groundwire.errors import CorpusUnusable, RecordError, StateUnavailable
from groundwire.library.guards import EntityGroundingGuard
from groundwire.messages.decode import decode_corpus_line
from groundwire.messages.records import CorpusEntity, RelationClaim
from groundwire.state.corpus import BATCH, MAX_PAIR_BYTES, CorpusIndex
from groundwire.state.server import Server, connect

SUED = {"subject": "Acme", "relation": "sued", "object": "Globex", "version": "v2"}
NOW = "2026-01-31T12:00:00Z"


@pytest.fixture
async def corpus(redis_server: RedisServer, prefix: str) -> AsyncIterator[CorpusIndex]:
    index = CorpusIndex(connect(redis_server.url), prefix)
    yield index
    await index.close()


def entry(confidence=0.9, **more):
    return {"confidence": confidence, **more}


async def keys(redis_server, prefix):
    redis = connect(redis_server.url)
    try:
        return await redis.keys(f"{prefix}*")
    finally:
        await redis.aclose()


# entities and relations


async def test_what_was_loaded_is_found_by_id_and_nothing_else(corpus):
    await corpus.load("acme", entities={"e1": entry(role="CIO", provenance_id="doc-1"), "é": entry(0.2)})
    found = await corpus.entities("acme", ["é", "e1", "e2", "e1"])
    assert found == {
        "e1": {"confidence": 0.9, "role": "CIO", "provenance_id": "doc-1"},
        "é": {"confidence": 0.2},
    }


async def test_relations_are_found_from_either_end_under_any_spelling_of_the_names(corpus):
    await corpus.load("acme", relations=[{**SUED, "timestamp": NOW, "qualifiers": {"court": "NY"}}])
    for pair in [("Acme", "Globex"), (" globex", "ＡＣＭＥ")]:
        assert await corpus.relations("acme", [pair]) == [
            {**SUED, "timestamp": NOW, "qualifiers": {"court": "NY"}}
        ]
    assert await corpus.relations("acme", [("Acme", "Initech"), ("Acme", "Acme")]) == []


async def test_relations_asked_for_twice_come_once(corpus):
    await corpus.load("acme", relations=[SUED, SUED, {**SUED, "version": "v1"}])
    found = await corpus.relations("acme", [("Acme", "Globex"), ("Globex", "Acme")])
    assert found == [SUED, {**SUED, "version": "v1"}]


async def test_line_breaks_in_a_relation_stay_in_it(corpus):
    odd = {**SUED, "relation": 'said "a\r\nb" to\u2028'}
    await corpus.load("acme", relations=[odd])
    assert await corpus.relations("acme", [("Acme", "Globex")]) == [odd]


async def test_entities_and_relations_serve_the_checks_as_they_are(corpus):
    await corpus.load("acme", entities={"e1": entry()}, relations=[SUED])
    grounding = ground_entities([{"id": "e1"}, {"id": "e2"}], await corpus.entities("acme", ["e1", "e2"]))
    assert [one.entity_id for one in grounding.missing] == ["e2"]
    truths = await corpus.relations("acme", [("Globex", "Acme")])
    turned = {"subject": "Globex", "relation": "sued", "object": "Acme"}
    assert [one.reason for one in preserve_relations([turned], truths).violations] == ["relation_mismatch"]


async def test_a_guard_asks_the_corpus(corpus):
    await corpus.load("acme", entities={"e1": entry()})
    guard = EntityGroundingGuard(entity_resolver=partial(corpus.entities, "acme"))

    inputs = SimpleNamespace(
        get_from=lambda _stage, key, default: [{"id": "e1"}, {"id": "e2"}] if key == "entities" else default
    )
    output = await guard.execute(SimpleNamespace(inputs=inputs))
    assert [one["entity_id"] for one in output.data["missing_entities"]] == ["e2"]


async def test_tenants_do_not_see_each_other(corpus):
    await corpus.load("acme", entities={"e1": entry()}, relations=[SUED])
    await corpus.load("globex", entities={"e2": entry()})
    assert await corpus.entities("globex", ["e1", "e2"]) == {"e2": entry()}
    assert await corpus.relations("globex", [("Acme", "Globex")]) == []


async def test_any_number_of_entities_is_one_call(corpus, monkeypatch):
    await corpus.load("acme", entities={f"e{n}": entry() for n in range(3 * BATCH + 1)})
    calls = []
    call = Server.call

    async def counted(self, *arguments):
        calls.append((arguments[0], len(arguments)))
        return await call(self, *arguments)

    monkeypatch.setattr(Server, "call", counted)
    assert len(await corpus.entities("acme", [f"e{n}" for n in range(5 * BATCH)] * 2)) == 3 * BATCH + 1
    assert calls == [("HMGET", 3 + 5 * BATCH)]


# whole or not there


async def test_a_corpus_that_is_missing_is_not_an_empty_one(corpus):
    assert not await corpus.loaded("acme")
    with pytest.raises(CorpusUnusable, match="no corpus"):
        await corpus.entities("acme", ["e1"])
    with pytest.raises(CorpusUnusable, match="no corpus"):
        await corpus.relations("acme", [("Acme", "Globex")])
    await corpus.load("acme")
    assert await corpus.loaded("acme")
    assert await corpus.entities("acme", ["e1"]) == {}
    assert await corpus.relations("acme", [("Acme", "Globex")]) == []


async def test_what_is_added_joins_what_is_there(corpus):
    await corpus.load("acme", entities={"e1": entry(0.1), "e2": entry()}, relations=[SUED])
    await corpus.load("acme", entities={"e1": entry(0.7)}, relations=[{**SUED, "version": "v3"}])
    assert await corpus.entities("acme", ["e1", "e2"]) == {"e1": entry(0.7), "e2": entry()}
    assert len(await corpus.relations("acme", [("Acme", "Globex")])) == 2


async def test_replacing_forgets_what_was_there(corpus):
    await corpus.load("acme", entities={"e1": entry()}, relations=[SUED])
    await corpus.load("acme", entities={"e2": entry()}, replace=True)
    assert await corpus.entities("acme", ["e1", "e2"]) == {"e2": entry()}
    assert await corpus.relations("acme", [("Acme", "Globex")]) == []


async def test_a_first_corpus_is_not_there_before_all_of_it_is(corpus):
    async with corpus.loading("acme") as loading:
        await loading.add_entities([CorpusEntity.of("e1", entry())])
        assert not await corpus.loaded("acme")
    assert await corpus.loaded("acme")


async def test_readers_never_see_half_a_corpus_while_it_is_replaced(corpus):
    names = [f"e{n}" for n in range(BATCH + 1)]
    await corpus.load("acme", entities=dict.fromkeys(names, entry(0.0)))
    seen = set()
    done = asyncio.Event()

    async def read():
        while not done.is_set():
            found = await corpus.entities("acme", names)
            seen.add((len(found), frozenset(one["confidence"] for one in found.values())))

    reading = asyncio.create_task(read())
    for generation in range(1, 6):
        await corpus.load("acme", entities=dict.fromkeys(names, entry(generation / 10)), replace=True)
    done.set()
    await reading
    assert all(count == len(names) and len(generations) == 1 for count, generations in seen)


@pytest.mark.parametrize("there", [True, False])
async def test_a_load_that_breaks_changes_nothing_and_leaves_nothing(corpus, redis_server, prefix, there):
    if there:
        await corpus.load("acme", entities={"e1": entry()})
    before = await keys(redis_server, prefix)

    async def breaking():
        async with corpus.loading("acme", replace=True) as loading:
            await loading.add_entities([CorpusEntity.of("e2", entry())])
            raise LookupError

    with pytest.raises(LookupError):
        await breaking()
    assert await keys(redis_server, prefix) == before
    assert await corpus.loaded("acme") is there


async def test_a_load_whose_worker_died_expires(corpus, redis_server, prefix):
    redis = connect(redis_server.url)
    async with corpus.loading("acme") as loading:
        await loading.add_entities([CorpusEntity.of("e1", entry())])
        await loading.add_relations([RelationClaim(**SUED)])
        lives = [await redis.ttl(key) for key in await keys(redis_server, prefix)]
    assert len(lives) == 2
    assert all(0 < life <= 3600 for life in lives)
    assert [await redis.ttl(key) for key in await keys(redis_server, prefix)] == [-1, -1]
    await redis.aclose()


async def test_a_load_that_redis_forgot_in_the_middle_does_not_become_a_corpus(corpus, redis_server, prefix):
    redis = connect(redis_server.url)
    await corpus.load("acme", entities={"e1": entry()})

    async def forgotten():
        async with corpus.loading("acme", replace=True) as loading:
            staged = [key for key in await keys(redis_server, prefix) if key.count(b":") > 2]
            await redis.unlink(*staged)
            await loading.add_entities([CorpusEntity.of("e2", entry())])

    with pytest.raises(StateUnavailable, match="load it again"):
        await forgotten()
    await redis.aclose()
    assert await corpus.entities("acme", ["e1", "e2"]) == {"e1": entry()}


async def test_forgetting_leaves_no_key(corpus, redis_server, prefix):
    await corpus.load("acme", entities={"e1": entry()}, relations=[SUED])
    assert await corpus.forget("acme")
    assert not await corpus.forget("acme")
    assert await keys(redis_server, prefix) == []


async def test_what_stands_between_two_names_is_bounded(corpus):
    truths = [RelationClaim(**{**SUED, "version": "x" * 1000 + str(n)}) for n in range(BATCH + 1)]
    async with corpus.loading("acme") as loading:
        refused = await loading.add_relations(truths)
        assert await loading.add_relations([RelationClaim(**{**SUED, "object": "Initech"})]) == []
    found = await corpus.relations("acme", [("Acme", "Globex")])
    assert len(found) + len(refused) == BATCH + 1
    assert refused == list(range(len(found), BATCH + 1))
    assert sum(len(json.dumps(one)) + 1 for one in found) <= MAX_PAIR_BYTES
    with pytest.raises(ValueError, match="more than 48000 bytes"):
        await corpus.load("acme", relations=truths)


async def test_no_server_is_an_error_of_ours():
    index = CorpusIndex(connect("redis://127.0.0.1:1/0", patience=0.2), "x.")
    for asked in (index.loaded("t"), index.entities("t", ["e"]), index.relations("t", []), index.forget("t")):
        with pytest.raises(StateUnavailable):
            await asked
    with pytest.raises(StateUnavailable):
        await index.load("t", entities={"e1": entry()})
    await index.close()


async def test_something_else_under_a_corpus_key_is_an_error_of_ours(corpus, redis_server, prefix):
    await corpus.load("acme", entities={"e1": entry()})
    redis = connect(redis_server.url)
    (key,) = [key for key in await keys(redis_server, prefix) if key.endswith(b":e")]
    for field in [name for name in await redis.hkeys(key) if name]:
        await redis.hset(key, field, "{broken")
    await redis.aclose()
    with pytest.raises(CorpusUnusable, match="no JSON"):
        await corpus.entities("acme", ["e1"])


@pytest.mark.parametrize(
    ("entities", "relations"),
    [
        ({"e1": {}}, ()),
        ({"e1": {"confidence": 1.5}}, ()),
        ({"e1": {"confidence": True}}, ()),
        ({"e1": entry(note="x" * 20_000)}, ()),
        ({}, [{"subject": "a", "relation": "b"}]),
        ({}, [{**SUED, "when": 1}]),
    ],
)
async def test_what_is_no_entity_or_relation_is_refused_and_nothing_loaded(corpus, entities, relations):
    with pytest.raises(ValueError):  # noqa: PT011 - pydantic's words
        await corpus.load("acme", entities=entities, relations=relations)
    assert not await corpus.loaded("acme")


# lines of a corpus file


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b"{}", "entity"),
        (b'{"entity": {"id": "e", "confidence": 1}, "relation": {}}', "relation.subject"),
        (b'{"entity": null}', "entity"),
        (b'{"entity": {"id": "", "confidence": 1}}', "entity.id"),
        (b'{"entity": {"id": "e"}}', "entity.confidence"),
        (b'{"entity": {"id": "e", "confidence": "0.9"}}', "entity.confidence"),
        (b'{"relation": {"subject": "a", "object": "b"}}', "relation.relation"),
        (b'{"relation": {"subject": "a", "relation": " ", "object": "b"}}', "relation"),
        (
            b'{"relation": {"subject": "a", "relation": "r", "object": "b", "vresion": "1"}}',
            "relation.vresion",
        ),
        (
            b'{"relation": {"subject": "a", "relation": "r", "object": "b", "timestamp": "2026"}}',
            "relation.timestamp",
        ),
        (b'{"entitiy": {"id": "e", "confidence": 1}}', "entitiy"),
        (b"[]", None),
        (b"{", None),
    ],
)
def test_a_bad_line_names_the_field_at_fault(line, field):
    with pytest.raises(RecordError) as caught:
        decode_corpus_line(line)
    assert caught.value.field == field
    assert "\n" not in caught.value.message


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.integers() | st.text(max_size=5), max_size=5))
def test_further_fields_of_an_entity_are_kept(more):
    fields = {**more, "id": "e1", "confidence": 0.5}
    fields.pop("role", None)
    assert CorpusEntity.of("e1", fields).model_dump(exclude_none=True) == fields


# the command


@pytest.fixture
def run(redis_server: RedisServer, prefix: str):
    environment = {"GROUNDWIRE_REDIS_URL": redis_server.url, "GROUNDWIRE_TOPIC_PREFIX": prefix}

    def invoke(*arguments, given=None):
        return CliRunner().invoke(command, arguments, input=given, env=environment)

    return invoke


LINES = b"""{"entity": {"id": "act-7", "confidence": 0.9, "role": "statute"}}

{"relation": {"subject": "Acme", "relation": "sued", "object": "Globex", "version": "2"}}
"""


def test_the_command_loads_shows_and_drops(run):
    loaded = run("load", "-", "--tenant", "acme", given=LINES)
    assert (loaded.exit_code, loaded.stdout) == (0, "loaded 1 entity and 1 relation\n")
    shown = run("show", "act-7", "--tenant", "acme", "--format", "json")
    assert json.loads(shown.stdout) == {"id": "act-7", "confidence": 0.9, "role": "statute"}
    between = run("show", "globex", "ACME", "--tenant", "acme")
    assert between.exit_code == 0
    cells = dict(zip(*(line.split() for line in between.stdout.splitlines()), strict=True))
    assert cells == {"subject": "Acme", "relation": "sued", "object": "Globex", "version": "2"}
    assert run("drop", "--tenant", "acme", "--yes").exit_code == 0
    assert run("drop", "--tenant", "acme", "--yes").exit_code == 1
    assert run("show", "act-7", "--tenant", "acme").exit_code == 1


def test_bad_lines_are_named_and_the_others_loaded(run):
    bad = LINES + b'{"entity": {"id": "x", "confidence": 7}}\n' + b"x" * 1_100_000 + b"\n"
    result = run("load", "-", "--tenant", "acme", "--format", "json", given=bad)
    assert result.exit_code == 1
    counts = {"tenant_id": "acme", "entities": 1, "relations": 1, "refused": 2, "unchanged": False}
    assert json.loads(result.stdout) == counts
    assert "line 4: invalid_record: entity.confidence:" in result.stderr
    assert "line 5: too_large:" in result.stderr
    assert run("show", "act-7", "--tenant", "acme").exit_code == 0


def test_a_file_that_holds_nothing_replaces_nothing(run):
    """An export that was cut off must not block every answer of its tenant."""
    run("load", "-", "--tenant", "acme", given=LINES)
    result = run("load", "-", "--tenant", "acme", "--replace", given=b"\n")
    assert (result.exit_code, result.stdout) == (1, "nothing changed for acme: the file holds nothing\n")
    assert run("show", "act-7", "--tenant", "acme").exit_code == 0


def test_a_tenant_that_no_record_can_have_is_refused(run):
    assert run("load", "-", "--tenant", "*", given=LINES).exit_code == 2


def test_a_file_with_bad_lines_replaces_nothing(run):
    run("load", "-", "--tenant", "acme", given=LINES)
    result = run("load", "-", "--tenant", "acme", "--replace", given=b'{"entity": {"id": "x"}}\n' + LINES)
    assert result.exit_code == 1
    assert "nothing changed for acme" in result.stdout
    fresh = b'{"entity": {"id": "new", "confidence": 1}}'
    assert run("load", "-", "--tenant", "acme", "--replace", given=fresh).exit_code == 0
    assert run("show", "act-7", "--tenant", "acme").exit_code == 1
    assert run("show", "new", "--tenant", "acme").exit_code == 0


def test_a_relation_for_which_there_is_no_room_is_named_by_its_line(run):
    line = b'{"relation": {"subject": "a", "relation": "r", "object": "b", "version": "%s"}}\n'
    lines = b"".join(line % (b"x" * 40_000 + b"%d" % n) for n in range(3))
    result = run("load", "-", "--tenant", "acme", given=lines)
    assert result.exit_code == 1
    assert [text.split(":")[0] for text in result.stderr.splitlines()] == ["line 2", "line 3"]


def test_a_file_is_read_from_its_name(run, tmp_path):
    (tmp_path / "corpus.jsonl").write_bytes(LINES)
    assert run("load", str(tmp_path / "corpus.jsonl"), "--tenant", "acme").exit_code == 0


def test_redis_out_of_reach_is_exit_status_2(run):
    away = {"GROUNDWIRE_REDIS_URL": "redis://127.0.0.1:1/0"}
    for arguments in (["load", "-"], ["show", "x"], ["drop", "--yes"]):
        result = CliRunner().invoke(command, [*arguments, "--tenant", "t"], input=LINES, env=away)
        assert result.exit_code == 2
        assert "GROUNDWIRE_REDIS_URL" in result.stderr
        assert "Traceback" not in result.output


def test_nothing_of_a_corpus_acts_on_a_terminal(run):
    hostile = {"entity": {"id": "x", "confidence": 1, "role": "\x1b[31mred"}}
    run("load", "-", "--tenant", "acme", given=json.dumps(hostile).encode())
    for layout in ("table", "json"):
        assert "\x1b" not in run("show", "x", "--tenant", "acme", "--format", layout).stdout
