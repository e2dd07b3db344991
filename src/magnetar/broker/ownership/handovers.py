# SPDX-License-Identifier: Apache-2.0
"""Bundles that go from one broker to another without a look-up in between.

The broker that gives a bundle up puts a record into the other's inbox, which ends with its own session; the other then
waits for the bundle, and keeps clients that come early waiting with it. The record goes when the bundle has arrived.
When the other does not take it in time, the bundle is free for whoever is asked next.
Carries.
"""

import asyncio
import logging
from typing import Final

from magnetar.broker.ownership.bundles import Bundle, parse_bundle
from magnetar.broker.ownership.cluster_ownership import ClusterOwnership
from magnetar.broker.ownership.inbox import Inbox
from magnetar.broker.ownership.owner import Owner
from magnetar.errors import MagnetarError, MetadataError
from magnetar.metadata.store import MetadataStore
from magnetar.names import decode_name, encode_name
from magnetar.runtime.tasks import Tasks

HANDOVER_ROOT: Final = "/loadbalance/handover"
# How long the one that gives a bundle up looks whether it has arrived.
_ARRIVAL_S: Final = 5.0

_log = logging.getLogger(__name__)


class Handovers:
    def __init__(self, store: MetadataStore, ownership: ClusterOwnership, tasks: Tasks) -> None:
        self._store = store
        self._ownership = ownership
        self._inbox = Inbox(store, HANDOVER_ROOT, tasks, self._on_record)

    def start(self, broker_id: str) -> None:
        self._inbox.start(broker_id)

    async def hand_over(self, bundle: Bundle, target: Owner) -> bool:
        """Give a bundle to another broker; False when it is not this one's. It may end elsewhere: ask who has it."""
        if not self._ownership.serves(bundle):
            return False
        path = f"{self._inbox.of(target.broker_id)}/{encode_name(str(bundle))}"
        try:
            await self._store.put(path, b"", ephemeral=True)
        except MetadataError as error:
            _log.warning("%s is released without a word to %s: %s", bundle, target.broker_id, error)
        try:
            released = await self._ownership.release(bundle, target)
            if released:
                await self._arrived(bundle)
        finally:
            await self._forget(path)
        return released

    def close(self) -> None:
        self._inbox.close()

    async def _arrived(self, bundle: Bundle) -> None:
        arrived = asyncio.Event()
        unwatch = self._store.watch(bundle.path, lambda change: arrived.set())
        try:
            async with asyncio.timeout(_ARRIVAL_S):
                while await self._store.get(bundle.path) is None:
                    await arrived.wait()
                    arrived.clear()
        except TimeoutError:
            _log.warning("nobody took %s in %g s; the next look-up assigns it", bundle, _ARRIVAL_S)
        except MetadataError as error:
            _log.warning("whether %s has arrived is not known: %s", bundle, error)
        finally:
            unwatch()

    async def _forget(self, path: str) -> None:
        try:
            await self._store.delete(path)
        except MagnetarError as error:
            _log.info("the word about a handover goes with the session: %s", error)

    def _on_record(self, name: str) -> None:
        bundle = parse_bundle(decode_name(name))
        if bundle is not None:
            self._ownership.await_handover(bundle)
