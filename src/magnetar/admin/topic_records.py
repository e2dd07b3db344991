# SPDX-License-Identifier: Apache-2.0
"""What is written down of a topic: the records of its log and of its cursors, and its backlog by ledgers.

Carries.
"""

from typing import Any

from fastapi import APIRouter, Response

from magnetar.admin.answers import AdminRefused, answered
from magnetar.admin.partitions import TOPIC
from magnetar.admin.parts import AdminParts, Parts, Topic
from magnetar.admin.topic_loading import stored_topic
from magnetar.admin.topic_stats import iso_time
from magnetar.names import TopicName

router = APIRouter(tags=["topics"])

_LOGS = "/managed-ledgers"


@router.get(TOPIC + "/internal-info")
async def internal_info(parts: Parts, topic: Topic) -> Response:
    """Read from the metadata store: the topic need not be loaded, nor its storage answer."""
    count = 0 if topic.is_partition else await parts.broker.namespaces.partitions(topic)
    if count:
        each = {str(name): await _info(parts, name) for name in map(topic.partition, range(count))}
        return answered({"version": 0, "partitions": each})
    return answered(await _info(parts, topic))


@router.get(TOPIC + "/backlog")
async def backlog(parts: Parts, topic: Topic) -> Response:
    """An estimate by ledgers, as `estimated-offline backlog` of Pulsar; here it is exact."""
    found = await stored_topic(parts, topic)
    log = found.managed_ledger
    ledgers = [
        {"ledgerId": span.ledger_id, "entries": span.entries, "timestamp": span.closed_ms, "size": span.size_bytes}
        for span in log.ledgers
    ]
    cursors = {
        name: {
            "cursorBacklog": cursor.backlog_entries(),
            "cursorLedgerId": cursor.store.place[0] if cursor.store is not None else -1,
        }
        for name, cursor in log.cursors.items()
    }
    return answered(
        {
            "storageSize": log.size_bytes,
            "totalMessages": log.entries,
            "messageBacklog": max((cursor.backlog_entries() for cursor in log.cursors.values()), default=0),
            "brokerName": parts.broker.settings.advertised_address,
            "topicName": topic.persistence_name,
            "dataLedgerDetails": ledgers,
            "cursorDetails": cursors,
            "statGeneratedAt": parts.clock.now_ms(),
        }
    )


async def _info(parts: AdminParts, topic: TopicName) -> dict[str, Any]:
    path = f"{_LOGS}/{topic.persistence_name}"
    record = await parts.records.store.get(path)
    if record is None:
        raise AdminRefused(404, f"Topic {topic} not found")
    info: dict[str, Any] = {
        "version": record.version,
        "creationDate": iso_time(record.created_ms),
        "modificationDate": iso_time(record.modified_ms),
        "ledgers": [],
        "cursors": {},
    }
    found = parts.broker.topics.find(topic)
    if found is not None:
        info["ledgers"] = [
            {
                "ledgerId": span.ledger_id,
                "entries": span.entries,
                "size": span.size_bytes,
                "timestamp": span.closed_ms,
                "isOffloaded": False,
            }
            for span in found.managed_ledger.ledgers
        ]
    for name in await parts.records.children(path):
        cursor = await parts.records.store.get(f"{path}/{name}")
        if cursor is not None:
            info["cursors"][name] = {
                "version": cursor.version,
                "creationDate": iso_time(cursor.created_ms),
                "modificationDate": iso_time(cursor.modified_ms),
            }
    return info
