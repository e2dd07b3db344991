# SPDX-License-Identifier: Apache-2.0
"""The keyword arguments of `create_producer`, `subscribe` and `Client`, for type checkers and editors.

A test holds them equal to the options that they become.
Decides.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from magnetar.client.backoff import RedeliveryBackoff
from magnetar.client.options import (
    BatchingType,
    BatchReceivePolicy,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    DeadLetterPolicy,
    HashingScheme,
    InitialPosition,
    KeySharedPolicy,
    PartitionsRoutingMode,
    ProducerAccessMode,
    ProducerCryptoFailureAction,
    RegexSubscriptionMode,
)

if TYPE_CHECKING:
    from magnetar.client.encryption import CryptoKeyReader
    from magnetar.client.interceptors import ConsumerInterceptor, ProducerInterceptor


class ProducerKeywords(TypedDict, total=False):
    """See ProducerOptions."""

    producer_name: str | None
    initial_sequence_id: int | None
    send_timeout_millis: int
    compression_type: CompressionType
    compression_min_bytes: int
    max_pending_messages: int
    max_pending_messages_across_partitions: int
    block_if_queue_full: bool
    batching_enabled: bool
    batching_max_messages: int
    batching_max_allowed_size_in_bytes: int
    batching_max_publish_delay_ms: int
    batching_type: BatchingType
    batching_partition_switch_frequency: int
    chunking_enabled: bool
    chunk_bytes_max: int
    message_routing_mode: PartitionsRoutingMode
    message_router: "Callable[[Any, int], int] | None"
    hashing_scheme: HashingScheme
    round_robin_partitions: int
    lazy_start_partitioned_producers: bool
    properties: dict[str, str]
    access_mode: ProducerAccessMode
    initial_subscription_name: str | None
    encryption_key: "str | Sequence[str] | None"
    crypto_key_reader: "CryptoKeyReader | None"
    crypto_failure_action: ProducerCryptoFailureAction
    payloads_encrypted: bool
    interceptors: "Sequence[ProducerInterceptor]"


class ConsumerKeywords(TypedDict, total=False):
    """See ConsumerOptions."""

    consumer_type: ConsumerType
    consumer_name: str | None
    receiver_queue_size: int
    max_total_receiver_queue_size_across_partitions: int
    unacked_messages_timeout_ms: int | None
    ack_timeout_redelivery_backoff: RedeliveryBackoff | None
    ack_group_time_ms: int
    ack_group_size_max: int
    ack_receipt_enabled: bool
    batch_index_ack_enabled: bool
    negative_ack_redelivery_delay_ms: int
    negative_ack_redelivery_backoff: RedeliveryBackoff | None
    is_read_compacted: bool
    properties: dict[str, str]
    subscription_properties: dict[str, str]
    pattern_auto_discovery_period: float
    regex_subscription_mode: RegexSubscriptionMode
    initial_position: InitialPosition
    replicate_subscription_state_enabled: bool
    max_pending_chunked_message: int
    auto_ack_oldest_chunked_message_on_queue_full: bool
    expire_time_of_incomplete_chunked_message_ms: int
    batch_receive_policy: BatchReceivePolicy
    key_shared_policy: KeySharedPolicy | None
    priority_level: int
    dead_letter_policy: DeadLetterPolicy | None
    retry_enabled: bool
    crypto_key_reader: "CryptoKeyReader | None"
    crypto_failure_action: ConsumerCryptoFailureAction
    interceptors: "Sequence[ConsumerInterceptor]"
    start_message_id_inclusive: bool
    start_rollback_seconds: int


class ClientKeywords(TypedDict, total=False):
    """See ClientSettings."""

    operation_timeout_seconds: float
    connection_timeout_ms: int
    keep_alive_interval_seconds: float
    connection_max_idle_seconds: float
    connections_per_broker: int
    concurrent_lookup_requests: int
    lookup_redirects_max: int
    listener_name: str | None
    initial_backoff_ms: int
    backoff_ms_max: int
    memory_limit_bytes: int
    partitions_update_interval_seconds: float
    stats_interval_in_seconds: int
    use_tls: bool
    tls_trust_certs_file_path: str | None
    tls_allow_insecure_connection: bool
    tls_validate_hostname: bool
    tls_certificate_file_path: str | None
    tls_private_key_file_path: str | None
    tls_ciphers: str | None
    client_name: str
    original_principal: str
