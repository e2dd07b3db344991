# SPDX-License-Identifier: Apache-2.0
"""`brokers/balance`: what the load balancer would move and split now, and why; and doing it now.

Magnetar's own. Any broker can say what would be done; only a round that the leader runs is remembered by it.
Carries.
"""

from typing import Any

from fastapi import APIRouter, Response

from magnetar.admin.answers import AdminRefused, answered
from magnetar.admin.parts import AdminParts, Parts
from magnetar.broker.ownership.cluster import Cluster

router = APIRouter(prefix="/admin/v2/brokers/balance", tags=["brokers"])


@router.get("")
async def explain(parts: Parts) -> Response:
    cluster = _require_cluster(parts)
    plan = await cluster.balancer.plan()
    leader = cluster.membership.leader
    return answered(
        {
            "leader": None if leader is None else leader.broker_id,
            "strategy": cluster.settings.shedding,
            "placement": cluster.settings.placement,
            "usagePercent": {broker: round(usage, 1) for broker, usage in plan.usage.items()},
            "moves": [move._asdict() for move in plan.moves],
            "splits": [split._asdict() for split in plan.splits],
            "notes": plan.notes,
            "rounds": cluster.balancer.rounds,
            "movesMade": cluster.balancer.moves_made,
            "splitsMade": cluster.balancer.splits_made,
        }
    )


@router.post("")
async def run(parts: Parts) -> Response:
    """One round of splitting and shedding now, by the leader alone."""
    cluster = _require_cluster(parts)
    if not cluster.membership.is_leader:
        leader = cluster.membership.leader
        raise AdminRefused(412, f"The leader balances: ask {leader.web_url if leader else 'it when there is one'}")
    members = await cluster.membership.members()
    splits = await cluster.balancer.split_round()
    moves = await cluster.balancer.shed_round()
    cluster.balancer.keep_averages(members)
    await cluster.balancer.store_averages(members)
    done: dict[str, Any] = {
        "moves": [move._asdict() for move in moves],
        "splits": [split._asdict() for split in splits],
    }
    return answered(done)


def _require_cluster(parts: AdminParts) -> Cluster:
    if parts.broker.cluster is None:
        raise AdminRefused(412, "This broker is alone: there is nothing to balance")
    return parts.broker.cluster
