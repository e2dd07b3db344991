# SPDX-License-Identifier: Apache-2.0
"""The registry over real ledgers and records: versions, races, deletions, and definitions that are lost."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from magnetar.broker.policies.values import SchemaCompatibility as By
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.schemas.schema import Schema, SchemaType
from magnetar.broker.schemas.storage import SchemaStorage
from magnetar.errors import IncompatibleSchema, OutcomeUnknown, PersistenceFailed
from magnetar.metadata.store import Stored
from magnetar.names import TopicName
from magnetar.wire.proto.schema_storage_pb2 import SchemaLocator
from tests.unit.broker.schemas.test_compatibility import A_B, A_B1, A
from tests.unit.managed_ledger.owners import Owner, World

TOPIC = TopicName.parse("persistent://public/default/t")


def registry_of(owner: Owner, world: World) -> SchemaRegistry:
    storage = SchemaStorage(owner.store, owner.logs.side_ledgers, cached_max=4)
    return SchemaRegistry(storage, world.clock, bytes_max=1000)


def with_registry(body: Callable[[SchemaRegistry, Owner, World], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        world = World()
        owner = world.owner()
        registry = registry_of(owner, world)
        await body(registry, owner, world)
        registry.close()
        await owner.close()
        world.check()

    asyncio.run(run())


@pytest.mark.feature("F-SCH-06", "F-SCH-08")
def test_a_schema_is_stored_once_and_versions_count_from_zero() -> None:
    async def body(registry: SchemaRegistry, owner: Owner, world: World) -> None:
        assert not await registry.has_schema(TOPIC)
        assert await registry.latest(TOPIC) is None
        assert await registry.put(TOPIC, A, By.FULL) == 0
        assert await registry.put(TOPIC, A_B1, By.FULL) == 1
        assert await registry.put(TOPIC.partition(2), A, By.FULL) == 0, "partitions share the schemas of their topic"
        latest = await registry.latest(TOPIC)
        assert latest is not None
        assert latest.schema == A_B1
        assert [stored.version for stored in await registry.versions(TOPIC)] == [0, 1]
        record = await owner.store.get("/schemas/public/default/t")
        assert record is not None
        locator = SchemaLocator.FromString(record.value)
        assert locator.info == locator.index[1]
        assert [entry.hash for entry in locator.index] == [A.hash, A_B1.hash]

    with_registry(body)


@pytest.mark.feature("F-SCH-06", "F-SCH-07")
def test_what_is_incompatible_or_may_not_be_added_is_refused_and_leaves_nothing() -> None:
    async def body(registry: SchemaRegistry, owner: Owner, world: World) -> None:
        await registry.put(TOPIC, A, By.FULL)
        ledgers = await world.existing_ledgers()
        for refused in (
            registry.put(TOPIC, A_B, By.FULL),
            registry.put(TOPIC, A_B1, By.FULL, may_add=False),
            registry.put(TOPIC, Schema(SchemaType.STRING), By.FULL),
            registry.put(TOPIC, Schema(SchemaType.AVRO, b"x" * 1001), By.FULL),
            registry.check_consumer(TOPIC, A_B, By.FULL),
        ):
            with pytest.raises(IncompatibleSchema):
                await refused
        assert await world.existing_ledgers() == ledgers
        await registry.check_consumer(TOPIC, A_B1, By.FULL)
        assert await registry.put(TOPIC, A_B, By.ALWAYS_COMPATIBLE) == 1

    with_registry(body)


def test_writers_at_the_same_time_get_versions_of_their_own_and_orphan_nothing() -> None:
    async def body(registry: SchemaRegistry, owner: Owner, world: World) -> None:
        other = world.owner()
        second = registry_of(other, world)
        await registry.put(TOPIC, A, By.ALWAYS_COMPATIBLE)
        schemas = [A_B, A_B1, A_B, A_B1]
        found = await asyncio.gather(
            *(each.put(TOPIC, schema, By.ALWAYS_COMPATIBLE) for schema in schemas for each in (registry, second))
        )
        assert sorted(set(found)) == [1, 2]
        places = await registry.places(TOPIC)
        assert await world.existing_ledgers() == {place.ledger_id for place in places}
        second.close()
        await other.close()

    with_registry(body)


def test_a_version_that_is_on_record_keeps_its_definition_though_its_writer_was_not_told() -> None:
    """The answer to the write is lost, and another writer is faster than the question what came of it."""

    async def body(registry: SchemaRegistry, owner: Owner, world: World) -> None:
        other = world.owner()
        second = registry_of(other, world)
        await registry.put(TOPIC, A, By.ALWAYS_COMPATIBLE)
        path = f"/schemas/{TOPIC.schema_name}"
        plain, writes = owner.store.put, 0

        async def unanswered(where: str, value: bytes, **conditions: Any) -> Stored:
            nonlocal writes
            stored = await plain(where, value, **conditions)
            writes += where == path
            if where == path and writes == 1:
                await second.put(TOPIC, A_B1, By.ALWAYS_COMPATIBLE)
                raise OutcomeUnknown("the connection broke")
            return stored

        owner.store.put = unanswered  # type: ignore[assignment, method-assign]
        assert await registry.put(TOPIC, A_B, By.ALWAYS_COMPATIBLE) == 1
        found = await registry.version(TOPIC, 1)
        assert found is not None
        assert found.schema == A_B
        places = await registry.places(TOPIC)
        assert await world.existing_ledgers() == {place.ledger_id for place in places}
        second.close()
        await other.close()

    with_registry(body)


@pytest.mark.feature("F-SCH-11")
def test_a_deletion_is_a_version_and_what_comes_after_starts_afresh() -> None:
    async def body(registry: SchemaRegistry, owner: Owner, world: World) -> None:
        await registry.put(TOPIC, A, By.FULL)
        assert await registry.delete(TOPIC) == 1
        assert await registry.delete(TOPIC) is None
        assert await registry.latest(TOPIC) is None
        assert await registry.put(TOPIC, Schema(SchemaType.STRING), By.FULL) == 2
        old = await registry.version(TOPIC, 0)
        assert old is not None
        assert old.schema == A
        assert await registry.delete(TOPIC, force=True) == 2
        assert await world.existing_ledgers() == set()
        assert await registry.put(TOPIC, A, By.FULL) == 0

    with_registry(body)


@pytest.mark.feature("F-SCH-08")
def test_a_definition_that_is_lost_fails_only_the_calls_that_need_it() -> None:
    async def body(registry: SchemaRegistry, owner: Owner, world: World) -> None:
        await registry.put(TOPIC, A, By.FULL)
        await registry.put(TOPIC, A_B1, By.FULL)
        lost = (await registry.places(TOPIC))[0]
        await owner.logs.side_ledgers.delete(lost.ledger_id)
        again = registry_of(owner, world)
        assert await again.has_schema(TOPIC)
        assert await again.put(TOPIC, A_B1, By.FULL) == 1
        with pytest.raises(PersistenceFailed, match="Version 0 of the schema of public/default/t"):
            await again.version(TOPIC, 0)
        with pytest.raises(PersistenceFailed, match="Version 0"):
            await again.put(TOPIC, A, By.FULL)
        with pytest.raises(PersistenceFailed, match="Version 0"):
            await again.put(TOPIC, A_B, By.FULL_TRANSITIVE)
        with pytest.raises(IncompatibleSchema):
            await again.put(TOPIC, Schema(SchemaType.STRING), By.FULL)
        again.close()

    with_registry(body)


@pytest.mark.feature("F-SCH-08", "F-SCH-11")
@pytest.mark.parametrize("way_out", ["always compatible", "deleted"])
def test_a_topic_whose_last_schema_is_lost_says_so_and_gets_another_without_counting_anew(way_out: str) -> None:
    """F105: the ledger of its only version is gone."""

    async def body(registry: SchemaRegistry, owner: Owner, world: World) -> None:
        await registry.put(TOPIC, A, By.FULL)
        await owner.logs.side_ledgers.delete((await registry.places(TOPIC))[0].ledger_id)
        again = registry_of(owner, world)
        assert await again.has_schema(TOPIC), "a lost schema is not taken for none"
        for refused in (
            again.latest(TOPIC),
            again.put(TOPIC, A, By.FULL),
            again.put(TOPIC, A_B1, By.FULL),
            again.check_consumer(TOPIC, A_B1, By.FULL),
        ):
            with pytest.raises(PersistenceFailed, match=r"Version 0 of the schema of .* Delete the topic's schema"):
                await refused
        if way_out == "deleted":
            assert await again.delete(TOPIC) == 1
            assert not await again.has_schema(TOPIC)
            assert await again.put(TOPIC, A, By.FULL) == 2
        else:
            assert await again.put(TOPIC, A_B1, By.ALWAYS_COMPATIBLE) == 1
            assert await again.put(TOPIC, A_B1, By.FULL) == 1
            with pytest.raises(IncompatibleSchema):
                await again.put(TOPIC, Schema(SchemaType.STRING), By.FULL)
        latest = await again.latest(TOPIC)
        assert latest is not None
        assert latest.schema == (A if way_out == "deleted" else A_B1)
        with pytest.raises(PersistenceFailed, match="Version 0"):
            await again.version(TOPIC, 0)
        again.close()

    with_registry(body)


@pytest.mark.feature("F-SCH-08")
@pytest.mark.parametrize("which", [0, 1])
def test_a_schema_that_has_lost_a_bookie_is_read_from_the_other_and_a_new_version_goes_elsewhere(which: int) -> None:
    """F105: two copies, both of which must be acknowledged."""

    async def run() -> None:
        world = World(bookies=3, ensemble_size=2, write_quorum=2, ack_quorum=2)
        owner = world.owner()
        registry = registry_of(owner, world)
        await registry.put(TOPIC, A, By.FULL)
        copies = [bookie for bookie in world.cluster.bookies.values() if bookie.adds]
        assert len(copies) == 2
        copies[which].is_up = False
        world.cluster.settings = replace(world.cluster.settings, read_timeout_ms=20, recovery_read_timeout_ms=20)
        await owner.close()
        registry.close()
        heir = world.owner()
        again = registry_of(heir, world)
        assert await again.put(TOPIC, A, By.FULL) == 0
        assert await again.put(TOPIC, A_B1, By.FULL) == 1
        assert [stored.schema for stored in await again.versions(TOPIC)] == [A, A_B1]
        again.close()
        await heir.close()

    asyncio.run(run())


@pytest.mark.feature("F-SCH-08")
def test_the_next_owner_finds_all_versions() -> None:
    async def body(registry: SchemaRegistry, owner: Owner, world: World) -> None:
        await registry.put(TOPIC, A, By.FULL)
        await registry.put(TOPIC, A_B1, By.FULL)
        heir = world.owner()
        again = registry_of(heir, world)
        assert [stored.schema for stored in await again.versions(TOPIC)] == [A, A_B1]
        again.close()
        await heir.close()

    with_registry(body)
