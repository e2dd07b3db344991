# SPDX-License-Identifier: Apache-2.0
"""A leader that serves no topics, where `balance.leader_takes_bundles` says so: it gives away what it has.

New bundles are not placed on it either; placement sees to that. While it is alone it serves everything, as any broker.
Carries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar.broker.ownership.bundles import Bundle
from magnetar.broker.ownership.cluster_ownership import ClusterOwnership
from magnetar.broker.ownership.membership import Membership
from magnetar.config.balance import BalanceSettings
from magnetar.errors import MagnetarError

_LOOK_S: Final = 5.0

_log = logging.getLogger(__name__)


class DedicatedLeader:
    def __init__(
        self,
        ownership: ClusterOwnership,
        membership: Membership,
        settings: Callable[[], BalanceSettings],
        give: Callable[[Bundle], Awaitable[None]],
    ) -> None:
        self._ownership = ownership
        self._membership = membership
        self._settings = settings
        self._give = give

    @property
    def shunned(self) -> str:
        """The broker that shall have no bundles; empty where every broker may."""
        leader = None if self._settings().leader_takes_bundles else self._membership.leader
        return "" if leader is None else leader.broker_id

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.give_up()
            except MagnetarError as error:
                _log.info("the leader keeps its bundles for now: %s", error)

    async def give_up(self) -> None:
        """Hand every bundle to other brokers, if this one leads and is not alone."""
        own = self._ownership.own
        if own is None or self.shunned != own.broker_id or len(await self._membership.members()) < 2:
            return
        for bundle in self._ownership.held():
            await self._give(bundle)
