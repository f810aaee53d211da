"""Verification derives a published decision again (X-08): a forgery is found, and differs from a missing input."""

import asyncio
import copy
import json
import random
import re
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agents.outputs import outputs
from groundwire import __version__
from groundwire.errors import UsageError
from groundwire.gate import claims as gate_module
from groundwire.kafka.reader import OffsetRange
from groundwire.keys.attestation import Keys
from groundwire.messages.base import sha256_hex
from groundwire.messages.decisions import Place
from groundwire.messages.erasure import Erasure, Erasures
from groundwire.messages.identity import event_id
from groundwire.policy import Policy
from groundwire.replay.report import as_json, as_table
from groundwire.replay.review_closures import is_erased_action
from groundwire.replay.run import Task
from groundwire.replay.store import FileRecords, Job, RecordStore
from groundwire.replay.verify import Signatures, Verifier, VerifyStatus, differences, path_of
from groundwire.state.policies import KnownPolicies, PolicyStore
from tests.unit.gate.world import TOPIC, adr_folder, claim_bytes, verifier
from tests.unit.replay.town import (
    EVIL,
    ORDER,
    REVIEWS,
    TEXT,
    decided_again,
    lines,
    one_claim,
    otherwise,
    published_record,
    replayed,
    statuses,
    town,
    verified,
    with_text,
)

EQUAL, DIFFERS, MISSING = VerifyStatus.EQUAL, VerifyStatus.DIFFERS, VerifyStatus.MISSING
CONTRADICTED, EXPIRED = VerifyStatus.CONTRADICTED, VerifyStatus.EXPIRED
GOLDEN = Path(__file__).parent / "golden"
AN_HOUR = timedelta(hours=1)


async def test_decisions_of_each_version_verify_or_are_of_another_engine():
    for folder in (path for path in GOLDEN.iterdir() if path.is_dir()):
        expected = EQUAL if folder.name == __version__ else VerifyStatus.OTHER_ENGINE
        assert set(statuses(await verified(folder))) == {expected}, (
            "the same engine decides otherwise: raise the version, or, before it is released, write them anew"
        )
    decisions = map(json.loads, lines(GOLDEN / __version__ / "decisions.jsonl"))
    kinds = {(one["kind"], min(one["revision"], 2)) for one in decisions}
    assert kinds == {(kind, revision) for kind in ("claim", "response") for revision in range(3)}


def write(folder):
    """Write the decisions of a release: `python -m tests.unit.replay.test_verified`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with TemporaryDirectory() as scratch:
        place = town(Path(scratch), 12)
        asyncio.run(place.live(12))
        place.write(folder)
        shutil.copytree(Path(scratch) / "policies", folder / "policies")


def test_two_json_values_differ_where_they_do():
    wrong = []
    for recorded, derived, paths in (
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 1.0}, ["$.a"]),
        ({"a": True}, {"a": 1}, ["$.a"]),
        ({"a": [1, 2]}, {"a": [1, 3, 4]}, ["$.a[1]", "$.a[2]"]),
        ({"a b": {"c": None}}, {"a b": {}}, ['$["a b"].c']),
        ({"x": 1}, {"y": 1}, ["$.y", "$.x"]),
        ([], {}, ["$"]),
    ):
        wrong += [(recorded, derived)] * (list(differences(recorded, derived)) != paths)
    assert wrong == []


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """A town's folder, and one of its decisions of each kind, revision, reason and set of facts."""
    folder = tmp_path_factory.mktemp("town")
    place = town(folder, 0)
    asyncio.run(place.live(10))
    place.write(folder)
    found = {}
    for plain in map(json.loads, lines(folder / "decisions.jsonl")):
        shape = [plain[name] for name in ("kind", "revision", "reason_code")]
        shape += map(bool, (plain["citations"], plain["hedges"], *plain["facts"].values()))
        found.setdefault(tuple(shape), plain)
    return folder, list(found.values())


@pytest.fixture
def check(lived):
    folder, _ = lived
    with FileRecords(folder / "records.jsonl", folder / "decisions.jsonl") as found:
        yield Verifier(found, PolicyStore(folder / "policies", None)).verify


def test_the_records_of_a_file_are_not_copied_and_a_full_disk_is_named(tmp_path):
    values = [b"%d" % n + b"x" * 100_000 for n in range(50)]
    (tmp_path / "records").write_bytes(b"\n".join(values))
    (tmp_path / "decisions").touch()
    with FileRecords(tmp_path / "records", tmp_path / "decisions") as found:
        assert found.value(sha256_hex(values[7])) == values[7]
        pages, size = found.row("SELECT page_count, page_size FROM pragma_page_count, pragma_page_size")
        assert pages * size < 500_000
        found.rows(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(UsageError, match=r"a temporary file: .*full"), found.transaction():
            found.mark("ended", "x" * 1_000_000)


@pytest.mark.parametrize("decisions", [4, pytest.param(24, marks=pytest.mark.slow)])
async def test_every_change_of_a_single_field_is_found_and_named(lived, check, decisions):
    """A file cannot show that facts were otherwise, if nothing else in the decision follows from them."""
    facts = re.compile(
        r"""\$\.(
            decided_at
          | (origin|subject_origin)\.(topic|partition|offset) | subject_origin\.timestamp
          | citations\[\d+\]\.(detail|checked_at)
          | facts\.attestation(\..*)?
          | facts\.dedup\.(status|matches(\[\d+\](\.(subject_id|inter|union|difference|class))?)?)
          | facts\.parents\[\d+\]\.state
          | facts\.relevance\[\d+\]\.score
          | facts\.(entities|relations)\b.*
          | facts\.reply_to\.(mode|attempt)
          | facts\.review\.key_id
          | facts\.error
        )""",
        re.VERBOSE,
    )
    # of a person's decision: relevance under the policy of the revision before, which it does not name
    relevant = re.compile(r"\$\.facts\.relevance\[\d+\]\.relevant")

    def paths(value, path=()):
        if path:
            yield path
        members = enumerate(value) if isinstance(value, list) else ()
        for name, child in value.items() if isinstance(value, dict) else members:
            yield from paths(child, (*path, name))

    def others(value):
        if isinstance(value, bool):
            return [not value, None]
        if value is None:
            return ["x", 0, [], {}]
        if isinstance(value, str):
            times = ["2020-01-01T00:00:00Z"] if re.match(r"\d{4}-\d\d-\d\dT", value) else []
            return [value + "x", "", None, value.upper() + " ", *times]
        if isinstance(value, int | float):
            return [value + 1, value - 1, None, str(value)]
        if isinstance(value, list):
            return [[*value, "x"], value[:-1] if value else ["y"], None]
        return [{**value, "extra": 1}, None, {}]

    draw, tried, unseen, unnamed = random.Random(3), 0, [], []
    for decision in draw.sample(lived[1], decisions):
        for path in paths(decision):
            forged = copy.deepcopy(decision)
            inner = forged
            for part in path[:-1]:
                inner = inner[part]
            value = inner[path[-1]]
            near = [each for each in others(value) if each != value or type(each) is not type(value)]
            inner[path[-1]] = draw.choice(near)
            finding = await check(json.dumps(forged).encode())
            name = path_of(path)
            outside = facts.match(name) or (relevant.match(name) and decision["facts"]["review"])
            if finding.status is EQUAL and not outside:
                unseen.append((name, value, inner[path[-1]]))
            in_itself = not name.startswith(("$.facts", "$.origin", "$.subject_origin"))
            named = any(p.startswith(name) or name.startswith(p) for p in finding.paths)
            if finding.status is DIFFERS and in_itself and not named:
                unnamed.append((name, finding))
            tried += 1
    assert (unseen, unnamed) == ([], [])
    assert tried > 75 * decisions


async def test_every_field_that_is_left_out_added_or_made_to_look_approved_is_found_and_named(lived, check):
    decision = next(one for one in lived[1] if one["revision"] == 2)
    for name in decision:
        finding = await check(json.dumps({k: v for k, v in decision.items() if k != name}).encode())
        assert (finding.status, finding.paths) == (DIFFERS, (f"$.{name}",))
    assert (await check(json.dumps({**decision, "tomorrow": 1}).encode())).paths == ("$.tomorrow",)
    twice = json.dumps(decision)[:-1] + ', "approved": true}'
    assert (await check(twice.encode())).paths == ("$",)
    approved = {"tier": "tier_1", "verdict": "approved", "approved": True}
    approved |= {"reason": "From trusted source: user", "reason_code": "trusted_source"}
    others = [one for one in lived[1] if not one["approved"]]
    found = [await check(json.dumps({**one, **approved}).encode()) for one in others]
    assert {(one.status, {"$.tier", "$.verdict", "$.approved"} <= set(one.paths)) for one in found} == {
        (DIFFERS, True)
    }
    assert len(found) > 10


async def test_a_claim_is_followed_through_edits_and_retraction_and_keeps_the_text_of_the_last_edit(tmp_path):
    place, two = await decided_again(tmp_path)
    await place.act(place.action("edit", two, content="Uploads are retried five times"))
    await place.act(place.action("retract", place.latest("c"), reason="wrong"))
    last = place.latest("c")
    assert (last.revision, last.evidence.metadata) == (4, {"n": 2})
    assert last.evidence.capture_time > last.subject_origin.timestamp
    assert set(statuses(await place.in_files(tmp_path))) == {EQUAL}
    tmp_path = tmp_path / "edited"
    place, first = await one_claim(tmp_path, source="ai_synthesis")
    unsigned = json.loads(place.action("edit", first, content=EVIL).value)
    await place.act(place.record(json.dumps(unsigned | {"action_id": "a" * 8}).encode(), topic=REVIEWS))
    await place.act(place.action("edit", first, content="The cache holds ten shards of the ledger"))
    two = place.latest("c")
    await place.act(place.action("retract", two, reason="wrong"))
    three = place.latest("c")
    assert (first.revision, two.revision, three.revision) == (1, 2, 3)
    unedited = json.loads(three.to_bytes())["facts"]
    unedited["review"]["edited"] = False
    for forged, path in (
        (with_text(three, EVIL), "$.evidence.claim"),
        (with_text(three, TEXT, facts=unedited), "$.facts.review.edited"),
        (with_text(two, EVIL), "$.evidence.claim"),
    ):
        true, found = await place.in_files(tmp_path, [two.to_bytes(), forged])
        assert (true.status, path in found.paths) == (EQUAL, True)


async def test_a_claim_is_followed_from_its_block_through_its_review(tmp_path):
    place, first = await one_claim(tmp_path, "overrule", "edit", "retract", said=f"I guess that {TEXT}")
    assert [first.revision, first.reason_code] == [4, "retracted"]
    assert set(statuses(await place.in_files(tmp_path))) == {EQUAL}
    overruled = next(one for one in place.published.values() if one.reason_code == "overruled")
    forged = overruled.facts.model_copy(update={"place": Place.NOT_NEEDED})
    (found,) = await place.in_files(tmp_path, [overruled.model_copy(update={"facts": forged}).to_bytes()])
    assert "$.facts.place" in found.paths


async def test_a_comment_carries_no_decision_though_the_audit_tells_of_it(tmp_path):
    place, pending = await one_claim(tmp_path, source="ai_synthesis")
    comments = [place.action(action, pending, note="Who says so?") for action in ("comment", "pass")]
    await place.act(*comments, place.action("approve", pending))
    approved = place.latest("c")
    for comment in comments:
        said = json.loads(comment.value)
        review = approved.facts.review | {name: said[name] for name in ("action", "action_id")}
        facts = approved.facts.model_copy(update={"review": review, "clock": comment.origin.timestamp})
        forged = approved.model_copy(update={"origin": comment.origin, "facts": facts})
        true, found = await place.on_topics([pending.to_bytes(), forged.to_bytes()])
        assert (true.status, found.status) == (EQUAL, DIFFERS), found


async def test_without_a_record_or_a_revision_that_a_decision_needs_it_is_missing(tmp_path):
    place, three = await one_claim(tmp_path / "a", "edit", "retract", source="ai_synthesis")
    (alone,) = await place.in_files(tmp_path / "a", [three.to_bytes()])
    assert (alone.status, alone.detail) == (MISSING, "decision of revision 2")
    place.log = [record for record in place.log if b'"edit"' not in record.value]
    *others, retraction = await place.in_files(tmp_path / "a")
    assert (statuses(others), retraction.status) == ([EQUAL, MISSING], MISSING)
    assert "edit" in retraction.detail

    place, two = await decided_again(tmp_path / "b")
    await place.act(place.action("approve", two))
    three = place.latest("c")
    both = [two.to_bytes(), three.to_bytes()]
    assert statuses(await place.in_files(tmp_path / "b", both)) == [EQUAL] * 2
    await place.act(place.action("retract", three))
    found = await place.in_files(tmp_path / "b", [three.to_bytes(), place.latest("c").to_bytes()])
    assert [(one.status, one.detail) for one in found] == [(MISSING, "decision of revision 2")] * 2


async def test_a_claim_that_broke_the_gate_is_derived_without_breaking_again(tmp_path, monkeypatch):
    place = town(tmp_path)

    def broken(*_):
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(gate_module, "read_claim", broken)
        await place.send(place.claim("c", TEXT, derived_from=["x"]))
    assert place.latest("c").reason_code == "internal_error"
    await place.act(place.action("approve", place.latest("c")))
    deep = json.loads("[" * 60 + "]" * 60)
    await place.send(place.record(claim_bytes("deep", TEXT, metadata={"d": deep}), topic=TOPIC))
    assert set(statuses(await place.in_files(tmp_path))) == {EQUAL}


async def test_the_first_record_and_revision_of_a_claim_that_was_decided_again_are_checked(tmp_path):
    place, two = await decided_again(tmp_path)
    assert statuses(await place.in_files(tmp_path, [two.to_bytes()])) == [EQUAL]
    another = json.loads(place.latest("free").to_bytes())["origin"]
    named = {"$.subject_origin.sha256"}, {"$.subject_origin"}
    for origin, fields in (another, named[0]), (None, named[1]), ({"sha256": "0" * 64}, named[1]):
        forged = otherwise(two, subject_origin=origin)
        (in_file,) = await place.in_files(tmp_path, [forged])
        (on_topic,) = await place.on_topics([forged])
        assert (on_topic.status, set(on_topic.paths)) == (DIFFERS, fields)
        expected = (MISSING, set()) if origin and origin != another else (DIFFERS, fields)
        assert (in_file.status, set(in_file.paths)) == expected
    place.record(claim_bytes("c", EVIL, source="ai_synthesis"))
    origin = place.log[-1].origin.model_dump(mode="json")
    (finding,) = await place.in_files(tmp_path, [otherwise(two, subject_origin=origin)])
    assert (finding.status, set(finding.paths)) == (DIFFERS, named[0]), "the same subject with another text"
    for number in (2**53, 2**63, -(10**30)):  # which canonical JSON cannot hold
        forged = otherwise(two, revision=number)
        found = await place.in_files(tmp_path, [forged]) + await place.on_topics([forged])
        assert [(f.status, "$.revision" in f.paths) for f in found] == [(DIFFERS, True)] * 2, number
    itself = published_record(otherwise(two, supersedes=two.decision_id), 0)
    with Job(tmp_path / "job", ORDER) as job:
        job.add_decision(itself, inside={(TOPIC, 0): OffsetRange(TOPIC, 0, 0, 1_000)}, everything=True)
        assert len(job.missing_places()) == 1, "what supersedes itself ends the search for its first record"


async def test_on_topics_position_key_headers_and_repeats_are_verified_too(tmp_path):
    place, decision = await one_claim(tmp_path)
    true = published_record(decision.to_bytes(), 0)

    def moved(**origin):
        return [replace(true, value=otherwise(decision, origin=origin))]

    later = decision.model_copy(update={"decided_at": decision.decided_at + timedelta(milliseconds=1)})
    twice = [true, replace(true, offset=99, value=later.to_bytes())]
    wrong = []
    for published, named in (
        ([true], set()),
        (moved(offset=77), {"$.origin"}),
        (moved(partition=1), {"$.origin"}),
        (moved(topic="elsewhere"), {"$.origin"}),
        (moved(offset=10**30), {"$.origin.offset"}),
        (moved(partition=-(2**53)), {"$.origin.partition"}),
        ([replace(true, topic="groundwire.other")], {"topic"}),
        ([replace(true, key=b"eve")], {"key"}),
        ([replace(true, headers=())], {f"header ce_{name}" for name in ("id", "type", "time", "subject")}),
        ([replace(true, headers=[*true.headers, ("ce_id", b"x")])], {"header ce_id"}),
        ([replace(true, value=b"{}")], {"$"}),
        ([replace(true, value=None)], {"$"}),
        (twice, {"$", "header ce_time"}),
    ):
        findings = await place.on_topics(published)
        paths = {path for finding in findings for path in finding.paths}
        apart = all((finding.status is EQUAL) is not bool(finding.paths) for finding in findings)
        other = [finding.paths for finding in findings if finding.status is CONTRADICTED]
        expected = named, True, [("$",)] if published is twice else []
        wrong += [(published, findings)] * ((paths, apart and bool(findings), other) != expected)
    assert wrong == []


async def test_two_decisions_under_one_id_are_found_though_each_follows_from_its_facts(tmp_path):
    place, decision = await one_claim(tmp_path)
    later = decision.model_copy(update={"decided_at": decision.decided_at.replace(year=2030)})
    shuffled = json.dumps(json.loads(decision.to_bytes()), sort_keys=True).encode()
    findings = await place.in_files(tmp_path, [decision.to_bytes(), later.to_bytes(), shuffled])
    assert statuses(findings) == [EQUAL, CONTRADICTED, EQUAL]
    assert findings[2].detail == "written otherwise"
    assert statuses(await place.in_files(tmp_path, [later.to_bytes()])) == [EQUAL]
    (on_topic,) = await place.on_topics([shuffled])
    assert on_topic.status is DIFFERS, "on a topic every byte counts"
    values = [decision.to_bytes(), otherwise(decision, origin={"offset": 77})]
    assert DIFFERS in statuses(await place.on_topics(values))
    values = [decision.to_bytes(), with_text(decision, EVIL, engine="0.0.9")]
    for published in (values, values[::-1]):
        findings = await place.on_topics(published)
        assert ("$.evidence",) in [f.paths for f in findings if f.status is CONTRADICTED]
    other = otherwise(decision, engine="0.0.9", reason="in other words")
    findings = await place.on_topics([decision.to_bytes(), other, other])
    assert statuses(findings) == [EQUAL, VerifyStatus.OTHER_ENGINE]


async def test_decisions_before_and_after_an_erasure_of_their_user_neither_contradict_nor_follow(tmp_path):
    place, decision = await one_claim(tmp_path)
    later = decision.model_copy(update={"decided_at": decision.decided_at + timedelta(milliseconds=1)})
    user = decision.user_id
    for name, after, contradicted in (
        *((user, -AN_HOUR, True), (user, timedelta(), False), (user, AN_HOUR, True)),
        ("nobody", timedelta(), True),
    ):
        erasure = Erasure(decision.tenant_id, name, decision.decided_at + after)
        values = [decision.to_bytes(), later.to_bytes()]
        found = await place.on_topics(values, erasure=erasure)
        assert (CONTRADICTED in statuses(found)) is contradicted, (name, after)
    with RecordStore() as store:  # revision numbers restart
        store.note_erasure(Erasure(decision.tenant_id, user, decision.decided_at))
        sides = []
        for side, at in (("b", decision.decided_at), ("a", decision.decided_at + AN_HOUR)):
            origin = decision.origin.model_copy(update={"sha256": side * 64})
            sides.append(decision.model_copy(update={"revision": 2, "decided_at": at, "origin": origin}))
            store.note_decision(sides[-1].to_bytes())
        assert [store.revision(one, 2).sha256 for one in sides] == ["b" * 64, "a" * 64]
    # nor does an action close anything after it
    place, before = await one_claim(tmp_path / "closed", source="ai_synthesis")
    (result,) = await place.act(place.action("reject", before, reason="incorrect"))
    event = next(one.value for one in outputs([result]) if b'"review_action"' in (one.value or b""))
    decision = result.decision
    assert not is_erased_action(event, Erasures())
    for until, erased in ((decision.decided_at, True), (decision.decided_at - AN_HOUR, False)):
        erasures = Erasures()
        erasures._until[decision.tenant_id, decision.user_id] = until
        assert is_erased_action(event, erasures) is erased


async def test_a_decision_whose_record_retention_has_removed_is_expired_unless_another_has_its_id(tmp_path):
    """The same bytes at a later offset do not replace the record."""
    place = town(tmp_path / "again")
    value = claim_bytes("c", TEXT, source="user")
    await place.send(place.record(value))
    await place.send(place.record(value))
    (first,) = place.published.values()
    removed = place.log.pop(0)
    assert first.origin.offset == removed.offset
    for start, status in (removed.offset + 1, EXPIRED), (removed.offset, DIFFERS):
        assert statuses(await place.on_topics([first.to_bytes()], inputs=start)) == [status]
    place, decision = await one_claim(tmp_path)
    values = [decision.to_bytes(), with_text(decision, EVIL)]
    assert EQUAL in statuses(await place.on_topics(values))
    place.log.clear()
    later = decision.origin.offset + 1
    assert statuses(await place.on_topics(values[:1], inputs=later)) == [EXPIRED]
    assert statuses(await place.on_topics(values, inputs=later)) == [CONTRADICTED] * 2


async def test_an_approval_whose_action_the_audit_records_as_refused_is_contradicted(tmp_path):
    place, two = await one_claim(tmp_path, "approve", source="ai_synthesis")
    values = [d.to_bytes() for d in sorted(place.published.values(), key=lambda decision: decision.revision)]
    assert statuses(await place.on_topics(values)) == [EQUAL] * 2
    for cause in (two.facts.review["action_id"], two.origin.model_dump(mode="json")):
        place.ends = [event_id("refused_action", cause)]
        found = await place.on_topics(values)
        expected = [(EQUAL, ()), (CONTRADICTED, ("$.facts.review",))]
        assert [(f.status, f.paths) for f in found] == expected


async def test_on_topics_a_start_time_limits_what_is_verified_not_what_is_read(tmp_path):
    place, two = await decided_again(tmp_path)
    await place.act(place.action("approve", two))
    values = [two.to_bytes(), otherwise(two, tier="tier_1"), place.latest("c").to_bytes()]
    assert statuses(await place.on_topics(values, since=2)) == [EQUAL]
    assert CONTRADICTED in statuses(await place.on_topics(values))
    assert statuses(await place.on_topics([two.to_bytes()] * 2, since=1)) == [EQUAL]


async def test_facts_of_any_shape_and_decisions_of_the_first_day_end_no_verification(tmp_path):
    place, decision = await one_claim(tmp_path)
    facts = json.loads(decision.to_bytes())["facts"]
    for action_id in (2**60, 1.5, ["x"], {"a": 1}, True):
        review = facts | {"review": {"action_id": action_id, "key_id": "k"}}
        forged = otherwise(decision, engine="9.9", facts=review, decision_id="0" * 36)
        found = await place.on_topics([forged, decision.to_bytes()])
        assert EQUAL in statuses(found), action_id
    review = facts | {"review": {"action_id": "a", "key_id": "k"}}
    first = otherwise(decision, engine="9.9", facts=review, decided_at="0001-01-01T00:00:00Z")
    found = await place.on_topics([first], signatures=Signatures(keys=Keys.empty()))
    assert statuses(found) == [VerifyStatus.UNATTESTED]


async def test_decisions_of_an_earlier_engine_are_not_derived_but_a_replay_reports_what_new_rules_change(
    tmp_path,
):
    """It did not detect denied citations, and its policy is not stored."""
    before, place = "0.0.9", town(tmp_path)
    place.policy = Policy(version="of before")
    place.verifier = verifier(adr_folder(tmp_path / "own", ADR_003="# Redis"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groundwire.gate.build.__version__", before)
        patch.setattr("groundwire.checks.citations.denied", lambda *_, **__: False)
        await place.send(
            place.claim("kept", "Per ADR-003, sessions are in Redis"),
            place.claim("denied", "Unlike ADR-003, sessions are in cookies"),
        )
    findings = await place.in_files(tmp_path)
    detail = f"engine {before}, this is {__version__}"
    assert [(f.status, f.detail) for f in findings] == [(VerifyStatus.OTHER_ENGINE, detail)] * 2
    now = Policy(version="of now")
    with Job(tmp_path / "job", ORDER) as job:
        place.store_in(job)
        task = Task("again", KnownPolicies([now], PolicyStore(None, None)), now)
        summary = await replayed(job, tmp_path / "out", task)
        report = json.loads("".join(as_json(job, "again", summary)))
        table = "\n".join(as_table(job, summary))
    changes = [(change["before"], change["after"]) for change in report["changed"]]
    moved = [(old["subject_id"], old["reason_code"], new["reason_code"]) for old, new in changes]
    assert moved == [("denied", "verified_citation", "citation_unverified")]
    assert "2  of another engine" in table


if __name__ == "__main__":
    write(GOLDEN / __version__)
