# SPDX-License-Identifier: Apache-2.0
"""What all replicators of a broker share.

Assembles.
"""

from dataclasses import dataclass
from random import Random

from magnetar.broker.namespaces import Namespaces
from magnetar.broker.replication.remote_clusters import RemoteClusters
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.config.broker import BrokerSettings
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks


@dataclass(frozen=True, slots=True)
class ReplicationParts:
    # The name of this cluster.
    cluster: str
    settings: BrokerSettings
    clusters: RemoteClusters
    namespaces: Namespaces
    schemas: SchemaRegistry
    clock: WallClock
    random: Random
    tasks: Tasks
