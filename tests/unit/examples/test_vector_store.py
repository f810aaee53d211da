"""The example that follows approvals into pgvector: it holds what is approved, whatever comes and however often.

And that the examples of clients are typed as a reader's own program would be.
"""

import asyncio
import importlib.util
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.embedded import MissingServiceError
from groundwire.client import ApprovedTable
from tests.services.fixtures import or_skip
from tests.services.postgres import with_pgvector
from tests.unit.client.test_following import AFTER, BEFORE, NOW, SAMPLE, decided, erased, retracted

pytestmark = pytest.mark.slow  # needs PostgreSQL with pgvector
ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "examples" / "vector_store"


def test_the_store_holds_what_is_approved_whatever_comes_in_which_order_and_where_it_was_restarted():
    pytest.importorskip("psycopg")
    with patch.object(sys, "path", [str(FOLDER), *sys.path]):  # as `python examples/vector_store` finds them
        spec = importlib.util.spec_from_file_location("vector_store_example", FOLDER / "__main__.py")
        program = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(program)
    del sys.modules["store"]
    texts = []

    def embed(some):
        texts.extend(some)
        return program.embed(some)

    def follow(before, after=()):
        """Run the program's loop on the records of the topics at its start, and on later ones."""

        async def changes(table, *, at_end, **_):
            for records in (before, None, after):
                if records is None:
                    at_end()
                for change in [change for record in records or () for change in table.apply(record)]:
                    yield change

        with patch.object(program, "changes", changes):
            asyncio.run(program.follow(store, "", ""))

    def emptied():
        store._connection.execute("TRUNCATE memories")
        texts.clear()

    def rows():
        return store._connection.execute(
            "SELECT claim_id, content FROM memories ORDER BY claim_id"
        ).fetchall()

    def right(records):
        """What a table in memory holds after the same records."""
        table = ApprovedTable()
        for record in records:
            table.apply(record)
        return [(one.subject.subject_id, one.content) for one in table.memories("acme", "maria", at=NOW)]

    erasure = erased(SAMPLE.decided_at)
    history = [*BEFORE, erasure, *AFTER]

    @settings(max_examples=40)
    @given(data=st.data())
    def holds(data):
        emptied()
        again = data.draw(st.lists(st.sampled_from(history)))
        stream = data.draw(st.permutations(history + again))
        first, second, end = sorted(data.draw(st.tuples(*[st.integers(0, len(stream))] * 3)))
        # what came between the two runs, nobody carried out
        for start, until in ((first, second), (end, len(stream))):
            follow(stream[:start], stream[start:until])
            assert rows() == right(stream[:until])

    with or_skip(with_pgvector) as server:
        store = program.VectorStore(server.url, embed)
        holds()

        emptied()
        records = [decided(1), decided(1, "Kafka keeps order", claim_id="c2")]
        follow(records)
        follow(records, records)
        assert sorted(texts) == ["Kafka keeps order", "Redis is fast"], "nothing is embedded twice"

        # what is decided anew after an erasure replaces what had the same decision id
        emptied()
        later = SAMPLE.decided_at + timedelta(seconds=1)
        follow([decided(1)])
        follow([decided(1), erasure, decided(1, "Redis is slow", decided_at=later)])
        assert rows() == [("c1", "Redis is slow")]

        # a search finds the nearest of a user, and nothing that expired or was withdrawn
        emptied()
        solr = decided(1, "Search ran on Solr", claim_id="c3", horizon=NOW)
        lunch = decided(1, "Lunch is at noon", claim_id="c2")
        postgres = decided(1, "Search runs on PostgreSQL", claim_id="c4")
        follow([decided(1, "Search runs on Elastic"), lunch, solr, postgres, retracted(1)])
        found = store.nearest("acme", "maria", "what does search run on?")
        assert [one.claim_id for one in found] == ["c4", "c2"]
        assert found[0].likeness > found[1].likeness
        assert store.nearest("acme", "bob", "search") == []

        # a second program waits until the first ends
        second = program.VectorStore(server.url, program.embed)
        second._connection.execute("SET lock_timeout = '100ms'")
        store.be_the_only_writer()
        with pytest.raises(Exception, match="lock timeout"):
            second.be_the_only_writer()
        store.close()
        second.be_the_only_writer()
        second.close()


def test_an_example_of_a_client_passes_mypy_in_its_strict_mode(tmp_path):
    def missing(package):
        raise MissingServiceError(f"{package} is not installed: make examples")

    for program, package in (("vector_store/__main__.py", "psycopg"), ("langgraph_store.py", "langgraph")):
        if importlib.util.find_spec(package) is None:
            or_skip(lambda package=package: missing(package))
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
