# SPDX-License-Identifier: Apache-2.0
"""Policies as families of verbs: read it, set it, remove it.

A namespace and a topic have nearly the same policies; what each takes is said once here, and the nouns say under which
name and path they have it.
Decides.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from magnetar.cli.values import WrongUse
from magnetar.cli.verbs.verb import DISABLE, ENABLE, Verb, either, members, value, verb
from magnetar.cli.words import Flag, Given, Kind, flag

_MEGABYTE: Final = 1 << 20


class Setting(NamedTuple):
    """What a policy is set with: its flags, and the body or the query that they become."""

    flags: tuple[Flag, ...] = ()
    body: Callable[[Given], Any] | None = None
    query: str = ""


class Policy(NamedTuple):
    """A policy as one noun has it. Verbs are get-WORDS, set-WORDS, remove-WORDS unless named otherwise."""

    words: str
    what: str
    path: str
    setting: Setting | None
    method: str = "POST"
    is_removable: bool = True
    # Flags of the verb that reads it, with what they become in the query.
    get_flags: tuple[Flag, ...] = ()
    get_query: str = ""
    get_words: str = ""
    set_words: str = ""
    remove_words: str = ""


def number(names: str, help: str) -> Setting:
    """A policy that is one whole number."""
    each = flag(names, Kind.NUMBER, help, required=True)
    return Setting((each,), value(each.key))


def verbs_of(policy: Policy, prefix: str, more: tuple[Flag, ...] = (), more_query: str = "") -> list[Verb]:
    """The verbs of one policy; `more` are flags that every one of them has."""
    path = f"{prefix}/{policy.path}"
    query = f"{policy.get_query} {more_query}"
    get = policy.get_words or f"get-{policy.words}"
    found = [verb(get, f"Show {policy.what}.", "GET", path, *policy.get_flags, *more, query=query)]
    if policy.setting is not None:
        flags, body, set_query = policy.setting
        name = policy.set_words or f"set-{policy.words}"
        found.append(
            verb(
                name,
                f"Set {policy.what}.",
                policy.method,
                path,
                *flags,
                *more,
                query=f"{set_query} {more_query}",
                body=body,
            )
        )
    if policy.is_removable:
        name = policy.remove_words or f"remove-{policy.words}"
        found.append(
            verb(name, f"Remove {policy.what}; what is above it applies.", "DELETE", path, *more, query=more_query)
        )
    return found


def _retention(given: Given) -> dict[str, int]:
    seconds, size = given["time"], given["size"]
    return {
        "retentionTimeInMinutes": seconds if seconds < 0 else seconds // 60,
        "retentionSizeInMB": size if size < 0 else size // _MEGABYTE,
    }


def _quota(given: Given) -> dict[str, Any]:
    by_time = given["type"] == "message_age"
    if given["limitTime" if by_time else "limit"] is None:
        raise WrongUse(f"a quota of type {given['type']} needs {'--limitTime' if by_time else '--limit'}")
    size = -1 if by_time or given["limit"] is None else given["limit"]
    limit_s = given["limitTime"] if by_time else -1
    return {"limit": size, "limitSize": size, "limitTime": limit_s, "policy": given["policy"]}


def _delayed(given: Given) -> dict[str, Any]:
    active = either()(given)
    return {"tickTime": given["time"], "active": active, "maxDeliveryDelayInMillis": given["maxDelay"]}


def _inactive(given: Given) -> dict[str, Any]:
    return {
        "inactiveTopicDeleteMode": given["delete_mode"],
        "maxInactiveDurationSeconds": given["max_inactive_duration"],
        "deleteWhileInactive": either("enable_delete_while_inactive", "disable_delete_while_inactive")(given),
    }


SCHEMA_STRATEGIES: Final = (
    "UNDEFINED ALWAYS_INCOMPATIBLE ALWAYS_COMPATIBLE BACKWARD FORWARD FULL BACKWARD_TRANSITIVE FORWARD_TRANSITIVE "
    "FULL_TRANSITIVE"
)
RETENTION: Final = Setting(
    (
        flag("--time -t", Kind.SECONDS, "For how long: 30m, 3h, 7d; 0 keeps nothing, -1 keeps all.", required=True),
        flag("--size -s", Kind.SIZE, "How much: 10M, 16G; 0 keeps nothing, -1 keeps all.", required=True),
    ),
    _retention,
)
QUOTA_TYPE: Final = flag(
    "--type -t",
    Kind.TEXT,
    "What is limited: the bytes of the backlog, or the age of its oldest message.",
    default="destination_storage",
    choices="destination_storage message_age",
)
BACKLOG_QUOTA: Final = Setting(
    (
        flag("--limit -l", Kind.SIZE, "Bytes of backlog that are allowed: 10M, 16G."),
        flag("--limitTime -lt", Kind.SECONDS, "Age of the oldest message that is allowed: 100m, 3h."),
        flag(
            "--policy -p",
            Kind.TEXT,
            "What happens beyond the limit.",
            required=True,
            choices="producer_request_hold producer_exception consumer_backlog_eviction",
        ),
        QUOTA_TYPE,
    ),
    _quota,
    "backlogQuotaType=type",
)
PERSISTENCE: Final = Setting(
    (
        flag("--bookkeeper-ensemble -e", Kind.NUMBER, "Bookies that a ledger is spread over.", default=2),
        flag("--bookkeeper-write-quorum -w", Kind.NUMBER, "Bookies that each entry is written to.", default=2),
        flag("--bookkeeper-ack-quorum -a", Kind.NUMBER, "Bookies that must confirm each entry.", default=2),
        flag("--ml-mark-delete-max-rate -r", Kind.DECIMAL, "Cursor updates a second; 0 means no limit.", default=0.0),
        flag("--ml-storage-class -c", Kind.TEXT, "Storage class."),
    ),
    members(
        bookkeeperEnsemble="bookkeeper_ensemble",
        bookkeeperWriteQuorum="bookkeeper_write_quorum",
        bookkeeperAckQuorum="bookkeeper_ack_quorum",
        managedLedgerMaxMarkDeleteRate="ml_mark_delete_max_rate",
        managedLedgerStorageClassName="ml_storage_class",
    ),
)
_DISPATCH_FLAGS: Final = (
    flag("--msg-dispatch-rate -md", Kind.NUMBER, "Messages per period; -1 means no limit.", default=-1),
    flag("--byte-dispatch-rate -bd", Kind.NUMBER, "Bytes per period; -1 means no limit.", default=-1),
    flag("--dispatch-rate-period -dt", Kind.NUMBER, "The period in seconds.", default=1),
)
_RELATIVE: Final = flag("--relative-to-publish-rate -rp", Kind.SWITCH, "Added to what is published meanwhile.")
_DISPATCH: Final = {
    "dispatchThrottlingRateInMsg": "msg_dispatch_rate",
    "dispatchThrottlingRateInByte": "byte_dispatch_rate",
    "ratePeriodInSecond": "dispatch_rate_period",
}
DISPATCH_RATE: Final = Setting(
    (*_DISPATCH_FLAGS, _RELATIVE), members(relativeToPublishRate="relative_to_publish_rate", **_DISPATCH)
)


def _not_relative(given: Given) -> dict[str, Any]:
    return {"relativeToPublishRate": False, **members(**_DISPATCH)(given)}


REPLICATOR_RATE: Final = Setting(_DISPATCH_FLAGS, _not_relative)
PUBLISH_RATE: Final = Setting(
    (
        flag("--msg-publish-rate -m", Kind.NUMBER, "Messages a second; -1 means no limit.", default=-1),
        flag("--byte-publish-rate -b", Kind.NUMBER, "Bytes a second; -1 means no limit.", default=-1),
    ),
    members(publishThrottlingRateInMsg="msg_publish_rate", publishThrottlingRateInByte="byte_publish_rate"),
)
SUBSCRIBE_RATE: Final = Setting(
    (
        flag("--subscribe-rate -sr", Kind.NUMBER, "Attachments of one consumer per period; -1: no limit.", default=-1),
        flag("--subscribe-rate-period -st", Kind.NUMBER, "The period in seconds.", default=30),
    ),
    members(subscribeThrottlingRatePerConsumer="subscribe_rate", ratePeriodInSecond="subscribe_rate_period"),
)
DELAYED_DELIVERY: Final = Setting(
    (
        ENABLE,
        DISABLE,
        flag("--time -t", Kind.MILLIS, "How exact: 1s, 10s, 1m.", default=1000),
        flag("--maxDelay -md", Kind.MILLIS, "The longest delay that is taken: 1h, 3d; 0: no limit.", default=0),
    ),
    _delayed,
)
INACTIVE_TOPICS: Final = Setting(
    (
        flag("--enable-delete-while-inactive -e", Kind.SWITCH, "Delete topics that nobody uses."),
        flag("--disable-delete-while-inactive -d", Kind.SWITCH, "Keep topics that nobody uses."),
        flag("--max-inactive-duration -t", Kind.SECONDS, "Unused for so long: 10s, 5h, 3d.", required=True),
        flag(
            "--delete-mode -m",
            Kind.TEXT,
            "When a topic counts as unused.",
            required=True,
            choices="delete_when_no_subscriptions delete_when_subscriptions_caught_up",
        ),
    ),
    _inactive,
)
SUBSCRIPTION_TYPES: Final = Setting(
    (flag("--types -t", Kind.TEXTS, "Exclusive, Shared, Failover, Key_Shared.", required=True),), value("types")
)
ON_OR_OFF: Final = Setting((ENABLE, DISABLE), either())
COMPACTION_THRESHOLD: Final = Setting(
    (flag("--threshold -t", Kind.SIZE, "Backlog that starts a compaction: 10M, 16G; 0: never.", required=True),),
    value("threshold"),
)
ENTRY_FILTERS: Final = Setting(
    (flag("--entry-filters-name -efn", Kind.TEXT, "Names of the filters, with commas.", required=True),),
    members(entryFilterNames="entry_filters_name"),
)
AUTO_SUBSCRIPTIONS: Final = Setting((ENABLE,), members(allowAutoSubscriptionCreation="enable"))
PAUSE_ON_ACK_STATE: Final = Setting()
