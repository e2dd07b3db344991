# SPDX-License-Identifier: Apache-2.0
"""A ledger client over TCP, from a metadata store: what brokers, repairs and the storage shell stand on.

Assembles.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import NamedTuple

from magnetar.config.load import Settings
from magnetar.ledger.auditor import Standing
from magnetar.ledger.bookie_places import BookiePlaces
from magnetar.ledger.bookies import Bookies
from magnetar.ledger.health_switch import HealthSwitch
from magnetar.ledger.ledgers import Ledgers
from magnetar.ledger.tcp_channel import TcpChannels
from magnetar.ledger.topology_placement import TopologyPlacement
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import WallClock
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.tasks import Tasks


class LedgerClient(NamedTuple):
    ledgers: Ledgers
    bookies: Bookies
    channels: TcpChannels
    places: BookiePlaces
    placement: TopologyPlacement

    def standing(self, settings: Settings) -> Standing:
        """What an auditor holds placements against."""
        asked = settings.placement.racks_per_write_quorum_min if settings.placement.rack_aware else 1
        return Standing(self.places.place, lambda: min(asked, len({place.rack for place in self.places().values()})))


@asynccontextmanager
async def ledger_client(
    store: MetadataStore,
    settings: Settings,
    clock: WallClock,
    random: Random,
    tasks: Tasks,
    metrics: Metrics | None = None,
) -> AsyncIterator[LedgerClient]:
    """Watches which bookies there are, and connects to each when it is first needed."""
    bookies = await Bookies.open(store, tasks)
    channels = TcpChannels(bookies.address, tasks, settings.channel)
    if metrics is not None:
        meaning = "Copies of entries that wait behind slow bookies."
        metrics.gauge("magnetar_bytes_held_for_bookies", meaning, lambda: channels.held_bytes)
    loop = asyncio.get_running_loop()
    places = await BookiePlaces.open(store, bookies, settings.placement, channels.free_bytes, tasks)
    health = await HealthSwitch.open(store, tasks)
    placement = TopologyPlacement(places, random, lambda: loop.time() * 1000, settings.placement, lambda: health.is_on)
    ledgers = Ledgers(store, channels, placement, clock, random, tasks, settings.ledger)
    try:
        yield LedgerClient(ledgers, bookies, channels, places, placement)
    finally:
        health.close()
        places.close()
        bookies.close()
        channels.close()
