# SPDX-License-Identifier: Apache-2.0
"""What is particular to etcd: servers that go away, sessions that run out, values that are not ours, large levels."""

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadSetting, CannotStart, DamagedRecord, MetadataError, SessionLost
from magnetar.metadata import etcd as etcd_module
from magnetar.metadata.etcd import EtcdStore
from magnetar.metadata.etcd_client import parse_servers
from magnetar.metadata.etcd_format import encoded
from magnetar.metadata.open import open_store
from magnetar.metadata.store import Change, ChangeKind, SessionEvent
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.simulated_disk import SimulatedDisk
from tests.contracts.etcd_server import EtcdServer, etcd_server
from tests.contracts.metadata_stores import EtcdPlace, Seen, SeenChanges, watched
from tools.zookeeper import Missing

pytestmark = [pytest.mark.feature("F-MD-02")]


def test_a_server_that_comes_back_finds_session_records_and_watches(loop_run: Callable[[Any], Any]) -> None:
    etcd_server()
    server = EtcdServer()
    try:
        server.start()
    except Missing as error:
        pytest.skip(str(error))

    async def check() -> None:
        settings = MetadataSettings(
            session_timeout_ms=60_000, operation_timeout_ms=5_000, reconnect_delay_min_ms=10, reconnect_delay_max_ms=100
        )
        store = await EtcdStore.open(server.url, SystemClock(), settings)
        events: Seen[SessionEvent] = Seen()
        store.watch_session(events)
        changes = await watched(store, "/w")
        await store.put("/mine", b"1", ephemeral=True)
        await asyncio.to_thread(server.kill)
        with pytest.raises(MetadataError):
            await store.get("/mine")
        await events.until_holds(SessionEvent.DISCONNECTED)
        await asyncio.to_thread(server.start)
        await events.until_holds(SessionEvent.RECONNECTED)
        assert SessionEvent.LOST not in events.items
        assert (await store.put("/mine", b"2", ephemeral=True)).version == 1
        await store.put("/w/after", b"")
        await changes.until_holds(Change(ChangeKind.CREATED, "/w/after"))
        await store.close()

    try:
        loop_run(check())
    finally:
        server.remove()


@pytest.mark.feature("F-MD-17")
def test_whoever_slept_past_its_lease_is_told_before_anything_else(
    tmp_path: Path, loop_run: Callable[[Any], Any]
) -> None:
    async def check() -> None:
        async with EtcdPlace(tmp_path) as place:
            store = await place.session()
            assert isinstance(store, EtcdStore)
            events: Seen[SessionEvent] = Seen()
            store.watch_session(events)
            await store.put("/mine", b"", ephemeral=True)
            # As after a long stop: by our own clock the lease may have run out, although etcd would still answer.
            store._lease._good_until_s = asyncio.get_running_loop().time()
            with pytest.raises(SessionLost):
                await store.get("/mine")
            await events.until_holds(SessionEvent.LOST, SessionEvent.REESTABLISHED)
            assert events.items.index(SessionEvent.LOST) < events.items.index(SessionEvent.REESTABLISHED)
            # What the lost session held is gone, though its lease had time left.
            assert await store.get("/mine") is None

    loop_run(check())


def test_a_level_is_listed_without_what_lies_below_it(
    tmp_path: Path, loop_run: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_module, "CHILDREN_PAGE", 3)

    async def check() -> None:
        async with EtcdPlace(tmp_path) as place:
            store = await place.session()
            for name in ("a", "a-b", "a0", "a.", "b"):
                await store.put(f"/l/{name}", b"")
            for number in range(8):
                await store.put(f"/l/a/{number}", b"")
            assert await store.children("/l") == sorted(["a", "a-b", "a0", "a.", "b"])
            assert await store.children("/l/a") == [str(number) for number in range(8)]
            assert await store.children("/") == ["l"]
            assert await store.children("/l/b") == []

    loop_run(check())


def test_what_happened_before_etcd_forgot_it_is_told_as_a_change_of_each_prefix(
    tmp_path: Path, loop_run: Callable[[Any], Any]
) -> None:
    async def check() -> None:
        async with EtcdPlace(tmp_path) as place:
            store = await place.session()
            assert isinstance(store, EtcdStore)
            for number in range(3):
                await store.put("/w", b"%d" % number)
            revision = store._revision
            await store._client.call("kv/compaction", {"revision": str(revision)}, writes=True)
            store._revision = revision - 2
            changes = SeenChanges()
            store.watch("/w", changes)
            await changes.until_holds(Change(ChangeKind.MODIFIED, "/w"), Change(ChangeKind.CHILDREN_CHANGED, "/w"))
            changes.items.clear()
            await store.put("/w/later", b"")
            await changes.until_holds(Change(ChangeKind.CREATED, "/w/later"))

    loop_run(check())


def test_keys_of_others_and_of_newer_formats_are_not_believed(loop_run: Callable[[Any], Any]) -> None:
    url = etcd_server()
    chroot = f"/{uuid.uuid4().hex}"

    async def check() -> None:
        store = await EtcdStore.open(url + chroot, SystemClock())
        plain = httpx.AsyncClient(base_url=url, trust_env=False)
        for path, value, reason in (
            ("/foreign", b"text", "was not written by Magnetar"),
            ("/newer", b"\x02" + bytes(16) + b"value", "has format 2, this version knows 1"),
        ):
            body = {"key": encoded(chroot + path), "value": encoded(value)}
            await plain.post("/v3/kv/put", json=body)
            with pytest.raises(DamagedRecord, match=reason):
                await store.get(path)
            with pytest.raises(DamagedRecord, match=reason):
                await store.put(path, b"over it")
            found = (await plain.post("/v3/kv/range", json={"key": body["key"]})).json()["kvs"][0]
            assert found["value"] == body["value"]
        await plain.aclose()
        await store.close()

    loop_run(check())


def test_no_server_is_one_sentence(loop_run: Callable[[Any], Any]) -> None:
    async def check() -> None:
        with pytest.raises(CannotStart, match="does not let us in"):
            await open_store(
                "etcd:http://127.0.0.1:9", disk=SimulatedDisk(), clock=SystemClock(), settings=MetadataSettings()
            )

    loop_run(check())


def test_the_next_server_is_asked_when_one_is_away(loop_run: Callable[[Any], Any]) -> None:
    url = etcd_server()

    async def check() -> None:
        store = await EtcdStore.open(f"http://127.0.0.1:9,{url.removeprefix('http://')}/next", SystemClock())
        await store.put("/there", b"")
        await store.delete("/there")
        await store.close()

    loop_run(check())


def test_urls_say_what_is_wrong_with_them() -> None:
    assert parse_servers("http://a:2379,b:2379/x/y/") == (["http://a:2379", "http://b:2379"], "/x/y")
    assert parse_servers("https://a:2379") == (["https://a:2379"], "")
    for text in ("", "a:2379", "ftp://a:1", "http://", "http://a", "http://a:x", "http://u:p@a:1", "http://a:1/x#y"):
        with pytest.raises(BadSetting):
            parse_servers(text)
