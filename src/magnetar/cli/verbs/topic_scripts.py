# SPDX-License-Identifier: Apache-2.0
"""Verbs of `topics` that are more than one request, or whose request depends on what was typed.

Decides.
"""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from magnetar.cli.values import WrongUse, message_id_of
from magnetar.cli.verbs.verb import SUBSCRIPTION, TOPIC, AdminAnswer, AdminRequest, Api, Raw, constant, request, value
from magnetar.cli.words import Given
from magnetar.names import TopicName

WAIT_INTERVAL_S: Final = 1.0
_DOMAINS: Final = {"persistent": ("persistent",), "non_persistent": ("non-persistent",)}
_MARKER: Final = "x-pulsar-marker-type"
_ABORTED: Final = "x-pulsar-txn-aborted"
_SHADOW_SOURCE: Final = "PULSAR.SHADOW_SOURCE"
_WITH_PROPERTIES: Final = "application/vnd.partitioned-topic-metadata+json"


def list_topics(suffix: str) -> Callable[[Api, Given], Any]:
    """Topics of both kinds, unless one is asked for."""

    def script(api: Api, given: Given) -> list[str]:
        query = (("bundle", "bundle"), ("includeSystemTopic", "include_system_topic"))
        found: list[str] = []
        for domain in _DOMAINS.get(given.get("topic_domain") or "", ("persistent", "non-persistent")):
            found += api.ask(request("GET", f"/admin/v2/{domain}/{{namespace}}{suffix}", given, query=query)).value
        return sorted(found)

    return script


def create_partitioned(api: Api, given: Given) -> Any:
    def with_properties(given: Given) -> Raw:
        body = {"partitions": given["partitions"], "deleted": False, "properties": given["metadata"]}
        return Raw(_WITH_PROPERTIES, json.dumps(body).encode())

    body = with_properties if given["metadata"] else value("partitions")
    return api.ask(request("PUT", TOPIC + "/partitions", given, body=body)).value


def delete_topics(api: Api, given: Given) -> Any:
    query = (("force", "force"),)
    for name in _topics_to_delete(api, given):
        api.ask(request("DELETE", TOPIC, {**given, "topic": name}, query=query))
    return None


def _topics_to_delete(api: Api, given: Given) -> list[str]:
    if given["from_file"]:
        try:
            lines = Path(given["topic"]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise WrongUse(f"{given['topic']} cannot be read: {error}") from None
        return [line.strip() for line in lines if line.strip()]
    if not given["regex"]:
        return [given["topic"]]
    name = TopicName.parse(given["topic"])
    try:
        pattern = re.compile(str(name))
    except re.error as error:
        raise WrongUse(f"{given['topic']} is no pattern: {error}") from None
    path = f"/admin/v2/{name.lookup_name.partition('/')[0]}/{{namespace}}"
    topics = api.ask(request("GET", path, {"namespace": str(name.namespace)})).value
    return [topic for topic in topics if pattern.fullmatch(topic)]


def partitioned_lookup(api: Api, given: Given) -> Any:
    count = api.ask(request("GET", TOPIC + "/partitions", given)).value["partitions"]
    if not count:
        raise WrongUse(f"{given['topic']} has no partitions; topics lookup finds it")
    base = TopicName.parse(given["topic"])
    by_topic: dict[str, str] = {}
    for index in range(count):
        name = str(base.partition(index))
        by_topic[name] = api.ask(request("GET", "/lookup/v2/topic/{topic}", {"topic": name})).value["brokerUrl"]
    if not given["sort_by_broker"]:
        return by_topic
    by_broker: dict[str, list[str]] = {}
    for name, broker in by_topic.items():
        by_broker.setdefault(broker, []).append(name)
    return by_broker


def expire_messages(api: Api, given: Given) -> Any:
    if (given["expireTime"] is None) == (given["position"] is None):
        raise WrongUse("expire-messages needs either --expireTime or --position")
    if given["position"] is None:
        return api.ask(request("POST", SUBSCRIPTION + "/expireMessages/{expireTime}", given)).value
    return api.ask(request("POST", SUBSCRIPTION + "/expireMessages", given, body=_position("position"))).value


def reset_cursor(api: Api, given: Given) -> Any:
    if (given["time"] is None) == (given["messageId"] is None):
        raise WrongUse("reset-cursor needs either --time or --messageId")
    if given["messageId"] is not None:
        return api.ask(request("POST", SUBSCRIPTION + "/resetcursor", given, body=_position("messageId"))).value
    then_ms = api.now_ms() - given["time"] * 1000
    return api.ask(request("POST", SUBSCRIPTION + "/resetcursor/{then}", {**given, "then": then_ms})).value


def _position(key: str) -> Callable[[Given], Any]:
    return lambda given: {**message_id_of(given[key]), "excluded": given["exclude_reset_position"]}


def peek_messages(api: Api, given: Given) -> list[dict[str, Any]]:
    """One request for each, until there are no more. What is not asked for is passed over, as pulsar-admin does."""
    found: list[dict[str, Any]] = []
    for place in range(1, given["count"] + 1):
        asked = request("GET", SUBSCRIPTION + "/position/{place}", {**given, "place": place})
        answer = _found(api, asked, needed=place == 1)
        if answer is None:
            break
        is_marker = _MARKER in answer.headers and not given["show_server_marker"]
        is_open = answer.headers.get(_ABORTED) == "true" and given["transaction_isolation_level"] == "READ_COMMITTED"
        if not is_marker and not is_open:
            found.append(shown_message(answer))
    return found


def message_by_id(api: Api, given: Given) -> dict[str, Any]:
    return shown_message(api.ask(request("GET", TOPIC + "/ledger/{ledgerId}/entry/{entryId}", given)))


def _found(api: Api, asked: AdminRequest, *, needed: bool) -> AdminAnswer | None:
    from magnetar.cli.http import AdminRefusal

    try:
        return api.ask(asked)
    except AdminRefusal as refusal:
        if needed or refusal.status != 404:
            raise
        return None


def shown_message(answer: AdminAnswer) -> dict[str, Any]:
    """A message as people read it: its id, its properties, its payload as text or, where it is none, as base64."""
    headers = {name: text for name, text in answer.headers.items() if name.startswith("x-pulsar-")}
    content = answer.value
    shown: dict[str, Any] = {
        "messageId": headers.pop("x-pulsar-message-id", None),
        "properties": {
            name.removeprefix("x-pulsar-property-"): text
            for name, text in headers.items()
            if name.startswith("x-pulsar-property-")
        },
    }
    shown |= {
        name.removeprefix("x-pulsar-"): text
        for name, text in headers.items()
        if not name.startswith("x-pulsar-property-")
    }
    if isinstance(content, bytes):
        try:
            shown["payload"] = content.decode()
        except UnicodeDecodeError:
            shown["payloadBase64"] = base64.b64encode(content).decode()
    else:
        shown["payload"] = content
    return shown


def compaction_status(api: Api, given: Given) -> Any:
    return _status(api, given, TOPIC + "/compaction")


def offload_status(api: Api, given: Given) -> Any:
    return _status(api, given, TOPIC + "/offload")


def _status(api: Api, given: Given, path: str) -> Any:
    while True:
        status = api.ask(request("GET", path, given)).value
        if not given["wait_complete"] or status.get("status") != "RUNNING":
            return status
        api.pause(WAIT_INTERVAL_S)


def offload(api: Api, given: Given) -> Any:
    """Up to the ledger after which no more than the threshold follows."""
    ledgers = api.ask(request("GET", TOPIC + "/internalStats", given)).value["ledgers"]
    kept = 0
    for place in range(len(ledgers) - 1, 0, -1):
        kept += ledgers[place].get("size", 0)
        if kept > given["size_threshold"]:
            first = message_id_of(f"{ledgers[place]['ledgerId']}:0")
            return api.ask(request("PUT", TOPIC + "/offload", given, body=constant(first))).value
    return "Nothing to offload"


def create_shadow(api: Api, given: Given) -> Any:
    source = str(TopicName.parse(given["source"]))
    properties = {_SHADOW_SOURCE: source, **given["properties"]}
    count = api.ask(request("GET", TOPIC + "/partitions", {"topic": source})).value["partitions"]
    if count:
        return create_partitioned(api, {**given, "partitions": count, "metadata": properties})
    return api.ask(request("PUT", TOPIC, given, body=lambda _: properties)).value


def shadow_source(api: Api, given: Given) -> Any:
    return (api.ask(request("GET", TOPIC + "/properties", given)).value or {}).get(_SHADOW_SOURCE)
