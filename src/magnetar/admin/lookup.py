# SPDX-License-Identifier: Apache-2.0
"""`/lookup/v2/topic`: which broker serves a topic, and in which bundle it lies.

Carries.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from magnetar.admin.answers import AdminRefused, answered, raw_answer
from magnetar.admin.bundles import bundle_of, bundles_of
from magnetar.admin.parts import Parts, Topic

router = APIRouter(prefix="/lookup/v2/topic/{domain:domain}/{tenant}/{namespace}/{topic}", tags=["lookup"])


@router.get("")
async def lookup(parts: Parts, topic: Topic, listener: Annotated[str, Query(alias="listenerName")] = "") -> Response:
    policies = await parts.records.read(topic.namespace.policies_path)
    if policies is None:
        raise AdminRefused(404, "Namespace not found")
    owner = (await parts.broker.ownership.locate(topic, listener=listener)).owner
    return answered(
        {
            "brokerUrl": owner.service_url,
            "brokerUrlTls": owner.service_url_tls,
            "httpUrl": owner.web_url,
            "httpUrlTls": owner.web_url_tls,
            "nativeUrl": owner.service_url,
            "brokerUrlSsl": owner.service_url_tls,
        }
    )


@router.get("/bundle")
async def bundle(parts: Parts, topic: Topic) -> Response:
    policies = await parts.records.read(topic.namespace.policies_path)
    if policies is None:
        raise AdminRefused(404, "Namespace not found")
    return raw_answer(bundle_of(topic, bundles_of(policies)))
