# SPDX-License-Identifier: Apache-2.0
"""Who may produce, consume and the rest on namespaces, topics and subscriptions: granted and revoked.

Carries.
"""

from typing import Any, Final

from fastapi import APIRouter, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.bodies import Body, an_object, texts
from magnetar.admin.namespace_policies import change
from magnetar.admin.partitions import TOPIC, require_namespace
from magnetar.admin.parts import Namespace, Parts, Topic
from magnetar.names import TopicName, decode_name

router = APIRouter(tags=["permissions"])

_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
ACTIONS: Final = ("produce", "consume", "functions", "sources", "sinks", "packages")


@router.get(_NAMESPACE + "/permissions")
async def of_namespace(parts: Parts, namespace: Namespace) -> Response:
    return answered(_auth(await require_namespace(parts, namespace.policies_path)).get("namespace_auth", {}))


@router.get(_NAMESPACE + "/permissions/subscription")
async def of_subscriptions(parts: Parts, namespace: Namespace) -> Response:
    return answered(_auth(await require_namespace(parts, namespace.policies_path)).get("subscription_auth_roles", {}))


@router.post(_NAMESPACE + "/permissions/subscription/{subscription}")
async def grant_on_subscription(parts: Parts, namespace: Namespace, subscription: str, body: Body) -> Response:
    roles = texts(body, "roles")
    name = decode_name(subscription)
    await change(parts, namespace, lambda record: _member(record, "subscription_auth_roles").update({name: roles}))
    return done()


@router.delete(_NAMESPACE + "/permissions/{subscription}/{role}")
async def revoke_on_subscription(parts: Parts, namespace: Namespace, subscription: str, role: str) -> Response:
    name, gone = decode_name(subscription), decode_name(role)

    def revoked(record: dict[str, Any]) -> None:
        granted = _member(record, "subscription_auth_roles")
        left = [each for each in granted.get(name, []) if each != gone]
        granted.update({name: left})
        if not left:
            del granted[name]

    await change(parts, namespace, revoked)
    return done()


@router.post(_NAMESPACE + "/permissions/{role}")
async def grant(parts: Parts, namespace: Namespace, role: str, body: Body) -> Response:
    actions = checked_actions(body)
    name = decode_name(role)
    await change(parts, namespace, lambda record: _member(record, "namespace_auth").update({name: actions}))
    return done()


@router.delete(_NAMESPACE + "/permissions/{role}")
async def revoke(parts: Parts, namespace: Namespace, role: str) -> Response:
    name = decode_name(role)
    await change(parts, namespace, lambda record: _member(record, "namespace_auth").pop(name, None))
    return done()


@router.get(TOPIC + "/permissions")
async def of_topic(parts: Parts, topic: Topic) -> Response:
    """Those of the namespace, and those of the topic itself above them."""
    auth = _auth(await require_namespace(parts, topic.namespace.policies_path, "Namespace does not exist"))
    granted = {role: list(actions) for role, actions in auth.get("namespace_auth", {}).items()}
    for role, actions in auth.get("destination_auth", {}).get(str(topic), {}).items():
        granted[role] = sorted({*granted.get(role, []), *actions})
    return answered(granted)


@router.post(TOPIC + "/permissions/{role}")
async def grant_on_topic(parts: Parts, topic: Topic, role: str, body: Body) -> Response:
    actions = checked_actions(body)
    name = decode_name(role)
    await change(parts, topic.namespace, lambda record: grant_topic(record, topic, name, actions))
    return done()


@router.delete(TOPIC + "/permissions/{role}")
async def revoke_on_topic(parts: Parts, topic: Topic, role: str) -> Response:
    name = decode_name(role)
    await change(parts, topic.namespace, lambda record: grant_topic(record, topic, name, None))
    return done()


def checked_actions(body: Any) -> list[str]:
    actions = texts(body, "actions")
    unknown = [action for action in actions if action not in ACTIONS]
    if unknown or not actions:
        raise AdminRefused(400, f"Actions should be some of {', '.join(ACTIONS)}, not {unknown}")
    return sorted(actions)


def _auth(record: dict[str, Any]) -> dict[str, Any]:
    return an_object(record.get("auth_policies", {}), "auth_policies")


def _member(record: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = record.setdefault("auth_policies", {}).setdefault(name, {})
    return found


def grant_topic(record: dict[str, Any], topic: TopicName, role: str, actions: list[str] | None) -> None:
    by_topic = _member(record, "destination_auth")
    roles = by_topic.setdefault(str(topic), {})
    if actions is None:
        roles.pop(role, None)
    else:
        roles[role] = actions
    if not roles:
        del by_topic[str(topic)]
