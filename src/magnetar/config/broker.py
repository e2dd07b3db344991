# SPDX-License-Identifier: Apache-2.0
"""What a broker can be told.

Decides.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Defaults are Pulsar's, except that everything is served on loopback."""

    cluster_name: str = "standalone"
    bind_address: str = "127.0.0.1"
    advertised_address: str = "127.0.0.1"
    # As name:pulsar://host:port,…: other addresses for clients that ask for a listener by its name.
    advertised_listeners: str = ""
    # As name:pulsar://host:port,…: further addresses to listen at, each for the clients of a listener.
    bind_addresses: str = ""
    # -1: none, where there is one with TLS.
    port: int = 6650
    http_port: int = 8080

    message_bytes_max: int = 5 * 1024 * 1024
    keep_alive_interval_s: int = 30
    # How long the holder of a producer's name has to answer before a newcomer gets it.
    liveness_check_timeout_ms: int = 5_000
    connections_max: int = 10_000
    # 0 means no limit.
    connections_per_address_max: int = 0
    # Above the mark a connection stops reading until half of it is stored; TCP tells the producer.
    connection_publish_bytes_max: int = 16 * 1024 * 1024
    process_publish_bytes_max: int = 256 * 1024 * 1024
    # From here on each connection has a fair share of it: more than a disk writes in a moment only waits in memory.
    publish_pace_bytes: int = 16 * 1024 * 1024
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
    tenants_max: int = 0
    namespaces_per_tenant_max: int = 0
    topics_per_namespace_max: int = 0
    partitions_per_topic_max: int = 0
    producers_per_topic_max: int = 0
    producers_per_topic_and_address_max: int = 0
    consumers_per_topic_and_address_max: int = 0
    subscriptions_per_topic_max: int = 0
    exclusive_waiters_per_topic_max: int = 1_000
    topic_pattern_characters_max: int = 50
    # Bytes of topic lists that are made and sent at one time; how long, and how many, may wait for their turn.
    list_bytes_max: int = 100 * 1024 * 1024
    list_wait_ms: int = 25_000
    list_waiting_max: int = 10_000

    deduplication_enabled: bool = False
    deduplication_entries_interval: int = 1_000
    deduplication_snapshot_interval_s: int = 120
    deduplication_producers_max: int = 10_000
    deduplication_producer_inactivity_minutes: int = 360

    transactions_enabled: bool = False
    # Made at the first start with transactions; more can be added.
    transaction_coordinators: int = 16
    # Open or being ended, per coordinator; 0 means 100,000.
    transactions_active_max: int = 0
    # Ended transactions whose outcome a coordinator still knows.
    transactions_ended_max: int = 1_000
    transaction_snapshot_changes: int = 1_000
    transaction_snapshot_interval_ms: int = 5_000
    # Aborted transactions of a topic are kept in segments of so many bytes beside its log, not in the snapshot.
    transaction_snapshot_segmented: bool = False
    transaction_snapshot_segment_bytes: int = 262_144
    # Records of a coordinator's log that become one entry.
    transaction_log_batched: bool = False
    transaction_log_batch_records_max: int = 512
    transaction_log_batch_bytes_max: int = 4 * 1024 * 1024
    transaction_log_batch_delay_ms: int = 1
    # Records after which the log of a subscription's pending acknowledgements is shortened.
    pending_ack_records_max: int = 500
    pending_ack_batched: bool = False
    pending_ack_batch_records_max: int = 512
    pending_ack_batch_bytes_max: int = 4 * 1024 * 1024
    pending_ack_batch_delay_ms: int = 1
    transaction_participants_at_once: int = 1_000
    # How long the end of a transaction waits for those who took part before it is answered all the same.
    transaction_participant_timeout_ms: int = 3_000

    # Entries on their way to one other cluster, of one topic.
    replication_queue_entries: int = 1_000
    # Where a topic that is replicated to one more cluster begins: latest, or earliest.
    replication_start_at: str = "latest"
    # A topic with partitions that another cluster lacks is made there.
    remote_topics_created: bool = True
    # How often replicated topics are compared with their policies, should a change have been missed.
    replication_check_interval_s: int = 600
    replicated_subscriptions_enabled: bool = True
    replicated_snapshot_interval_ms: int = 1_000
    replicated_snapshot_timeout_s: int = 30
    replicated_snapshots_max: int = 30

    # As standalone.conf has it: topics stay until someone deletes them.
    delete_inactive_topics: bool = False
    delete_inactive_topics_mode: str = "delete_when_no_subscriptions"
    inactive_topic_check_interval_s: int = 60
    # 0 means the interval of the check.
    inactive_topic_duration_max_s: int = 0
    topic_upkeep_interval_s: int = 10

    # Policies where neither topic nor namespace has any. 0 means not at all, or no limit; -1 in a quota: no limit.
    message_ttl_s: int = 0
    message_expiry_check_interval_s: int = 300
    subscription_expiration_minutes: int = 0
    subscription_expiry_check_interval_s: int = 300
    backlog_quota_check_enabled: bool = True
    backlog_quota_check_interval_s: int = 60
    backlog_quota_bytes: int = -1
    backlog_quota_s: int = -1
    backlog_quota_action: str = "producer_request_hold"
    compaction_threshold_bytes: int = 0
    compaction_check_interval_s: int = 60
    # Compaction: bytes of keys and places that one run may hold in memory; beyond this it fails and says so.
    compaction_memory_bytes_max: int = 256 * 1024 * 1024
    compaction_keeps_unkeyed: bool = False
    # Which message of a key is the latest: the one published last, or the one with the latest event time.
    compaction_order: str = "publish"
    consumers_per_topic_max: int = 0
    consumers_per_subscription_max: int = 0
    subscribes_per_consumer: int = 0
    subscribe_rate_period_s: int = 30
    topic_dispatch_messages_per_s: int = 0
    topic_dispatch_bytes_per_s: int = 0
    # The rates of topics and subscriptions come on top of what the topic takes in.
    dispatch_relative_to_publish: bool = False
    subscription_dispatch_messages_per_s: int = 0
    subscription_dispatch_bytes_per_s: int = 0
    replicator_dispatch_messages_per_s: int = 0
    replicator_dispatch_bytes_per_s: int = 0
    delayed_delivery_tick_ms: int = 1_000
    delayed_delivery_delay_max_ms: int = 0
    pause_until_acks_persist: bool = False
    subscription_types: tuple[str, ...] = ("Exclusive", "Shared", "Failover", "Key_Shared")
    encryption_required: bool = False
    schema_compatibility: str = "FULL"
    schema_auto_update: bool = True
    schema_validation_enforced: bool = False
    # Schema definitions held in memory, over all topics.
    schemas_cached_max: int = 10_000
    # The largest definition of one schema.
    schema_bytes_max: int = 1024 * 1024

    # 0 means no limit.
    topic_publish_messages_per_s: int = 0
    topic_publish_bytes_per_s: int = 0
    broker_publish_messages_per_s: int = 0
    broker_publish_bytes_per_s: int = 0
    broker_dispatch_messages_per_s: int = 0
    broker_dispatch_bytes_per_s: int = 0

    # Parts of a batch can be acknowledged; without it a batch is acknowledged as a whole.
    batch_index_acks: bool = True
    # Clients that say they can read it get each message with its number in the topic and when it came.
    expose_broker_metadata: bool = True
    dispatch_read_entries_max: int = 100
    dispatch_read_bytes_max: int = 5 * 1024 * 1024
    dispatch_round_robin_entries_max: int = 20
    # How Shared subscriptions choose who is next: in turn, or whoever has the fewest unacknowledged messages.
    shared_spread: str = "round_robin"
    # New entries wait so long for others before consumers are woken.
    new_entries_delay_ms: int = 0
    unacked_messages_per_consumer_max: int = 50_000
    unacked_messages_per_subscription_max: int = 200_000
    failover_delay_ms: int = 1_000
    failover_ring_for_partitions: bool = False
    # Key_Shared: entries that may wait for their consumer before reading ahead stops.
    key_shared_look_ahead_entries_max: int = 20_000
    key_shared_consistent_hashing: bool = True
    key_shared_points_per_consumer: int = 100
    delayed_delivery_enabled: bool = True
    # Delayed entries of whole ledgers are stored as buckets from this many on, up to so many buckets.
    delayed_bucket_entries_min: int = 50_000
    delayed_segment_entries_max: int = 5_000
    delayed_buckets_max: int = 50
    entry_filter_reschedule_ms: int = 1_000
    # NAME=package.module:Class, the filters that there are; the names that hold; whether policies may choose others.
    entry_filter_classes: tuple[str, ...] = ()
    entry_filter_names: tuple[str, ...] = ()
    entry_filters_overridable: bool = False
    liveness_check_interval_ms: int = 5_000
