# SPDX-License-Identifier: Apache-2.0
"""`resource-quotas`: what a bundle is expected to need before anything is known of it; one for all, and one by bundle.

Kept where Pulsar's load managers look for them. Magnetar's own goes by what it measures.
Carries.
"""

from typing import Any, Final

from fastapi import APIRouter, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.bodies import Body, an_object
from magnetar.admin.bundle_routes import require_bundle
from magnetar.admin.parts import Namespace, Parts
from magnetar.names import NamespaceName

router = APIRouter(prefix="/admin/v2/resource-quotas", tags=["resource quotas"])

_ROOT: Final = "/loadbalance/resource-quota/namespace"
_DEFAULT_PATH: Final = f"{_ROOT}/default"
_DEFAULT: Final[dict[str, Any]] = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100_000.0,
    "bandwidthOut": 300_000.0,
    "memory": 80.0,
    "dynamic": True,
}
_BUNDLE: Final = "/{tenant}/{namespace}/{bundle:bundle}"


@router.get("")
async def read_default(parts: Parts) -> Response:
    return answered(await parts.records.read(_DEFAULT_PATH) or _DEFAULT)


@router.post("")
async def set_default(parts: Parts, body: Body) -> Response:
    await _write(parts, _DEFAULT_PATH, body)
    return done()


@router.get(_BUNDLE)
async def read(parts: Parts, namespace: Namespace, bundle: str) -> Response:
    await require_bundle(parts, namespace, bundle)
    found = await parts.records.read(_path(namespace, bundle)) or await parts.records.read(_DEFAULT_PATH)
    return answered(found or _DEFAULT)


@router.post(_BUNDLE)
async def set_of_bundle(parts: Parts, namespace: Namespace, bundle: str, body: Body) -> Response:
    await require_bundle(parts, namespace, bundle)
    await _write(parts, _path(namespace, bundle), body)
    return done()


@router.delete(_BUNDLE)
async def reset(parts: Parts, namespace: Namespace, bundle: str) -> Response:
    await require_bundle(parts, namespace, bundle)
    if await parts.records.read(_path(namespace, bundle)) is not None:
        await parts.records.delete(_path(namespace, bundle))
    return done()


async def _write(parts: Parts, path: str, body: Any) -> None:
    given = an_object(body, "The resource quota")
    unknown = [name for name in given if name not in _DEFAULT]
    if unknown:
        raise AdminRefused(400, f"A resource quota has no {unknown[0]!r}; it has {', '.join(_DEFAULT)}")
    for name, value in given.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if name == "dynamic" and not isinstance(value, bool):
            raise AdminRefused(400, "dynamic should be true or false")
        if name != "dynamic" and not (is_number and 0 <= value < 2**63):
            raise AdminRefused(400, f"{name} should be a number, 0 or more")
    await parts.records.update(path, lambda _: {**_DEFAULT, **given}, create=True)


def _path(namespace: NamespaceName, bundle: str) -> str:
    return f"{_ROOT}/{namespace}/{bundle}"
