# SPDX-License-Identifier: Apache-2.0
"""The query of a WebSocket request as options of a producer, a consumer or a reader: Pulsar's names and limits.

A value that cannot be used is a BadSetting that names it. Names that nobody knows are passed over, as Pulsar does.
Decides.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, TypeVar

from magnetar.client.message_id import MessageId
from magnetar.client.options import (
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerOptions,
    ConsumerType,
    DeadLetterPolicy,
    HashingScheme,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerOptions,
    RegexSubscriptionMode,
)
from magnetar.errors import BadSetting
from magnetar.ids import MessageId as AnyMessageId
from magnetar.names import TopicName
from magnetar.websocket.texts import BadText, read_message_id

QUEUE_MAX: Final = 1_000

Parameters = Mapping[str, str]
Choice = TypeVar("Choice", bound=IntEnum)

_INT32: Final = 2**31
_ACK_TIMEOUT_MS_MIN: Final = 1_000

_COMPRESSION: Final = {
    "NONE": CompressionType.NONE,
    "LZ4": CompressionType.LZ4,
    "ZLIB": CompressionType.ZLib,
    "ZSTD": CompressionType.ZSTD,
    "SNAPPY": CompressionType.SNAPPY,
}
_ROUTING: Final = {
    "SinglePartition": PartitionsRoutingMode.UseSinglePartition,
    "RoundRobinPartition": PartitionsRoutingMode.RoundRobinDistribution,
    # A router of one's own cannot come in a query: the default stays, as it does in Pulsar.
    "CustomPartition": PartitionsRoutingMode.UseSinglePartition,
}
_HASHING: Final = {"JavaStringHash": HashingScheme.JavaStringHash, "Murmur3_32Hash": HashingScheme.Murmur3_32Hash}
_TYPES: Final = {
    "Exclusive": ConsumerType.Exclusive,
    "Shared": ConsumerType.Shared,
    "Failover": ConsumerType.Failover,
    "Key_Shared": ConsumerType.KeyShared,
}
_POSITIONS: Final = {"Latest": InitialPosition.Latest, "Earliest": InitialPosition.Earliest}
_MODES: Final = ("Durable", "NonDurable")


def producer_options(parameters: Parameters, *, encrypts_itself: bool = False) -> ProducerOptions:
    """For whoever encrypts before sending nothing may be put together or compressed on the way."""
    batches = _flag(parameters, "batchingEnabled") and not encrypts_itself
    compression = _choice(parameters, "compressionType", _COMPRESSION, CompressionType.NONE)
    return ProducerOptions(
        producer_name=parameters.get("producerName") or None,
        initial_sequence_id=_whole(parameters, "initialSequenceId", -1, 2**63 - 1),
        send_timeout_millis=_or(_whole(parameters, "sendTimeoutMillis"), 30_000),
        hashing_scheme=_choice(parameters, "hashingScheme", _HASHING, HashingScheme.JavaStringHash),
        message_routing_mode=_choice(
            parameters, "messageRoutingMode", _ROUTING, PartitionsRoutingMode.UseSinglePartition
        ),
        compression_type=CompressionType.NONE if encrypts_itself else compression,
        batching_enabled=batches,
        batching_max_messages=_or(_whole(parameters, "batchingMaxMessages") if batches else None, 1_000),
        batching_max_publish_delay_ms=_or(_whole(parameters, "batchingMaxPublishDelay") if batches else None, 1),
        max_pending_messages=_pending(parameters) if batches else QUEUE_MAX,
        # A client that sends faster than messages are stored is not listened to for a while.
        block_if_queue_full=True,
    )


def consumer_options(parameters: Parameters, topics: tuple[TopicName, ...], subscription: str) -> ConsumerOptions:
    kind = _choice(parameters, "subscriptionType", _TYPES, ConsumerType.Exclusive)
    mode = parameters.get("subscriptionMode", _MODES[0])
    if mode not in _MODES:
        raise BadSetting(f"Invalid subscriptionMode {mode[:50]}: allowed is {' or '.join(_MODES)}")
    letters = _dead_letters(parameters, topics, subscription)
    return ConsumerOptions(
        consumer_type=kind,
        consumer_name=parameters.get("consumerName") or None,
        receiver_queue_size=queue_size(parameters),
        unacked_messages_timeout_ms=_ack_timeout(parameters),
        negative_ack_redelivery_delay_ms=_or(_whole(parameters, "negativeAckRedeliveryDelay"), 60_000),
        initial_position=_choice(parameters, "subscriptionInitialPosition", _POSITIONS, InitialPosition.Latest),
        priority_level=_or(_whole(parameters, "priorityLevel"), 0),
        # Where messages cannot be sent again one by one there are no dead letters, and Pulsar does not mind.
        dead_letter_policy=letters if kind in (ConsumerType.Shared, ConsumerType.KeyShared) else None,
        crypto_failure_action=_crypto_failure_action(parameters),
        regex_subscription_mode=RegexSubscriptionMode.PersistentOnly,
        durable=mode == _MODES[0],
    )


def queue_size(parameters: Parameters) -> int:
    return min(_or(_whole(parameters, "receiverQueueSize"), QUEUE_MAX), QUEUE_MAX)


def pulls(parameters: Parameters) -> bool:
    """Whether the client says how many messages it wants, instead of being sent what there is."""
    return _flag(parameters, "pullMode")


def reader_options(parameters: Parameters) -> ConsumerOptions:
    """Of what a reader and a consumer have in common."""
    return ConsumerOptions(
        consumer_name=parameters.get("readerName") or None,
        receiver_queue_size=queue_size(parameters),
        crypto_failure_action=_crypto_failure_action(parameters),
    )


def reader_start(parameters: Parameters) -> AnyMessageId:
    text = parameters.get("messageId", "").strip()
    if text in ("", "latest"):
        return MessageId.latest
    if text == "earliest":
        return MessageId.earliest
    try:
        return MessageId.of(read_message_id(text))
    except BadText as error:
        raise BadSetting(f"messageId should be earliest, latest, or one that was given out: {error}") from error


def _dead_letters(parameters: Parameters, topics: tuple[TopicName, ...], subscription: str) -> DeadLetterPolicy | None:
    count, topic = _whole(parameters, "maxRedeliverCount"), parameters.get("deadLetterTopic") or None
    if count is None and topic is None:
        return None
    if not count:
        raise BadSetting("maxRedeliverCount should be at least 1, and deadLetterTopic needs it")
    if topic is None and len(topics) == 1:
        topic = f"{topics[0]}-{subscription}-DLQ"
    return DeadLetterPolicy(count, topic)


def _crypto_failure_action(parameters: Parameters) -> ConsumerCryptoFailureAction:
    """Pulsar says nothing about a word that it does not know."""
    found = ConsumerCryptoFailureAction.__members__.get(parameters.get("cryptoFailureAction", ""))
    return ConsumerCryptoFailureAction.FAIL if found is None else found


def _ack_timeout(parameters: Parameters) -> int | None:
    found = _whole(parameters, "ackTimeoutMillis")
    if found is not None and 0 < found < _ACK_TIMEOUT_MS_MIN:
        raise BadSetting(f"Invalid ackTimeoutMillis {found}: allowed is 0, or {_ACK_TIMEOUT_MS_MIN} and more")
    return found


def _pending(parameters: Parameters) -> int:
    """0 is no limit in Pulsar; here it is the largest."""
    found = _or(_whole(parameters, "maxPendingMessages"), QUEUE_MAX)
    return min(found, QUEUE_MAX) or QUEUE_MAX


def _whole(parameters: Parameters, name: str, least: int = 0, most: int = _INT32 - 1) -> int | None:
    text = parameters.get(name)
    if text is None:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 19 and least <= int(text) <= most):
        raise BadSetting(f"Invalid {name} {text[:50]}: allowed is a whole number from {least} to {most}")
    return int(text)


def _choice(parameters: Parameters, name: str, choices: Mapping[str, Choice], default: Choice) -> Choice:
    text = parameters.get(name)
    if text is None:
        return default
    if text not in choices:
        raise BadSetting(f"Invalid {name} {text[:50]}: allowed is {', '.join(choices)}")
    return choices[text]


def _flag(parameters: Parameters, name: str) -> bool:
    """Everything but `true` is false, as in Java."""
    return parameters.get(name, "").lower() == "true"


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
