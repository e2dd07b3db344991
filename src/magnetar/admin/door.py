# SPDX-License-Identifier: Apache-2.0
"""The door of administration: every request says who it is from and is let through only where its role may go.

Carries.
"""

from typing import Any

from fastapi import Request

from magnetar.admin.audit import note_role
from magnetar.admin.names_asked import decoded_namespace, decoded_tenant, decoded_topic
from magnetar.admin.route_rules import METRICS, need_of
from magnetar.broker.auth.authenticator import Credentials, Principal
from magnetar.broker.auth.grants import Need, Target
from magnetar.broker.auth.guard import Guard
from magnetar.broker.auth.http_credentials import credentials_of
from magnetar.names import decode_name


async def let_in(request: Request) -> None:
    """NotAuthenticated or NotAuthorized ends the request before its handler sees it."""
    guard: Guard = request.app.state.parts.broker.guard
    if not guard.is_authenticating:
        return
    path = request.scope["route"].path
    need = need_of(request.method, path, request.path_params.get("policy", ""))
    if path in METRICS and guard.settings.metrics_authenticated:
        need = Need.ANY_ROLE
    if need is not Need.NOTHING:
        # Set for a request that this broker makes of itself, and for no other.
        principal = request.scope.get("state", {}).get("principal") or await _principal(guard, request)
        request.state.principal = principal
        note_role(str(principal))
        await guard.require(principal, need, _target(request.path_params))


async def _principal(guard: Guard, request: Request) -> Principal:
    certificate = request.scope.get("state", {}).get("certificate")
    method, data = credentials_of(request.headers.get("authorization", ""), certificate, guard.methods())
    address = request.client.host if request.client is not None else ""
    identity = await guard.identify(method, Credentials(data, certificate, address))
    return guard.principal(identity.role, request.headers.get("x-original-principal", ""))


def _target(parameters: dict[str, Any]) -> Target:
    tenant, namespace, topic = (parameters.get(name) for name in ("tenant", "namespace", "topic"))
    if tenant is None:
        return Target()
    if namespace is None:
        return Target(decoded_tenant(tenant))
    subscription = decode_name(parameters.get("subscription", ""))
    if topic is None or "domain" not in parameters:
        found = decoded_namespace(tenant, namespace)
        return Target(found.tenant, found, subscription=subscription)
    return Target.of(decoded_topic(parameters["domain"], tenant, namespace, topic), subscription)
