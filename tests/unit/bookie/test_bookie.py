# SPDX-License-Identifier: Apache-2.0
"""A whole bookie: its cookie, its starts, its place in the lists, and its HTTP."""

import asyncio
import json
from dataclasses import replace

import pytest

from magnetar.bookie.bookie import Bookie
from magnetar.errors import BadCookie, CannotStart, EntryUnknown, NoSuchLedger
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.wire.bookkeeper import cookie, v2
from magnetar.wire.bookkeeper.codes import ReturnCode
from magnetar.wire.bookkeeper.registry import AVAILABLE, BOOTS, COOKIES, INSTANCE_ID, READONLY, decode_listing
from tests.unit.bookie.benches import BOOKIE, KEY, ROOMY, FixedClock, add_all, code_of_add, packed, run
from tests.unit.bookie.ports import FREE_PORTS, INSTANCE, RawClient, bookie_on_a_port

NAME = "b1"


def tree() -> MemoryTree:
    return MemoryTree(FixedClock())


async def until_listed(store: MemoryStore, path: str) -> None:
    changed = asyncio.Event()
    unwatch = store.watch(path, lambda change: changed.set())
    async with asyncio.timeout(30):
        while NAME not in await store.children(path):
            await changed.wait()
            changed.clear()
    unwatch()


@pytest.mark.feature("F-BKS-28")
def test_a_bookie_is_listed_while_it_serves_and_keeps_its_cookie() -> None:
    async def main() -> None:
        metadata = tree()
        store = MemoryStore(metadata)
        async with bookie_on_a_port(SimulatedDisk(), store=MemoryStore(metadata), bookie_id=NAME) as bookie:
            record = await store.get(f"{AVAILABLE}/{NAME}")
            assert record is not None
            assert record.ephemeral
            assert tuple(decode_listing(record.value)) == bookie.endpoints
            assert [each.protocol for each in bookie.endpoints] == ["bookie-rpc", "http"]
        assert await store.children(AVAILABLE) == []
        instance = await store.get(INSTANCE_ID)
        own = await store.get(f"{COOKIES}/{NAME}")
        starts = await store.get(f"{BOOTS}/{NAME}")
        assert instance is not None
        assert own is not None
        assert starts is not None
        assert instance.value == INSTANCE.encode()
        assert cookie.decode(own.value).instance_id == INSTANCE
        assert starts.value == b"1"

    run(main())


def test_every_start_is_counted_and_a_cookie_is_needed_again() -> None:
    async def main() -> None:
        metadata, disk = tree(), SimulatedDisk()
        for _ in range(2):
            async with bookie_on_a_port(disk, store=MemoryStore(metadata), bookie_id=NAME):
                pass
        starts = await MemoryStore(metadata).get(f"{BOOTS}/{NAME}")
        assert starts is not None
        assert starts.value == b"2"
        with pytest.raises(BadCookie, match="carries no cookie"):
            async with bookie_on_a_port(SimulatedDisk(), store=MemoryStore(metadata), bookie_id=NAME):
                pass
        with pytest.raises(BadCookie, match="belongs to"):
            async with bookie_on_a_port(disk, store=MemoryStore(tree()), bookie_id="another"):
                pass

    run(main())


@pytest.mark.feature("F-REC-13")
def test_a_bookie_that_begins_again_with_empty_disks_never_claims_that_a_ledger_it_had_is_absent() -> None:
    """F23: an operator deletes the cookie before the ledgers were recovered."""

    async def main() -> None:
        metadata = tree()
        store = MemoryStore(metadata)
        async with bookie_on_a_port(SimulatedDisk(), store=MemoryStore(metadata), bookie_id=BOOKIE) as bookie:
            await add_all(bookie.storage, 1, range(3))
        await store.delete(f"{COOKIES}/{BOOKIE}")
        async with bookie_on_a_port(
            SimulatedDisk(), store=MemoryStore(metadata), bookie_id=BOOKIE, ledgers=[1]
        ) as bookie:
            assert bookie.storage.damage
            for entry_id in (0, 3):
                with pytest.raises(EntryUnknown):
                    await bookie.storage.read(1, entry_id)
            # The writer of before is not served either; whoever repairs is.
            assert await code_of_add(bookie.storage, packed(1, 3, b"")) == ReturnCode.FENCED
            assert await code_of_add(bookie.storage, packed(1, 0, b""), recovery=True) == 0
            # A ledger that did not exist then is new.
            with pytest.raises(NoSuchLedger):
                await bookie.storage.read(2, 0)

    run(main())


def test_of_two_bookies_that_start_as_one_id_for_the_first_time_one_is_refused() -> None:
    """F26: with empty disks of their own, at once; the other would have served what the first has and it has not."""

    async def main() -> None:
        metadata = tree()

        async def start() -> bool:
            disk = SimulatedDisk()
            try:
                async with bookie_on_a_port(disk, store=MemoryStore(metadata), bookie_id=NAME):
                    async with asyncio.timeout(30):
                        await ended.wait()
                    return True
            except BadCookie as error:
                refusals.append(str(error))
            with pytest.raises(BadCookie, match="carries no cookie"):
                async with bookie_on_a_port(disk, store=MemoryStore(metadata), bookie_id=NAME):
                    pass
            ended.set()
            return False

        ended, refusals = asyncio.Event(), list[str]()
        assert sorted(await asyncio.gather(start(), start())) == [False, True]
        (refusal,) = refusals
        assert f"another bookie has been registered as {NAME}" in refusal

    run(main())


def test_a_listing_of_a_former_life_is_taken_over() -> None:
    async def main() -> None:
        metadata, disk = tree(), SimulatedDisk()
        dead = MemoryStore(metadata)
        async with bookie_on_a_port(disk, store=MemoryStore(metadata), bookie_id=NAME) as bookie:
            value = await dead.get(f"{AVAILABLE}/{NAME}")
            assert value is not None
            ports = replace(FREE_PORTS, port=bookie.endpoints[0].port, http_port=bookie.endpoints[1].port)
        await dead.put(f"{AVAILABLE}/{NAME}", value.value, ephemeral=True)
        own = MemoryStore(metadata)
        async with bookie_on_a_port(disk, ports=ports, store=own, bookie_id=NAME):
            await dead.close()
            assert await own.children(AVAILABLE) == [NAME]

    run(main())


@pytest.mark.feature("F-MD-18", "F-HA-09")
def test_a_bookie_serves_without_its_session_and_is_listed_again_with_the_next_one() -> None:
    """A hundred sessions end, each for a while, while a writer adds: each add is taken, once, and is read back."""

    async def main() -> None:
        metadata = tree()
        own, watching = MemoryStore(metadata), MemoryStore(metadata)
        async with bookie_on_a_port(SimulatedDisk(), store=own, bookie_id=NAME) as bookie:
            client = await RawClient.connect(bookie)

            async def added(entry_id: int) -> None:
                entry = packed(1, entry_id)
                client.send(v2.add_front(len(entry), KEY) + entry)
                assert await client.answer_2() == v2.AddResponse(0, 1, entry_id)

            for number in range(100):
                await added(2 * number)
                own.expire_session()
                assert await watching.children(AVAILABLE) == []
                await added(2 * number + 1)
                assert await bookie.storage.read(1, 2 * number) == packed(1, 2 * number)
                own.reestablish_session()
                await until_listed(watching, AVAILABLE)
            assert await bookie.storage.entry_ids(1) == list(range(200))
            client.close()

    run(main())


@pytest.mark.feature("F-BKS-30")
def test_a_full_bookie_moves_to_the_read_only_list_and_back() -> None:
    async def main() -> None:
        disk = SimulatedDisk(capacity_bytes=64 * 1024 * 1024)
        metadata = tree()
        store = MemoryStore(metadata)
        settings = replace(ROOMY, disk_check_interval_ms=10, disk_usage_max=0.5, disk_usage_low=0.4)
        async with bookie_on_a_port(disk, settings, store=MemoryStore(metadata), bookie_id=NAME):
            await until_listed(store, AVAILABLE)
            await disk.replace_file("filler", b"x" * (40 * 1024 * 1024))
            await until_listed(store, READONLY)
            await disk.remove("filler")
            await until_listed(store, AVAILABLE)

    run(main())


def test_a_bookie_that_starts_on_a_full_disk_is_read_only_from_its_first_moment() -> None:
    """Killed with entries that only the journal has, then the disk fills: it replays, serves reads, takes no adds."""

    async def first_life(disk: SimulatedDisk) -> None:
        async with bookie_on_a_port(disk, store=MemoryStore(metadata), bookie_id=NAME) as bookie:
            client = await RawClient.connect(bookie)
            entry = packed(1, 0)
            client.send(v2.add_front(len(entry), KEY) + entry)
            assert await client.answer_2() == v2.AddResponse(0, 1, 0)
            client.close()
            await disk.replace_file("filler", b"x" * (58 * 1024 * 1024))

    async def second_life(disk: SimulatedDisk) -> None:
        settings = replace(ROOMY, disk_check_interval_ms=3_600_000, disk_usage_max=0.8, disk_usage_low=0.7)
        store = MemoryStore(metadata)
        async with bookie_on_a_port(disk, settings, store=MemoryStore(metadata), bookie_id=NAME) as bookie:
            assert bookie.storage.is_read_only
            assert await store.children(READONLY) == [NAME]
            assert await bookie.storage.read(1, 0) == packed(1, 0)
            client = await RawClient.connect(bookie)
            entry = packed(1, 1)
            client.send(v2.add_front(len(entry), KEY) + entry)
            assert await client.answer_2() == v2.AddResponse(105, 1, 1)
            client.close()

    metadata, disk = tree(), SimulatedDisk(capacity_bytes=64 * 1024 * 1024)
    run(first_life(disk))
    run(second_life(disk))


def test_a_port_in_use_is_named() -> None:
    async def main() -> None:
        async with bookie_on_a_port(SimulatedDisk()) as bookie:
            with pytest.raises(CannotStart, match="--port"):
                async with bookie_on_a_port(SimulatedDisk(), port=bookie.endpoints[0].port):
                    pass

    run(main())


async def http(bookie: Bookie, method: str, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", bookie.endpoints[1].port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: b\r\n\r\n".encode())
    async with asyncio.timeout(30):
        answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.feature("F-GC-09", "F-MET-15")
def test_http_of_a_bookie() -> None:
    async def main() -> None:
        async with bookie_on_a_port(SimulatedDisk()) as bookie:
            assert await http(bookie, "GET", "/heartbeat") == (200, "OK\n")
            status, body = await http(bookie, "GET", "/metrics")
            assert status == 200
            assert "bookie_SERVER_STATUS 1\n" in body
            assert 'bookkeeper_server_ADD_ENTRY_REQUEST_count{success="true"} 0\n' in body
            status, body = await http(bookie, "GET", "/api/v1/bookie/info")
            assert json.loads(body)["totalSpace"] >= json.loads(body)["freeSpace"] > 0
            status, body = await http(bookie, "GET", "/api/v1/bookie/state")
            assert json.loads(body)["readOnly"] is False
            assert (await http(bookie, "PUT", "/api/v1/bookie/gc"))[0] == 200
            assert (await http(bookie, "PUT", "/api/v1/bookie/gc/suspend_compaction"))[0] == 200
            status, body = await http(bookie, "GET", "/api/v1/bookie/gc/suspend_compaction")
            assert json.loads(body)["isMajorGcSuspended"] == "true"
            assert (await http(bookie, "DELETE", "/heartbeat"))[0] == 405
            assert (await http(bookie, "GET", "/nothing"))[0] == 404

    run(main())
