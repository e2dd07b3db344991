# SPDX-License-Identifier: Apache-2.0
"""The policies of a namespace, as verbs of `namespaces`.

Decides.
"""

from typing import Any, Final

from magnetar.cli.values import WrongUse
from magnetar.cli.verbs.offload import offload_setting
from magnetar.cli.verbs.policies import (
    AUTO_SUBSCRIPTIONS,
    BACKLOG_QUOTA,
    COMPACTION_THRESHOLD,
    DELAYED_DELIVERY,
    DISPATCH_RATE,
    ENTRY_FILTERS,
    INACTIVE_TOPICS,
    ON_OR_OFF,
    PAUSE_ON_ACK_STATE,
    PERSISTENCE,
    PUBLISH_RATE,
    QUOTA_TYPE,
    REPLICATOR_RATE,
    RETENTION,
    SCHEMA_STRATEGIES,
    SUBSCRIBE_RATE,
    SUBSCRIPTION_TYPES,
    Policy,
    Setting,
    number,
    verbs_of,
)
from magnetar.cli.verbs.verb import (
    APPLIED,
    DISABLE,
    ENABLE,
    NAMESPACE,
    Api,
    Raw,
    Verb,
    constant,
    either,
    request,
    scripted,
    value,
    verb,
)
from magnetar.cli.words import Given, Kind, flag

# The older policy has its own names for the same things.
_OLDER_STRATEGIES: Final = (
    "AutoUpdateDisabled Full Backward Forward AlwaysCompatible BackwardTransitive ForwardTransitive FullTransitive"
)
_CLUSTERS: Final = flag("--clusters -c", Kind.TEXTS, "Names of clusters, with commas.", required=True)
_GROUP: Final = flag("--group -g", Kind.TEXT, "Name of the group.", required=True)
_RESOURCE_GROUP: Final = flag("--resource-group-name -rgn", Kind.TEXT, "Name of the group.", required=True)


def _limit(words: str, what: str, path: str, names: str, unit: str) -> Policy:
    return Policy(words, what, path, number(names, f"{unit}; 0 means no limit."))


def _auto_topics(given: Given) -> dict[str, Any]:
    body: dict[str, Any] = {"allowAutoTopicCreation": either()(given), "topicType": given["type"]}
    if given["num_partitions"] is not None:
        body["defaultNumPartitions"] = given["num_partitions"]
    return body


_AUTO_TOPICS: Final = Setting(
    (
        ENABLE,
        DISABLE,
        flag("--type -t", Kind.TEXT, "What is made.", default="non-partitioned", choices="partitioned non-partitioned"),
        flag("--num-partitions -n", Kind.NUMBER, "Partitions of a partitioned topic."),
    ),
    _auto_topics,
)
_OFFLOAD: Final = offload_setting(
    driver="--driver -d",
    region="--region -r",
    bucket="--bucket -b",
    endpoint="--endpoint -e",
    aws_id="--aws-id -i",
    aws_secret="--aws-secret -s",
    s3_role="--s3-role -ro",
    s3_role_session_name="--s3-role-session-name -rsn",
    block="--maxBlockSize -mbs",
    buffer="--readBufferSize -rbs",
    bytes="--offloadAfterThreshold -oat",
    seconds="--offloadAfterThresholdInSeconds -oats",
    lag="--offloadAfterElapsed -oae",
    priority="--offloadedReadPriority -orp",
)
_TTL: Final = flag("--messageTTL -ttl", Kind.SECONDS, "For how long: 100m, 3h, 2d; 0 means for ever.", required=True)
_EXPIRATION: Final = flag("--time -t", Kind.NUMBER, "Minutes.", required=True)
_AUTH_MODE: Final = flag("--subscription-auth-mode -m", Kind.TEXT, "How.", required=True, choices="None Prefix")
_LAG: Final = flag("--lag -l", Kind.MILLIS, "So long after: 10m, 5h, 3d.", required=True)

_POLICIES: Final = [
    Policy(
        "clusters",
        "which clusters have its topics",
        "replication",
        Setting((_CLUSTERS,), value("clusters")),
        is_removable=False,
    ),
    Policy(
        "allowed-clusters",
        "which clusters may have its topics",
        "allowedClusters",
        Setting((_CLUSTERS,), value("clusters")),
        is_removable=False,
    ),
    Policy(
        "subscription-types-enabled",
        "which types of subscription are allowed",
        "subscriptionTypesEnabled",
        SUBSCRIPTION_TYPES,
    ),
    Policy("persistence", "over how many bookies entries are written", "persistence", PERSISTENCE),
    Policy(
        "message-ttl",
        "after how long a message counts as acknowledged",
        "messageTTL",
        Setting((_TTL,), value("messageTTL")),
    ),
    _limit(
        "max-subscriptions-per-topic",
        "how many subscriptions a topic may have",
        "maxSubscriptionsPerTopic",
        "--max-subscriptions-per-topic -m",
        "Subscriptions",
    ),
    Policy(
        "subscription-expiration-time",
        "after how long an unused subscription is deleted",
        "subscriptionExpirationTime",
        Setting((_EXPIRATION,), value("time")),
    ),
    Policy("deduplication", "whether messages that come twice are kept once", "deduplication", ON_OR_OFF),
    Policy("auto-topic-creation", "whether a client makes the topic that it names", "autoTopicCreation", _AUTO_TOPICS),
    Policy(
        "auto-subscription-creation",
        "whether a consumer makes the subscription that it names",
        "autoSubscriptionCreation",
        AUTO_SUBSCRIPTIONS,
    ),
    Policy("retention", "how long and how much is kept after it was acknowledged", "retention", RETENTION),
    Policy("dispatch-rate", "how fast each topic delivers", "dispatchRate", DISPATCH_RATE),
    Policy("subscribe-rate", "how often a consumer may attach", "subscribeRate", SUBSCRIBE_RATE),
    Policy(
        "subscription-dispatch-rate", "how fast each subscription delivers", "subscriptionDispatchRate", DISPATCH_RATE
    ),
    Policy("publish-rate", "how fast may be published to each topic", "publishRate", PUBLISH_RATE),
    Policy(
        "replicator-dispatch-rate", "how fast messages go to other clusters", "replicatorDispatchRate", REPLICATOR_RATE
    ),
    Policy(
        "encryption-required",
        "whether messages must be encrypted by their producer",
        "encryptionRequired",
        ON_OR_OFF,
        is_removable=False,
    ),
    Policy(
        "subscription-auth-mode",
        "whether a subscription's name must start with its role",
        "subscriptionAuthMode",
        Setting((_AUTH_MODE,), value("subscription_auth_mode")),
        is_removable=False,
    ),
    Policy("delayed-delivery", "whether messages may be delivered later", "delayedDelivery", DELAYED_DELIVERY),
    Policy(
        "inactive-topic-policies", "what becomes of topics that nobody uses", "inactiveTopicPolicies", INACTIVE_TOPICS
    ),
    _limit(
        "max-producers-per-topic",
        "how many producers a topic may have",
        "maxProducersPerTopic",
        "--max-producers-per-topic -p",
        "Producers",
    ),
    _limit(
        "max-consumers-per-topic",
        "how many consumers a topic may have",
        "maxConsumersPerTopic",
        "--max-consumers-per-topic -c",
        "Consumers",
    ),
    _limit(
        "max-consumers-per-subscription",
        "how many consumers a subscription may have",
        "maxConsumersPerSubscription",
        "--max-consumers-per-subscription -c",
        "Consumers",
    ),
    _limit(
        "max-unacked-messages-per-subscription",
        "how many messages a subscription's consumers may hold",
        "maxUnackedMessagesPerSubscription",
        "--max-unacked-messages-per-subscription -c",
        "Messages",
    ),
    _limit(
        "max-unacked-messages-per-consumer",
        "how many messages one consumer may hold",
        "maxUnackedMessagesPerConsumer",
        "--max-unacked-messages-per-topic -c",
        "Messages",
    ),
    Policy(
        "compaction-threshold",
        "at which backlog a topic is compacted",
        "compactionThreshold",
        COMPACTION_THRESHOLD,
        method="PUT",
    ),
    Policy(
        "offload-deletion-lag",
        "when the first copy of an offloaded ledger is deleted",
        "offloadDeletionLagMs",
        Setting((_LAG,), value("lag")),
        method="PUT",
        remove_words="clear-offload-deletion-lag",
    ),
    Policy(
        "schema-compatibility-strategy",
        "how a new schema must fit those before it",
        "schemaCompatibilityStrategy",
        Setting(
            (flag("--compatibility -c", Kind.TEXT, "How.", choices=SCHEMA_STRATEGIES),),
            value("compatibility"),
        ),
        method="PUT",
        is_removable=False,
    ),
    Policy(
        "is-allow-auto-update-schema",
        "whether a producer may bring a new schema",
        "isAllowAutoUpdateSchema",
        ON_OR_OFF,
        is_removable=False,
    ),
    Policy(
        "schema-validation-enforce",
        "whether producers must bring a schema",
        "schemaValidationEnforced",
        ON_OR_OFF,
        is_removable=False,
        get_flags=(APPLIED,),
        get_query="applied=applied",
    ),
    Policy("offload-policies", "where old ledgers are moved to", "offloadPolicies", _OFFLOAD, is_removable=False),
    _limit(
        "max-topics-per-namespace",
        "how many topics the namespace may have",
        "maxTopicsPerNamespace",
        "--max-topics-per-namespace -t",
        "Topics",
    ),
    Policy("entry-filters", "which filters entries pass", "entryFilters", ENTRY_FILTERS),
    Policy(
        "dispatcher-pause-on-ack-state-persistent",
        "whether delivery waits until acknowledgements are saved",
        "dispatcherPauseOnAckStatePersistent",
        PAUSE_ON_ACK_STATE,
    ),
]


def _offload_threshold(api: Api, given: Given) -> Any:
    api.ask(request("PUT", NAMESPACE + "/offloadThreshold", given, body=value("size")))
    return api.ask(request("PUT", NAMESPACE + "/offloadThresholdInSeconds", given, body=value("time"))).value


def _older_strategy(given: Given) -> str:
    if given["disabled"]:
        return "AutoUpdateDisabled"
    if given["compatibility"] is None:
        raise WrongUse("set-schema-autoupdate-strategy needs --compatibility or --disabled")
    return str(given["compatibility"])


_QUOTA: Final = NAMESPACE + "/backlogQuota"
_AFFINITY: Final = NAMESPACE + "/antiAffinity"
_AUTO_UPDATE: Final = NAMESPACE + "/schemaAutoUpdateCompatibilityStrategy"
_INTERVAL: Final = NAMESPACE + "/deduplicationSnapshotInterval"
_GROUPS: Final = NAMESPACE + "/resourcegroup"

NAMESPACE_POLICY_VERBS: Final[list[Verb]] = [
    *(each for policy in _POLICIES for each in verbs_of(policy, NAMESPACE)),
    verb("get-backlog-quotas", "Show how much backlog is allowed.", "GET", _QUOTA + "Map"),
    verb(
        "set-backlog-quota",
        "Set how much backlog is allowed.",
        "POST",
        _QUOTA,
        *BACKLOG_QUOTA.flags,
        query=BACKLOG_QUOTA.query,
        body=BACKLOG_QUOTA.body,
    ),
    verb(
        "remove-backlog-quota",
        "Remove the limit of the backlog.",
        "DELETE",
        _QUOTA,
        QUOTA_TYPE,
        query="backlogQuotaType=type",
    ),
    verb("get-anti-affinity-group", "Show the group whose namespaces stay apart.", "GET", _AFFINITY),
    verb(
        "set-anti-affinity-group",
        "Keep a namespace apart from others of a group.",
        "POST",
        _AFFINITY,
        _GROUP,
        body=lambda given: Raw("application/json", given["group"].encode()),
    ),
    verb("delete-anti-affinity-group", "Take a namespace out of its group.", "DELETE", _AFFINITY),
    verb("get-offload-threshold", "Show at which size ledgers are offloaded.", "GET", NAMESPACE + "/offloadThreshold"),
    scripted(
        "set-offload-threshold",
        "Set at which size or age ledgers are offloaded.",
        ("namespace",),
        _offload_threshold,
        flag("--size -s", Kind.SIZE, "Bytes of a topic: 10M, 16G; -1: as the cluster says.", required=True, default=-1),
        flag("--time -t", Kind.SECONDS, "Age: 10m, 5h; -1: as the cluster says.", default=-1),
    ),
    verb("get-schema-autoupdate-strategy", "Show how a new schema must fit (older policy).", "GET", _AUTO_UPDATE),
    verb(
        "set-schema-autoupdate-strategy",
        "Set how a new schema must fit (older policy).",
        "PUT",
        _AUTO_UPDATE,
        flag("--compatibility -c", Kind.TEXT, "How.", choices=_OLDER_STRATEGIES),
        flag("--disabled -d", Kind.SWITCH, "Take no new schema at all."),
        body=_older_strategy,
    ),
    verb(
        "remove-offload-policies",
        "Remove where old ledgers are moved to.",
        "DELETE",
        NAMESPACE + "/removeOffloadPolicies",
    ),
    verb(
        "get-deduplication-snapshot-interval",
        "Show after how many entries the deduplication state is saved.",
        "GET",
        _INTERVAL,
    ),
    verb(
        "set-deduplication-snapshot-interval",
        "Set after how many entries the deduplication state is saved.",
        "POST",
        _INTERVAL,
        flag("--interval -i", Kind.NUMBER, "Entries.", required=True),
        body=value("interval"),
    ),
    # There is no path to delete it: it is set to nothing.
    verb(
        "remove-deduplication-snapshot-interval",
        "Save the deduplication state as the broker is set to.",
        "POST",
        _INTERVAL,
        body=constant(None),
    ),
    verb("get-resource-group", "Show the group that shares a namespace's rates.", "GET", _GROUPS),
    verb(
        "set-resource-group",
        "Put a namespace into a group that shares its rates.",
        "POST",
        _GROUPS + "/{resource_group_name}",
        _RESOURCE_GROUP,
    ),
    verb("remove-resource-group", "Take a namespace out of its resource group.", "DELETE", _GROUPS),
]
