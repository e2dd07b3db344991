# SPDX-License-Identifier: Apache-2.0
"""`topics`, and the older nouns `persistent` and `non-persistent`.

Decides.
"""

from typing import Any, Final

from magnetar.cli.values import WrongUse, message_id_of
from magnetar.cli.verbs.topic_policies import OLDER_TOPIC_POLICY_VERBS
from magnetar.cli.verbs.topic_scripts import (
    compaction_status,
    create_partitioned,
    create_shadow,
    delete_topics,
    expire_messages,
    list_topics,
    message_by_id,
    offload,
    offload_status,
    partitioned_lookup,
    peek_messages,
    reset_cursor,
    shadow_source,
)
from magnetar.cli.verbs.verb import (
    DISABLE,
    ENABLE,
    FORCE,
    SUBSCRIPTION,
    SUBSCRIPTION_FLAG,
    SYSTEM_TOPICS,
    TOPIC,
    Verb,
    either,
    scripted,
    value,
    verb,
)
from magnetar.cli.words import Given, Kind, flag

_ONE: Final = ("topic",)
_METADATA: Final = flag("--metadata -m", Kind.PAIRS, "Properties of the topic.", default={})
_PARTITIONS: Final = flag("--partitions -p", Kind.NUMBER, "How many.", required=True)
_PROPERTY: Final = flag("--property -p", Kind.PAIRS, "A property; may be typed again.", default={})
_DELETE_SCHEMA: Final = flag("--deleteSchema -d", Kind.SWITCH, "Its schemas too; they always go with it.")
_PRECISE: Final = flag("--get-precise-backlog -gpb", Kind.SWITCH, "Count the backlog exactly.")
_BACKLOG_SIZE: Final = flag(
    "--get-subscription-backlog-size -sbs", Kind.SWITCH_OFF, "Leave the bytes of each backlog out."
)
_EARLIEST: Final = flag("--get-earliest-time-in-backlog -etb", Kind.SWITCH, "Say when the oldest unread came.")
_STATS_QUERY: Final = (
    "getPreciseBacklog=get_precise_backlog subscriptionBacklogSize=get_subscription_backlog_size "
    "getEarliestTimeInBacklog=get_earliest_time_in_backlog"
)
_POSITION: Final = flag("--messageId -m", Kind.TEXT, "latest, earliest or LEDGER:ENTRY.", default="latest")
_EXCLUDE: Final = flag("--exclude-reset-position -e", Kind.SWITCH, "Start after it, not with it.")
_WAIT: Final = flag("--wait-complete -w", Kind.SWITCH, "Wait until it is done.")
_COUNT: Final = flag("--count -n", Kind.NUMBER, "How many.", required=True)


def _created_at(given: Given) -> dict[str, Any]:
    body = message_id_of(given["messageId"])
    return {**body, "properties": given["property"]} if given["property"] else body


def _backlog_from(given: Given) -> dict[str, Any]:
    return message_id_of("earliest" if given["messageId"] == "-1:-1" else given["messageId"])


def _new_properties(given: Given) -> dict[str, str]:
    if not given["property"] and not given["clear"]:
        raise WrongUse("update-subscription-properties needs --property or --clear")
    return {} if given["clear"] else dict(given["property"])


def _analyze_from(given: Given) -> dict[str, Any] | None:
    return None if given["position"] is None else message_id_of(given["position"])


_LISTING: Final = [
    scripted(
        "list",
        "List the topics of a namespace.",
        ("namespace",),
        list_topics(""),
        flag("--topic-domain -td", Kind.TEXT, "Only this kind.", choices="persistent non_persistent"),
        flag("--bundle -b", Kind.TEXT, "Only topics of this bundle."),
        SYSTEM_TOPICS,
    ),
    scripted(
        "list-partitioned-topics",
        "List the partitioned topics of a namespace.",
        ("namespace",),
        list_topics("/partitioned"),
        SYSTEM_TOPICS,
    ),
    verb("permissions", "Show who may do what with a topic.", "GET", TOPIC + "/permissions"),
    verb(
        "grant-permission",
        "Allow a role to use a topic.",
        "POST",
        TOPIC + "/permissions/{role}",
        flag("--role -r", Kind.TEXT, "Who.", required=True),
        flag("--actions -a", Kind.TEXTS, "produce, consume, functions, sources, sinks, packages.", required=True),
        body=value("actions"),
    ),
    verb(
        "revoke-permission",
        "Take a role's rights on a topic back.",
        "DELETE",
        TOPIC + "/permissions/{role}",
        flag("--role -r", Kind.TEXT, "Who.", required=True),
    ),
    verb("lookup", "Show which broker serves a topic.", "GET", "/lookup/v2/topic/{topic}"),
    scripted(
        "partitioned-lookup",
        "Show which brokers serve the partitions of a topic.",
        _ONE,
        partitioned_lookup,
        flag("--sort-by-broker -s", Kind.SWITCH, "Group the partitions by broker."),
    ),
    verb("bundle-range", "Show the bundle of a topic.", "GET", "/lookup/v2/topic/{topic}/bundle"),
]

_MAKING: Final = [
    verb("create", "Make a topic.", "PUT", TOPIC, _METADATA, body=value("metadata")),
    scripted("create-partitioned-topic", "Make a partitioned topic.", _ONE, create_partitioned, _PARTITIONS, _METADATA),
    verb(
        "create-missed-partitions",
        "Make the partitions that a partitioned topic lacks.",
        "POST",
        TOPIC + "/createMissedPartitions",
    ),
    verb(
        "update-partitioned-topic",
        "Add partitions to a topic.",
        "POST",
        TOPIC + "/partitions",
        _PARTITIONS,
        flag("--update-local-only -ulo", Kind.SWITCH, "Not in other clusters."),
        FORCE,
        query="updateLocalTopicOnly=update_local_only force=force",
        body=value("partitions"),
    ),
    verb("get-partitioned-topic-metadata", "Show how many partitions a topic has.", "GET", TOPIC + "/partitions"),
    verb(
        "delete-partitioned-topic",
        "Delete a topic and its partitions.",
        "DELETE",
        TOPIC + "/partitions",
        FORCE,
        _DELETE_SCHEMA,
        query="force=force",
    ),
    scripted(
        "delete",
        "Delete a topic, or all that a file or a pattern names.",
        _ONE,
        delete_topics,
        FORCE,
        _DELETE_SCHEMA,
        flag("--regex -r regex", Kind.SWITCH, "The name is a pattern; all topics that match it whole."),
        flag("--from-file", Kind.SWITCH, "The name is a file with one topic on each line."),
    ),
    verb("truncate", "Delete all messages of a topic.", "DELETE", TOPIC + "/truncate"),
    verb("unload", "Let go of a topic; whoever uses it next makes a broker own it.", "PUT", TOPIC + "/unload"),
    verb("terminate", "Let nothing more be published to a topic.", "POST", TOPIC + "/terminate"),
    verb(
        "partitioned-terminate",
        "Let nothing more be published to any partition.",
        "POST",
        TOPIC + "/terminate/partitions",
    ),
    verb("trim-topic", "Delete ledgers that nobody needs any more.", "POST", TOPIC + "/trim"),
    scripted(
        "create-shadow-topic",
        "Make a topic that shows another's messages.",
        _ONE,
        create_shadow,
        flag("--source -s", Kind.TEXT, "The topic whose messages it shows.", required=True),
        flag("--properties -p", Kind.PAIRS, "Properties of the topic.", default={}),
    ),
    scripted("get-shadow-source", "Show whose messages a topic shows.", _ONE, shadow_source),
    verb("get-shadow-topics", "List the topics that show a topic's messages.", "GET", TOPIC + "/shadowTopics"),
    verb(
        "set-shadow-topics",
        "Set the topics that show a topic's messages.",
        "PUT",
        TOPIC + "/shadowTopics",
        flag("--topics -t", Kind.TEXTS, "Names, with commas.", required=True),
        body=value("topics"),
    ),
    verb("remove-shadow-topics", "Let no topic show a topic's messages.", "DELETE", TOPIC + "/shadowTopics"),
]

_READING: Final = [
    verb(
        "stats",
        "Show rates, backlog, producers and consumers of a topic.",
        "GET",
        TOPIC + "/stats",
        _PRECISE,
        _BACKLOG_SIZE,
        _EARLIEST,
        query=_STATS_QUERY,
    ),
    verb(
        "stats-internal",
        "Show the ledgers and cursors of a topic.",
        "GET",
        TOPIC + "/internalStats",
        flag("--metadata -m", Kind.SWITCH, "The ledgers' metadata too."),
        query="metadata=metadata",
    ),
    verb("info-internal", "Show the stored record of a topic's ledgers.", "GET", TOPIC + "/internal-info"),
    verb(
        "partitioned-stats",
        "Show rates and backlog of a partitioned topic.",
        "GET",
        TOPIC + "/partitioned-stats",
        flag("--per-partition", Kind.SWITCH, "Those of each partition too."),
        _PRECISE,
        _BACKLOG_SIZE,
        _EARLIEST,
        query="perPartition=per_partition " + _STATS_QUERY,
    ),
    verb(
        "partitioned-stats-internal",
        "Show the ledgers and cursors of all partitions.",
        "GET",
        TOPIC + "/partitioned-internalStats",
    ),
    scripted(
        "peek-messages",
        "Show the next messages of a subscription without taking them.",
        _ONE,
        peek_messages,
        SUBSCRIPTION_FLAG,
        flag("--count -n", Kind.NUMBER, "How many.", default=1),
        flag("--show-server-marker -ssm", Kind.SWITCH, "Markers that the broker wrote too."),
        flag(
            "--transaction-isolation-level -til",
            Kind.TEXT,
            "Whether messages of open transactions are shown.",
            default="READ_COMMITTED",
            choices="READ_COMMITTED READ_UNCOMMITTED",
        ),
    ),
    verb(
        "examine-messages",
        "Show one message, counted from the start or the end.",
        "GET",
        TOPIC + "/examinemessage",
        flag("--initialPosition -i", Kind.TEXT, "Where to count from.", default="latest", choices="earliest latest"),
        flag("--messagePosition -m", Kind.NUMBER, "Which.", default=1),
        query="initialPosition=initialPosition messagePosition=messagePosition",
    ),
    scripted(
        "get-message-by-id",
        "Show one message.",
        _ONE,
        message_by_id,
        flag("--ledgerId -l", Kind.NUMBER, "Its ledger.", required=True),
        flag("--entryId -e", Kind.NUMBER, "Its entry.", required=True),
    ),
    verb(
        "get-message-id",
        "Show the first message published at or after an instant.",
        "GET",
        TOPIC + "/messageid/{datetime}",
        flag("--datetime -d", Kind.INSTANT, "2026-01-02T03:04:05.000Z.", required=True),
    ),
    verb(
        "get-message-id-by-index",
        "Show the message of an index.",
        "GET",
        TOPIC + "/getMessageIdByIndex",
        flag("--index -i", Kind.NUMBER, "The message's number in the topic, from 0.", required=True),
        query="index=index",
    ),
    verb("last-message-id", "Show the last message of a topic.", "GET", TOPIC + "/lastMessageId"),
    verb(
        "get-backlog-size",
        "Show how many bytes follow a message.",
        "PUT",
        TOPIC + "/backlogSize",
        flag("--messageId -m", Kind.TEXT, "LEDGER:ENTRY.", default="-1:-1"),
        body=_backlog_from,
    ),
    verb("compact", "Compact a topic now.", "PUT", TOPIC + "/compaction"),
    scripted("compaction-status", "Show how the last compaction went.", _ONE, compaction_status, _WAIT),
    scripted(
        "offload",
        "Move old ledgers of a topic to the long-term store.",
        _ONE,
        offload,
        flag("--size-threshold -s", Kind.SIZE, "How much stays: 10M, 16G.", required=True),
    ),
    scripted("offload-status", "Show how the last offload went.", _ONE, offload_status, _WAIT),
    verb("get-properties", "Show the properties of a topic.", "GET", TOPIC + "/properties"),
    verb(
        "update-properties",
        "Set properties of a topic.",
        "PUT",
        TOPIC + "/properties",
        _PROPERTY,
        body=value("property"),
    ),
    verb(
        "remove-properties",
        "Remove a property of a topic.",
        "DELETE",
        TOPIC + "/properties",
        flag("--key -k", Kind.TEXT, "Which."),
        query="key=key",
    ),
]

_SUBSCRIPTIONS: Final = [
    verb("subscriptions", "List the subscriptions of a topic.", "GET", TOPIC + "/subscriptions"),
    verb(
        "create-subscription",
        "Make a subscription.",
        "PUT",
        SUBSCRIPTION,
        SUBSCRIPTION_FLAG,
        _POSITION,
        flag("--replicated -r", Kind.SWITCH, "In other clusters too."),
        _PROPERTY,
        query="replicated=replicated",
        body=_created_at,
    ),
    verb(
        "unsubscribe", "Delete a subscription.", "DELETE", SUBSCRIPTION, SUBSCRIPTION_FLAG, FORCE, query="force=force"
    ),
    verb(
        "skip",
        "Count messages of a subscription as read.",
        "POST",
        SUBSCRIPTION + "/skip/{count}",
        SUBSCRIPTION_FLAG,
        _COUNT,
    ),
    verb("clear-backlog", "Count everything as read.", "POST", SUBSCRIPTION + "/skip_all", SUBSCRIPTION_FLAG),
    scripted(
        "expire-messages",
        "Count messages as read that are older than a time or a message.",
        _ONE,
        expire_messages,
        SUBSCRIPTION_FLAG,
        flag("--expireTime -t", Kind.SECONDS, "Older than: 60, 100m, 3h."),
        flag("--position -p", Kind.TEXT, "Up to this message, LEDGER:ENTRY."),
        _EXCLUDE,
    ),
    verb(
        "expire-messages-all-subscriptions",
        "Count messages as read by all subscriptions that are older than a time.",
        "POST",
        TOPIC + "/all_subscription/expireMessages/{expireTime}",
        flag("--expireTime -t", Kind.SECONDS, "Older than: 60, 100m, 3h.", required=True),
    ),
    scripted(
        "reset-cursor",
        "Let a subscription start again at a time or a message.",
        _ONE,
        reset_cursor,
        SUBSCRIPTION_FLAG,
        flag("--time -t", Kind.SECONDS, "So long ago: 10m, 3h, 2d."),
        flag("--messageId -m", Kind.TEXT, "latest, earliest or LEDGER:ENTRY."),
        _EXCLUDE,
    ),
    verb(
        "analyze-backlog",
        "Count what a subscription has not read.",
        "POST",
        SUBSCRIPTION + "/analyzeBacklog",
        SUBSCRIPTION_FLAG,
        flag("--position -p", Kind.TEXT, "Start here, LEDGER:ENTRY."),
        body=_analyze_from,
    ),
    verb(
        "update-subscription-properties",
        "Set the properties of a subscription.",
        "PUT",
        SUBSCRIPTION + "/properties",
        SUBSCRIPTION_FLAG,
        _PROPERTY,
        flag("--clear -c", Kind.SWITCH, "Remove them all."),
        body=_new_properties,
    ),
    verb(
        "get-subscription-properties",
        "Show the properties of a subscription.",
        "GET",
        SUBSCRIPTION + "/properties",
        SUBSCRIPTION_FLAG,
    ),
    verb(
        "set-replicated-subscription-status",
        "Say whether a subscription is kept equal in other clusters.",
        "POST",
        SUBSCRIPTION + "/replicatedSubscriptionStatus",
        SUBSCRIPTION_FLAG,
        ENABLE,
        DISABLE,
        body=either(),
    ),
    verb(
        "get-replicated-subscription-status",
        "Show whether a subscription is kept equal in other clusters.",
        "GET",
        SUBSCRIPTION + "/replicatedSubscriptionStatus",
        SUBSCRIPTION_FLAG,
    ),
]

TOPIC_VERBS: Final[list[Verb]] = [*_LISTING, *_MAKING, *_READING, *_SUBSCRIPTIONS, *OLDER_TOPIC_POLICY_VERBS]
