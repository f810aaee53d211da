"""The guards as stages of a pipeline, and as plain calls.

Requirements S3-01, S3-02, S3-07, S3-08, S3-10, S3-14..S3-16, S3-22, S3-23, S3-32, C-56.
"""

import asyncio
import json
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from groundwire.checks.relations import RelationIndex
from groundwire.library.events import StandardSink, use_sink
from groundwire.library.guards import EntityGroundingGuard, RelationPreservationGuard, StageKind, StageOutput
from groundwire.messages.records import Entity, IndexEntry, RelationClaim
from tests.unit.checks.tables import failing

ACT = {"id": "lexora-act", "name": "Lexora Act"}
ACME = {"id": "acme", "name": "Acme"}
INDEX = {"acme": {"confidence": 0.9}}
SUIT = {"subject": "Acme", "relation": "sued", "object": "Globex", "version": "v2"}
TURNED = {"subject": "Globex", "relation": "sued", "object": "Acme", "version": "v2"}
HOPS = [{"hop": 1}]


class Sink:
    def __init__(self):
        self.events = []

    def try_emit(self, event, payload, /):
        self.events.append((event, payload))


class BrokenSink:
    def try_emit(self, event, payload, /):
        raise ConnectionError(event, payload)


class Inputs:
    """The inputs of a stage: what earlier stages handed on."""

    def __init__(self, **stages):
        self.stages = stages

    def get_from(self, stage, key, *, default=None):
        return self.stages.get(stage, {}).get(key, default)


def context(*, sink=None, **stages):
    return SimpleNamespace(inputs=Inputs(**stages), event_sink=sink or Sink(), tenant_id="acme-legal")


def retrieved(entities, index=None, **more):
    given = {"entities": entities} | ({} if index is None else {"corpus_index": index})
    return context(retrieval=given, **more)


def drafted(claims, **more):
    return context(draft_answer={"claims": claims}, multi_hop_retrieval={"hop_results": HOPS}, **more)


class Resolver:
    """A resolver that knows what stands in it, and keeps what it was asked."""

    def __init__(self, *truths):
        self.truths = {(truth["subject"], truth["object"]): truth for truth in truths}
        self.asked = []

    def lookup(self, subject, relation, obj, timestamp):
        self.asked.append((subject, relation, obj, timestamp))
        return self.truths.get((subject, obj)) or self.truths.get((obj, subject))


@pytest.fixture
def log():
    sink = Sink()
    use_sink(sink)
    yield sink
    use_sink(StandardSink())


# entity grounding


def test_each_guard_is_a_guard_of_its_name():
    for guard, name in [
        (EntityGroundingGuard(required_confidence=0.6), "entity_grounding_guard"),
        (RelationPreservationGuard(Resolver()), "relation_preservation_guard"),
    ]:
        assert (guard.name, guard.kind, str(guard.kind)) == (name, StageKind.GUARD, "guard")


async def test_grounded_entities_are_handed_on_as_they_came():
    ctx = retrieved([ACME], INDEX)
    output = await EntityGroundingGuard().execute(ctx)
    assert (output.status, output.error, output.data) == ("ok", None, {"grounded_entities": [ACME]})
    assert ctx.event_sink.events == []


async def test_a_missing_entity_fails_with_an_event_that_names_no_names():
    ctx = retrieved([ACME, ACT], INDEX)
    output = await EntityGroundingGuard().execute(ctx)
    assert (output.status, output.error) == ("fail", "entity_grounding_failed")
    assert output.data == {
        "missing_entities": [{"entity": ACT, "entity_id": "lexora-act", "reason": "not_found"}]
    }
    payload = {
        "missing_entities": [{"entity_id": "lexora-act", "reason": "not_found"}],
        "required_confidence": 0.6,
        "entity_count": 2,
        "tenant_id": "acme-legal",
    }
    assert ctx.event_sink.events == [("knowledge.eg.failed", payload)]


async def test_input_that_is_not_there_is_empty():
    output = await EntityGroundingGuard().execute(context())
    assert output == StageOutput.ok(grounded_entities=[])
    assert (await EntityGroundingGuard().execute(retrieved([ACME]))).error == "entity_grounding_failed"
    relations = await RelationPreservationGuard(Resolver()).execute(context())
    assert relations == StageOutput.ok(grounded_claims=0, hop_evidence=[])


async def test_the_rules_of_the_guard_reach_the_check():
    for rules, entity, entry, reason in [
        ({}, {}, {"confidence": 0.59}, "low_confidence"),
        ({"required_confidence": 0.95}, {}, {"confidence": 0.9}, "low_confidence"),
        ({}, {"role": "CFO"}, {"confidence": 0.9, "role": "CIO"}, "role_mismatch"),
        ({"require_provenance": True}, {}, {"confidence": 0.9}, "missing_provenance"),
    ]:
        output = await EntityGroundingGuard(**rules).execute(retrieved([ACME | entity], {"acme": entry}))
        assert [one["reason"] for one in output.data["missing_entities"]] == [reason]


def test_a_required_confidence_that_is_no_share_is_refused():
    def check(required):
        with pytest.raises(ValueError, match="from 0 to 1"):
            EntityGroundingGuard(required_confidence=required)

    assert failing(check, [-0.1, 1.1, 60, float("nan")]) == []


async def asked_async(_ids):
    return INDEX


async def test_an_index_may_come_from_a_resolver():
    for resolver in (INDEX, lambda _ids: INDEX, asked_async):
        output = await EntityGroundingGuard(entity_resolver=resolver).execute(retrieved([ACME, ACT]))
        assert [one["entity_id"] for one in output.data["missing_entities"]] == ["lexora-act"]


async def test_a_resolver_is_asked_once_for_each_id_and_not_where_the_input_has_an_index():
    resolver = Mock(return_value=INDEX)
    guard = EntityGroundingGuard(entity_resolver=resolver)
    await guard.execute(retrieved([ACME, ACT, ACME, {"name": "no id"}]))
    resolver.assert_called_once_with(["acme", "lexora-act"])
    output = await guard.execute(retrieved([ACME], {}))
    assert output.error == "entity_grounding_failed"
    resolver.assert_called_once()


# relation preservation


async def test_claims_that_hold_are_counted_and_the_hops_handed_on():
    output = await RelationPreservationGuard(Resolver(SUIT)).execute(drafted([SUIT, SUIT]))
    assert output == StageOutput.ok(grounded_claims=2, hop_evidence=HOPS)


async def test_the_resolver_is_asked_for_each_claim_by_name():
    resolver = Mock()
    resolver.lookup.return_value = SUIT
    await RelationPreservationGuard(resolver).execute(
        drafted([SUIT, SUIT | {"timestamp": "2024-01-01T00:00:00Z"}])
    )
    named = {"subject": "Acme", "relation": "sued", "obj": "Globex"}
    assert [call.kwargs for call in resolver.lookup.call_args_list] == [
        {**named, "timestamp": None},
        {**named, "timestamp": "2024-01-01T00:00:00Z"},
    ]


async def test_a_violation_fails_with_the_claim_and_an_event_without_it():
    claims = [{**SUIT, "object": "Initech"}, {**SUIT, "version": "v1"}, SUIT]
    ctx = drafted(claims)
    output = await RelationPreservationGuard(Resolver(SUIT)).execute(ctx)
    violations = [
        {"index": 0, "reason": "missing_source"},
        {"index": 1, "reason": "version_mismatch", "expected_version": "v2"},
    ]
    assert (output.status, output.error) == ("fail", "relation_preservation_failed")
    assert output.data == {"violations": [{"claim": claims[one["index"]], **one} for one in violations]}
    payload = {"violations": violations, "claim_count": 3, "tenant_id": "acme-legal"}
    assert ctx.event_sink.events == [("knowledge.rp.violation", payload)]


async def test_a_claim_without_a_version_passes_and_is_named():
    claims = [SUIT, {**SUIT, "version": None}]
    output = await RelationPreservationGuard(Resolver(SUIT)).execute(drafted(claims))
    assert output == StageOutput.ok(grounded_claims=2, hop_evidence=HOPS, version_unspecified=[1])
    strict = await RelationPreservationGuard(Resolver(SUIT), strict_versions=True).execute(drafted(claims))
    assert [one["index"] for one in strict.data["violations"]] == [1]


async def test_required_qualifiers_reach_the_check():
    truth = SUIT | {"qualifiers": {"court": "NY"}}
    assert (await RelationPreservationGuard(Resolver(truth)).execute(drafted([SUIT]))).status == "ok"
    output = await RelationPreservationGuard(Resolver(truth), require_qualifiers=True).execute(
        drafted([SUIT])
    )
    assert [one["reason"] for one in output.data["violations"]] == ["missing_qualifier"]


async def test_a_truth_of_a_resolver_may_leave_out_whom_it_is_about():
    seed_shape = {"relation": "sued", "version": "v2"}
    guard = RelationPreservationGuard(lambda **_asked: seed_shape)
    assert (await guard.execute(drafted([SUIT]))).status == "ok"
    output = await guard.execute(drafted([{**SUIT, "relation": "owns", "version": "v1"}]))
    assert [one["reason"] for one in output.data["violations"]] == ["version_mismatch", "relation_mismatch"]


async def look_up(**_asked):
    await asyncio.sleep(0)
    return [SUIT]


async def test_ground_truth_may_come_from_many_places():
    wrong = []
    for name, resolver in {
        "object": Resolver(SUIT),
        "function": lambda **_asked: SUIT,
        "several": lambda **_asked: [SUIT | {"version": "v1"}, SUIT],
        "record": lambda **_asked: RelationClaim(**SUIT),
        "coroutine": look_up,
        "coroutine method": SimpleNamespace(lookup=look_up),
        "list": [SUIT],
        "index": RelationIndex([SUIT]),
        "by pair": {("Acme", "Globex"): {"relation": "sued", "version": "v2"}},
        "by triple": {("Acme", "sued", "Globex"): [{"version": "v1"}, {"version": "v2"}]},
    }.items():
        guard = RelationPreservationGuard(resolver)
        held, turned = await guard.execute(drafted([SUIT])), await guard.execute(drafted([TURNED]))
        found = [(one["reason"], one["detail"]) for one in turned.data["violations"]]
        if (held.status, found) != ("ok", [("relation_mismatch", "inverted")]):
            wrong.append((name, held, turned))
    assert wrong == []


# what breaks lets nothing pass


def raises(*_given, **_asked):
    raise TimeoutError("secret-host:7687 did not answer")


async def raises_later(*_given, **_asked):
    await asyncio.sleep(0)
    raise TimeoutError("secret-host:7687 did not answer")


async def test_a_resolver_that_breaks_or_talks_nonsense_lets_nothing_pass():
    async def output_of(entities=None, relations=None):
        if relations is None:
            return await EntityGroundingGuard(entity_resolver=entities).execute(retrieved([ACME]))
        return await RelationPreservationGuard(relations).execute(drafted([SUIT]))

    indexes = [raises, raises_later, lambda _ids: None, lambda _ids: [ACME], lambda: INDEX]
    nonsense = [lambda **_asked: "sued", lambda **_asked: 7, lambda **_asked: [None], lambda: SUIT]
    for error, outputs in [
        ("entities_unavailable", [await output_of(entities=one) for one in indexes]),
        (
            "relations_unavailable",
            [await output_of(relations=one) for one in (raises, raises_later, *nonsense)],
        ),
    ]:
        found = [(output.status, output.error, set(output.data)) for output in outputs]
        assert found == [("fail", error, {"error"})] * len(found)
        assert not [output for output in outputs if "secret-host" in json.dumps(output.data)]


async def test_a_resolver_that_knows_nothing_leaves_a_claim_without_a_source():
    for nothing in [None, {}, [], ()]:
        output = await RelationPreservationGuard(lambda nothing=nothing, **_asked: nothing).execute(
            drafted([SUIT])
        )
        assert [one["reason"] for one in output.data["violations"]] == ["missing_source"]


async def test_odd_input_never_passes():
    for odd in [7, "acme", [None], [["acme"]], {"acme": 1}]:
        assert (await EntityGroundingGuard().execute(retrieved(odd, INDEX))).status == "fail"
        assert (await RelationPreservationGuard([SUIT]).execute(drafted(odd))).status == "fail"


async def test_an_index_that_is_none_or_a_context_that_breaks_grounds_nothing():
    for ctx in [*(retrieved([ACME], index) for index in ([ACME], "acme", 7)), object()]:
        assert (await EntityGroundingGuard().execute(ctx)).error == "entities_unavailable"
    assert (await RelationPreservationGuard([]).execute(object())).status == "fail"


async def test_the_sink_of_a_guard_comes_before_that_of_the_context_whose_tenant_is_the_default_one():
    given = {"entities": [ACT], "corpus_index": {}, "claims": [SUIT]}
    inputs = SimpleNamespace(get_from=lambda _stage, key, default: given.get(key, default))
    own, ctx = Sink(), Mock(inputs=inputs, event_sink=Sink())
    await EntityGroundingGuard(sink=own).execute(ctx)
    await RelationPreservationGuard([], sink=own).execute(ctx)
    assert [name for name, _ in own.events] == ["knowledge.eg.failed", "knowledge.rp.violation"]
    assert own.events[0][1]["tenant_id"] == "default"
    assert ctx.event_sink.events == []


async def test_cancelling_is_no_failure_of_the_resolver():
    async def cancelled(**_asked):
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await RelationPreservationGuard(cancelled).execute(drafted([SUIT]))


async def test_a_broken_sink_changes_nothing(log):
    for sink in [BrokenSink(), object(), None]:
        ctx = retrieved([ACT], INDEX)
        ctx.event_sink = sink
        good = await EntityGroundingGuard().execute(retrieved([ACT], INDEX))
        assert await EntityGroundingGuard().execute(ctx) == good
        assert await EntityGroundingGuard(sink=BrokenSink()).execute(ctx) == good
        turned = drafted([TURNED])
        turned.event_sink = sink
        assert (
            await RelationPreservationGuard([SUIT]).execute(turned)
        ).error == "relation_preservation_failed"
        assert [name for name, _ in log.events] == (
            [] if sink else ["knowledge.eg.failed", "knowledge.rp.violation"]
        )


# without a pipeline


def test_entities_can_be_checked_by_a_plain_call(log):
    guard = EntityGroundingGuard(entity_resolver=INDEX)
    assert guard.check([ACME]).grounded == ("acme",)
    assert guard.check([Entity(id="x")], {"x": IndexEntry(confidence=0.7)}).missing == ()
    assert log.events == []
    found = guard.check(iter([ACT]), tenant_id="t")
    assert [one.reason for one in found.missing] == ["not_found"]
    assert [(name, payload["tenant_id"]) for name, payload in log.events] == [("knowledge.eg.failed", "t")]


def test_relations_can_be_checked_by_a_plain_call(log):
    guard = RelationPreservationGuard(Resolver(SUIT))
    assert guard.check([SUIT, RelationClaim(**SUIT)]).grounded_claims == 2
    assert log.events == []
    assert [one.reason for one in guard.check([TURNED], tenant_id="t").violations] == ["relation_mismatch"]
    assert [(name, payload["tenant_id"]) for name, payload in log.events] == [("knowledge.rp.violation", "t")]


async def test_a_plain_call_says_where_it_would_have_to_wait_or_where_the_resolver_broke():
    with pytest.raises(TypeError, match="await execute"):
        EntityGroundingGuard(entity_resolver=asked_async).check([ACME])
    with pytest.raises(TypeError, match="await execute"):
        RelationPreservationGuard(look_up).check([SUIT])
    with pytest.raises(TypeError, match="maps entity ids to entries"):
        EntityGroundingGuard().check([ACME], [ACME])
    with pytest.raises(TimeoutError):
        EntityGroundingGuard(entity_resolver=raises).check([ACME])
    with pytest.raises(TimeoutError):
        RelationPreservationGuard(raises).check([SUIT])
    with pytest.raises(TypeError, match="a truth is a mapping with subject, relation and object, got int"):
        RelationPreservationGuard(lambda **_asked: [7]).check([SUIT])
    future = asyncio.get_running_loop().create_future()
    with pytest.raises(TypeError, match="await execute"):
        RelationPreservationGuard(lambda **_asked: future).check([SUIT])


# both, in their places


async def test_either_guard_keeps_what_comes_after_it_from_running():
    """Retrieval's entities are checked before the model runs, its claims before they are published (S3-14, S3-32)."""
    for entities, claims, ran in [
        ([ACME], [SUIT], ["entity_grounding_guard", "llm", "relation_preservation_guard", "publish"]),
        ([ACT], [SUIT], ["entity_grounding_guard"]),
        ([ACME], [TURNED], ["entity_grounding_guard", "llm", "relation_preservation_guard"]),
    ]:
        done = []

        class Step:
            def __init__(self, name):
                self.name = name

            async def execute(self, _ctx):
                return StageOutput.ok()

        ctx = context(
            retrieval={"entities": entities, "corpus_index": INDEX}, draft_answer={"claims": claims}
        )
        for stage in (
            EntityGroundingGuard(),
            Step("llm"),
            RelationPreservationGuard([SUIT]),
            Step("publish"),
        ):
            done.append(stage.name)
            if (await stage.execute(ctx)).status == "fail":
                break
        assert done == ran
