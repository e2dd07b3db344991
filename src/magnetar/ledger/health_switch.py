# SPDX-License-Identifier: Apache-2.0
"""Whether clients set bookies aside that fail: a switch in the metadata, for the time of a rolling upgrade.

BookKeeper's: where the record is, health checks are off. While bookies restart one after another every client would set
aside those that were down, and come together on those that were not.
Carries.
"""

import asyncio
import logging

from magnetar.errors import BadVersion, NoRecord
from magnetar.ledger.paths import HEALTH_CHECK_DISABLED
from magnetar.ledger.watched_tree import WatchedTree
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore
from magnetar.runtime.tasks import Tasks

_log = logging.getLogger(__name__)


class HealthSwitch:
    """Use `open`: the switch is known when it returns."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.is_on = True
        self._tree = WatchedTree(store, HEALTH_CHECK_DISABLED, self._look)
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, store: MetadataStore, tasks: Tasks) -> "HealthSwitch":
        switch = cls(store)
        await switch._look()
        switch._task = tasks.start(switch._tree.keep(), "health switch")
        return switch

    def close(self) -> None:
        self._tree.close()
        if self._task is not None:
            self._task.cancel()

    async def _look(self) -> None:
        is_on = await is_health_checked(self._store)
        if is_on != self.is_on:
            self.is_on = is_on
            _log.warning("bookies that fail are %s", "set aside again" if is_on else "not set aside any more")


async def is_health_checked(store: MetadataStore) -> bool:
    return not await store.exists(HEALTH_CHECK_DISABLED)


async def set_health_checked(store: MetadataStore, is_on: bool) -> None:
    """Switch for every client of the cluster; nothing happens where it is so already."""
    try:
        if is_on:
            await store.delete(HEALTH_CHECK_DISABLED)
        else:
            await store.put(HEALTH_CHECK_DISABLED, b"", expected_version=MUST_NOT_EXIST)
    except (NoRecord, BadVersion):
        return
