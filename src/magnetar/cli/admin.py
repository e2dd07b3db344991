# SPDX-License-Identifier: Apache-2.0
"""`magnetar admin NOUN VERB`: pulsar-admin's verbs, each one request to a broker's HTTP interface.

A table says which request a verb is; what is set or read is JSON as the interface has it. One clear sentence and a
non-zero exit code for every failure: 1 refused, 2 wrong use, 3 unreachable.
Carries.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx

from magnetar.errors import BadName, Refused
from magnetar.names import NamespaceName, TopicName, encode_name

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3


class Verb(NamedTuple):
    method: str
    # Parameters in braces are taken from the arguments in their order; `topic` and `namespace` are names as people
    # write them.
    path: str
    # Whether one more argument is the body: "json" must be there, "optional" may.
    body: str = ""


_TOPIC: Final = "/admin/v2/{topic}"
_NAMESPACE: Final = "/admin/v2/namespaces/{namespace}"
_SUBSCRIPTION: Final = _TOPIC + "/subscription/{subscription}"

VERBS: Final[dict[str, dict[str, Verb]]] = {
    "clusters": {
        "list": Verb("GET", "/admin/v2/clusters"),
        "get": Verb("GET", "/admin/v2/clusters/{cluster}"),
        "create": Verb("PUT", "/admin/v2/clusters/{cluster}", "json"),
        "update": Verb("POST", "/admin/v2/clusters/{cluster}", "json"),
        "delete": Verb("DELETE", "/admin/v2/clusters/{cluster}"),
    },
    "tenants": {
        "list": Verb("GET", "/admin/v2/tenants"),
        "get": Verb("GET", "/admin/v2/tenants/{tenant}"),
        "create": Verb("PUT", "/admin/v2/tenants/{tenant}", "json"),
        "update": Verb("POST", "/admin/v2/tenants/{tenant}", "json"),
        "delete": Verb("DELETE", "/admin/v2/tenants/{tenant}"),
    },
    "namespaces": {
        "list": Verb("GET", "/admin/v2/namespaces/{tenant}"),
        "policies": Verb("GET", _NAMESPACE),
        "create": Verb("PUT", _NAMESPACE, "optional"),
        "delete": Verb("DELETE", _NAMESPACE),
        "topics": Verb("GET", _NAMESPACE + "/topics"),
        "bundles": Verb("GET", _NAMESPACE + "/bundles"),
        "unload": Verb("PUT", _NAMESPACE + "/unload"),
        "clear-backlog": Verb("POST", _NAMESPACE + "/clearBacklog"),
        "permissions": Verb("GET", _NAMESPACE + "/permissions"),
        "grant-permission": Verb("POST", _NAMESPACE + "/permissions/{role}", "json"),
        "revoke-permission": Verb("DELETE", _NAMESPACE + "/permissions/{role}"),
        "get-policy": Verb("GET", _NAMESPACE + "/{policy}"),
        "remove-policy": Verb("DELETE", _NAMESPACE + "/{policy}"),
    },
    "topics": {
        "list": Verb("GET", "/admin/v2/persistent/{namespace}"),
        "list-partitioned-topics": Verb("GET", "/admin/v2/persistent/{namespace}/partitioned"),
        "create": Verb("PUT", _TOPIC),
        "delete": Verb("DELETE", _TOPIC),
        "create-partitioned-topic": Verb("PUT", _TOPIC + "/partitions", "json"),
        "update-partitioned-topic": Verb("POST", _TOPIC + "/partitions", "json"),
        "get-partitioned-topic-metadata": Verb("GET", _TOPIC + "/partitions"),
        "delete-partitioned-topic": Verb("DELETE", _TOPIC + "/partitions"),
        "stats": Verb("GET", _TOPIC + "/stats"),
        "partitioned-stats": Verb("GET", _TOPIC + "/partitioned-stats"),
        "stats-internal": Verb("GET", _TOPIC + "/internalStats"),
        "subscriptions": Verb("GET", _TOPIC + "/subscriptions"),
        "create-subscription": Verb("PUT", _SUBSCRIPTION, "optional"),
        "unsubscribe": Verb("DELETE", _SUBSCRIPTION),
        "skip": Verb("POST", _SUBSCRIPTION + "/skip/{count}"),
        "clear-backlog": Verb("POST", _SUBSCRIPTION + "/skip_all"),
        "expire-messages": Verb("POST", _SUBSCRIPTION + "/expireMessages/{seconds}"),
        "reset-cursor": Verb("POST", _SUBSCRIPTION + "/resetcursor/{timestamp}"),
        "analyze-backlog": Verb("POST", _SUBSCRIPTION + "/analyzeBacklog"),
        "last-message-id": Verb("GET", _TOPIC + "/lastMessageId"),
        "terminate": Verb("POST", _TOPIC + "/terminate"),
        "truncate": Verb("DELETE", _TOPIC + "/truncate"),
        "unload": Verb("PUT", _TOPIC + "/unload"),
        "lookup": Verb("GET", "/lookup/v2/topic/{topic}"),
        "explain": Verb("GET", _SUBSCRIPTION + "/explain"),
    },
    "topicPolicies": {
        "get-policy": Verb("GET", _TOPIC + "/{policy}"),
        "set-policy": Verb("POST", _TOPIC + "/{policy}", "json"),
        "remove-policy": Verb("DELETE", _TOPIC + "/{policy}"),
        "delete": Verb("DELETE", _TOPIC + "/policies"),
    },
    "brokers": {
        "list": Verb("GET", "/admin/v2/brokers/{cluster}"),
        "leader-broker": Verb("GET", "/admin/v2/brokers/leaderBroker"),
        "healthcheck": Verb("GET", "/admin/v2/brokers/health"),
        "version": Verb("GET", "/admin/v2/brokers/version"),
        "get-runtime-config": Verb("GET", "/admin/v2/brokers/configuration/runtime"),
    },
    "broker-stats": {
        "topics": Verb("GET", "/admin/v2/broker-stats/topics"),
        "load-report": Verb("GET", "/admin/v2/broker-stats/load-report"),
    },
    "bookies": {
        "list-bookies": Verb("GET", "/admin/v2/bookies/all"),
        "racks-placement": Verb("GET", "/admin/v2/bookies/racks-info"),
    },
    "resourcegroups": {
        "list": Verb("GET", "/admin/v2/resourcegroups"),
        "get": Verb("GET", "/admin/v2/resourcegroups/{group}"),
        "create": Verb("PUT", "/admin/v2/resourcegroups/{group}", "json"),
        "delete": Verb("DELETE", "/admin/v2/resourcegroups/{group}"),
    },
}
# Set with POST or PUT, as the policy wants it.
_PUT_POLICIES: Final = (
    "compactionThreshold",
    "offloadThreshold",
    "offloadThresholdInSeconds",
    "offloadDeletionLagMs",
    "schemaCompatibilityStrategy",
    "schemaAutoUpdateCompatibilityStrategy",
)


class WrongUse(Refused):
    """The words after `admin` are no request; the text says what they should be."""


class AdminRequest(NamedTuple):
    method: str
    path: str
    body: bytes | None


def request_of(words: Sequence[str]) -> AdminRequest:
    """The request that the words after `admin` stand for."""
    noun, verb_name, arguments = (words[0] if words else ""), (words[1] if len(words) > 1 else ""), list(words[2:])
    verbs = VERBS.get(noun)
    if verbs is None:
        raise WrongUse(f"{noun!r} is no noun; it should be one of {', '.join(VERBS)}")
    if noun == "namespaces" and verb_name == "set-policy":
        verb = Verb(
            "PUT" if arguments[1:2] and arguments[1] in _PUT_POLICIES else "POST", _NAMESPACE + "/{policy}", "json"
        )
    elif verb_name in verbs:
        verb = verbs[verb_name]
    else:
        raise WrongUse(f"{noun} has no verb {verb_name!r}; it should be one of {', '.join(verbs)}")
    path = verb.path
    for name in _parameters(path):
        if not arguments:
            raise WrongUse(f"{noun} {verb_name} needs: {' '.join(_parameters(verb.path))}")
        path = path.replace(f"{{{name}}}", _written(name, arguments.pop(0)), 1)
    return AdminRequest(verb.method, path, _body(f"{noun} {verb_name}", verb, arguments))


def run_admin(url: str, words: Sequence[str], *, force: bool = False) -> int:
    """Ask, print the answer, return the exit code."""
    try:
        asked = request_of(words)
    except (WrongUse, BadName) as error:
        sys.stderr.write(f"magnetar: {error}\n")
        return EXIT_USAGE
    headers = {"Content-Type": "application/json"} if asked.body is not None else {}
    try:
        answer = httpx.request(
            asked.method,
            f"{url.rstrip('/')}{asked.path}",
            content=asked.body,
            headers=headers,
            params={"force": "true"} if force else None,
            timeout=60,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        sys.stderr.write(f"magnetar: no answer from {url}: {error or type(error).__name__}; check --admin-url\n")
        return EXIT_UNREACHABLE
    if answer.status_code >= 400:
        sys.stderr.write(f"magnetar: {_reason(answer)}\n")
        return EXIT_REFUSED
    _print(answer.text)
    return 0


def _parameters(path: str) -> list[str]:
    return [part.partition("}")[0] for part in path.split("{")[1:]]


def _written(name: str, text: str) -> str:
    if name == "topic":
        return TopicName.parse(text).lookup_name
    if name == "namespace":
        return str(NamespaceName.parse(text))
    if name in ("count", "seconds", "timestamp", "policy"):
        return quote(text, safe="")
    return encode_name(text)


def _body(what: str, verb: Verb, arguments: list[str]) -> bytes | None:
    text = arguments.pop(0) if verb.body and arguments else None
    if arguments:
        raise WrongUse(f"{what} does not take {arguments[0]!r}")
    if verb.body == "json" and text is None:
        raise WrongUse(f"{what} needs a value, as JSON")
    if text is None:
        return None
    try:
        json.loads(text)
    except ValueError:
        # A plain word is a JSON string.
        return json.dumps(text).encode()
    return text.encode()


def _reason(answer: httpx.Response) -> str:
    try:
        reason: Any = answer.json()["reason"]
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status_code}"
    return str(reason)


def _print(text: str) -> None:
    if not text:
        return
    try:
        shown = json.dumps(json.loads(text), indent=2)
    except ValueError:
        shown = text
    sys.stdout.write(f"{shown}\n")
