# SPDX-License-Identifier: Apache-2.0
"""`topicPolicies`, and the older `topics` verbs for the same policies.

Decides.
"""

from typing import Final

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
    RETENTION,
    SCHEMA_STRATEGIES,
    SUBSCRIBE_RATE,
    SUBSCRIPTION_TYPES,
    Policy,
    Setting,
    number,
    verbs_of,
)
from magnetar.cli.verbs.verb import APPLIED, ENABLE, TOPIC, Api, Verb, constant, request, scripted, value, verb
from magnetar.cli.words import Flag, Given, Kind, flag

_GLOBAL: Final = flag("--global -g", Kind.SWITCH, "The policy that all clusters share.")
_IS_GLOBAL: Final = "isGlobal=global"
_APPLIED: Final = "applied=applied"
_APPLIED_A: Final = flag("--applied -a", Kind.SWITCH, "What is in force, with what is inherited.")
_TTL: Final = Setting(
    (flag("--ttl -t", Kind.SECONDS, "For how long: 100m, 3h, 2d.", required=True),), None, "messageTTL=ttl"
)
_CLUSTERS: Final = Setting(
    (flag("--clusters -c", Kind.TEXTS, "Names of clusters, with commas.", required=True),), value("clusters")
)
_STRATEGY: Final = Setting(
    (
        flag(
            "--strategy -s",
            Kind.TEXT,
            "How a new schema must fit those before it.",
            required=True,
            choices=SCHEMA_STRATEGIES,
        ),
    ),
    value("strategy"),
)
_OFFLOAD: Final = offload_setting(
    driver="--driver -d",
    region="--region -r",
    bucket="--bucket -b",
    endpoint="--endpoint -e",
    aws_id="--aws-id -i",
    aws_secret="--aws-secret -s",
    s3_role="--s3-role --ro",
    s3_role_session_name="--s3-role-session-name -rsn",
    block="--maxBlockSizeInBytes -m --maxBlockSize -mbs",
    buffer="--readBufferSizeInBytes -rb --readBufferSize -rbs",
    bytes="--offloadThresholdInBytes -t --offloadAfterThreshold -oat",
    seconds="--offloadThresholdInSeconds -ts --offloadAfterThresholdInSeconds -oats",
    lag="--offloadDeletionLagInMillis -dl --offloadAfterElapsed -oae",
    priority="--offloadedReadPriority -orp",
)


def _inherited(words: str, what: str, path: str, setting: Setting) -> Policy:
    """A policy whose value in force can be asked for."""
    return Policy(words, what, path, setting, get_flags=(APPLIED,), get_query=_APPLIED)


def _per(thing: str) -> Setting:
    return number("--maxNum -m", f"Messages without acknowledgement per {thing}; 0 means no limit.")


def _common(unacked_words: tuple[str, str]) -> list[Policy]:
    """What both nouns have, under the same names."""
    consumer, subscription = unacked_words
    return [
        _inherited("message-ttl", "after how long a message counts as acknowledged", "messageTTL", _TTL),
        _inherited(
            consumer, "how many messages one consumer may hold", "maxUnackedMessagesOnConsumer", _per("consumer")
        ),
        _inherited(
            subscription,
            "how many messages a subscription's consumers may hold",
            "maxUnackedMessagesOnSubscription",
            _per("subscription"),
        ),
        Policy(
            "max-consumers-per-subscription",
            "how many consumers a subscription may have",
            "maxConsumersPerSubscription",
            number("--max-consumers-per-subscription -c", "Consumers; 0 means no limit."),
        ),
        Policy(
            "subscription-types-enabled",
            "which types of subscription are allowed",
            "subscriptionTypesEnabled",
            SUBSCRIPTION_TYPES,
        ),
        _inherited("retention", "how long and how much is kept after it was acknowledged", "retention", RETENTION),
        _inherited(
            "max-producers",
            "how many producers may be attached",
            "maxProducers",
            number("--max-producers -p", "Producers; 0 means no limit."),
        ),
        Policy(
            "max-message-size",
            "how large a message may be",
            "maxMessageSize",
            number("--max-message-size -m", "Bytes."),
        ),
        Policy("deduplication", "whether messages that come twice are kept once", "deduplicationEnabled", ON_OR_OFF),
        Policy(
            "deduplication-snapshot-interval",
            "after how many entries the deduplication state is saved",
            "deduplicationSnapshotInterval",
            number("--interval -i", "Entries."),
        ),
        Policy("persistence", "over how many bookies entries are written", "persistence", PERSISTENCE),
        *_rates_and_lives(),
    ]


def _rates_and_lives() -> list[Policy]:
    """Rates, and what becomes of messages and of the topic."""
    return [
        _inherited(
            "replicator-dispatch-rate",
            "how fast messages go to other clusters",
            "replicatorDispatchRate",
            DISPATCH_RATE,
        ),
        Policy("publish-rate", "how fast may be published", "publishRate", PUBLISH_RATE),
        _inherited(
            "compaction-threshold",
            "at which backlog the topic is compacted",
            "compactionThreshold",
            COMPACTION_THRESHOLD,
        ),
        _inherited("subscribe-rate", "how often a consumer may attach", "subscribeRate", SUBSCRIBE_RATE),
        _inherited(
            "max-consumers",
            "how many consumers may be attached",
            "maxConsumers",
            number("--max-consumers -c", "Consumers; 0 means no limit."),
        ),
        _inherited("delayed-delivery", "whether messages may be delivered later", "delayedDelivery", DELAYED_DELIVERY),
        _inherited("dispatch-rate", "how fast messages are delivered", "dispatchRate", DISPATCH_RATE),
        _inherited("offload-policies", "where old ledgers are moved to", "offloadPolicies", _OFFLOAD),
        _inherited(
            "inactive-topic-policies",
            "what becomes of a topic that nobody uses",
            "inactiveTopicPolicies",
            INACTIVE_TOPICS,
        ),
        _inherited("replication-clusters", "to which clusters messages are copied", "replication", _CLUSTERS),
    ]


_MAX_SUBSCRIPTIONS: Final = "how many subscriptions the topic may have"

_POLICIES: Final = [
    *_common(("max-unacked-messages-per-consumer", "max-unacked-messages-per-subscription")),
    Policy(
        "max-subscriptions-per-topic",
        _MAX_SUBSCRIPTIONS,
        "maxSubscriptionsPerTopic",
        number("--max-subscriptions-per-topic -s", "Subscriptions; 0 means no limit."),
    ),
    Policy(
        "entry-filters-per-topic",
        "which filters entries pass",
        "entryFilters",
        ENTRY_FILTERS,
        get_flags=(APPLIED,),
        get_query=_APPLIED,
    ),
    Policy(
        "auto-subscription-creation",
        "whether a consumer makes the subscription that it names",
        "autoSubscriptionCreation",
        AUTO_SUBSCRIPTIONS,
        get_flags=(_APPLIED_A,),
        get_query=_APPLIED,
    ),
    Policy(
        "dispatcher-pause-on-ack-state-persistent",
        "whether delivery waits until acknowledgements are saved",
        "dispatcherPauseOnAckStatePersistent",
        PAUSE_ON_ACK_STATE,
        get_flags=(_APPLIED_A,),
        get_query=_APPLIED,
    ),
]
_QUOTA: Final = "how much backlog is allowed"
_SUBSCRIPTION_RATE: Final = "how fast one subscription delivers"


def _quota_verbs(get: str, more: tuple[Flag, ...], more_query: str) -> list[Verb]:
    flags, body, query = BACKLOG_QUOTA
    path = TOPIC + "/backlogQuota"
    of_type = "backlogQuotaType=type"
    return [
        verb(get, f"Show {_QUOTA}.", "GET", path + "Map", APPLIED, *more, query=f"{_APPLIED} {more_query}"),
        verb(
            "set-backlog-quota", f"Set {_QUOTA}.", "POST", path, *flags, *more, query=f"{query} {more_query}", body=body
        ),
        verb(
            "remove-backlog-quota",
            f"Remove {_QUOTA}.",
            "DELETE",
            path,
            QUOTA_TYPE,
            *more,
            query=f"{of_type} {more_query}",
        ),
    ]


def _subscription_rate(method: str, *, sets: bool = False, shows: bool = False) -> Verb:
    """With --subscription it is the rate of that one."""
    name = {"GET": "get", "POST": "set", "DELETE": "remove"}[method] + "-subscription-dispatch-rate"
    query = (("isGlobal", "global"), *((("applied", "applied"),) if shows else ()))

    def script(api: Api, given: Given) -> object:
        path = TOPIC + (
            "/subscriptionDispatchRate" if given["subscription"] is None else "/{subscription}/dispatchRate"
        )
        body = DISPATCH_RATE.body if sets else None
        return api.ask(request(method, path, given, query=query, body=body)).value

    only = flag("--subscription -s", Kind.TEXT, "Only for this subscription.")
    flags = (*(DISPATCH_RATE.flags if sets else ()), *((APPLIED,) if shows else ()), _GLOBAL, only)
    what = {"GET": "Show", "POST": "Set", "DELETE": "Remove"}[method]
    return scripted(name, f"{what} {_SUBSCRIPTION_RATE}.", ("topic",), script, *flags)


_STRATEGY_POLICY: Final = Policy(
    "schema-compatibility-strategy",
    "how a new schema must fit those before it",
    "schemaCompatibilityStrategy",
    _STRATEGY,
    method="PUT",
    get_flags=(APPLIED,),
    get_query=_APPLIED,
)


def _renamed(policy: Policy, words: str) -> Policy:
    return policy._replace(words=words)


TOPIC_POLICY_VERBS: Final = [
    verb("delete", "Remove all policies of a topic.", "DELETE", TOPIC + "/policies"),
    *(each for policy in _POLICIES for each in verbs_of(policy, TOPIC, (_GLOBAL,), _IS_GLOBAL)),
    *_quota_verbs("get-backlog-quota", (_GLOBAL,), _IS_GLOBAL),
    _subscription_rate("GET", shows=True),
    _subscription_rate("POST", sets=True),
    _subscription_rate("DELETE"),
    *verbs_of(_STRATEGY_POLICY, TOPIC),
]


def _older() -> list[Verb]:
    policies = _common(("max-unacked-messages-on-consumer", "max-unacked-messages-on-subscription"))
    by_words = {policy.words: policy for policy in policies}
    policies += [
        _renamed(by_words["max-unacked-messages-on-consumer"], "max-unacked-messages-per-consumer"),
        _renamed(by_words["max-unacked-messages-on-subscription"], "max-unacked-messages-per-subscription"),
        _renamed(by_words["max-producers"], "maxProducers"),
        _inherited("subscription-dispatch-rate", _SUBSCRIPTION_RATE, "subscriptionDispatchRate", DISPATCH_RATE),
        Policy(
            "max-subscriptions",
            _MAX_SUBSCRIPTIONS,
            "maxSubscriptionsPerTopic",
            number("--max-subscriptions-per-topic -m", "Subscriptions; 0 means no limit."),
        ),
        Policy(
            "schema-validation-enforce",
            "whether producers must bring a schema",
            "schemaValidationEnforced",
            Setting((ENABLE,), value("enable")),
            is_removable=False,
            get_flags=(APPLIED,),
            get_query=_APPLIED,
        ),
    ]
    path = TOPIC + "/deduplicationEnabled"
    return [
        *(each for policy in policies for each in verbs_of(policy, TOPIC)),
        *_quota_verbs("get-backlog-quotas", (), ""),
        verb("enable-deduplication", "Keep once what comes twice.", "POST", path, body=constant(True)),
        verb("disable-deduplication", "Keep what comes twice.", "POST", path, body=constant(False)),
        verb("get-deduplication-enabled", "Show whether messages that come twice are kept once.", "GET", path),
    ]


OLDER_TOPIC_POLICY_VERBS: Final = _older()
