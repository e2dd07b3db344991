# SPDX-License-Identifier: Apache-2.0
"""Where a topic is served. In a cluster of one broker that is always here.

Carries.
"""

from typing import NamedTuple

from magnetar.broker.namespaces import Namespaces
from magnetar.errors import ServiceNotReady
from magnetar.names import TopicName


class Owner(NamedTuple):
    service_url: str
    web_url: str
    # Empty without TLS.
    service_url_tls: str = ""
    web_url_tls: str = ""


class SoleOwnership:
    """The ownership of a broker that is alone: every topic is its own."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self.own: Owner | None = None

    async def locate(self, topic: TopicName, *, listener: str = "") -> Owner:
        if listener:
            raise ServiceNotReady(f"the broker do not have {listener} listener")
        await self._namespaces.require(topic.namespace)
        if self.own is None:
            raise ServiceNotReady("The broker is starting")
        return self.own
