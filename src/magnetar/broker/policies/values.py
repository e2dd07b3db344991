# SPDX-License-Identifier: Apache-2.0
"""The values that policies have, read from the JSON that Apache Pulsar keeps, and checked.

Owns one type per kind of policy and the reading of each. A member that is missing has upstream's default; one that we
do not know is ignored here and kept in the record. BadSetting names the member that is wrong. Never reads a record.
Decides.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar, cast

from magnetar.errors import BadSetting
from magnetar.ledger.placement import Affinity

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

Element = TypeVar("Element")
Word = TypeVar("Word", bound=StrEnum)


class Retention(NamedTuple):
    """How long, and up to which size, consumed messages are kept; -1: without limit, 0: not at all."""

    minutes: int = 0
    megabytes: int = 0


class QuotaAction(StrEnum):
    HOLD = "producer_request_hold"
    REFUSE = "producer_exception"
    EVICT = "consumer_backlog_eviction"


class QuotaType(StrEnum):
    SIZE = "destination_storage"
    AGE = "message_age"


class BacklogQuota(NamedTuple):
    """How large, or how old, a backlog may grow, and what happens then. A limit below zero is none."""

    limit_bytes: int = -1
    limit_s: int = -1
    action: QuotaAction = QuotaAction.HOLD


class DispatchRate(NamedTuple):
    """Messages and bytes that go out per period; below one: any number."""

    messages: int = -1
    bytes: int = -1
    period_s: int = 1
    relative_to_publish: bool = False


class PublishRate(NamedTuple):
    """Messages and bytes that come in per second; below one: any number."""

    messages: int = -1
    bytes: int = -1


class SubscribeRate(NamedTuple):
    """How often one consumer may subscribe per period; below one: as often as it likes."""

    subscribes: int = -1
    period_s: int = 30


class Persistence(NamedTuple):
    """Copies of a topic's entries; 0 means as the broker does it. The rate is that of saving cursors."""

    ensemble: int = 0
    write_quorum: int = 0
    ack_quorum: int = 0
    mark_delete_rate: float = 0.0


class InactivityMode(StrEnum):
    NO_SUBSCRIPTIONS = "delete_when_no_subscriptions"
    CAUGHT_UP = "delete_when_subscriptions_caught_up"


class Inactivity(NamedTuple):
    delete: bool = False
    mode: InactivityMode = InactivityMode.NO_SUBSCRIPTIONS
    duration_s: int = 0


class DelayedDelivery(NamedTuple):
    """Whether delivery times are heeded, how finely, and how far ahead they may lie (0: any time)."""

    active: bool = True
    tick_ms: int = 1_000
    delay_ms_max: int = 0


class TopicCreation(NamedTuple):
    """Whether using a topic makes it, and with how many partitions; 0: it is not partitioned."""

    allowed: bool = True
    partitions: int = 0


class SchemaCompatibility(StrEnum):
    UNDEFINED = "UNDEFINED"
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


# --- simple kinds -----------------------------------------------------------------------------------


def whole(low: int, high: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadSetting(f"{_shown(value)} is not a whole number between {low} and {high}")
        return value

    return read


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise BadSetting(f"{_shown(value)} is not true or false")
    return value


def text(value: object) -> str:
    if not isinstance(value, str):
        raise BadSetting(f"{_shown(value)} is not a text")
    return value


def one_of(kind: type[Word]) -> Callable[[object], Word]:
    def read(value: object) -> Word:
        try:
            return kind(cast("str", value))
        except ValueError:
            raise BadSetting(f"{_shown(value)} is none of {', '.join(kind)}") from None

    return read


def texts(value: object) -> tuple[str, ...]:
    """A list or set of texts, in the order in which they stand, each once."""
    if not isinstance(value, list) or not all(isinstance(element, str) for element in value):
        raise BadSetting(f"{_shown(value)} is not a list of texts")
    return tuple(dict.fromkeys(value))


def members(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadSetting(f"{_shown(value)} is not an object with members")
    return value


def map_of(read: Callable[[object], Element]) -> Callable[[object], dict[str, Element]]:
    def read_map(value: object) -> dict[str, Element]:
        return {name: _named(name, read, element) for name, element in members(value).items()}

    return read_map


# --- kinds with members -----------------------------------------------------------------------------

_WHOLE32 = whole(-INT32_MAX - 1, INT32_MAX)
_WHOLE64 = whole(-INT64_MAX - 1, INT64_MAX)


def retention(value: object) -> Retention:
    """Time and size are both given or both 0: half a retention would keep nothing."""
    read = _Members(value)
    minutes = read("retentionTimeInMinutes", whole(-1, INT32_MAX), 0)
    megabytes = read("retentionSizeInMB", whole(-1, INT64_MAX >> 20), 0)
    if (minutes == 0) != (megabytes == 0):
        raise BadSetting("retention needs both: retentionTimeInMinutes and retentionSizeInMB are both 0, or neither is")
    return Retention(minutes, megabytes)


def backlog_quota(value: object) -> BacklogQuota:
    read = _Members(value)
    limit = read("limit", _WHOLE64, -1)
    return BacklogQuota(
        read("limitSize", _WHOLE64, limit),
        read("limitTime", _WHOLE32, -1),
        read("policy", one_of(QuotaAction), QuotaAction.HOLD),
    )


def backlog_quotas(value: object) -> dict[QuotaType, BacklogQuota]:
    return {_named(name, one_of(QuotaType), name): quota for name, quota in map_of(backlog_quota)(value).items()}


def dispatch_rate(value: object) -> DispatchRate:
    read = _Members(value)
    return DispatchRate(
        read("dispatchThrottlingRateInMsg", _WHOLE32, -1),
        read("dispatchThrottlingRateInByte", _WHOLE64, -1),
        read("ratePeriodInSecond", whole(1, INT32_MAX), 1),
        read("relativeToPublishRate", flag, False),
    )


def publish_rate(value: object) -> PublishRate:
    read = _Members(value)
    return PublishRate(
        read("publishThrottlingRateInMsg", _WHOLE32, -1), read("publishThrottlingRateInByte", _WHOLE64, -1)
    )


def subscribe_rate(value: object) -> SubscribeRate:
    read = _Members(value)
    return SubscribeRate(
        read("subscribeThrottlingRatePerConsumer", _WHOLE32, -1), read("ratePeriodInSecond", whole(1, INT32_MAX), 30)
    )


def subscription_rate(value: object) -> DispatchRate | None:
    """Of the policies of one subscription, the only one that there is."""
    return _Members(value)("dispatchRate", dispatch_rate, None)


def persistence(value: object) -> Persistence:
    read = _Members(value)
    copies = whole(0, 64)
    rate = read("managedLedgerMaxMarkDeleteRate", _number, 0.0)
    values = Persistence(
        read("bookkeeperEnsemble", copies, 0),
        read("bookkeeperWriteQuorum", copies, 0),
        read("bookkeeperAckQuorum", copies, 0),
        rate,
    )
    if not values.ensemble >= values.write_quorum >= values.ack_quorum:
        raise BadSetting(
            f"bookkeeperEnsemble {values.ensemble} >= bookkeeperWriteQuorum {values.write_quorum}"
            f" >= bookkeeperAckQuorum {values.ack_quorum} must hold"
        )
    return values


def inactivity(value: object) -> Inactivity:
    read = _Members(value)
    return Inactivity(
        read("deleteWhileInactive", flag, False),
        read("inactiveTopicDeleteMode", one_of(InactivityMode), InactivityMode.NO_SUBSCRIPTIONS),
        read("maxInactiveDurationSeconds", whole(0, INT32_MAX), 0),
    )


def delayed_delivery(value: object) -> DelayedDelivery:
    read = _Members(value)
    return DelayedDelivery(
        read("active", flag, False),
        read("tickTime", whole(0, INT64_MAX), 0),
        read("maxDeliveryDelayInMillis", whole(0, INT64_MAX), 0),
    )


def topic_creation(value: object) -> TopicCreation:
    read = _Members(value)
    allowed = read("allowAutoTopicCreation", flag, False)
    kind = read("topicType", text, "non-partitioned")
    partitions = read("defaultNumPartitions", whole(0, INT32_MAX), 0)
    if allowed and kind not in ("partitioned", "non-partitioned"):
        raise BadSetting(f"topicType {kind!r} is neither partitioned nor non-partitioned")
    if allowed and (kind == "partitioned") != (partitions > 0):
        raise BadSetting("defaultNumPartitions is for topicType partitioned, and then at least 1")
    return TopicCreation(allowed, partitions)


def subscription_creation(value: object) -> bool:
    return _Members(value)("allowAutoSubscriptionCreation", flag, False)


def bookie_affinity(value: object) -> Affinity:
    """Groups by their names, with commas between them."""
    given = members(value)
    primary, secondary = (
        tuple(name.strip() for name in _named(key, text, given.get(key) or "").split(",") if name.strip())
        for key in ("bookkeeperAffinityGroupPrimary", "bookkeeperAffinityGroupSecondary")
    )
    return Affinity(primary, secondary)


def entry_filters(value: object) -> tuple[str, ...]:
    names = _Members(value)("entryFilterNames", text, "")
    return tuple(name.strip() for name in names.split(",") if name.strip())


class _Members:
    """Reads the members of one JSON object; one that is missing or null has its default."""

    __slots__ = ("_members",)

    def __init__(self, value: object) -> None:
        self._members = members(value)

    def __call__(self, name: str, read: Callable[[object], Element], default: Element) -> Element:
        value = self._members.get(name)
        return default if value is None else _named(name, read, value)


def _named(name: str, read: Callable[[object], Element], value: object) -> Element:
    try:
        return read(value)
    except BadSetting as error:
        raise BadSetting(f"{name}: {error}") from None


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise BadSetting(f"{_shown(value)} is not a number of at least 0")
    return float(value)


def _shown(value: object) -> str:
    return repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:80]}…"
