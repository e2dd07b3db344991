# SPDX-License-Identifier: Apache-2.0
"""The schemas of topics: which versions there are, which of them a client's schema is, and letting new ones in.

All partitions of a topic share its schemas. A version is one more than the last, deletions counted, and never changes.
Strategies come from the caller, who knows the topic's policies. IncompatibleSchema is the answer that clients get.
Carries.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from magnetar.broker.policies.values import SchemaCompatibility
from magnetar.broker.schemas.compatibility import check_compatible, check_definition, is_same, is_transitive
from magnetar.broker.schemas.schema import Schema, SchemaType, StoredSchema
from magnetar.broker.schemas.schema_counts import NamespaceCounts, SchemaCounts
from magnetar.broker.schemas.storage import SchemaStorage, VersionPlace, deletion
from magnetar.errors import BadVersion, IncompatibleSchema, PersistenceFailed, ServiceNotReady
from magnetar.names import TopicName
from magnetar.runtime.clock import WallClock

_log = logging.getLogger(__name__)

_WRITE_ATTEMPTS: Final = 10
# For consumers, upstream judges these by reading alone: the consumer must read what the newest version writes.
_READING_ALONE: Final = (
    SchemaCompatibility.BACKWARD,
    SchemaCompatibility.FORWARD,
    SchemaCompatibility.FORWARD_TRANSITIVE,
    SchemaCompatibility.FULL,
)


class SchemaRegistry:
    def __init__(self, storage: SchemaStorage, clock: WallClock, *, bytes_max: int) -> None:
        self._storage = storage
        self._clock = clock
        self._bytes_max = bytes_max
        self.counts = SchemaCounts(asyncio.get_running_loop().time)

    # --- what there is ------------------------------------------------------------------------------

    async def has_schema(self, topic: TopicName) -> bool:
        return bool((await self._storage.locator(topic.schema_name)).live)

    async def latest(self, topic: TopicName) -> StoredSchema | None:
        with self._counts(topic).gets.one():
            live = (await self._storage.locator(topic.schema_name)).live
            return await self._storage.read(topic.schema_name, live[-1]) if live else None

    async def version(self, topic: TopicName, version: int) -> StoredSchema | None:
        """One version, also of before a deletion: messages that carry it may still be there."""
        with self._counts(topic).gets.one():
            for place in (await self._storage.locator(topic.schema_name)).places:
                if place.version == version:
                    return await self._storage.read(topic.schema_name, place)
            return None

    async def versions(self, topic: TopicName) -> list[StoredSchema]:
        """Every version, deletions among them, oldest first. PersistenceFailed when one cannot be read."""
        places = (await self._storage.locator(topic.schema_name)).places
        return [await self._storage.read(topic.schema_name, place) for place in places]

    async def find(self, topic: TopicName, schema: Schema) -> StoredSchema | None:
        """The live version that is this schema. One that cannot be read is passed over, unless its hash is the same."""
        return await self._find(topic.schema_name, (await self._storage.locator(topic.schema_name)).live, schema)

    async def places(self, topic: TopicName) -> tuple[VersionPlace, ...]:
        """Where the versions lie, whether or not they can be read."""
        return (await self._storage.locator(topic.schema_name)).places

    # --- letting in ---------------------------------------------------------------------------------

    async def put(
        self,
        topic: TopicName,
        schema: Schema,
        strategy: SchemaCompatibility,
        *,
        may_add: bool = True,
        user: str = "",
    ) -> int:
        """The version of a producer's schema; added when it is new, compatible and may be added."""
        with self._counts(topic).puts.one():
            return await self._put(topic, schema, strategy, may_add=may_add, user=user)

    async def _put(
        self, topic: TopicName, schema: Schema, strategy: SchemaCompatibility, *, may_add: bool, user: str
    ) -> int:
        self._check_size(schema)
        check_definition(schema)
        name = topic.schema_name
        for _ in range(_WRITE_ATTEMPTS):
            locator = await self._storage.locator(name)
            found = await self._find(name, locator.live, schema)
            if found is not None:
                return found.version
            if not may_add:
                raise IncompatibleSchema("Schema not found and schema auto updating is disabled.")
            await self._check(topic, locator.live, schema, strategy)
            stored = StoredSchema(locator.next_version, schema, self._clock.now_ms(), user, False)
            try:
                await self._storage.append(name, locator, stored)
            except BadVersion:
                continue
            return stored.version
        raise ServiceNotReady(f"The schema of {topic} is changed by others all the time; try again")

    async def check_consumer(self, topic: TopicName, schema: Schema, strategy: SchemaCompatibility) -> None:
        """Whether a consumer with this schema can read what the topic holds. IncompatibleSchema when not."""
        check_definition(schema)
        live = (await self._storage.locator(topic.schema_name)).live
        if not live:
            raise IncompatibleSchema("Topic does not have schema to check")
        if strategy is SchemaCompatibility.ALWAYS_COMPATIBLE:
            return
        if await self._find(topic.schema_name, live[-1:], schema) is not None:
            return
        reading = SchemaCompatibility.BACKWARD if strategy in _READING_ALONE else strategy
        await self._check(topic, live, schema, reading)

    async def check(self, topic: TopicName, schema: Schema, strategy: SchemaCompatibility) -> None:
        """Whether a producer's schema would be let in. IncompatibleSchema when not."""
        self._check_size(schema)
        check_definition(schema)
        live = (await self._storage.locator(topic.schema_name)).live
        if await self._find(topic.schema_name, live, schema) is None:
            await self._check(topic, live, schema, strategy)

    async def delete(self, topic: TopicName, *, force: bool = False, user: str = "") -> int | None:
        """Delete the topic's schema: a version that says so, or with force everything that is stored. Returns the
        version of the deletion; None when there was no schema.
        """
        with self._counts(topic).deletes.one():
            return await self._delete(topic.schema_name, topic, force=force, user=user)

    async def _delete(self, name: str, topic: TopicName, *, force: bool, user: str) -> int | None:
        if force:
            versions = await self._storage.delete(name)
            return versions[-1] if versions else None
        for _ in range(_WRITE_ATTEMPTS):
            locator = await self._storage.locator(name)
            if not locator.live:
                return None
            last = await self._type_of(name, locator.live[-1])
            stored = deletion(locator.next_version, self._clock.now_ms(), user, last)
            try:
                await self._storage.append(name, locator, stored)
            except BadVersion:
                continue
            return stored.version
        raise ServiceNotReady(f"The schema of {topic} is changed by others all the time; try again")

    def close(self) -> None:
        self._storage.close()

    # --- inside -------------------------------------------------------------------------------------

    def _check_size(self, schema: Schema) -> None:
        if len(schema.definition) > self._bytes_max:
            raise IncompatibleSchema(
                f"A schema definition of {len(schema.definition)} bytes is larger than the limit {self._bytes_max}"
            )

    async def _type_of(self, name: str, place: VersionPlace) -> SchemaType:
        """The type of a version that is about to be deleted; none where its definition is lost."""
        try:
            return (await self._storage.read(name, place)).schema.type
        except PersistenceFailed as error:
            _log.warning("deleting the schema of %s unseen: %s", name, error)
            return SchemaType.NONE

    async def _find(self, name: str, live: Sequence[VersionPlace], schema: Schema) -> StoredSchema | None:
        wanted = schema.hash
        for place in reversed(live):
            try:
                stored = await self._storage.read(name, place)
            except PersistenceFailed:
                if place.hash == wanted:
                    raise
                continue
            if is_same(schema, stored.schema):
                return stored
        return None

    async def _check(
        self, topic: TopicName, live: Sequence[VersionPlace], schema: Schema, strategy: SchemaCompatibility
    ) -> None:
        # Where nothing is compared nothing need be readable: so a topic whose schema is lost gets another.
        asked = () if strategy is SchemaCompatibility.ALWAYS_COMPATIBLE else live
        compared = asked if is_transitive(strategy) else asked[-1:]
        existing = [(await self._storage.read(topic.schema_name, place)).schema for place in compared]
        counts = self._counts(topic)
        try:
            check_compatible(schema, existing, strategy)
        except IncompatibleSchema:
            counts.incompatible += 1
            raise
        counts.compatible += 1

    def _counts(self, topic: TopicName) -> NamespaceCounts:
        return self.counts.of(str(topic.namespace))
