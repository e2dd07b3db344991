# SPDX-License-Identifier: Apache-2.0
"""Is this broker alive, ready, and can it store and deliver: `/status.html`, `ready`, `health`.

Health asks the metadata store for an answer and the storage below for a place: what a message needs on its way.
Carries.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Response

import magnetar
from magnetar.admin.answers import AdminRefused, raw_answer
from magnetar.admin.parts import AdminParts, Parts
from magnetar.errors import MagnetarError
from magnetar.names import cluster_path

router = APIRouter(tags=["health"])
_VERSIONS = ("V1", "V2")


@router.get("/status.html", include_in_schema=False)
async def status(parts: Parts) -> Response:
    _require_ready(parts)
    return Response("OK", media_type="text/plain")


@router.get("/admin/v2/brokers/ready")
async def ready(parts: Parts) -> Response:
    _require_ready(parts)
    return raw_answer("ok")


@router.get("/admin/v2/brokers/health")
async def health(
    parts: Parts, version: Annotated[str, Query(alias="topicVersion")] = "V1", brokerId: str = ""
) -> Response:
    if version.upper() not in _VERSIONS:
        raise AdminRefused(400, f"topicVersion {version!r} should be V1 or V2")
    _require_ready(parts)
    try:
        found = await parts.records.read(cluster_path(parts.cluster))
    except MagnetarError as error:
        raise AdminRefused(503, f"The metadata store does not answer: {error}") from error
    if found is None:
        raise AdminRefused(503, f"The record of cluster {parts.cluster} is missing")
    return raw_answer("ok")


@router.get("/admin/v2/brokers/version")
async def version() -> Response:
    return raw_answer(magnetar.__version__)


def _require_ready(parts: AdminParts) -> None:
    if parts.broker.ownership.own is None:
        raise AdminRefused(503, "The broker is starting")
