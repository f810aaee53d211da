"""The corpus in Redis: loaded as a whole, one tenant's own, read in bounded calls; and its command."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

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
PAIR = ("Acme", "Globex")
LINES = b"""{"entity": {"id": "act-7", "confidence": 0.9, "role": "statute"}}

{"relation": {"subject": "Acme", "relation": "sued", "object": "Globex", "version": "2"}}
"""


def entry(confidence=0.9, **more):
    return {"confidence": confidence, **more}


@pytest.fixture
async def corpus(redis_server: RedisServer, prefix: str) -> AsyncIterator[CorpusIndex]:
    index = CorpusIndex(connect(redis_server.url), prefix)
    yield index
    await index.close()


@pytest.fixture
def run(redis_server: RedisServer, prefix: str):
    environment = {"GROUNDWIRE_REDIS_URL": redis_server.url, "GROUNDWIRE_TOPIC_PREFIX": prefix}

    def invoke(*arguments, given=None, env=environment):
        return CliRunner().invoke(command, [*arguments, "--tenant", "acme"], input=given, env=env)

    return invoke


async def test_entities_are_found_by_id_and_relations_from_either_end_under_any_spelling(corpus):
    truth = {**SUED, "timestamp": "2026-01-31T12:00:00Z", "qualifiers": {"court": "NY"}}
    odd = {**SUED, "object": "Initech", "relation": 'said "a\r\nb" to\u2028'}
    entities = {"e1": entry(role="CIO", provenance_id="doc-1"), "é": entry(0.2)}
    await corpus.load("acme", entities=entities, relations=[truth, truth, {**SUED, "version": "v1"}, odd])
    await corpus.load("globex", entities={"e2": entry()})
    assert await corpus.entities("acme", ["é", "e1", "e2", "e1"]) == entities
    for pairs in ([PAIR], [(" globex", "ＡＣＭＥ")], [PAIR, PAIR[::-1]]):
        assert await corpus.relations("acme", pairs) == [truth, {**SUED, "version": "v1"}]
    assert await corpus.relations("acme", [("Acme", "Initech")]) == [odd]
    assert await corpus.relations("acme", [("Acme", "Umbrella"), ("Acme", "Acme")]) == []
    assert await corpus.entities("globex", ["e1", "e2"]) == {"e2": entry()}
    assert await corpus.relations("globex", [PAIR]) == []


async def test_entities_and_relations_serve_checks_and_guards_as_they_are(corpus):
    await corpus.load("acme", entities={"e1": entry()}, relations=[SUED])
    grounding = ground_entities([{"id": "e1"}, {"id": "e2"}], await corpus.entities("acme", ["e1", "e2"]))
    assert [one.entity_id for one in grounding.missing] == ["e2"]
    truths = await corpus.relations("acme", [PAIR[::-1]])
    turned = {"subject": "Globex", "relation": "sued", "object": "Acme"}
    assert [one.reason for one in preserve_relations([turned], truths).violations] == ["relation_mismatch"]
    guard = EntityGroundingGuard(entity_resolver=partial(corpus.entities, "acme"))
    named = {"entities": [{"id": "e1"}, {"id": "e2"}]}
    inputs = SimpleNamespace(get_from=lambda _stage, key, default: named.get(key, default))
    output = await guard.execute(SimpleNamespace(inputs=inputs))
    assert [one["entity_id"] for one in output.data["missing_entities"]] == ["e2"]


async def test_any_number_of_entities_is_one_call(corpus, monkeypatch):
    await corpus.load("acme", entities={f"e{n}": entry() for n in range(3 * BATCH + 1)})
    calls, call = [], Server.call

    async def counted(self, *arguments):
        calls.append((arguments[0], len(arguments)))
        return await call(self, *arguments)

    monkeypatch.setattr(Server, "call", counted)
    assert len(await corpus.entities("acme", [f"e{n}" for n in range(5 * BATCH)] * 2)) == 3 * BATCH + 1
    assert calls == [("HMGET", 3 + 5 * BATCH)]


async def test_a_missing_corpus_is_not_an_empty_one_and_forgetting_leaves_no_key(corpus, redis, prefix):
    for forgotten in (False, True):
        assert await corpus.forget("acme") is forgotten
        assert await redis.keys(f"{prefix}*") == []
        assert not await corpus.loaded("acme")
        for attempt in (corpus.entities("acme", ["e1"]), corpus.relations("acme", [PAIR])):
            with pytest.raises(CorpusUnusable, match="no corpus"):
                await attempt
        await corpus.load("acme")
        assert await corpus.loaded("acme")
        assert (await corpus.entities("acme", ["e1"]), await corpus.relations("acme", [PAIR])) == ({}, [])


async def test_a_load_joins_what_is_there_unless_it_replaces_it(corpus):
    await corpus.load("acme", entities={"e1": entry(0.1), "e2": entry()}, relations=[SUED])
    await corpus.load("acme", entities={"e1": entry(0.7)}, relations=[{**SUED, "version": "v3"}])
    assert await corpus.entities("acme", ["e1", "e2"]) == {"e1": entry(0.7), "e2": entry()}
    assert len(await corpus.relations("acme", [PAIR])) == 2
    await corpus.load("acme", entities={"e2": entry()}, replace=True)
    assert await corpus.entities("acme", ["e1", "e2"]) == {"e2": entry()}
    assert await corpus.relations("acme", [PAIR]) == []
    truths = [RelationClaim(**{**SUED, "version": "x" * 1000 + str(n)}) for n in range(BATCH + 1)]
    async with corpus.loading("acme") as loading:
        refused = await loading.add_relations(truths)
        assert await loading.add_relations([RelationClaim(**{**SUED, "object": "Initech"})]) == []
    found = await corpus.relations("acme", [PAIR])
    assert refused == list(range(len(found), BATCH + 1)), "relations between two names are bounded"
    assert sum(len(json.dumps(one)) + 1 for one in found) <= MAX_PAIR_BYTES
    wrong = [
        {"entities": {"e1": fields}} for fields in ({}, entry(1.5), entry("1"), entry(note="x" * 20_000))
    ]
    wrong += [{"relations": [one]} for one in ({"subject": "a", "relation": "b"}, {**SUED, "when": 1})]
    for load in (*wrong, {"relations": truths}):
        with pytest.raises(ValueError, match=r"more than 48000 bytes|validation error|16000"):
            await corpus.load("globex", **load)
        assert not await corpus.loaded("globex")
    fields = {"id": "e1", "confidence": 0.5, "": 1, "further": "kept"}
    assert CorpusEntity.of("e1", fields).model_dump(exclude_none=True) == fields


async def test_readers_never_see_half_a_corpus(corpus):
    names = [f"e{n}" for n in range(BATCH + 1)]
    async with corpus.loading("acme") as loading:
        await loading.add_entities([CorpusEntity.of(name, entry(0.0)) for name in names])
        assert not await corpus.loaded("acme")
    seen, done = set(), asyncio.Event()

    async def read():
        while not done.is_set():
            found = await corpus.entities("acme", names)
            seen.add((len(found), frozenset(one["confidence"] for one in found.values())))

    reading = asyncio.create_task(read())
    for generation in range(1, 4):
        await corpus.load("acme", entities=dict.fromkeys(names, entry(generation / 10)), replace=True)
    done.set()
    await reading
    assert all(count == len(names) and len(generations) == 1 for count, generations in seen)


async def test_a_load_that_breaks_or_that_redis_forgot_changes_nothing(corpus, redis, prefix):
    async def breaking(forgotten):
        async with corpus.loading("acme", replace=True) as loading:
            await loading.add_entities([CorpusEntity.of("e2", entry())])
            await loading.add_relations([RelationClaim(**SUED)])
            staged = [key for key in await redis.keys(f"{prefix}*") if key.count(b":") > 2]
            assert all([0 < await redis.ttl(key) <= 3600 for key in staged]), "a dead worker's load expires"
            if not forgotten:
                raise LookupError
            await redis.unlink(*staged)
            await loading.add_entities([CorpusEntity.of("e3", entry())])

    for there in (False, True):
        if there:
            await corpus.load("acme", entities={"e1": entry()})
        before = await redis.keys(f"{prefix}*")
        with pytest.raises(LookupError):
            await breaking(forgotten=False)
        assert await redis.keys(f"{prefix}*") == before
        assert await corpus.loaded("acme") is there
    assert [await redis.ttl(key) for key in before] == [-1, -1]
    with pytest.raises(StateUnavailable, match="load it again"):
        await breaking(forgotten=True)
    assert await corpus.entities("acme", ["e1", "e2", "e3"]) == {"e1": entry()}


async def test_an_unreachable_server_and_a_damaged_corpus_are_errors_of_ours(corpus, redis, prefix):
    index = CorpusIndex(connect("redis://127.0.0.1:1/0", patience=0.2), "x.")
    attempts = [index.loaded("t"), index.entities("t", ["e"]), index.relations("t", []), index.forget("t")]
    for attempt in (*attempts, index.load("t", entities={"e1": entry()})):
        with pytest.raises(StateUnavailable):
            await attempt
    await index.close()
    await corpus.load("acme", entities={"e1": entry()})
    (key,) = [key for key in await redis.keys(f"{prefix}*") if key.endswith(b":e")]
    for field in [name for name in await redis.hkeys(key) if name]:
        await redis.hset(key, field, "{broken")
    with pytest.raises(CorpusUnusable, match="no JSON"):
        await corpus.entities("acme", ["e1"])


def test_a_bad_line_names_the_field_at_fault():
    relation = {"subject": "a", "relation": "r", "object": "b"}
    rows = [
        ({}, "entity"),
        ({"entity": {"id": "e", "confidence": 1}, "relation": {}}, "relation.subject"),
        ({"entity": None}, "entity"),
        ({"entity": {"id": "", "confidence": 1}}, "entity.id"),
        ({"entity": {"id": "e"}}, "entity.confidence"),
        ({"entity": {"id": "e", "confidence": "0.9"}}, "entity.confidence"),
        ({"relation": {"subject": "a", "object": "b"}}, "relation.relation"),
        ({"relation": {**relation, "relation": " "}}, "relation"),
        ({"relation": {**relation, "vresion": "1"}}, "relation.vresion"),
        ({"relation": {**relation, "timestamp": "2026"}}, "relation.timestamp"),
        ({"entitiy": {"id": "e", "confidence": 1}}, "entitiy"),
        ([], None),
    ]
    wrong = []
    for line, field in [*[(json.dumps(line).encode(), field) for line, field in rows], (b"{", None)]:
        with pytest.raises(RecordError) as caught:
            decode_corpus_line(line)
        if caught.value.field != field or "\n" in caught.value.message:
            wrong.append((line, caught.value))
    assert wrong == []


def test_the_command_loads_shows_and_drops(run, tmp_path):
    (tmp_path / "corpus.jsonl").write_bytes(LINES)
    for source, given_lines in (("-", LINES), (str(tmp_path / "corpus.jsonl"), None)):
        loaded = run("load", source, given=given_lines)
        assert (loaded.exit_code, loaded.stdout) == (0, "loaded 1 entity and 1 relation\n")
        shown = run("show", "act-7", "--format", "json")
        assert json.loads(shown.stdout) == {"id": "act-7", "confidence": 0.9, "role": "statute"}
        between = run("show", "globex", "ACME")
        cells = dict(zip(*(line.split() for line in between.stdout.splitlines()), strict=True))
        assert cells == {"subject": "Acme", "relation": "sued", "object": "Globex", "version": "2"}
        assert [run("drop", "--yes").exit_code for _ in range(2)] == [0, 1]
        assert run("show", "act-7").exit_code == 1
    assert CliRunner().invoke(command, ["load", "-", "--tenant", "*"], input=LINES).exit_code == 2


def test_bad_lines_are_named_the_others_loaded_and_a_bad_file_replaces_nothing(run):
    bad = LINES + b'{"entity": {"id": "x", "confidence": 7}}\n' + b"x" * 1_100_000 + b"\n"
    result = run("load", "-", "--format", "json", given=bad)
    counts = {"tenant_id": "acme", "entities": 1, "relations": 1, "refused": 2, "unchanged": False}
    assert (result.exit_code, json.loads(result.stdout)) == (1, counts)
    assert "line 4: invalid_record: entity.confidence:" in result.stderr
    assert "line 5: too_large:" in result.stderr
    assert run("show", "act-7").exit_code == 0
    for lines in (b"\n", b'{"entity": {"id": "x"}}\n' + LINES):  # an export that was cut off
        result = run("load", "-", "--replace", given=lines)
        assert result.exit_code == 1
        assert "nothing changed for acme" in result.stdout
        assert run("show", "act-7").exit_code == 0
    fresh = b'{"entity": {"id": "new", "confidence": 1}}'
    assert run("load", "-", "--replace", given=fresh).exit_code == 0
    assert (run("show", "act-7").exit_code, run("show", "new").exit_code) == (1, 0)
    line = b'{"relation": {"subject": "a", "relation": "r", "object": "b", "version": "%s"}}\n'
    result = run("load", "-", given=b"".join(line % (b"x" * 40_000 + b"%d" % n) for n in range(3)))
    assert result.exit_code == 1
    named = [text.split(":")[0] for text in result.stderr.splitlines()]
    assert named == ["line 2", "line 3"], "there is no room"


def test_an_unreachable_redis_ends_the_command_with_2_and_no_corpus_acts_on_a_terminal(run):
    hostile = {"entity": {"id": "x", "confidence": 1, "role": "\x1b[31mred"}}
    run("load", "-", given=json.dumps(hostile).encode())
    for layout in ("table", "json"):
        assert "\x1b" not in run("show", "x", "--format", layout).stdout
    away = {"GROUNDWIRE_REDIS_URL": "redis://127.0.0.1:1/0"}
    for arguments in (["load", "-"], ["show", "x"], ["drop", "--yes"]):
        result = run(*arguments, given=LINES, env=away)
        assert (result.exit_code, "Traceback" in result.output) == (2, False)
        assert "GROUNDWIRE_REDIS_URL" in result.stderr
