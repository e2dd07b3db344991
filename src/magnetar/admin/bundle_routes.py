# SPDX-License-Identifier: Apache-2.0
"""`namespaces/…/{bundle}`: splitting, and where topics lie on the ring.

Carries.
"""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.bodies import Body
from magnetar.admin.bundles import check_bundle
from magnetar.admin.parts import AdminParts, Namespace, Parts
from magnetar.broker.ownership.bundles import Bundle, hash_of, parse_range
from magnetar.broker.ownership.splitter import Splitter
from magnetar.broker.ownership.splitting import POSITIONS, is_algorithm
from magnetar.broker.topic_list import ListMode
from magnetar.config.balance import BalanceSettings
from magnetar.errors import BadSetting, TopicNotFound
from magnetar.names import NamespaceName

router = APIRouter(prefix="/admin/v2/namespaces/{tenant}/{namespace}", tags=["namespaces"])

# A word for the bundle with the most traffic, and one for the one with the most topics.
LARGEST: Final = "LARGEST"
HOT: Final = "HOT"


async def ranges_of(parts: AdminParts, namespace: NamespaceName) -> list[int]:
    """The bounds of a namespace's bundles; 404 when there is no such namespace."""
    try:
        return list((await parts.broker.bundles.of(namespace)).bounds)
    except TopicNotFound as error:
        raise AdminRefused(404, "Namespace does not exist") from error


async def require_bundle(parts: AdminParts, namespace: NamespaceName, text: str) -> Bundle:
    check_bundle(namespace, await ranges_of(parts, namespace), text)
    bundle = parse_range(namespace, text)
    assert bundle is not None
    return bundle


@router.put("/{bundle}/split")
async def split(
    parts: Parts,
    namespace: Namespace,
    bundle: str,
    body: Body,
    algorithm: Annotated[str, Query(alias="splitAlgorithmName")] = "",
    boundaries: Annotated[str, Query(alias="splitBoundaries")] = "",
    unload: bool = False,
) -> Response:
    """Boundaries are the body, a list of numbers; or in the query, whole or 0x…, with commas between them."""
    settings = BalanceSettings() if parts.broker.cluster is None else parts.broker.cluster.settings
    positions = _positions(boundaries) or _listed(body)
    wanted = algorithm or (POSITIONS if positions else settings.split_algorithm)
    if not is_algorithm(wanted) or wanted not in settings.split_algorithms:
        supported = ", ".join(settings.split_algorithms)
        raise AdminRefused(412, f"Unsupported namespace bundle split algorithm, supported are [{supported}]")
    if bundle.upper() in (LARGEST, HOT):
        bundle = await _heaviest(parts, namespace, bundle.upper())
    whole = await require_bundle(parts, namespace, bundle)
    if wanted == POSITIONS and not positions:
        raise AdminRefused(412, "splitBoundaries says where to split")
    try:
        if parts.broker.cluster is None:
            await Splitter(parts.broker.bundles, None, parts.broker.topic_places).split(whole, wanted, positions)
        else:
            await parts.broker.cluster.split(whole, wanted, positions, unload=unload)
    except BadSetting as error:
        raise AdminRefused(412, str(error)) from error
    return done()


@router.get("/{bundle}/topicHashPositions")
async def positions(
    parts: Parts, namespace: Namespace, bundle: str, topics: Annotated[list[str] | None, Query()] = None
) -> Response:
    """Of the topics asked for, or of all in the bundle."""
    whole = await require_bundle(parts, namespace, bundle)
    names = [str(name) for name in await parts.broker.topics.names(namespace, ListMode.ALL) if whole.has(name)]
    if topics:
        names = [name for name in names if name in topics]
    found: dict[str, Any] = {name: hash_of(name) for name in names}
    return answered({"namespace": str(namespace), "bundle": bundle, "topicHashPositions": found})


async def _heaviest(parts: AdminParts, namespace: NamespaceName, word: str) -> str:
    bundles = (await parts.broker.bundles.of(namespace)).all()
    places = {bundle: await parts.broker.topic_places(bundle) for bundle in bundles}
    if word == LARGEST:
        chosen = max(bundles, key=lambda bundle: sum(bundle.holds(place.point) for place in places[bundle]))
    else:
        chosen = max(
            bundles, key=lambda bundle: sum(place.bytes for place in places[bundle] if bundle.holds(place.point))
        )
    return chosen.range


def _listed(body: Any) -> list[int]:
    if body is not None and not (isinstance(body, list) and all(type(each) is int for each in body)):
        raise AdminRefused(400, "The body should be a list of the places where to split, as whole numbers")
    return body or []


def _positions(text: str) -> list[int]:
    try:
        return [int(part, 0) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise AdminRefused(412, f"splitBoundaries {text!r} should be numbers with commas between them") from error
