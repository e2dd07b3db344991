# SPDX-License-Identifier: Apache-2.0
"""`brokers`, `broker-stats`, `proxy-stats`, `bookies`, `resourcegroups`, `resource-quotas` and `schemas`.

Decides.
"""

import json
from pathlib import Path
from typing import Any, Final

from magnetar.cli.values import WrongUse
from magnetar.cli.verbs.verb import FORCE, Api, Verb, members, request, scripted, verb
from magnetar.cli.words import Given, Kind, flag

_BROKERS: Final = "/admin/v2/brokers"
_CONFIG: Final = flag("--config -c", Kind.TEXT, "Name of the setting.", required=True)
_INDENT: Final = flag("--indent -i", Kind.SWITCH, "Indented; it is always.")


def _balance(api: Api, given: Given) -> Any:
    return api.ask(request("GET" if given["explain"] else "POST", _BROKERS + "/balance", given)).value


BROKER_VERBS: Final[list[Verb]] = [
    verb("list", "List the live brokers of a cluster.", "GET", _BROKERS + "/{cluster}"),
    verb("leader-broker", "Show which broker leads.", "GET", _BROKERS + "/leaderBroker"),
    verb(
        "namespaces",
        "Show which namespaces a broker owns.",
        "GET",
        _BROKERS + "/{cluster}/{url}/ownedNamespaces",
        flag("--url -u", Kind.TEXT, "The broker, HOST:PORT.", required=True),
    ),
    verb(
        "update-dynamic-config",
        "Change a setting of all brokers while they run.",
        "POST",
        _BROKERS + "/configuration/{config}/{value}",
        _CONFIG,
        flag("--value -v", Kind.TEXT, "Its value.", required=True),
    ),
    verb(
        "delete-dynamic-config",
        "Give a setting of all brokers its own value back.",
        "DELETE",
        _BROKERS + "/configuration/{config}",
        _CONFIG,
    ),
    verb("list-dynamic-config", "List what can be changed while brokers run.", "GET", _BROKERS + "/configuration"),
    verb(
        "get-all-dynamic-config", "Show what was changed while brokers run.", "GET", _BROKERS + "/configuration/values"
    ),
    verb(
        "get-internal-config", "Show where the cluster keeps its metadata.", "GET", _BROKERS + "/internal-configuration"
    ),
    verb("get-runtime-config", "Show a broker's settings.", "GET", _BROKERS + "/configuration/runtime"),
    verb(
        "healthcheck",
        "Let a broker write and read a message; exit code 0 when it can.",
        "GET",
        _BROKERS + "/health",
        flag("--topic-version -tv", Kind.TEXT, "Which topic it uses.", choices="V1 V2"),
        query="topicVersion=topic_version",
    ),
    scripted(
        "balance",
        "Have the leader move and split bundles now, or say what it would do.",
        (),
        _balance,
        flag("--explain", Kind.SWITCH, "Change nothing: say what would be moved and split, and why."),
    ),
    verb("backlog-quota-check", "Apply the limits of backlogs now.", "GET", _BROKERS + "/backlog-quota-check"),
    verb("version", "Show a broker's version.", "GET", _BROKERS + "/version"),
    verb(
        "shutdown",
        "Stop a broker in good order.",
        "POST",
        _BROKERS + "/shutdown",
        flag("--max-concurrent-unload-per-sec -m", Kind.NUMBER, "Bundles it lets go of at a time; 0: all.", default=0),
        flag("--forced-terminate-topic -f", Kind.SWITCH, "Do not wait for topics."),
        query="maxConcurrentUnloadPerSec=max_concurrent_unload_per_sec forcedTerminateTopic=forced_terminate_topic",
    ),
]

_STATS: Final = "/admin/v2/broker-stats"
BROKER_STATS_VERBS: Final[list[Verb]] = [
    verb("monitoring-metrics", "Show a broker's metrics.", "GET", _STATS + "/metrics", _INDENT),
    verb("mbeans", "Show a broker's Java beans; ours has none.", "GET", _STATS + "/mbeans", _INDENT),
    verb("topics", "Show the statistics of all topics of a broker.", "GET", _STATS + "/topics", _INDENT),
    verb("destinations", "Show the statistics of all topics of a broker.", "GET", _STATS + "/topics", _INDENT),
    verb("allocator-stats", "Show a broker's memory allocator.", "GET", _STATS + "/allocator-stats/{allocator}"),
    verb("load-report", "Show a broker's load.", "GET", _STATS + "/load-report"),
]
PROXY_STATS_VERBS: Final[list[Verb]] = [
    verb("connections", "Show a proxy's connections.", "GET", "/proxy-stats/connections", _INDENT),
    verb("topics", "Show the statistics of topics that pass a proxy.", "GET", "/proxy-stats/topics", _INDENT),
]

_RACKS: Final = "/admin/v2/bookies/racks-info"
_BOOKIE: Final = flag("--bookie -b", Kind.TEXT, "The bookie, HOST:PORT.", required=True)
BOOKIE_VERBS: Final[list[Verb]] = [
    verb("list-bookies", "List all bookies.", "GET", "/admin/v2/bookies/all"),
    verb("racks-placement", "Show which bookie is in which rack.", "GET", _RACKS),
    verb("get-bookie-rack", "Show a bookie's rack.", "GET", _RACKS + "/{bookie}", _BOOKIE),
    verb("delete-bookie-rack", "Forget a bookie's rack.", "DELETE", _RACKS + "/{bookie}", _BOOKIE),
    verb(
        "set-bookie-rack",
        "Say which rack a bookie is in.",
        "POST",
        _RACKS + "/{bookie}",
        flag("--group -g", Kind.TEXT, "Group of bookies that it belongs to.", default="default"),
        _BOOKIE,
        flag("--rack -r", Kind.TEXT, "The rack, as /region/rack.", required=True),
        flag("--hostname -hn", Kind.TEXT, "The bookie's host."),
        query="group=group",
        body=members(rack="rack", hostname="hostname"),
    ),
]

_GROUP: Final = "/admin/v2/resourcegroups/{group}"
_GROUP_FLAGS: Final = (
    flag("--msg-publish-rate -mp", Kind.NUMBER, "Messages a second that may be published."),
    flag("--byte-publish-rate -bp", Kind.NUMBER, "Bytes a second that may be published."),
    flag("--msg-dispatch-rate -md", Kind.NUMBER, "Messages a second that are delivered."),
    flag("--byte-dispatch-rate -bd", Kind.NUMBER, "Bytes a second that are delivered."),
)
_GROUP_BODY: Final = members(
    publishRateInMsgs="msg_publish_rate",
    publishRateInBytes="byte_publish_rate",
    dispatchRateInMsgs="msg_dispatch_rate",
    dispatchRateInBytes="byte_dispatch_rate",
)
RESOURCE_GROUP_VERBS: Final[list[Verb]] = [
    verb("list", "List the resource groups.", "GET", "/admin/v2/resourcegroups"),
    verb("get", "Show a resource group.", "GET", _GROUP),
    verb("create", "Make a group of namespaces that share rates.", "PUT", _GROUP, *_GROUP_FLAGS, body=_GROUP_BODY),
    verb("update", "Change the rates of a resource group.", "PUT", _GROUP, *_GROUP_FLAGS, body=_GROUP_BODY),
    verb("delete", "Delete a resource group.", "DELETE", _GROUP),
]

_OF_NAMESPACE: Final = (
    flag("--namespace -n", Kind.TEXT, "The namespace; with --bundle."),
    flag("--bundle -b", Kind.TEXT, "The bundle; with --namespace."),
)
_QUOTA_FLAGS: Final = (
    flag("--msgRateIn -mi", Kind.NUMBER, "Messages a second in.", required=True),
    flag("--msgRateOut -mo", Kind.NUMBER, "Messages a second out.", required=True),
    flag("--bandwidthIn -bi", Kind.NUMBER, "Bytes a second in.", required=True),
    flag("--bandwidthOut -bo", Kind.NUMBER, "Bytes a second out.", required=True),
    flag("--memory -mem", Kind.NUMBER, "Megabytes of memory.", required=True),
    flag("--dynamic -d", Kind.SWITCH, "It may be changed by the load."),
)
_QUOTA_BODY: Final = members(
    msgRateIn="msgRateIn",
    msgRateOut="msgRateOut",
    bandwidthIn="bandwidthIn",
    bandwidthOut="bandwidthOut",
    memory="memory",
    dynamic="dynamic",
)


def _quota_path(given: Given) -> str:
    if (given["namespace"] is None) != (given["bundle"] is None):
        raise WrongUse("--namespace and --bundle belong together")
    return "/admin/v2/resource-quotas" + ("" if given["namespace"] is None else "/{namespace}/{bundle}")


def _shown_quota(api: Api, given: Given) -> Any:
    return api.ask(request("GET", _quota_path(given), given)).value


def _set_quota(api: Api, given: Given) -> Any:
    return api.ask(request("POST", _quota_path(given), given, body=_QUOTA_BODY)).value


RESOURCE_QUOTA_VERBS: Final[list[Verb]] = [
    scripted("get", "Show what a bundle is expected to need.", (), _shown_quota, *_OF_NAMESPACE),
    scripted("set", "Say what a bundle is expected to need.", (), _set_quota, *_OF_NAMESPACE, *_QUOTA_FLAGS),
    verb(
        "reset-namespace-bundle-quota",
        "Forget what a bundle is expected to need.",
        "DELETE",
        "/admin/v2/resource-quotas/{namespace}/{bundle}",
        *(each._replace(is_required=True) for each in _OF_NAMESPACE),
    ),
]

_SCHEMA: Final = "/admin/v2/schemas/{bare_topic}"
_FILE: Final = flag("--filename -f", Kind.TEXT, "A JSON file with type, schema and properties.", required=True)


def _schema_file(given: Given) -> dict[str, Any]:
    try:
        loaded = json.loads(Path(given["filename"]).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WrongUse(f"{given['filename']} cannot be read: {error}") from None
    if not isinstance(loaded, dict) or "type" not in loaded:
        raise WrongUse(f"{given['filename']} should hold type, schema and properties")
    return {"properties": {}, "schema": "", **loaded}


def _shown_schema(api: Api, given: Given) -> Any:
    return api.ask(request("GET", _SCHEMA + ("/schemas" if given["all_version"] else "/schema"), given)).value


SCHEMA_VERBS: Final[list[Verb]] = [
    scripted(
        "get",
        "Show a topic's schema.",
        ("topic",),
        _shown_schema,
        flag("--all-version -a", Kind.SWITCH, "All its versions."),
    ),
    verb("delete", "Delete the schemas of a topic.", "DELETE", _SCHEMA + "/schema", FORCE, query="force=force"),
    verb("upload", "Give a topic a new schema.", "POST", _SCHEMA + "/schema", _FILE, body=_schema_file),
    verb(
        "compatibility",
        "Ask whether a schema would be taken.",
        "POST",
        _SCHEMA + "/compatibility",
        _FILE,
        body=_schema_file,
    ),
    verb("metadata", "Show the records of a topic's schemas.", "GET", _SCHEMA + "/metadata"),
]
