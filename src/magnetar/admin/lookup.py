# SPDX-License-Identifier: Apache-2.0
"""`/lookup/v2/topic`: which broker serves a topic, and in which bundle it lies.

Carries.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from magnetar.admin.answers import AdminRefused, answered, raw_answer
from magnetar.admin.at_owner import base_url
from magnetar.admin.bundle_routes import ranges_of
from magnetar.admin.bundles import bundle_of
from magnetar.admin.parts import Parts, Topic

router = APIRouter(prefix="/lookup/v2/topic/{domain:domain}/{tenant}/{namespace}/{topic}", tags=["lookup"])


@router.get("")
async def lookup(
    request: Request,
    parts: Parts,
    topic: Topic,
    listener: Annotated[str, Query(alias="listenerName")] = "",
    authoritative: bool = False,
) -> Response:
    policies = await parts.records.read(topic.namespace.policies_path)
    if policies is None:
        raise AdminRefused(404, "Namespace not found")
    owner, is_redirect, next_authoritative = await parts.broker.look_up(
        topic, authoritative=authoritative, listener=listener
    )
    if is_redirect:
        flag = "true" if next_authoritative else "false"
        url = f"{base_url(request, owner)}{request.scope['path']}?authoritative={flag}"
        return Response(status_code=307, headers={"location": url + (f"&listenerName={listener}" if listener else "")})
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
    return raw_answer(bundle_of(topic, await ranges_of(parts, topic.namespace)))
