# SPDX-License-Identifier: Apache-2.0
"""The guarded write: only over the version that we know, and sure of what was carried out.

Carries.
"""

import asyncio

import pytest

from magnetar.errors import BadVersion, MetadataError, OutcomeUnknown
from magnetar.managed_ledger.catalog import Catalog, GuardedRecord
from magnetar.metadata.memory import MemoryTree
from tests.conftest import RunOnLoop
from tests.unit.ledger.faulty_store import FaultOnce, FaultyStore

PATH = "/managed-ledgers/a/b/persistent/c"


class Scene:
    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.store = FaultyStore(self.tree.open_session())
        self.record = GuardedRecord(self.store, PATH)

    async def value(self) -> bytes:
        found = await self.tree.open_session().get(PATH)
        assert found is not None
        return found.value


def test_another_owners_write_is_never_replaced(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        scene = Scene()
        await scene.record.write(b"mine")
        other = GuardedRecord(scene.tree.open_session(), PATH)
        with pytest.raises(BadVersion):
            await other.write(b"made at the same time")
        found = await other.read()
        assert found is not None
        assert found.value == b"mine"
        await other.write(b"theirs")
        for _ in range(2):
            with pytest.raises(BadVersion):
                await scene.record.write(b"mine again")
        with pytest.raises(BadVersion):
            await scene.record.delete()
        assert await scene.value() == b"theirs"

    loop_run(scenario())


@pytest.mark.parametrize("fault", ["lost", "unanswered"])
def test_a_write_whose_answer_is_lost_is_made_sure_of(loop_run: RunOnLoop, fault: str) -> None:
    async def scenario() -> None:
        scene = Scene()
        for value in (b"first", b"second"):
            scene.store.fault = FaultOnce("put", PATH, fault)
            await scene.record.write(value)
            assert await scene.value() == value
        await scene.record.write(b"third")
        assert await scene.value() == b"third"

    loop_run(scenario())


def test_a_write_that_may_have_been_carried_out_is_not_taken_for_another_owners(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        scene = Scene()
        await scene.record.write(b"base")
        scene.store.fault = lambda operation, path: "unanswered" if operation == "put" else "refused"
        with pytest.raises((OutcomeUnknown, MetadataError)):
            await scene.record.write(b"perhaps")
        assert await scene.value() == b"perhaps"
        scene.store.fault = lambda operation, path: None
        await scene.record.write(b"surely")
        assert await scene.value() == b"surely"

    loop_run(scenario())


def test_a_write_that_no_one_waited_for_is_remembered(loop_run: RunOnLoop) -> None:
    class SlowAnswer(FaultyStore):
        async def put(self, *args: object, **options: object) -> object:  # type: ignore[override]
            stored = await super().put(*args, **options)  # type: ignore[arg-type]
            await asyncio.sleep(0)
            return stored

    async def scenario() -> None:
        tree = MemoryTree()
        record = GuardedRecord(SlowAnswer(tree.open_session()), PATH)
        writing = asyncio.ensure_future(record.write(b"given up"))
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await record.write(b"next")
        found = await tree.open_session().get(PATH)
        assert found is not None
        assert (found.value, found.version) == (b"next", 1)

    loop_run(scenario())


def test_unsure_or_not_another_owner_is_another_owner(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        scene = Scene()
        await scene.record.write(b"base")
        scene.store.fault = lambda operation, path: "lost" if operation == "put" else None
        with pytest.raises(OutcomeUnknown):
            await scene.record.write(b"perhaps")
        scene.store.fault = lambda operation, path: None
        other = GuardedRecord(scene.tree.open_session(), PATH)
        await other.read()
        await other.write(b"theirs")
        with pytest.raises(BadVersion):
            await scene.record.write(b"mine")
        assert await scene.value() == b"theirs"

    loop_run(scenario())


def test_cursor_names_are_encoded_in_paths(loop_run: RunOnLoop) -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        store = tree.open_session()
        catalog = Catalog(store, "a/b/persistent/c")
        await catalog.record.write(b"")
        for name in ("plain", "with/slash", "ümlaut und +"):
            await catalog.cursor(name).write(b"")
        assert sorted(await catalog.cursor_names()) == sorted(["plain", "with/slash", "ümlaut und +"])
        assert sorted(await store.children(PATH)) == ["%C3%BCmlaut+und+%2B", "plain", "with%2Fslash"]

    loop_run(scenario())
