# SPDX-License-Identifier: Apache-2.0
"""`…/compaction`: start a topic's compaction, and say how the last one went.

Carries.
"""

from fastapi import APIRouter, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.partitions import TOPIC
from magnetar.admin.parts import Parts, Topic
from magnetar.admin.topic_loading import parts_of, stored_topic
from magnetar.errors import NotSupported

router = APIRouter(tags=["topics"])


@router.put(TOPIC + "/compaction")
async def compact(parts: Parts, topic: Topic) -> Response:
    async for each in parts_of(parts, topic):
        try:
            each.compaction.start()
        except NotSupported as error:
            raise AdminRefused(409, str(error)) from error
    return done()


@router.get(TOPIC + "/compaction")
async def status(parts: Parts, topic: Topic) -> Response:
    compaction = (await stored_topic(parts, topic)).compaction
    return answered({"status": compaction.status.value, "lastError": compaction.error})
