# SPDX-License-Identifier: Apache-2.0
"""Doors of a standalone for those who read its storage themselves, as Spark does: BookKeeper's port and the metadata.

Closed unless asked for, and on loopback only: whoever comes in this way is asked for no permission.
Assembles.
"""

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from magnetar.bookie.registration import Listing
from magnetar.bookie.server import BookieServer, take_port
from magnetar.bookie.storage import BookieStorage
from magnetar.bookie.version_three import Space, VersionThree
from magnetar.config.load import Settings
from magnetar.metadata.embedded import EmbeddedStore
from magnetar.metadata.remote_server import MetadataServer
from magnetar.runtime.disk import Disk
from magnetar.runtime.tasks import Tasks
from magnetar.standalone.door_ports import DoorPorts
from magnetar.wire.bookkeeper.registry import BOOKIE_ENDPOINT, BOOKIE_PROTOCOL, Endpoint, encode_listing

LOOPBACK: Final = "127.0.0.1"


async def open_doors(
    opened: AsyncExitStack,
    ports: DoorPorts,
    disk: Disk,
    storage: BookieStorage,
    store: EmbeddedStore,
    settings: Settings,
    tasks: Tasks,
) -> dict[str, str]:
    """What was asked for, by its name and where it is."""
    urls = {}
    if ports.bookie is not None:
        urls["bookie"] = await _open_bookie(opened, ports.bookie, disk, storage, store, settings, tasks)
    if ports.metadata is not None:
        urls["metadata"] = await _open_metadata(opened, ports.metadata, store, settings)
    return urls


async def _open_bookie(
    opened: AsyncExitStack,
    port: int,
    disk: Disk,
    storage: BookieStorage,
    store: EmbeddedStore,
    settings: Settings,
    tasks: Tasks,
) -> str:
    """Serve the storage to BookKeeper's clients and list it; returns the address."""
    taken = take_port(LOOPBACK, port, "--bookie-port")
    opened.callback(taken.close)

    async def space() -> Space:
        usages = [await disk.usage(path) for path in settings.bookie.ledger_directories]
        return Space(sum(usage.total_bytes for usage in usages), sum(usage.free_bytes for usage in usages))

    ports = replace(settings.bookie_server, bind_address=LOOPBACK, port=taken.getsockname()[1])
    version_three = VersionThree(storage, space, long_poll_timeout_max_ms=ports.long_poll_timeout_max_ms)
    server = BookieServer(storage, version_three, ports, tasks, entry_bytes_max=settings.bookie.entry_bytes_max)
    await server.start(taken)
    opened.push_async_callback(server.stop)
    listing = Listing(
        store,
        storage.bookie,
        encode_listing((Endpoint(BOOKIE_ENDPOINT, LOOPBACK, ports.port, BOOKIE_PROTOCOL),), {}),
        lambda: storage.is_read_only,
        tasks,
        check_interval_ms=ports.registration_check_interval_ms,
    )
    await listing.enter()
    opened.push_async_callback(listing.withdraw)
    return f"{LOOPBACK}:{ports.port}"


async def _open_metadata(opened: AsyncExitStack, port: int, store: EmbeddedStore, settings: Settings) -> str:
    """Serve the metadata to other processes; returns its URL."""
    server = MetadataServer(store.tree, settings.metadata)
    taken = await server.start(LOOPBACK, port)
    opened.push_async_callback(server.close)
    return f"remote:{LOOPBACK}:{taken}"
