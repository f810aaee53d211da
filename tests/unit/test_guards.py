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


def context(**stages):
    """A context whose inputs are what earlier stages handed on."""
    inputs = SimpleNamespace(get_from=lambda stage, key, default: stages.get(stage, {}).get(key, default))
    return SimpleNamespace(inputs=inputs, event_sink=Sink(), tenant_id="acme-legal")


def retrieved(entities, index=None):
    return context(retrieval={"entities": entities} | ({} if index is None else {"corpus_index": index}))


def drafted(claims):
    return context(draft_answer={"claims": claims}, multi_hop_retrieval={"hop_results": HOPS})


def reasons(output):
    return [one["reason"] for one in (output.data.get("missing_entities") or output.data["violations"])]


@pytest.fixture
def log():
    sink = Sink()
    use_sink(sink)
    yield sink
    use_sink(StandardSink())


# entity grounding


async def test_grounded_entities_are_handed_on_as_they_came_and_input_that_is_not_there_is_empty():
    ctx = retrieved([ACME], INDEX)
    output = await EntityGroundingGuard().execute(ctx)
    assert (output.status, output.error, output.data) == ("ok", None, {"grounded_entities": [ACME]})
    assert ctx.event_sink.events == []
    for guard, name, empty in [
        (EntityGroundingGuard(), "entity_grounding_guard", {"grounded_entities": []}),
        (
            RelationPreservationGuard([]),
            "relation_preservation_guard",
            {"grounded_claims": 0, "hop_evidence": []},
        ),
    ]:
        assert (guard.name, guard.kind, str(guard.kind)) == (name, StageKind.GUARD, "guard")
        assert await guard.execute(context()) == StageOutput.ok(**empty)


async def test_a_missing_entity_fails_with_an_event_that_names_no_names():
    ctx = retrieved([ACME, ACT], INDEX)
    output = await EntityGroundingGuard().execute(ctx)
    missing = {"entity_id": "lexora-act", "reason": "not_found"}
    assert (output.status, output.error) == ("fail", "entity_grounding_failed")
    assert output.data == {"missing_entities": [{"entity": ACT, **missing}]}
    payload = {"missing_entities": [missing], "required_confidence": 0.6, "entity_count": 2}
    assert ctx.event_sink.events == [("knowledge.eg.failed", {**payload, "tenant_id": "acme-legal"})]


async def test_the_rules_of_the_guard_reach_the_check_and_a_confidence_that_is_no_share_is_refused():
    for rules, entity, entry, reason in [
        ({}, {}, {"confidence": 0.59}, "low_confidence"),
        ({"required_confidence": 0.95}, {}, {"confidence": 0.9}, "low_confidence"),
        ({}, {"role": "CFO"}, {"confidence": 0.9, "role": "CIO"}, "role_mismatch"),
        ({"require_provenance": True}, {}, {"confidence": 0.9}, "missing_provenance"),
    ]:
        output = await EntityGroundingGuard(**rules).execute(retrieved([ACME | entity], {"acme": entry}))
        assert reasons(output) == [reason]

    def check(required):
        with pytest.raises(ValueError, match="from 0 to 1"):
            EntityGroundingGuard(required_confidence=required)

    assert failing(check, [-0.1, 1.1, float("nan")]) == []


async def asked_async(_ids):
    return INDEX


async def test_an_index_may_come_from_a_resolver_which_is_asked_once_and_only_where_the_input_has_none():
    for resolver in (INDEX, lambda _ids: INDEX, asked_async):
        output = await EntityGroundingGuard(entity_resolver=resolver).execute(retrieved([ACME, ACT]))
        assert [one["entity_id"] for one in output.data["missing_entities"]] == ["lexora-act"]
    resolver = Mock(return_value=INDEX)
    guard = EntityGroundingGuard(entity_resolver=resolver)
    await guard.execute(retrieved([ACME, ACT, ACME, {"name": "no id"}]))
    assert (await guard.execute(retrieved([ACME], {}))).error == "entity_grounding_failed"
    resolver.assert_called_once_with(["acme", "lexora-act"])


# relation preservation


async def test_claims_that_hold_are_counted_and_the_resolver_is_asked_for_each_by_name():
    resolver, since = Mock(), {"timestamp": "2024-01-01T00:00:00Z"}
    resolver.lookup.return_value = SUIT
    output = await RelationPreservationGuard(resolver).execute(drafted([SUIT, SUIT | since]))
    assert output == StageOutput.ok(grounded_claims=2, hop_evidence=HOPS)
    named = {"subject": "Acme", "relation": "sued", "obj": "Globex"}
    asked = [call.kwargs for call in resolver.lookup.call_args_list]
    assert asked == [{**named, "timestamp": None}, {**named, **since}]


async def test_a_violation_fails_with_the_claim_and_an_event_without_it():
    claims = [{**SUIT, "object": "Initech"}, {**SUIT, "version": "v1"}, SUIT]
    ctx = drafted(claims)
    output = await RelationPreservationGuard([SUIT]).execute(ctx)
    violations = [
        {"index": 0, "reason": "missing_source"},
        {"index": 1, "reason": "version_mismatch", "expected_version": "v2"},
    ]
    assert (output.status, output.error) == ("fail", "relation_preservation_failed")
    assert output.data == {"violations": [{"claim": claims[one["index"]], **one} for one in violations]}
    payload = {"violations": violations, "claim_count": 3, "tenant_id": "acme-legal"}
    assert ctx.event_sink.events == [("knowledge.rp.violation", payload)]


async def test_strict_versions_and_required_qualifiers_reach_the_check():
    claims = [SUIT, {**SUIT, "version": None}]
    output = await RelationPreservationGuard([SUIT]).execute(drafted(claims))
    assert output == StageOutput.ok(grounded_claims=2, hop_evidence=HOPS, version_unspecified=[1])
    strict = await RelationPreservationGuard([SUIT], strict_versions=True).execute(drafted(claims))
    assert [one["index"] for one in strict.data["violations"]] == [1]
    truth = SUIT | {"qualifiers": {"court": "NY"}}
    assert (await RelationPreservationGuard([truth]).execute(drafted([SUIT]))).status == "ok"
    output = await RelationPreservationGuard([truth], require_qualifiers=True).execute(drafted([SUIT]))
    assert reasons(output) == ["missing_qualifier"]


async def look_up(**_asked):
    await asyncio.sleep(0)
    return [SUIT]


async def test_ground_truth_may_come_from_many_places_and_may_leave_out_whom_it_is_about():
    wrong = []
    for name, resolver in {
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
    guard = RelationPreservationGuard(lambda **_asked: {"relation": "sued", "version": "v2"})
    assert (await guard.execute(drafted([SUIT]))).status == "ok"
    output = await guard.execute(drafted([{**SUIT, "relation": "owns", "version": "v1"}]))
    assert reasons(output) == ["version_mismatch", "relation_mismatch"]
    for nothing in [None, {}, [], ()]:
        guard = RelationPreservationGuard(lambda nothing=nothing, **_asked: nothing)
        assert reasons(await guard.execute(drafted([SUIT]))) == ["missing_source"]


# what breaks lets nothing pass


def raises(*_given, **_asked):
    raise TimeoutError("secret-host:7687 did not answer")


async def test_a_resolver_that_breaks_or_talks_nonsense_lets_nothing_pass():
    async def raises_later(*_given, **_asked):
        raises()

    indexes = [raises, raises_later, lambda _ids: None, lambda _ids: [ACME], lambda: INDEX]
    nonsense = [lambda **_asked: "sued", lambda **_asked: 7, lambda **_asked: [None], lambda: SUIT]
    guards = [EntityGroundingGuard(entity_resolver=one) for one in indexes]
    guards += [RelationPreservationGuard(one) for one in (raises, raises_later, *nonsense)]
    for guard in guards:
        entities = isinstance(guard, EntityGroundingGuard)
        output = await guard.execute(retrieved([ACME]) if entities else drafted([SUIT]))
        assert output.error == ("entities_unavailable" if entities else "relations_unavailable")
        assert set(output.data) == {"error"}
        assert "secret-host" not in json.dumps(output.data)
    with pytest.raises(asyncio.CancelledError):  # which is no failure of the resolver
        await RelationPreservationGuard(Mock(spec=[], side_effect=asyncio.CancelledError)).execute(
            drafted([SUIT])
        )


async def test_odd_input_an_index_that_is_none_or_a_context_that_breaks_never_passes():
    for odd in [7, "acme", [None], [["acme"]], {"acme": 1}]:
        assert (await EntityGroundingGuard().execute(retrieved(odd, INDEX))).status == "fail"
        assert (await RelationPreservationGuard([SUIT]).execute(drafted(odd))).status == "fail"
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


async def test_a_broken_sink_changes_nothing(log):
    broken = Mock(try_emit=Mock(side_effect=ConnectionError))
    for sink in [broken, object(), None]:
        ctx, turned = retrieved([ACT], INDEX), drafted([TURNED])
        ctx.event_sink = turned.event_sink = sink
        good = await EntityGroundingGuard().execute(retrieved([ACT], INDEX))
        assert await EntityGroundingGuard().execute(ctx) == good
        assert await EntityGroundingGuard(sink=broken).execute(ctx) == good
        output = await RelationPreservationGuard([SUIT]).execute(turned)
        assert output.error == "relation_preservation_failed"
        to_log = [] if sink else ["knowledge.eg.failed", "knowledge.rp.violation"]
        assert [name for name, _ in log.events] == to_log


# without a pipeline


def test_entities_and_relations_can_be_checked_by_a_plain_call(log):
    guard = EntityGroundingGuard(entity_resolver=INDEX)
    assert guard.check([ACME]).grounded == ("acme",)
    assert guard.check([Entity(id="x")], {"x": IndexEntry(confidence=0.7)}).missing == ()
    relations = RelationPreservationGuard([SUIT])
    assert relations.check([SUIT, RelationClaim(**SUIT)]).grounded_claims == 2
    assert log.events == []
    assert [one.reason for one in guard.check(iter([ACT]), tenant_id="t").missing] == ["not_found"]
    violations = relations.check([TURNED], tenant_id="t").violations
    assert [one.reason for one in violations] == ["relation_mismatch"]
    sent = [(name, payload["tenant_id"]) for name, payload in log.events]
    assert sent == [("knowledge.eg.failed", "t"), ("knowledge.rp.violation", "t")]


async def test_a_plain_call_says_where_it_would_have_to_wait_or_where_the_resolver_broke():
    future = asyncio.get_running_loop().create_future()
    entities, relations = EntityGroundingGuard, RelationPreservationGuard
    for guard, given, error, told in [
        (entities(entity_resolver=asked_async), ([ACME],), TypeError, "await execute"),
        (relations(look_up), ([SUIT],), TypeError, "await execute"),
        (relations(lambda **_asked: future), ([SUIT],), TypeError, "await execute"),
        (entities(), ([ACME], [ACME]), TypeError, "maps entity ids to entries"),
        (entities(entity_resolver=raises), ([ACME],), TimeoutError, "did not answer"),
        (relations(raises), ([SUIT],), TimeoutError, "did not answer"),
        (relations(lambda **_: [7]), ([SUIT],), TypeError, "with subject, relation and object, got int"),
    ]:
        with pytest.raises(error, match=told):
            guard.check(*given)


async def test_either_guard_keeps_what_comes_after_it_from_running():
    """Retrieval's entities are checked before the model runs, its claims before they are published (S3-14, S3-32)."""

    class Step:
        async def execute(self, _ctx):
            return StageOutput.ok()

    for entities, claims, ran in [([ACME], [SUIT], 4), ([ACT], [SUIT], 1), ([ACME], [TURNED], 3)]:
        given = {"entities": entities, "corpus_index": INDEX}
        ctx, done = context(retrieval=given, draft_answer={"claims": claims}), 0
        for stage in (EntityGroundingGuard(), Step(), RelationPreservationGuard([SUIT]), Step()):
            done += 1
            if (await stage.execute(ctx)).status == "fail":
                break
        assert done == ran
