"""The example that follows approvals into pgvector: it holds what is approved, whatever comes and however often.

And that the examples of clients are typed as a reader's own program would be.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy.embedded import MissingServiceError
from groundwire.client import ApprovedTable
from tests.services.fixtures import or_skip
from tests.services.postgres import with_pgvector
from tests.unit.client.test_followed_table import AFTER, LIFE, NOW, SAMPLE, decided, erased, retracted

pytestmark = pytest.mark.slow  # needs PostgreSQL with pgvector
ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "examples" / "vector_store"


@pytest.fixture(scope="module")
def program() -> Iterator[object]:
    """The example's modules, as `python examples/vector_store` finds them."""
    pytest.importorskip("psycopg")
    with patch.object(sys, "path", [str(FOLDER), *sys.path]):
        spec = importlib.util.spec_from_file_location("vector_store_example", FOLDER / "__main__.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    del sys.modules["store"]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with or_skip(with_pgvector) as server:
        yield server.url


@pytest.fixture
def store(program, database):
    """A store that keeps the texts that it has embedded."""
    texts = []

    def embed(some):
        texts.extend(some)
        return program.embed(some)

    made = program.VectorStore(database, embed)
    made._connection.execute("TRUNCATE memories")
    made.embedded = texts
    yield made
    made.close()


def follow(program, store, before, after=()):
    """Run the program's loop on what stands on the topics at its start, and what comes later."""

    async def told(table, *, at_end, **_):
        for records in (before, None, after):
            if records is None:
                at_end()
            for change in [change for record in records or () for change in table.apply(record)]:
                yield change

    with patch.object(program, "changes", told):
        asyncio.run(program.follow(store, "", ""))


def rows(store):
    return store._connection.execute("SELECT claim_id, content FROM memories ORDER BY claim_id").fetchall()


def right(records):
    """What a table in memory holds after the same records."""
    table = ApprovedTable()
    for record in records:
        table.apply(record)
    return [(one.subject.subject_id, one.content) for one in table.memories("acme", "maria", at=NOW)]


ERASED = erased(SAMPLE.decided_at)
HISTORY = [*LIFE, ERASED, *AFTER]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_it_holds_what_is_approved_whatever_comes_in_which_order_and_where_it_was_restarted(
    program, store, data
):
    told = data.draw(
        st.lists(st.sampled_from(HISTORY)).flatmap(lambda again: st.permutations(HISTORY + again))
    )
    first, second, end = sorted(data.draw(st.tuples(*[st.integers(0, len(told))] * 3)))
    for start, until in (
        (first, second),
        (end, len(told)),
    ):  # what came between the two runs, nobody carried out
        follow(program, store, told[:start], told[start:until])
        assert rows(store) == right(told[:until])


def test_what_is_held_already_is_not_embedded_again(program, store):
    records = [decided(1), decided(1, "Kafka keeps order", claim_id="c2")]
    follow(program, store, records)
    follow(program, store, records, records)
    assert sorted(store.embedded) == ["Kafka keeps order", "Redis is fast"]


def test_what_is_decided_anew_after_an_erasure_replaces_what_had_the_same_decision_id(program, store):
    later = SAMPLE.decided_at + timedelta(seconds=1)
    follow(program, store, [decided(1)])
    follow(program, store, [decided(1), ERASED, decided(1, "Redis is slow", decided_at=later)])
    assert rows(store) == [("c1", "Redis is slow")]


def test_a_search_finds_the_nearest_of_a_user_and_nothing_that_expired_or_was_withdrawn(program, store):
    follow(
        program,
        store,
        [
            decided(1, "Search runs on Elastic"),
            decided(1, "Lunch is at noon", claim_id="c2"),
            decided(1, "Search ran on Solr", claim_id="c3", horizon=NOW),
            decided(1, "Search runs on PostgreSQL", claim_id="c4"),
            retracted(1),
        ],
    )
    found = store.nearest("acme", "maria", "what does search run on?")
    assert [one.claim_id for one in found] == ["c4", "c2"]
    assert found[0].likeness > found[1].likeness
    assert store.nearest("acme", "bob", "search") == []


def test_a_second_program_waits_until_the_first_ends(program, store, database):
    second = program.VectorStore(database, program.embed)
    second._connection.execute("SET lock_timeout = '100ms'")
    store.be_the_only_writer()
    with pytest.raises(Exception, match="lock timeout"):
        second.be_the_only_writer()
    store.close()
    second.be_the_only_writer()
    second.close()


def test_an_example_of_a_client_passes_mypy_in_its_strict_mode(tmp_path):
    for program, package in (("vector_store/__main__.py", "psycopg"), ("langgraph_store.py", "langgraph")):
        if importlib.util.find_spec(package) is None:
            or_skip(partial(missing, f"{package} is not there: make examples"))
        file = ROOT / "examples" / program
        paths = os.pathsep.join([str(ROOT / "src"), str(file.parent)])
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "mypy",
                "--strict",
                "--config-file=",
                f"--cache-dir={tmp_path}",
                str(file),
            ],
            env={"MYPYPATH": paths, "PATH": "/usr/bin:/bin"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def missing(what):
    raise MissingServiceError(what)
