# SPDX-License-Identifier: Apache-2.0
"""What every metadata store does, whatever it is made of. One suite, every implementation."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar.errors import BadPath, BadVersion, HasChildren, NoRecord, SessionLost, ValueTooLarge
from magnetar.metadata.store import MUST_NOT_EXIST, Change, ChangeKind, MetadataStore, SessionEvent
from tests.contracts.metadata_stores import EXPIRING, PLACES, Place, Seen, SeenChanges, watched

pytestmark = [pytest.mark.feature("F-MD-01")]

Check = Callable[[Place], Awaitable[None]]
RunCheck = Callable[[Check], None]


@pytest.fixture(params=sorted(PLACES))
def on_store(request: pytest.FixtureRequest, tmp_path: Path, loop_run: Callable[[Any], Any]) -> RunCheck:
    return _runner(PLACES[request.param], tmp_path, loop_run)


@pytest.fixture(params=sorted(EXPIRING))
def on_expiring_store(request: pytest.FixtureRequest, tmp_path: Path, loop_run: Callable[[Any], Any]) -> RunCheck:
    return _runner(EXPIRING[request.param], tmp_path, loop_run)


def _runner(place_type: type[Place], directory: Path, loop_run: Callable[[Any], Any]) -> RunCheck:
    async def run(check: Check) -> None:
        async with place_type(directory) as place:
            await check(place)

    return lambda check: loop_run(run(check))


async def _value(store: MetadataStore, path: str) -> tuple[bytes, int] | None:
    record = await store.get(path)
    return None if record is None else (record.value, record.version)


# --- records and versions -----------------------------------------------------------------------


def test_a_new_record_has_version_zero_and_its_parents_are_made(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        store = await place.session()
        assert await store.get("/a/b/c") is None
        stored = await store.put("/a/b/c", b"value")
        assert stored == ("/a/b/c", 0)
        record = await store.get("/a/b/c")
        assert record is not None
        assert (record.value, record.version, record.ephemeral) == (b"value", 0, False)
        assert 0 < record.created_ms <= record.modified_ms
        parent = await store.get("/a/b")
        assert parent is not None
        assert (parent.value, parent.version, parent.ephemeral) == (b"", 0, False)
        assert await store.exists("/a")
        assert not await store.exists("/a/c")

    on_store(check)


def test_each_write_adds_one_to_the_version_and_keeps_the_creation_time(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        store = await place.session()
        await store.put("/r", b"0")
        first = await store.get("/r")
        for number in range(1, 4):
            stored = await store.put("/r", b"%d" % number)
            assert stored.version == number
        record = await store.get("/r")
        assert first is not None
        assert record is not None
        assert (record.value, record.version) == (b"3", 3)
        assert record.created_ms == first.created_ms
        assert record.modified_ms >= first.modified_ms

    on_store(check)


def test_a_write_with_the_expected_version_succeeds_and_another_changes_nothing(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        store = await place.session()
        await store.put("/r", b"a", expected_version=MUST_NOT_EXIST)
        assert (await store.put("/r", b"b", expected_version=0)).version == 1
        for wrong in (MUST_NOT_EXIST, 0, 2, 99):
            with pytest.raises(BadVersion):
                await store.put("/r", b"c", expected_version=wrong)
        assert await _value(store, "/r") == (b"b", 1)
        with pytest.raises(BadVersion):
            await store.put("/absent/below", b"", expected_version=0)
        assert not await store.exists("/absent")

    on_store(check)


def test_delete_refuses_what_is_absent_changed_or_has_children(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        store = await place.session()
        await store.put("/a/b", b"")
        with pytest.raises(NoRecord):
            await store.delete("/absent")
        with pytest.raises(NoRecord):
            await store.delete("/absent", expected_version=3)
        with pytest.raises(HasChildren):
            await store.delete("/a")
        with pytest.raises(BadVersion):
            await store.delete("/a/b", expected_version=1)
        assert await store.exists("/a/b")
        await store.delete("/a/b", expected_version=0)
        await store.delete("/a")
        assert not await store.exists("/a")
        # A record made again starts again.
        assert (await store.put("/a", b"")).version == 0

    on_store(check)


def test_children_are_names_directly_below_sorted(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        store = await place.session()
        for name in ("b", "a", "c/deeper", "A", "b%2Fc"):
            await store.put(f"/list/{name}", b"")
        assert await store.children("/list") == ["A", "a", "b", "b%2Fc", "c"]
        assert await store.children("/list/a") == []
        assert await store.children("/absent") == []
        assert "list" in await store.children("/")
        await store.delete("/list/b")
        assert await store.children("/list") == ["A", "a", "b%2Fc", "c"]

    on_store(check)


def test_values_are_bytes_and_paths_are_text(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        store = await place.session()
        values = {
            "/empty": b"",
            "/all": bytes(range(256)),
            "/large": b"\x00" * 200_000,
            "/ünïcode/ⅷ": "ⅷ".encode(),
            "/t/ns/persistent/a%20topic-partition-0": b"x",
        }
        for path, value in values.items():
            await store.put(path, value)
        for path, value in values.items():
            assert await _value(store, path) == (value, 0)

    on_store(check)


def test_a_value_over_the_limit_is_refused_by_name_and_size(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        store = await place.session()
        with pytest.raises(ValueTooLarge, match=r"/large.*1100000.*10\d{5}"):
            await store.put("/large", b"x" * 1_100_000)
        assert not await store.exists("/large")
        assert (await store.put("/large", b"x" * 1_000_000)).version == 0
        with pytest.raises(ValueTooLarge):
            await store.put("/large", b"x" * 1_100_000, expected_version=0)
        assert await store.get("/large") is not None

    on_store(check)


@pytest.mark.parametrize("path", ["", "a", "a/b", "/a/", "//", "/a//b", "/a/./b", "/a/..", "/a\x00b", "/" + "x" * 5000])
def test_a_malformed_path_is_refused(on_store: RunCheck, path: str) -> None:
    async def check(place: Place) -> None:
        store = await place.session()
        with pytest.raises(BadPath):
            await store.get(path)
        with pytest.raises(BadPath):
            await store.put(path, b"")
        with pytest.raises(BadPath):
            await store.delete(path)
        with pytest.raises(BadPath):
            await store.children(path)
        with pytest.raises(BadPath):
            store.watch(path, lambda change: None)

    on_store(check)


def test_delete_recursive_takes_everything_below(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        store = await place.session()
        for path in ("/t/a/1", "/t/a/2", "/t/b", "/tt"):
            await store.put(path, b"")
        await store.delete_recursive("/t")
        assert not await store.exists("/t")
        assert await store.exists("/tt")
        await store.delete_recursive("/absent")

    on_store(check)


@pytest.mark.feature("F-MD-05")
def test_concurrent_read_modify_write_keeps_every_change(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        stores = [await place.session() for _ in range(3)]
        await stores[0].put("/counter", b"0")

        async def add(store: MetadataStore, times: int) -> None:
            while times:
                record = await store.get("/counter")
                assert record is not None
                try:
                    await store.put("/counter", b"%d" % (int(record.value) + 1), expected_version=record.version)
                    times -= 1
                except BadVersion:
                    await asyncio.sleep(0)

        await asyncio.gather(*(add(store, 10) for store in stores for _ in range(2)))
        assert await _value(stores[1], "/counter") == (b"60", 60)

    on_store(check)


# --- sequential and ephemeral -------------------------------------------------------------------


def test_sequential_names_rise_and_are_never_given_twice(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        one, two = await place.session(), await place.session()
        paths = [
            stored.path
            for stored in await asyncio.gather(
                *(store.put("/queue/n-", b"", sequential=True) for store in (one, two) for _ in range(10))
            )
        ]
        assert len(set(paths)) == 20
        assert all(len(path) == len("/queue/n-") + 10 and path[-10:].isdecimal() for path in paths)
        last = max(paths)
        await one.delete(last)
        later = (await two.put("/queue/n-", b"v", sequential=True)).path
        assert later > last
        assert await _value(one, later) == (b"v", 0)

    on_store(check)


def test_an_ephemeral_record_ends_with_its_session(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        owner, other = await place.session(), await place.session()
        await owner.put("/live/one", b"1", ephemeral=True)
        await owner.put("/live/seq-", b"2", ephemeral=True, sequential=True)
        await owner.put("/live/kept", b"3")
        record = await other.get("/live/one")
        assert record is not None
        assert record.ephemeral
        seen = await watched(other, "/live")
        await owner.close()
        await seen.until_holds(Change(ChangeKind.DELETED, "/live/one"))
        await seen.until(lambda items: sum(change.kind is ChangeKind.DELETED for change in items) == 2)
        assert await other.children("/live") == ["kept"]

    on_store(check)


@pytest.mark.feature("F-MD-24")
def test_an_ephemeral_put_that_succeeds_is_this_sessions_own(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        one, two = await place.session(), await place.session()
        await one.put("/persistent", b"")
        await one.put("/mine", b"a", ephemeral=True)
        for version in (None, 0):
            with pytest.raises(BadVersion):
                await one.put("/persistent", b"x", ephemeral=True, expected_version=version)
            with pytest.raises(BadVersion):
                await two.put("/mine", b"x", ephemeral=True, expected_version=version)
        assert (await one.put("/mine", b"b", ephemeral=True)).version == 1
        assert (await one.put("/mine", b"c", ephemeral=True, expected_version=1)).version == 2
        with pytest.raises(BadVersion):
            await one.put("/mine", b"d", ephemeral=True, expected_version=1)
        assert (await two.put("/mine", b"e")).version == 3
        record = await one.get("/mine")
        assert record is not None
        assert (record.value, record.ephemeral) == (b"e", True)

    on_store(check)


def test_an_ephemeral_record_takes_no_children(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        store = await place.session()
        await store.put("/leaf", b"", ephemeral=True)
        with pytest.raises(BadPath, match="/leaf"):
            await store.put("/leaf/child", b"")
        with pytest.raises(BadPath):
            await store.put("/leaf/deep/child", b"", ephemeral=True)

    on_store(check)


# --- watches ------------------------------------------------------------------------------------


def test_a_watch_tells_of_changes_at_the_prefix_and_below(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        writer, reader = await place.session(), await place.session()
        seen = await watched(reader, "/w")
        await writer.put("/w/a", b"")
        await seen.until_holds(
            Change(ChangeKind.CREATED, "/w"),
            Change(ChangeKind.CREATED, "/w/a"),
            Change(ChangeKind.CHILDREN_CHANGED, "/w"),
        )
        seen.items.clear()
        await writer.put("/w/a", b"2")
        await seen.until_holds(Change(ChangeKind.MODIFIED, "/w/a"))
        assert Change(ChangeKind.CHILDREN_CHANGED, "/w") not in seen.items
        seen.items.clear()
        await writer.delete("/w/a")
        await seen.until_holds(Change(ChangeKind.DELETED, "/w/a"), Change(ChangeKind.CHILDREN_CHANGED, "/w"))

    on_store(check)


def test_a_watch_hears_nothing_of_others(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        store = await place.session()
        seen, everything = SeenChanges(), SeenChanges()
        store.watch("/w/x", seen)
        store.watch("/", everything)
        for path in ("/w/xy", "/w/y", "/x", "/w/x"):
            await store.put(path, b"")
        await everything.until_holds(*(Change(ChangeKind.CREATED, path) for path in ("/w/xy", "/w/y", "/x", "/w/x")))
        await seen.until_holds(Change(ChangeKind.CREATED, "/w/x"))
        assert set(seen.items) == {Change(ChangeKind.CREATED, "/w/x")}

    on_store(check)


def test_what_a_watch_tells_is_visible_already(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        writer, reader = await place.session(), await place.session()
        seen = await watched(reader, "/v")
        for number in range(20):
            seen.items.clear()
            await writer.put("/v/r", b"%d" % number)
            await seen.until(lambda items: any(change.path == "/v/r" for change in items))
            record = await reader.get("/v/r")
            assert record is not None
            assert int(record.value) == number

    on_store(check)


def test_an_ended_watch_is_silent_and_ending_it_again_is_harmless(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        store = await place.session()
        ended, going = SeenChanges(), SeenChanges()
        end = store.watch("/w", ended)
        store.watch("/w", going)
        end()
        end()
        await store.put("/w", b"")
        await going.until_holds(Change(ChangeKind.CREATED, "/w"))
        assert ended.items == []

    on_store(check)


def test_a_listener_that_raises_is_reported_and_the_others_hear(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        store = await place.session()
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        seen = SeenChanges()

        def broken(change: Change) -> None:
            raise ValueError(f"broken listener of {change.path}")

        store.watch("/w", broken)
        store.watch("/w", seen)
        await store.put("/w", b"")
        await seen.until_holds(Change(ChangeKind.CREATED, "/w"))
        assert "broken listener of /w" in str(reported[0]["exception"])

    on_store(check)


def test_a_listener_asks_the_store_and_never_waits_for_it(on_store: RunCheck) -> None:
    """F117: it runs on the loop, outside any operation; waiting there is refused at once, and asking is answered."""

    async def check(place: Place) -> None:
        store = await place.session()
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        reported: list[str] = []
        loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
        asked: list[asyncio.Task[bool]] = []
        seen = SeenChanges()

        def waits(change: Change) -> None:
            assert threading.get_ident() == thread
            asked.append(loop.create_task(store.exists(change.path)))
            loop.run_until_complete(asked[-1])

        async def answer(path: str) -> bool:
            assert await store.exists(path)
            assert await store.children("/w") == [path.removeprefix("/w/")]
            await store.put(f"/answers{path}", b"", expected_version=MUST_NOT_EXIST)
            return True

        def asks(change: Change) -> None:
            if change == Change(ChangeKind.CREATED, "/w/a"):
                asked.append(loop.create_task(answer(change.path)))
                store.watch("/answers", seen)

        store.watch("/w", waits)
        store.watch("/w", asks)
        await store.put("/w/a", b"")
        await seen.until_holds(Change(ChangeKind.CREATED, "/answers/w/a"))
        assert all(await asyncio.gather(*asked))
        assert reported
        assert all("already running" in each for each in reported)

    on_store(check)


# --- sessions -----------------------------------------------------------------------------------


@pytest.mark.feature("F-MD-17")
def test_an_expired_session_is_told_loses_its_records_and_is_replaced(on_expiring_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        owner, other = await place.session(), await place.session()
        events: Seen[SessionEvent] = Seen()
        owner.watch_session(events)
        changes, others_changes = await watched(owner, "/e"), await watched(other, "/e")
        await owner.put("/e/owned", b"", ephemeral=True)
        await place.expire(owner)
        await events.until_holds(SessionEvent.LOST, SessionEvent.REESTABLISHED)
        assert events.items.index(SessionEvent.LOST) < events.items.index(SessionEvent.REESTABLISHED)
        await others_changes.until_holds(Change(ChangeKind.DELETED, "/e/owned"))
        assert not await owner.exists("/e/owned")
        # The new session works, and so does the old watch.
        changes.items.clear()
        await owner.put("/e/owned", b"again", ephemeral=True)
        await other.put("/e/more", b"")
        await changes.until_holds(Change(ChangeKind.CREATED, "/e/owned"), Change(ChangeKind.CREATED, "/e/more"))
        record = await other.get("/e/owned")
        assert record is not None
        assert record.ephemeral

    on_expiring_store(check)


def test_a_closed_store_refuses_and_may_be_closed_again(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        store = await place.session()
        await store.put("/r", b"")
        await store.close()
        await store.close()
        with pytest.raises(SessionLost):
            await store.get("/r")
        with pytest.raises(SessionLost):
            await store.put("/r", b"")
        with pytest.raises(SessionLost):
            await store.delete("/r")
        with pytest.raises(SessionLost):
            await store.children("/r")
        other = await place.session()
        assert await other.exists("/r")

    on_store(check)


def test_many_operations_at_once_are_all_carried_out(on_store: RunCheck) -> None:
    async def check(place: Place) -> None:
        store = await place.session()
        await asyncio.gather(*(store.put(f"/many/{number:03d}", b"%d" % number) for number in range(200)))
        assert len(await store.children("/many")) == 200
        records = await asyncio.gather(*(store.get(f"/many/{number:03d}") for number in range(200)))
        assert [int(record.value) for record in records if record is not None] == list(range(200))

    on_store(check)
