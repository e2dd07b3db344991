# SPDX-License-Identifier: Apache-2.0
"""What every handler may use: the broker, the metadata store, the clock, the metrics; and how a handler asks for it.

Carries.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request
from starlette.convertors import Convertor, register_url_convertor

from magnetar.admin.ages import Ages
from magnetar.admin.names_asked import DOMAIN_PATTERN, decoded_namespace, decoded_topic
from magnetar.admin.peers import Peers
from magnetar.admin.rates import Rates
from magnetar.admin.records import Records
from magnetar.admin.websockets import WebSockets
from magnetar.broker.broker import Broker
from magnetar.broker.ownership.usage import UsageMeter
from magnetar.broker.policies.policies import Policies
from magnetar.config.admin import AdminSettings
from magnetar.names import NamespaceName, TopicName
from magnetar.runtime.clock import WallClock
from magnetar.runtime.metrics import Metrics

if TYPE_CHECKING:
    from magnetar.admin.metrics import Scrapes


class _Domain(Convertor[str]):
    """Routes name a topic's domain `{domain:domain}`, so that no other noun is taken for one."""

    regex = DOMAIN_PATTERN

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class _Bundle(Convertor[str]):
    """`{bundle:bundle}` is a range of hashes, so that no topic is taken for one."""

    regex = "0x[0-9a-fA-F]{8}_0x[0-9a-fA-F]{8}"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("domain", _Domain())
register_url_convertor("bundle", _Bundle())


@dataclass(slots=True)
class AdminParts:
    broker: Broker
    records: Records
    policies: Policies
    clock: WallClock
    metrics: Metrics
    settings: AdminSettings
    rates: Rates
    ages: Ages
    scrapes: "Scrapes"
    usage: UsageMeter
    peers: Peers
    # None where it is switched off.
    websockets: WebSockets | None = None

    @property
    def cluster(self) -> str:
        return self.broker.settings.cluster_name

    @property
    def broker_id(self) -> str:
        """As Pulsar names a broker: the host and port of its HTTP server."""
        return self.web_url.partition("://")[2]

    @property
    def web_url(self) -> str:
        """Where it serves HTTP, or HTTPS where there is nothing else."""
        settings, https_port = self.broker.settings, self.broker.guard.settings.https_port
        scheme, port = ("http", settings.http_port) if settings.http_port >= 0 else ("https", https_port)
        return f"{scheme}://{settings.advertised_address}:{port}"


# Coroutines all of them: a plain function would be called on a thread, which costs more than all else in a request.


async def _parts(request: Request) -> AdminParts:
    parts: AdminParts = request.app.state.parts
    return parts


async def _namespace(tenant: str, namespace: str) -> NamespaceName:
    return decoded_namespace(tenant, namespace)


async def _topic(domain: str, tenant: str, namespace: str, topic: str) -> TopicName:
    return decoded_topic(domain, tenant, namespace, topic)


Parts = Annotated[AdminParts, Depends(_parts)]
Namespace = Annotated[NamespaceName, Depends(_namespace)]
Topic = Annotated[TopicName, Depends(_topic)]
