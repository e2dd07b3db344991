# SPDX-License-Identifier: Apache-2.0
"""Where a topic is served: what every kind of ownership answers, and the kind of a broker that is alone.

Carries.
"""

from typing import Protocol

from magnetar.broker.namespaces import Namespaces
from magnetar.broker.ownership.owner import Located, Owner
from magnetar.errors import ServiceNotReady
from magnetar.names import TopicName


class Ownership(Protocol):
    """What look-ups and topics ask. `own` is this broker, once it listens."""

    own: Owner | None

    async def locate(self, topic: TopicName, *, authoritative: bool = False, listener: str = "") -> Located:
        """Who serves a topic, found or chosen now. ServiceNotReady when that cannot be told yet."""

    async def check_served(self, topic: TopicName) -> None:
        """ServiceNotReady unless this broker owns the topic."""

    def moved_to(self, topic: TopicName) -> Owner | None:
        """Who serves a topic next that is leaving this broker, if that is known."""


class SoleOwnership:
    """The ownership of a broker that is alone: every topic is its own."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self.own: Owner | None = None

    async def locate(self, topic: TopicName, *, authoritative: bool = False, listener: str = "") -> Located:
        await self._namespaces.require(topic.namespace)
        if self.own is None:
            raise ServiceNotReady("The broker is starting")
        owner = self.own.through(listener)
        if owner is None:
            raise ServiceNotReady(f"the broker do not have {listener} listener")
        return Located(owner)

    async def check_served(self, topic: TopicName) -> None:
        return

    def moved_to(self, topic: TopicName) -> Owner | None:
        return None
