# SPDX-License-Identifier: Apache-2.0
"""Policies of a topic: read as the topic sets them or as they hold, set and removed, all by one table.

Carries.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from magnetar.admin.answers import AdminRefused, answered, done
from magnetar.admin.applied import APPLIED, dispatch_rate, quotas
from magnetar.admin.bodies import Body, an_object
from magnetar.admin.names_asked import decoded_subscription
from magnetar.admin.namespace_policies import QUOTA_TYPES, QuotaType, check_quota_type, row_of
from magnetar.admin.partitions import TOPIC, require_namespace
from magnetar.admin.parts import AdminParts, Parts, Topic
from magnetar.admin.policy_changes import NotedChange, changed_policies
from magnetar.admin.policy_table import TOPIC_POLICIES, filled, quota_filled
from magnetar.broker.policies.policies import topic_policies_path
from magnetar.errors import BadSetting
from magnetar.names import TopicName

router = APIRouter(tags=["topic policies"])

_SUBSCRIPTION_RATE: Final = TOPIC + "/{subscription}/dispatchRate"
_DELAYED: Final = {
    "active": "delayedDeliveryEnabled",
    "tickTime": "delayedDeliveryTickTimeMillis",
    "maxDeliveryDelayInMillis": "delayedDeliveryMaxDelayInMillis",
}
IsGlobal = Annotated[bool, Query(alias="isGlobal")]


@router.delete(TOPIC + "/policies")
async def remove_all(parts: Parts, topic: Topic) -> Response:
    await changed_policies(parts, topic.namespace, topic.base, parts.policies.delete_topic(topic))
    return done()


# --- backlog quotas -----------------------------------------------------------------------------


@router.get(TOPIC + "/backlogQuotaMap")
async def backlog_quotas(parts: Parts, topic: Topic, applied: bool = False, is_global: IsGlobal = False) -> Response:
    own = (await _own(parts, topic, is_global)).get("backLogQuotaMap") or {}
    shown = {kind: quota_filled(quota) for kind, quota in own.items()}
    return answered(shown if shown or not applied else quotas(await parts.policies.effective(topic)))


@router.post(TOPIC + "/backlogQuota")
async def set_backlog_quota(
    parts: Parts, topic: Topic, body: Body, kind: QuotaType = QUOTA_TYPES[0], is_global: IsGlobal = False
) -> Response:
    check_quota_type(kind)
    quota = quota_filled(an_object(body, "backlog quota"))
    await _change(
        parts, topic, lambda record: record.setdefault("backLogQuotaMap", {}).update({kind: quota}), is_global
    )
    return done()


@router.delete(TOPIC + "/backlogQuota")
async def remove_backlog_quota(
    parts: Parts, topic: Topic, kind: QuotaType = QUOTA_TYPES[0], is_global: IsGlobal = False
) -> Response:
    check_quota_type(kind)
    await _change(parts, topic, lambda record: record.get("backLogQuotaMap", {}).pop(kind, None), is_global)
    return done()


# --- delayed delivery: one value outside, three members inside ----------------------------------


@router.get(TOPIC + "/delayedDelivery")
async def delayed_delivery(parts: Parts, topic: Topic, applied: bool = False, is_global: IsGlobal = False) -> Response:
    own = await _own(parts, topic, is_global)
    if "delayedDeliveryEnabled" in own:
        shown = {"tickTime": own.get(_DELAYED["tickTime"], 1000), "active": own[_DELAYED["active"]]}
        return answered({**shown, "maxDeliveryDelayInMillis": own.get(_DELAYED["maxDeliveryDelayInMillis"], 0)})
    return answered(APPLIED["delayedDelivery"](await parts.policies.effective(topic)) if applied else None)


@router.post(TOPIC + "/delayedDelivery")
async def set_delayed_delivery(parts: Parts, topic: Topic, body: Body, is_global: IsGlobal = False) -> Response:
    given = {"active": True, **an_object(body, "delayed delivery")}
    members = {_DELAYED[name]: given[name] for name in _DELAYED if name in given}
    await _change(parts, topic, lambda record: record.update(members), is_global)
    return done()


@router.delete(TOPIC + "/delayedDelivery")
async def remove_delayed_delivery(parts: Parts, topic: Topic, is_global: IsGlobal = False) -> Response:
    await _change(parts, topic, lambda record: [record.pop(name, None) for name in _DELAYED.values()], is_global)
    return done()


# --- the rate of one subscription ---------------------------------------------------------------


@router.get(_SUBSCRIPTION_RATE)
async def subscription_rate(
    parts: Parts, topic: Topic, subscription: str, applied: bool = False, is_global: IsGlobal = False
) -> Response:
    name = decoded_subscription(subscription)
    own = (await _own(parts, topic, is_global)).get("subscriptionPolicies", {}).get(name, {}).get("dispatchRate")
    if own is None and applied:
        policies = await parts.policies.effective(topic)
        return answered(dispatch_rate(policies.subscription_rates.get(name, policies.subscription_dispatch_rate)))
    return answered(own)


@router.post(_SUBSCRIPTION_RATE)
async def set_subscription_rate(
    parts: Parts, topic: Topic, subscription: str, body: Body, is_global: IsGlobal = False
) -> Response:
    rate = {"dispatchRate": filled(TOPIC_POLICIES["dispatchRate"], an_object(body, "dispatch rate"))}
    name = decoded_subscription(subscription)
    await _change(
        parts, topic, lambda record: record.setdefault("subscriptionPolicies", {}).update({name: rate}), is_global
    )
    return done()


@router.delete(_SUBSCRIPTION_RATE)
async def remove_subscription_rate(
    parts: Parts, topic: Topic, subscription: str, is_global: IsGlobal = False
) -> Response:
    name = decoded_subscription(subscription)
    await _change(parts, topic, lambda record: record.get("subscriptionPolicies", {}).pop(name, None), is_global)
    return done()


# --- all others ---------------------------------------------------------------------------------


@router.get(TOPIC + "/{policy}")
async def read(parts: Parts, topic: Topic, policy: str, applied: bool = False, is_global: IsGlobal = False) -> Response:
    row = row_of(TOPIC_POLICIES, policy)
    value = (await _own(parts, topic, is_global)).get(row.member)
    if value is not None:
        return answered(filled(row, value))
    if applied and policy in APPLIED:
        return answered(APPLIED[policy](await parts.policies.effective(topic)))
    return answered(row.unset) if row.unset_status == 200 else Response(status_code=row.unset_status)


@router.post(TOPIC + "/{policy}")
@router.put(TOPIC + "/{policy}")
async def set_policy(
    parts: Parts,
    topic: Topic,
    policy: str,
    body: Body,
    request: Request,
    is_global: IsGlobal = False,
    ttl_s: Annotated[int | None, Query(alias="messageTTL")] = None,
) -> Response:
    row = row_of(TOPIC_POLICIES, policy, verb=request.method)
    if policy == "messageTTL" and ttl_s is not None:
        # Its number comes in the query, as pulsar-admin sends it.
        body = ttl_s
    value = filled(row, row.without_body if body is None else body)
    if value is None:
        await _change(parts, topic, lambda record: record.pop(row.member, None), is_global)
    else:
        await _change(parts, topic, lambda record: record.update({row.member: value}), is_global, row.refusal)
    return done()


@router.delete(TOPIC + "/{policy}")
async def remove(parts: Parts, topic: Topic, policy: str, is_global: IsGlobal = False) -> Response:
    row = row_of(TOPIC_POLICIES, policy)
    if not row.is_removable:
        raise AdminRefused(405, f"{policy} is set, not removed")
    await _change(parts, topic, lambda record: record.pop(row.member, None), is_global)
    return done()


# --- inside -------------------------------------------------------------------------------------


async def _own(parts: AdminParts, topic: TopicName, is_global: bool) -> dict[str, Any]:
    await _require(parts, topic)
    return await parts.policies.topic(topic, is_global=is_global)


async def _change(
    parts: AdminParts,
    topic: TopicName,
    step: Callable[[dict[str, Any]], object],
    is_global: bool,
    refusal: int = 412,
) -> None:
    await _require(parts, topic)

    noted = NotedChange(step)
    try:
        await changed_policies(
            parts, topic.namespace, topic.base, parts.policies.change_topic(topic, noted, is_global=is_global)
        )
        noted.tell(topic_policies_path(topic))
    except BadSetting as error:
        raise AdminRefused(refusal, str(error)) from error


async def _require(parts: AdminParts, topic: TopicName) -> None:
    await require_namespace(parts, topic.namespace.policies_path, "Namespace not found")
    if await parts.broker.namespaces.partitions(topic.base) or parts.broker.topics.find(topic) is not None:
        return
    if not await parts.broker.topics.directory.exists(topic):
        raise AdminRefused(404, f"Topic {topic} not found")
