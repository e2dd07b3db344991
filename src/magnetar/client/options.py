# SPDX-License-Identifier: Apache-2.0
"""What producers, consumers and readers can be told, and what of it fits together.

Names and defaults are those of the official Python client where it has them. An option that cannot be used is a
BadSetting as soon as it is given.
Decides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from magnetar.client.backoff import RedeliveryBackoff
from magnetar.errors import BadSetting
from magnetar.ids import MessageId

if TYPE_CHECKING:
    from magnetar.client.encryption import CryptoKeyReader
    from magnetar.client.interceptors import ConsumerInterceptor, ProducerInterceptor

PENDING_CHUNKED_MESSAGES_MAX: Final = 10
KEY_HASH_RANGES: Final = 65_536


class CompressionType(IntEnum):
    NONE = 0
    LZ4 = 1
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class PartitionsRoutingMode(IntEnum):
    UseSinglePartition = 0
    RoundRobinDistribution = 1
    CustomPartition = 2


class HashingScheme(IntEnum):
    JavaStringHash = 0
    Murmur3_32Hash = 1


class BatchingType(IntEnum):
    Default = 0
    KeyBased = 1


class ProducerAccessMode(IntEnum):
    Shared = 0
    Exclusive = 1
    WaitForExclusive = 2
    ExclusiveWithFencing = 3


class ConsumerType(IntEnum):
    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3


class InitialPosition(IntEnum):
    Latest = 0
    Earliest = 1


class RegexSubscriptionMode(IntEnum):
    PersistentOnly = 0
    NonPersistentOnly = 1
    AllTopics = 2


class KeySharedMode(IntEnum):
    AutoSplit = 0
    Sticky = 1


class ProducerCryptoFailureAction(IntEnum):
    FAIL = 0
    SEND = 1


class ConsumerCryptoFailureAction(IntEnum):
    FAIL = 0
    DISCARD = 1
    CONSUME = 2


@dataclass(frozen=True, slots=True)
class KeySharedPolicy:
    """How the consumers of a Key_Shared subscription divide the keys."""

    mode: KeySharedMode = KeySharedMode.AutoSplit
    allow_out_of_order_delivery: bool = False
    sticky_ranges: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.mode is KeySharedMode.Sticky and not self.sticky_ranges:
            raise BadSetting("a sticky key-shared policy needs its hash ranges")
        last = -1
        for start, end in sorted(self.sticky_ranges):
            if not last < start <= end < KEY_HASH_RANGES:
                raise BadSetting(f"key-shared range {start}-{end} overlaps another or leaves 0-{KEY_HASH_RANGES - 1}")
            last = end


@dataclass(frozen=True, slots=True)
class DeadLetterPolicy:
    """After how many deliveries a message goes to the dead-letter topic; names default to Java's layout."""

    max_redeliver_count: int
    dead_letter_topic: str | None = None
    initial_subscription_name: str | None = None
    retry_letter_topic: str | None = None

    def __post_init__(self) -> None:
        if self.max_redeliver_count < 1:
            raise BadSetting(f"max_redeliver_count {self.max_redeliver_count} should be at least 1")


@dataclass(frozen=True, slots=True)
class BatchReceivePolicy:
    """A batch is complete at any of the three; -1 switches one off."""

    max_num_message: int = -1
    max_num_bytes: int = 10 * 1024 * 1024
    timeout_ms: int = 100

    def __post_init__(self) -> None:
        if self.max_num_message <= 0 and self.max_num_bytes <= 0 and self.timeout_ms <= 0:
            raise BadSetting("a batch receive policy needs a number of messages, of bytes, or a time-out")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """What `create_producer` takes."""

    producer_name: str | None = None
    initial_sequence_id: int | None = None
    send_timeout_millis: int = 30_000
    compression_type: CompressionType = CompressionType.NONE
    # Smaller payloads outside a batch are not worth compressing.
    compression_min_bytes: int = 4 * 1024
    max_pending_messages: int = 1_000
    max_pending_messages_across_partitions: int = 50_000
    block_if_queue_full: bool = False
    batching_enabled: bool = False
    batching_max_messages: int = 1_000
    batching_max_allowed_size_in_bytes: int = 128 * 1024
    batching_max_publish_delay_ms: int = 10
    batching_type: BatchingType = BatchingType.Default
    batching_partition_switch_frequency: int = 10
    chunking_enabled: bool = False
    chunk_bytes_max: int = 0
    message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution
    message_router: "Callable[[Any, int], int] | None" = None
    hashing_scheme: HashingScheme = HashingScheme.Murmur3_32Hash
    # Round robin over so many partitions only; 0 means all.
    round_robin_partitions: int = 0
    lazy_start_partitioned_producers: bool = False
    properties: dict[str, str] = field(default_factory=dict)
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared
    initial_subscription_name: str | None = None
    encryption_key: "str | Sequence[str] | None" = None
    crypto_key_reader: "CryptoKeyReader | None" = None
    crypto_failure_action: ProducerCryptoFailureAction = ProducerCryptoFailureAction.FAIL
    # The application has encrypted what it sends, and says in the metadata with which keys.
    payloads_encrypted: bool = False
    interceptors: "Sequence[ProducerInterceptor]" = ()

    def __post_init__(self) -> None:
        if self.chunking_enabled and self.batching_enabled:
            raise BadSetting("chunking_enabled and batching_enabled exclude each other")
        if self.max_pending_messages < 0 or self.send_timeout_millis < 0:
            raise BadSetting("max_pending_messages and send_timeout_millis should not be negative")
        if self.batching_enabled and self.batching_max_messages < 1 and self.batching_max_allowed_size_in_bytes < 1:
            raise BadSetting("batching needs batching_max_messages or batching_max_allowed_size_in_bytes")
        if self.message_routing_mode is PartitionsRoutingMode.CustomPartition and self.message_router is None:
            raise BadSetting("CustomPartition needs a message_router")
        if self.encryption_keys and self.crypto_key_reader is None:
            raise BadSetting("encryption_key needs a crypto_key_reader")

    @property
    def encryption_keys(self) -> tuple[str, ...]:
        if self.encryption_key is None:
            return ()
        return (self.encryption_key,) if isinstance(self.encryption_key, str) else tuple(self.encryption_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """What `subscribe` takes."""

    consumer_type: ConsumerType = ConsumerType.Exclusive
    consumer_name: str | None = None
    receiver_queue_size: int = 1_000
    max_total_receiver_queue_size_across_partitions: int = 50_000
    unacked_messages_timeout_ms: int | None = None
    ack_timeout_redelivery_backoff: RedeliveryBackoff | None = None
    ack_group_time_ms: int = 100
    ack_group_size_max: int = 1_000
    ack_receipt_enabled: bool = False
    batch_index_ack_enabled: bool = False
    negative_ack_redelivery_delay_ms: int = 60_000
    negative_ack_redelivery_backoff: RedeliveryBackoff | None = None
    is_read_compacted: bool = False
    properties: dict[str, str] = field(default_factory=dict)
    subscription_properties: dict[str, str] = field(default_factory=dict)
    pattern_auto_discovery_period: float = 60
    regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly
    initial_position: InitialPosition = InitialPosition.Latest
    replicate_subscription_state_enabled: bool = False
    max_pending_chunked_message: int = PENDING_CHUNKED_MESSAGES_MAX
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    expire_time_of_incomplete_chunked_message_ms: int = 60_000
    batch_receive_policy: BatchReceivePolicy = field(default_factory=BatchReceivePolicy)
    key_shared_policy: KeySharedPolicy | None = None
    priority_level: int = 0
    dead_letter_policy: DeadLetterPolicy | None = None
    retry_enabled: bool = False
    crypto_key_reader: "CryptoKeyReader | None" = None
    crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL
    interceptors: "Sequence[ConsumerInterceptor]" = ()
    # Readers: not durable, from a place of their own.
    durable: bool = True
    start_message_id: MessageId | None = None
    start_message_id_inclusive: bool = False
    start_rollback_seconds: int = 0

    def __post_init__(self) -> None:
        if self.receiver_queue_size < 0:
            raise BadSetting("receiver_queue_size should not be negative")
        if self.unacked_messages_timeout_ms is not None and 0 < self.unacked_messages_timeout_ms < 1_000:
            raise BadSetting("unacked_messages_timeout_ms should be 0 or at least 1000")
        if self.ack_group_size_max < 1 or self.max_pending_chunked_message < 1:
            raise BadSetting("ack_group_size_max and max_pending_chunked_message should be at least 1")
        if self.key_shared_policy is not None and self.consumer_type is not ConsumerType.KeyShared:
            raise BadSetting("key_shared_policy needs consumer_type KeyShared")
        if self.is_read_compacted and self.consumer_type not in (ConsumerType.Exclusive, ConsumerType.Failover):
            raise BadSetting("is_read_compacted needs an exclusive or failover subscription")
        if self.dead_letter_policy is not None and not self.acks_one_by_one:
            raise BadSetting("dead_letter_policy needs a shared or key-shared subscription")

    @property
    def acks_one_by_one(self) -> bool:
        """Whether single messages can be redelivered; otherwise all that are not acknowledged are."""
        return self.consumer_type in (ConsumerType.Shared, ConsumerType.KeyShared)
