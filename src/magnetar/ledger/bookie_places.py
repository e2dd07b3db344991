# SPDX-License-Identifier: Apache-2.0
"""Where bookies stand: racks and groups as operators wrote them down, free space as the bookies say it.

Owns the present places of the writable bookies. The record is Pulsar's: group → bookie → rack, where a rack may be
`/region/rack`. A record that cannot be read changes nothing; a bookie that is not in it stands in the default rack of
the default group. Free space is asked only where the placement weighs it.
Carries.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from magnetar.config.ledger import PlacementSettings
from magnetar.errors import MagnetarError, MetadataError
from magnetar.ledger.bookies import Bookies
from magnetar.ledger.topology_placement import BookiePlace
from magnetar.ledger.watched_tree import WatchedTree
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.tasks import Tasks

PLACES_PATH: Final = "/bookies"

_log = logging.getLogger(__name__)


def decode_places(value: bytes) -> dict[str, BookiePlace]:
    """The places in a record; ValueError when it is none."""
    try:
        groups = json.loads(value or b"{}")
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error
    if not isinstance(groups, dict):
        raise ValueError("it is no JSON object")
    found: dict[str, BookiePlace] = {}
    for group, members in groups.items():
        if not isinstance(members, dict):
            raise ValueError(f"group {group} is no JSON object")
        for bookie, info in members.items():
            rack = info.get("rack") if isinstance(info, dict) else None
            found[bookie] = _place(str(rack or ""), str(group))
    return found


def _place(rack: str, group: str) -> BookiePlace:
    parts = [part for part in rack.split("/") if part]
    if not parts:
        return BookiePlace(group=group)
    # With one level the rack is its own region, as in BookKeeper.
    return BookiePlace(rack="/" + "/".join(parts), region=f"/{parts[0]}", group=group)


class BookiePlaces:
    """Use `open`: what is on record is known when it returns."""

    def __init__(
        self,
        store: MetadataStore,
        bookies: Bookies,
        settings: PlacementSettings,
        free_bytes: Callable[[str], Awaitable[int]],
    ) -> None:
        self._store = store
        self._bookies = bookies
        self._settings = settings
        self._ask_free_bytes = free_bytes
        self._noted: dict[str, BookiePlace] = {}
        self._free_bytes: dict[str, int] = {}
        self._tree = WatchedTree(store, PLACES_PATH, self._look)

    @classmethod
    async def open(
        cls,
        store: MetadataStore,
        bookies: Bookies,
        settings: PlacementSettings,
        free_bytes: Callable[[str], Awaitable[int]],
        tasks: Tasks,
    ) -> "BookiePlaces":
        places = cls(store, bookies, settings, free_bytes)
        with contextlib.suppress(MetadataError):
            await places._look()
        tasks.start(places._tree.keep(), "places of bookies")
        if settings.disk_weighted:
            await places.weigh()
            tasks.start(places._weigh_at_intervals(), "free space of bookies")
        return places

    def __call__(self) -> Mapping[str, BookiePlace]:
        """The writable bookies, each with its place."""
        return {bookie: self.place(bookie) for bookie in self._bookies.writable}

    def place(self, bookie: str) -> BookiePlace:
        """Where any bookie stands, writable or not."""
        noted = self._noted.get(bookie)
        if noted is None:
            # Named by host alone, all bookies of the host stand there.
            noted = self._noted.get(bookie.rpartition(":")[0], BookiePlace())
        return noted._replace(free_bytes=self._free_bytes.get(bookie, 0))

    async def weigh(self) -> None:
        """Ask every writable bookie for its free space; one that does not answer keeps its last."""
        present: dict[str, int] = {}
        for bookie in self._bookies.writable:
            try:
                present[bookie] = await self._ask_free_bytes(bookie)
            except MagnetarError as error:
                _log.info("%s does not say how much space it has: %s", bookie, error)
                if bookie in self._free_bytes:
                    present[bookie] = self._free_bytes[bookie]
        self._free_bytes = present

    def close(self) -> None:
        self._tree.close()

    # --- private ------------------------------------------------------------------------------

    async def _look(self) -> None:
        record = await self._store.get(PLACES_PATH)
        try:
            self._noted = decode_places(record.value if record is not None else b"")
        except ValueError as error:
            _log.error("the record %s says nothing, the places known before stay: %s", PLACES_PATH, error)

    async def _weigh_at_intervals(self) -> None:
        changed = asyncio.Event()
        end = self._bookies.listen(changed.set)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.weigh_interval_ms / 1000):
                        await changed.wait()
                changed.clear()
                await self.weigh()
        finally:
            end()
