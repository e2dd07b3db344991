# SPDX-License-Identifier: Apache-2.0
"""What a broker says of its load: its resources, its traffic, and the traffic of each of its bundles.

The record is Pulsar's LocalBrokerData, under which a broker is also registered. Members that we do not use are written
so that Pulsar's own brokers and tools can read it.
Decides.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from magnetar.broker.ownership.owner import Owner, decode_listeners, encode_listeners
from magnetar.config.metadata import FORMAT_LEVEL_FIRST
from magnetar.errors import DamagedRecord
from magnetar.metadata.format_level_record import announced_level

RESOURCES: Final = ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")


class ResourceUsage(NamedTuple):
    usage: float = 0.0
    limit: float = 0.0

    @property
    def percent(self) -> float:
        """0 where the limit is unknown."""
        return 100.0 * self.usage / self.limit if self.limit > 0 else 0.0


class BundleLoad(NamedTuple):
    messages_in: float = 0.0
    messages_out: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    topics: int = 0
    producers: int = 0
    consumers: int = 0

    @property
    def bytes(self) -> float:
        return self.bytes_in + self.bytes_out

    @property
    def messages(self) -> float:
        return self.messages_in + self.messages_out

    def __add__(self, other: object) -> "BundleLoad":
        if not isinstance(other, BundleLoad):
            return NotImplemented
        return BundleLoad(
            self.messages_in + other.messages_in,
            self.messages_out + other.messages_out,
            self.bytes_in + other.bytes_in,
            self.bytes_out + other.bytes_out,
            self.topics + other.topics,
            self.producers + other.producers,
            self.consumers + other.consumers,
        )


class BrokerLoad(NamedTuple):
    owner: Owner
    # Tells one process from another that has its address.
    instance: str = ""
    started_ms: int = 0
    updated_ms: int = 0
    version: str = ""
    # One for each of RESOURCES.
    resources: tuple[ResourceUsage, ...] = (ResourceUsage(),) * len(RESOURCES)
    bundles: Mapping[str, BundleLoad] = {}
    # The highest format level that it can read; those of the first release do not say.
    format_level: int = FORMAT_LEVEL_FIRST

    @property
    def broker_id(self) -> str:
        return self.owner.broker_id

    @property
    def total(self) -> BundleLoad:
        return sum(self.bundles.values(), BundleLoad())

    def weighted_usage(self, weights: tuple[float, ...]) -> float:
        """The highest use of a resource in percent, each weighed; 0 weight leaves a resource out."""
        return max(resource.percent * weight for resource, weight in zip(self.resources, weights, strict=True))

    def summed_usage(self, weights: tuple[float, ...], flow_max: float, rate_max: float) -> float:
        """The other formula: processor, flow and rate of messages, weighed and added up. Weights: one for each."""
        total, (cpu, flow, rate) = self.total, weights
        return (
            self.resources[0].percent * cpu
            + (total.bytes / flow_max * 100 * flow if flow_max > 0 else 0.0)
            + (total.messages / rate_max * 100 * rate if rate_max > 0 else 0.0)
        )


def encode_load(load: BrokerLoad) -> bytes:
    owner, total = load.owner, load.total
    record: dict[str, Any] = {
        "webServiceUrl": owner.web_url or None,
        "webServiceUrlTls": owner.web_url_tls or None,
        "pulsarServiceUrl": owner.service_url or None,
        "pulsarServiceUrlTls": owner.service_url_tls or None,
        "persistentTopicsEnabled": True,
        "nonPersistentTopicsEnabled": True,
        **{name: usage._asdict() for name, usage in zip(RESOURCES, load.resources, strict=True)},
        "msgThroughputIn": total.bytes_in,
        "msgThroughputOut": total.bytes_out,
        "msgRateIn": total.messages_in,
        "msgRateOut": total.messages_out,
        "startTimestamp": load.started_ms,
        "lastUpdate": load.updated_ms,
        "lastStats": {name: _encoded_bundle(bundle) for name, bundle in load.bundles.items()},
        "numTopics": total.topics,
        "numBundles": len(load.bundles),
        "numConsumers": total.consumers,
        "numProducers": total.producers,
        "bundles": list(load.bundles),
        "lastBundleGains": [],
        "lastBundleLosses": [],
        "brokerVersionString": load.version,
        "protocols": {},
        "advertisedListeners": encode_listeners(owner),
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
        "loadReportType": "LocalBrokerData",
        "maxResourceUsage": max(usage.percent for usage in load.resources) / 100,
        "instance": load.instance,
        "formatLevel": load.format_level,
    }
    return json.dumps({name: value for name, value in record.items() if value is not None}).encode()


def decode_load(value: bytes) -> BrokerLoad:
    try:
        record = json.loads(value)
        owner = Owner(
            record.get("pulsarServiceUrl") or "",
            record.get("webServiceUrl") or "",
            record.get("pulsarServiceUrlTls") or "",
            record.get("webServiceUrlTls") or "",
            decode_listeners(record.get("advertisedListeners")),
        )
        return BrokerLoad(
            owner,
            str(record.get("instance") or ""),
            int(record.get("startTimestamp") or 0),
            int(record.get("lastUpdate") or 0),
            str(record.get("brokerVersionString") or ""),
            tuple(_decoded_usage(record.get(name)) for name in RESOURCES),
            {name: _decoded_bundle(bundle) for name, bundle in (record.get("lastStats") or {}).items()},
            announced_level(record.get("formatLevel")),
        )
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedRecord(f"The record of a broker cannot be read: {value[:100]!r}") from error


def _encoded_bundle(bundle: BundleLoad) -> dict[str, Any]:
    return {
        "msgRateIn": bundle.messages_in,
        "msgThroughputIn": bundle.bytes_in,
        "msgRateOut": bundle.messages_out,
        "msgThroughputOut": bundle.bytes_out,
        "consumerCount": bundle.consumers,
        "producerCount": bundle.producers,
        "topics": bundle.topics,
        "cacheSize": 0,
    }


def _decoded_bundle(record: Mapping[str, Any]) -> BundleLoad:
    return BundleLoad(
        _number(record.get("msgRateIn")),
        _number(record.get("msgRateOut")),
        _number(record.get("msgThroughputIn")),
        _number(record.get("msgThroughputOut")),
        int(_number(record.get("topics"))),
        int(_number(record.get("producerCount"))),
        int(_number(record.get("consumerCount"))),
    )


def _decoded_usage(record: Mapping[str, Any] | None) -> ResourceUsage:
    return (
        ResourceUsage() if record is None else ResourceUsage(_number(record.get("usage")), _number(record.get("limit")))
    )


def _number(value: object) -> float:
    """What another broker reports is not trusted to be a number: NaN and the like count as nothing."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return 0.0
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
