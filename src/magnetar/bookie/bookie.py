# SPDX-License-Identifier: Apache-2.0
"""One bookie: its storage, its port, its HTTP, and its place among the others.

Opens from the bottom up: ports are taken, the cookie is checked, the journal replayed, then the bookie serves, and only
then is it listed. Closes from the top down. Which ledgers exist, it asks; it never reads ledger metadata itself.
Assembles.
"""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import NamedTuple

from magnetar.bookie.bookie_metrics import Limits, describe
from magnetar.bookie.cookie_check import Cookies
from magnetar.bookie.http import BookieHttp
from magnetar.bookie.http_routes import Routes
from magnetar.bookie.inventory import Inventory
from magnetar.bookie.ledger_questions import LedgerQuestions
from magnetar.bookie.opening import IndexFactory, unstamp
from magnetar.bookie.registration import (
    Listing,
    instance_id,
    known_boots,
    note_boots,
    register_cookie,
    registered_cookie,
)
from magnetar.bookie.server import BookieServer, take_port
from magnetar.bookie.storage import BookieStorage
from magnetar.bookie.version_three import Space, VersionThree
from magnetar.config.bookie import BookieSettings
from magnetar.config.bookie_server import BookieServerSettings
from magnetar.config.metadata import FORMAT_LEVEL_NEWEST
from magnetar.errors import BadCookie, StorageFailed
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import WallClock
from magnetar.runtime.disk import Disk
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper.cookie import Cookie
from magnetar.wire.bookkeeper.registry import (
    BOOKIE_ENDPOINT,
    BOOKIE_PROTOCOL,
    FORMAT_LEVEL_PROPERTY,
    HTTP_ENDPOINT,
    HTTP_PROTOCOL,
    Endpoint,
    encode_listing,
)


class BookieParts(NamedTuple):
    """What a bookie borrows from its process."""

    disk: Disk
    store: MetadataStore
    clock: WallClock
    metrics: Metrics
    index_factory: IndexFactory
    questions: LedgerQuestions
    # The id of this cluster's storage, should it have none yet.
    fresh_instance_id: str
    on_failed: Callable[[BaseException], None]
    # HTTP paths about the cluster, which others answer.
    routes: Routes = MappingProxyType({})
    # The format level that this bookie announces.
    format_level: int = FORMAT_LEVEL_NEWEST
    # What the bookie was configured with, for whoever asks; without secrets.
    configuration: Mapping[str, str] = MappingProxyType({})


class Bookie:
    """Usable when `open` returns: it serves and is listed."""

    def __init__(self, storage: BookieStorage, endpoints: tuple[Endpoint, ...], closing: AsyncExitStack) -> None:
        self.storage = storage
        self.bookie_id = storage.bookie
        self.endpoints = endpoints
        self._closing = closing

    @classmethod
    async def open(cls, parts: BookieParts, settings: BookieSettings, ports: BookieServerSettings) -> "Bookie":
        """CannotStart for a port in use, a cookie that does not fit or directories in use."""
        async with AsyncExitStack() as opened:
            taken = take_port(ports.bind_address, ports.port, "--port")
            opened.callback(taken.close)
            host = ports.advertised_address or ports.bind_address
            port = taken.getsockname()[1]
            endpoints: tuple[Endpoint, ...] = (Endpoint(BOOKIE_ENDPOINT, host, port, BOOKIE_PROTOCOL),)
            http_taken = None
            if ports.http_enabled:
                http_taken = take_port(ports.bind_address, ports.http_port, "--http-port")
                opened.callback(http_taken.close)
                endpoints += (Endpoint(HTTP_ENDPOINT, host, http_taken.getsockname()[1], HTTP_PROTOCOL),)
            storage = await _open_storage(parts, settings, ports.bookie_id or f"{host}:{port}")
            opened.push_async_callback(storage.close)
            tasks = Tasks(f"bookie {storage.bookie}", lambda _, error: parts.on_failed(error))
            opened.push_async_callback(tasks.close)

            async def space() -> Space:
                return await _space(parts.disk, settings)

            timeout_max_ms = ports.long_poll_timeout_max_ms
            version_three = VersionThree(storage, space, long_poll_timeout_max_ms=timeout_max_ms)
            server = BookieServer(storage, version_three, ports, tasks, entry_bytes_max=settings.entry_bytes_max)
            await server.start(taken)
            opened.push_async_callback(server.stop)
            if http_taken is not None:
                describe(parts.metrics, storage, server, _limits(settings))
                inventory = Inventory(storage, space, parts.configuration)
                http = BookieHttp(parts.metrics, {**inventory.routes(), **parts.routes})
                await http.start(http_taken)
                opened.push_async_callback(http.stop)
            listing = Listing(
                parts.store,
                storage.bookie,
                encode_listing(endpoints, {FORMAT_LEVEL_PROPERTY: str(parts.format_level)}),
                lambda: storage.is_read_only,
                tasks,
                check_interval_ms=ports.registration_check_interval_ms,
            )
            await listing.enter()
            opened.push_async_callback(listing.withdraw)
            complete = parts.questions.complete
            if complete is not None and settings.limbo_checked:
                tasks.start(storage.doubts.settle_all(complete, settings.limbo_check_interval_ms), "ledgers in limbo")
            return cls(storage, endpoints, opened.pop_all())

    async def close(self) -> None:
        """Leave the lists, let clients go, write everything out."""
        await self._closing.aclose()


async def _open_storage(parts: BookieParts, settings: BookieSettings, bookie: str) -> BookieStorage:
    store = parts.store
    own = Cookie(
        bookie_id=bookie,
        journal_directories=settings.journal_directories,
        ledger_directories=settings.ledger_directories,
        instance_id=await instance_id(store, parts.fresh_instance_id),
    )
    registered = await registered_cookie(store, bookie)
    # Also without a cookie: somebody of this name has served, and with empty disks it must doubt what it does not have.
    boots = await known_boots(store, bookie)

    def on_failed(failure: StorageFailed) -> None:
        parts.on_failed(failure)

    storage = await BookieStorage.open(
        parts.disk,
        settings,
        bookie=bookie,
        clock=parts.clock,
        index_factory=parts.index_factory,
        on_failed=on_failed,
        questions=parts.questions,
        cookies=Cookies(own, registered, boots),
    )
    try:
        if registered is None:
            await register_cookie(store, own)
        await note_boots(store, bookie, storage.boots)
    except BaseException as error:
        await storage.close()
        if isinstance(error, BadCookie):
            # With the stamp the next start would pass for the bookie that is registered.
            await unstamp(parts.disk, settings)
        raise
    return storage


async def _space(disk: Disk, settings: BookieSettings) -> Space:
    usages = [await disk.usage(path) for path in settings.ledger_directories]
    return Space(sum(usage.total_bytes for usage in usages), sum(usage.free_bytes for usage in usages))


def _limits(settings: BookieSettings) -> Limits:
    return Limits(
        write_cache_bytes=settings.write_cache_bytes_max,
        journal_queue_bytes=settings.journal_queue_bytes_max,
        read_ahead_entries=settings.read_ahead_entries_max,
        held_adds=settings.held_adds_max,
        reads=settings.reads_max,
    )
