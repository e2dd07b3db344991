# SPDX-License-Identifier: Apache-2.0
"""Brokers with loads for tests."""

from collections.abc import Mapping

from magnetar.broker.ownership.load_data import BrokerLoad, BundleLoad, ResourceUsage
from magnetar.broker.ownership.owner import Owner

MIB = 2**20


def broker(
    name: str, cpu: float = 0.0, bundles: Mapping[str, float] | None = None, *, memory: float = 0.0, topics: int = 1
) -> BrokerLoad:
    """Percentages of processor and memory; bundles with their bytes a second, and a message for every KiB."""
    loads = {
        bundle: BundleLoad(messages_in=weight / 1024, bytes_in=weight, topics=topics)
        for bundle, weight in (bundles or {}).items()
    }
    nothing = ResourceUsage(0.0, 100.0)
    resources = (ResourceUsage(cpu, 100.0), ResourceUsage(memory, 100.0), nothing, nothing, nothing)
    owner = Owner(f"pulsar://{name}:6650", f"http://{name}:8080")
    return BrokerLoad(owner, resources=resources, bundles=loads)


def brokers(*loads: BrokerLoad) -> dict[str, BrokerLoad]:
    return {load.broker_id: load for load in loads}


def bundle_names(count: int, namespace: str = "public/default") -> list[str]:
    return [f"{namespace}/0x{number:08x}_0x{number + 1:08x}" for number in range(count)]
