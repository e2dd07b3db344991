# SPDX-License-Identifier: Apache-2.0
"""What a broker can be told.

Decides.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    cluster_name: str = "standalone"
    bind_address: str = "127.0.0.1"
    advertised_address: str = "127.0.0.1"
    port: int = 6650
    http_port: int = 8080

    message_bytes_max: int = 5 * 1024 * 1024
    keep_alive_interval_s: int = 30
    # How long the holder of a producer's name has to answer before a newcomer gets it.
    liveness_check_timeout_ms: int = 5_000
    connections_max: int = 10_000
    # Above the mark a connection stops reading until half of it is stored; TCP tells the producer.
    connection_publish_bytes_max: int = 16 * 1024 * 1024
    process_publish_bytes_max: int = 256 * 1024 * 1024
    # What a consumer's connection may hold unsent before its dispatch pauses.
    connection_write_bytes_max: int = 1024 * 1024
    session_requests_max: int = 1_000
    producers_per_connection_max: int = 100_000
    consumers_per_connection_max: int = 100_000
    # Producers that the broker closed, whose messages on the way are dropped and not taken for a broken protocol.
    closed_producers_kept_max: int = 1_000
    topic_watchers_per_connection_max: int = 1_000

    allow_auto_topic_creation: bool = True
    auto_topic_creation_partitioned: bool = False
    default_partitions: int = 1
    allow_auto_subscription_creation: bool = True
    # 0 means no limit.
    topics_per_namespace_max: int = 0
    partitions_per_topic_max: int = 0
    producers_per_topic_max: int = 0
    subscriptions_per_topic_max: int = 0
    exclusive_waiters_per_topic_max: int = 1_000
    topic_pattern_characters_max: int = 50

    deduplication_enabled: bool = False
    deduplication_entries_interval: int = 1_000
    deduplication_snapshot_interval_s: int = 120
    deduplication_producers_max: int = 10_000
    deduplication_producer_inactivity_minutes: int = 360

    # As standalone.conf has it: topics stay until someone deletes them.
    delete_inactive_topics: bool = False
    delete_inactive_topics_mode: str = "delete_when_no_subscriptions"
    inactive_topic_check_interval_s: int = 60
    # 0 means the interval of the check.
    inactive_topic_duration_max_s: int = 0
    topic_upkeep_interval_s: int = 10

    # 0 means no limit.
    topic_publish_messages_per_s: int = 0
    topic_publish_bytes_per_s: int = 0
    broker_publish_messages_per_s: int = 0
    broker_publish_bytes_per_s: int = 0

    dispatch_read_entries_max: int = 100
    dispatch_read_bytes_max: int = 5 * 1024 * 1024
    dispatch_round_robin_entries_max: int = 20
    unacked_messages_per_consumer_max: int = 50_000
    unacked_messages_per_subscription_max: int = 200_000
    failover_delay_ms: int = 1_000
    # Key_Shared: entries that may wait for their consumer before reading ahead stops.
    key_shared_look_ahead_entries_max: int = 20_000
    key_shared_consistent_hashing: bool = True
    key_shared_points_per_consumer: int = 100
    delayed_delivery_enabled: bool = True
    entry_filter_reschedule_ms: int = 1_000
    liveness_check_interval_ms: int = 5_000
