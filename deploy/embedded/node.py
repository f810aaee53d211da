"""The one node of the embedded broker: its topics, its groups, and an answer to each request.

Requests and answers are the structures of aiokafka, so only versions that this client speaks are offered:
one of each, the oldest that has what Groundwire needs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from aiokafka.protocol.admin import (
    ApiVersionRequest_v0,
    CreatePartitionsRequest_v0,
    CreateTopicsRequest_v1,
    DeleteRecordsRequest_v0,
    DeleteTopicsRequest_v1,
    DescribeConfigsRequest_v0,
)
from aiokafka.protocol.commit import OffsetCommitRequest_v2, OffsetFetchRequest_v2
from aiokafka.protocol.coordination import FindCoordinatorRequest_v0
from aiokafka.protocol.fetch import FetchRequest_v4
from aiokafka.protocol.group import (
    HeartbeatRequest_v1,
    JoinGroupRequest_v5,
    LeaveGroupRequest_v1,
    SyncGroupRequest_v3,
)
from aiokafka.protocol.metadata import MetadataRequest_v1
from aiokafka.protocol.offset import OffsetRequest_v2
from aiokafka.protocol.produce import ProduceRequest_v5
from aiokafka.protocol.transaction import InitProducerIdRequest_v0

from deploy.embedded.groups import Group, JoinRequest
from deploy.embedded.partitions import MAX_BATCH_BYTES, NO_ERROR, Partition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiokafka.protocol.api import RequestStruct

UNKNOWN_TOPIC_OR_PARTITION = 3
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REQUEST = 42
UNSUPPORTED_VERSION = 35

NODE_ID = 1
TOPIC_RESOURCE = 2  # DescribeConfigs numbers kinds of resources; 2 is a topic

#: A request's fields by name; aiokafka sets them at run time, out of a type checker's sight.
Fields = Any


@dataclass(slots=True)
class Topic:
    """A topic's partitions, and the settings it was created with."""

    partitions: list[Partition]
    settings: dict[str, str] = field(default_factory=dict)

    def grow(self, count: int) -> None:
        """Add partitions until there are so many."""
        largest = int(self.settings.get("max.message.bytes", MAX_BATCH_BYTES))
        self.partitions += [Partition(largest) for _ in range(count - len(self.partitions))]


class Node:
    """Everything a client can ask of the broker.

    Args:
        host: the address that clients are told.
        port: the port that clients are told.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        self._producer_ids = count(1)
        self._appended = asyncio.Event()
        self._answers: Mapping[type[RequestStruct], Callable[[Fields], Awaitable[tuple[Any, ...] | None]]] = {
            ApiVersionRequest_v0: self._api_versions,
            CreatePartitionsRequest_v0: self._create_partitions,
            CreateTopicsRequest_v1: self._create_topics,
            DeleteRecordsRequest_v0: self._delete_records,
            DeleteTopicsRequest_v1: self._delete_topics,
            DescribeConfigsRequest_v0: self._describe_configs,
            FetchRequest_v4: self._fetch,
            FindCoordinatorRequest_v0: self._find_coordinator,
            HeartbeatRequest_v1: self._heartbeat,
            InitProducerIdRequest_v0: self._init_producer_id,
            JoinGroupRequest_v5: self._join_group,
            LeaveGroupRequest_v1: self._leave_group,
            MetadataRequest_v1: self._metadata,
            OffsetCommitRequest_v2: self._offset_commit,
            OffsetFetchRequest_v2: self._offset_fetch,
            OffsetRequest_v2: self._list_offsets,
            ProduceRequest_v5: self._produce,
            SyncGroupRequest_v3: self._sync_group,
        }
        self.requests = {(struct.API_KEY, struct.API_VERSION): struct for struct in self._answers}

    async def answer(self, api_key: int, version: int, body: bytes) -> bytes | None:
        """Return the encoded answer to one request, or None where the client wants none.

        Raises:
            LookupError: the request's kind or version is not offered.
        """
        struct = self.requests[api_key, version]
        values = await self._answers[struct](struct.decode(body))
        return None if values is None else struct.RESPONSE_TYPE(*values).encode()

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Create a topic; one that exists is left as it is."""
        topic = Topic([], dict(settings or {}))
        topic.grow(partitions)
        self.topics.setdefault(name, topic)

    def _partition(self, topic: str, index: int) -> Partition | None:
        partitions = self.topics[topic].partitions if topic in self.topics else []
        return partitions[index] if 0 <= index < len(partitions) else None

    async def _api_versions(self, _asked: Fields) -> tuple[Any, ...]:
        return NO_ERROR, [(key, version, version) for key, version in sorted(self.requests)]

    async def _metadata(self, asked: Fields) -> tuple[Any, ...]:
        names = list(self.topics) if asked.topics is None else asked.topics
        found: list[tuple[Any, ...]] = []
        for name in names:
            indices = range(len(self.topics[name].partitions)) if name in self.topics else ()
            partitions = [(NO_ERROR, i, NODE_ID, [NODE_ID], [NODE_ID]) for i in indices]
            error = NO_ERROR if name in self.topics else UNKNOWN_TOPIC_OR_PARTITION
            found.append((error, name, False, partitions))
        return [(NODE_ID, self.host, self.port, None)], NODE_ID, found

    async def _create_topics(self, asked: Fields) -> tuple[Any, ...]:
        results = []
        for name, partitions, replication, assignment, settings in asked.create_topic_requests:
            if assignment:
                error = INVALID_REQUEST
            elif name in self.topics:
                error = TOPIC_ALREADY_EXISTS
            elif partitions < 1:
                error = INVALID_PARTITIONS
            else:
                error = NO_ERROR if replication == 1 else INVALID_REPLICATION_FACTOR
            if not error and not asked.validate_only:
                self.create_topic(name, partitions, dict(settings))
            results.append((name, error, None))
        return (results,)

    async def _delete_topics(self, asked: Fields) -> tuple[Any, ...]:
        gone = {name: self.topics.pop(name, None) for name in asked.topics}
        for group in self.groups.values():
            group.offsets = {place: of for place, of in group.offsets.items() if place[0] in self.topics}
        results = [(name, UNKNOWN_TOPIC_OR_PARTITION if gone[name] is None else NO_ERROR) for name in gone]
        return 0, results

    async def _create_partitions(self, asked: Fields) -> tuple[Any, ...]:
        results = []
        for name, (partitions, _assignment) in asked.topic_partitions:
            topic = self.topics.get(name)
            if topic is None:
                results.append((name, UNKNOWN_TOPIC_OR_PARTITION, None))
            elif partitions <= len(topic.partitions):
                results.append((name, INVALID_PARTITIONS, None))
            else:
                topic.grow(partitions)
                results.append((name, NO_ERROR, None))
        return 0, results

    async def _delete_records(self, asked: Fields) -> tuple[Any, ...]:
        topics = []
        for topic, partitions in asked.topics:
            results = []
            for index, offset in partitions:
                log = self._partition(topic, index)
                error, start = log.delete_before(offset) if log else (UNKNOWN_TOPIC_OR_PARTITION, -1)
                results.append((index, start, error))
            topics.append((topic, results))
        return 0, topics

    async def _describe_configs(self, asked: Fields) -> tuple[Any, ...]:
        results: list[tuple[Any, ...]] = []
        for kind, name, wanted in asked.resources:
            if kind != TOPIC_RESOURCE or name not in self.topics:
                results.append((UNKNOWN_TOPIC_OR_PARTITION, None, kind, name, []))
                continue
            settings = self.topics[name].settings
            entries = [(k, v, False, False, False) for k, v in settings.items() if not wanted or k in wanted]
            results.append((NO_ERROR, None, kind, name, entries))
        return 0, results

    async def _init_producer_id(self, asked: Fields) -> tuple[Any, ...]:
        if asked.transactional_id is not None:
            return 0, INVALID_REQUEST, -1, -1  # no transactions here
        return 0, NO_ERROR, next(self._producer_ids), 0

    async def _produce(self, asked: Fields) -> tuple[Any, ...] | None:
        topics = []
        for topic, partitions in asked.topics:
            results = []
            for index, records in partitions:
                log = self._partition(topic, index)
                error, offset = log.append(records) if log else (UNKNOWN_TOPIC_OR_PARTITION, -1)
                results.append((index, error, offset, -1, 0))
            topics.append((topic, results))
        self._appended.set()  # ends the wait of all pending fetches; later ones wait for the next append
        self._appended = asyncio.Event()
        return (topics, 0) if asked.required_acks else None

    async def _fetch(self, asked: Fields) -> tuple[Any, ...]:
        ends = asyncio.get_running_loop().time() + asked.max_wait_time / 1000
        while True:
            appended = self._appended
            topics, size, failed = self._read(asked)
            left = ends - asyncio.get_running_loop().time()
            if size >= asked.min_bytes or failed or left <= 0:
                return 0, topics
            try:
                await asyncio.wait_for(appended.wait(), left)
            except TimeoutError:
                return 0, topics

    def _read(self, asked: Fields) -> tuple[list[Any], int, bool]:
        topics, size, failed = [], 0, False
        for topic, partitions in asked.topics:
            results = []
            for index, offset, max_bytes in partitions:
                log = self._partition(topic, index)
                error, data, end = UNKNOWN_TOPIC_OR_PARTITION, b"", -1
                if log:
                    end = log.end
                    # a whole answer is bounded too, but its first batch always travels
                    room = min(max_bytes, asked.max_bytes - size)
                    error, data = log.read(offset, room) if room > 0 else (NO_ERROR, b"")
                size += len(data)
                failed = failed or error != NO_ERROR
                results.append((index, error, end, end, None, data))
            topics.append((topic, results))
        return topics, size, failed

    async def _list_offsets(self, asked: Fields) -> tuple[Any, ...]:
        topics = []
        for topic, partitions in asked.topics:
            results = []
            for index, timestamp in partitions:
                log = self._partition(topic, index)
                found = log.offset_at(timestamp) if log else (-1, -1)
                results.append((index, NO_ERROR if log else UNKNOWN_TOPIC_OR_PARTITION, *found))
            topics.append((topic, results))
        return 0, topics

    async def _find_coordinator(self, _asked: Fields) -> tuple[Any, ...]:
        return NO_ERROR, NODE_ID, self.host, self.port

    def _group(self, name: str) -> Group:
        return self.groups.setdefault(name, Group())

    async def _join_group(self, asked: Fields) -> tuple[Any, ...]:
        request = JoinRequest(
            asked.member_id,
            asked.group_instance_id,
            asked.session_timeout,
            asked.rebalance_timeout,
            asked.group_protocols,
        )
        return 0, *(await self._group(asked.group).join(request))

    async def _sync_group(self, asked: Fields) -> tuple[Any, ...]:
        group = self._group(asked.group)
        return 0, *(await group.sync(asked.member_id, asked.generation_id, asked.group_assignment))

    async def _heartbeat(self, asked: Fields) -> tuple[Any, ...]:
        return 0, self._group(asked.group).heartbeat(asked.member_id, asked.generation_id)

    async def _leave_group(self, asked: Fields) -> tuple[Any, ...]:
        return 0, self._group(asked.group).leave(asked.member_id)

    async def _offset_commit(self, asked: Fields) -> tuple[Any, ...]:
        group = self._group(asked.consumer_group)
        error = group.may_commit(asked.consumer_id, asked.consumer_group_generation_id)
        topics = []
        for topic, partitions in asked.topics:
            for index, offset, metadata in partitions:
                if not error:
                    group.offsets[topic, index] = (offset, metadata or "")
            topics.append((topic, [(index, error) for index, _, _ in partitions]))
        return (topics,)

    async def _offset_fetch(self, asked: Fields) -> tuple[Any, ...]:
        offsets = self._group(asked.consumer_group).offsets
        wanted = asked.topics
        if wanted is None:
            known = {topic for topic, _ in offsets}
            wanted = [(topic, [index for name, index in offsets if name == topic]) for topic in sorted(known)]
        return [
            (topic, [(index, *offsets.get((topic, index), (-1, "")), NO_ERROR) for index in indices])
            for topic, indices in wanted
        ], NO_ERROR
