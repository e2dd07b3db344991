# SPDX-License-Identifier: Apache-2.0
"""Requests about a topic that another broker has: sent there (307), or asked there partition by partition.

A broker that is alone has every topic, and nothing happens here. A request about a partitioned topic is carried out by
the owner of each partition, and the answers are put together. Who came with TLS is sent on to HTTPS, never to HTTP.
Carries.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import httpx
from fastapi import Request, Response

from magnetar.admin.answers import answered, done
from magnetar.admin.names_asked import decoded_topic
from magnetar.admin.parts import AdminParts
from magnetar.admin.whole_stats import whole_sums
from magnetar.broker.ownership.owner import Owner
from magnetar.errors import ServiceNotReady
from magnetar.names import ASSIGN_TOPIC, PARTITION_SUFFIX, TopicName, encode_name

# It would say every request that is forwarded.
logging.getLogger("httpx").setLevel(logging.WARNING)

_TOPIC: Final = "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION: Final = "/subscription/{subscription}"
_TRANSACTIONS: Final = "/admin/v3/transactions"
# Where the topic's own name stands among the parts of a path.
_TOPIC_PART: Final = 6

# What only the owner of a topic can do.
OWNED: Final = frozenset(
    {
        ("GET", "/stats"),
        ("GET", "/internalStats"),
        ("GET", "/subscriptions"),
        ("GET", "/examinemessage"),
        ("GET", "/ledger/{ledger_id}/entry/{entry_id}"),
        ("GET", "/messageid/{moment}"),
        ("GET", "/getMessageIdByIndex"),
        ("GET", "/lastMessageId"),
        ("PUT", "/backlogSize"),
        ("PUT", "/compaction"),
        ("GET", "/compaction"),
        ("DELETE", ""),
        ("PUT", "/unload"),
        ("POST", "/terminate"),
        ("DELETE", "/truncate"),
        ("POST", "/trim"),
        ("GET", "/properties"),
        ("PUT", "/properties"),
        ("DELETE", "/properties"),
        ("POST", "/all_subscription/expireMessages/{seconds}"),
        ("GET", _SUBSCRIPTION + "/explain"),
        ("PUT", _SUBSCRIPTION),
        ("DELETE", _SUBSCRIPTION),
        ("POST", _SUBSCRIPTION + "/skip_all"),
        ("POST", _SUBSCRIPTION + "/skip/{count}"),
        ("POST", _SUBSCRIPTION + "/expireMessages/{seconds}"),
        ("POST", _SUBSCRIPTION + "/expireMessages"),
        ("POST", _SUBSCRIPTION + "/resetcursor/{moment}"),
        ("POST", _SUBSCRIPTION + "/resetcursor"),
        ("POST", _SUBSCRIPTION + "/analyzeBacklog"),
        ("GET", _SUBSCRIPTION + "/properties"),
        ("PUT", _SUBSCRIPTION + "/properties"),
        ("GET", _SUBSCRIPTION + "/replicatedSubscriptionStatus"),
        ("POST", _SUBSCRIPTION + "/replicatedSubscriptionStatus"),
        ("GET", _SUBSCRIPTION + "/position/{number}"),
    }
)

# What a partitioned topic's owners do each for their partitions, and the words that ask one partition for it.
SCATTERED: Final[Mapping[tuple[str, str], str | None]] = {
    ("GET", "/partitioned-stats"): "stats",
    ("GET", "/partitioned-internalStats"): "internalStats",
    ("POST", "/terminate/partitions"): "terminate",
    ("GET", "/subscriptions"): None,
    ("PUT", "/unload"): None,
    ("DELETE", "/truncate"): None,
    ("POST", "/trim"): None,
    ("PUT", "/compaction"): None,
    ("DELETE", "/partitions"): "",
    ("POST", "/all_subscription/expireMessages/{seconds}"): None,
    ("PUT", _SUBSCRIPTION): None,
    ("DELETE", _SUBSCRIPTION): None,
    ("POST", _SUBSCRIPTION + "/skip_all"): None,
    ("POST", _SUBSCRIPTION + "/expireMessages/{seconds}"): None,
    ("POST", _SUBSCRIPTION + "/resetcursor/{moment}"): None,
    ("GET", _SUBSCRIPTION + "/replicatedSubscriptionStatus"): None,
    ("POST", _SUBSCRIPTION + "/replicatedSubscriptionStatus"): None,
}


class AnsweredElsewhereError(Exception):
    """The request has its answer, and its handler is not asked."""

    def __init__(self, response: Response) -> None:
        super().__init__("answered elsewhere")
        self.response = response


class _Answer(NamedTuple):
    partition: int
    status: int
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body) if self.body else None


async def at_owner(request: Request) -> None:
    """Let the handler go on when the topic is this broker's."""
    parts: AdminParts = request.app.state.parts
    route = request.scope["route"].path
    if parts.broker.cluster is not None and route.startswith(_TRANSACTIONS):
        keeper = _keeper(request)
        if keeper is not None:
            await _redirect(request, parts, keeper)
        return
    if parts.broker.cluster is None or not route.startswith(_TOPIC):
        return
    key = (request.method, route.removeprefix(_TOPIC))
    if key not in OWNED and key not in SCATTERED:
        return
    asked = request.path_params
    topic = decoded_topic(asked["domain"], asked["tenant"], asked["namespace"], asked["topic"])
    count = 0 if topic.is_partition else await parts.broker.namespaces.partitions(topic)
    if count:
        if key in SCATTERED:
            await _scatter(request, parts, topic, count, SCATTERED[key])
        return
    if key in OWNED:
        await _redirect(request, parts, topic)


def _keeper(request: Request) -> TopicName | None:
    """The topic whose owner knows what is asked about transactions; None when every broker knows a part of it."""
    asked = request.path_params
    if "topic" in asked:
        return decoded_topic("persistent", asked["tenant"], asked["namespace"], asked["topic"])
    number = asked.get("coordinator_id") or asked.get("most") or request.query_params.get("coordinatorId") or ""
    return ASSIGN_TOPIC.partition(int(number)) if number.isascii() and number.isdigit() else None


def base_url(request: Request, owner: Owner) -> str:
    """Where a broker answers whoever asked over HTTP or HTTPS; nobody is sent from HTTPS to HTTP."""
    base = owner.web_url_tls if request.scope["scheme"] == "https" else owner.web_url or owner.web_url_tls
    if not base:
        raise ServiceNotReady(f"Broker {owner.broker_id} has the topic, and no HTTPS port")
    return base


async def _redirect(request: Request, parts: AdminParts, topic: TopicName) -> None:
    authoritative = request.query_params.get("authoritative", "").lower() == "true"
    located = await parts.broker.ownership.locate(topic, authoritative=authoritative)
    owner = located.owner
    if parts.peers.is_own(owner):
        return
    base = base_url(request, owner)
    query = {**request.query_params, "authoritative": "true" if located.is_authoritative else "false"}
    url = httpx.URL(base + request.scope["path"], params=query)
    raise AnsweredElsewhereError(Response(status_code=307, headers={"location": str(url)}))


# --- partitions ---------------------------------------------------------------------------------


async def _scatter(request: Request, parts: AdminParts, topic: TopicName, count: int, words: str | None) -> None:
    """Ask the owner of each partition. A deletion goes on here, with what belongs to them all."""
    answers = [await _ask(request, parts, topic, index, words) for index in range(count)]
    if words == "":
        refused = [answer for answer in answers if answer.status >= 300 and answer.status != 404]
        if refused:
            raise AnsweredElsewhereError(_as_response(refused[0]))
        return
    failed = [answer for answer in answers if answer.status >= 300]
    if failed and (len(failed) == count or failed[0].status != 409):
        raise AnsweredElsewhereError(_as_response(failed[0]))
    raise AnsweredElsewhereError(await _together(parts, topic, count, words, answers))


async def _ask(request: Request, parts: AdminParts, topic: TopicName, index: int, words: str | None) -> _Answer:
    path = request.scope["path"].split("/")
    path[_TOPIC_PART] += f"{PARTITION_SUFFIX}{index}"
    if words is not None:
        path[_TOPIC_PART + 1 :] = [words] if words else []
    answer = await parts.peers.ask(request, topic.partition(index), request.method, "/".join(path))
    return _Answer(index, answer.status_code, answer.content)


# --- all topics of a namespace ------------------------------------------------------------------


async def is_elsewhere(parts: AdminParts, topic: TopicName) -> bool:
    """Whether another broker has a topic; one that nobody has is assigned now."""
    if parts.broker.cluster is None:
        return False
    return not parts.peers.is_own((await parts.broker.ownership.locate(topic)).owner)


async def clear_elsewhere(request: Request, parts: AdminParts, topic: TopicName, subscription: str) -> None:
    """Have a topic's owner clear one subscription, or all of them."""
    path = f"/admin/v2/{topic.domain}/{topic.namespace}/{encode_name(topic.local_name)}"
    names = [subscription]
    if not subscription:
        names = (await parts.peers.ask(request, topic, "GET", f"{path}/subscriptions")).json()
    for name in names:
        where = f"{path}/subscription/{encode_name(name)}/skip_all"
        await _require_done(await parts.peers.ask(request, topic, "POST", where))


async def unsubscribe_elsewhere(request: Request, parts: AdminParts, topic: TopicName, subscription: str) -> None:
    """Have a topic's owner delete a subscription."""
    path = f"/admin/v2/{topic.domain}/{topic.namespace}/{encode_name(topic.local_name)}"
    where = f"{path}/subscription/{encode_name(subscription)}"
    await _require_done(await parts.peers.ask(request, topic, "DELETE", where))


async def _require_done(answer: httpx.Response) -> None:
    """A topic that has no such subscription has nothing to do."""
    if answer.status_code >= 300 and answer.status_code != 404:
        raise AnsweredElsewhereError(Response(answer.content, answer.status_code, media_type="application/json"))


async def _together(
    parts: AdminParts, topic: TopicName, count: int, words: str | None, answers: list[_Answer]
) -> Response:
    values = {str(topic.partition(answer.partition)): answer.value for answer in answers}
    metadata = {"partitions": count, "deleted": False}
    if words == "stats":
        return answered({**await whole_sums(values.values()), "metadata": metadata, "partitions": values})
    if words == "internalStats":
        return answered({"metadata": metadata, "partitions": values})
    if words == "terminate":
        return answered({str(answer.partition): answer.value for answer in answers})
    if all(isinstance(value, list) for value in values.values()):
        return answered(list(dict.fromkeys(each for value in values.values() for each in value)))
    if all(isinstance(value, dict) for value in values.values()):
        return answered({name: each for value in values.values() for name, each in value.items()})
    return done()


def _as_response(answer: _Answer) -> Response:
    return Response(answer.body, answer.status, media_type="application/json")
