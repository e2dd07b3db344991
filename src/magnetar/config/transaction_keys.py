# SPDX-License-Identifier: Apache-2.0
"""Pulsar's keys about transactions.

Decides.
"""

from typing import Final

from magnetar.config.key import COUNT, POSITIVE_MILLISECONDS, Key, rows
from magnetar.config.values import Flag, Whole

TRANSACTION_KEYS: Final[tuple[Key, ...]] = rows(
    "broker",
    ("transactionCoordinatorEnabled", "transactions_enabled", Flag(), "Brokers keep transactions."),
    (
        "maxActiveTransactionsPerCoordinator",
        "transactions_active_max",
        Whole(0, 2**31 - 1),
        "Transactions of one coordinator that are open or being ended; 0: 100,000.",
    ),
    (
        "transactionBufferSnapshotMaxTransactionCount",
        "transaction_snapshot_changes",
        COUNT,
        "Transactions that begin or end on a topic before it saves which are open and aborted.",
    ),
    (
        "transactionBufferSnapshotMinTimeInMillis",
        "transaction_snapshot_interval_ms",
        POSITIVE_MILLISECONDS,
        "Time after which that is saved, if anything came.",
    ),
    (
        "transactionBufferSegmentedSnapshotEnabled",
        "transaction_snapshot_segmented",
        Flag(),
        "Topics keep aborted transactions in segments beside their log, for those that have very many.",
    ),
    (
        "transactionBufferSnapshotSegmentSize",
        "transaction_snapshot_segment_bytes",
        Whole(32, 4 * 1024 * 1024),
        "Bytes of such a segment; a transaction takes 32.",
    ),
    (
        "transactionLogBatchedWriteEnabled",
        "transaction_log_batched",
        Flag(),
        "Records of a coordinator's log that come shortly after one another become one entry.",
    ),
    (
        "transactionLogBatchedWriteMaxRecords",
        "transaction_log_batch_records_max",
        Whole(1, 100_000),
        "Records in such an entry, at most.",
    ),
    (
        "transactionLogBatchedWriteMaxSize",
        "transaction_log_batch_bytes_max",
        Whole(1024, 4 * 1024 * 1024),
        "Bytes of such an entry, at most.",
    ),
    (
        "transactionLogBatchedWriteMaxDelayInMillis",
        "transaction_log_batch_delay_ms",
        POSITIVE_MILLISECONDS,
        "How long the first record of such an entry waits for others.",
    ),
    (
        "transactionPendingAckBatchedWriteEnabled",
        "pending_ack_batched",
        Flag(),
        "The same for the records of a subscription's pending acknowledgements.",
    ),
    (
        "transactionPendingAckBatchedWriteMaxRecords",
        "pending_ack_batch_records_max",
        Whole(1, 100_000),
        "Records in such an entry, at most.",
    ),
    (
        "transactionPendingAckBatchedWriteMaxSize",
        "pending_ack_batch_bytes_max",
        Whole(1024, 4 * 1024 * 1024),
        "Bytes of such an entry, at most.",
    ),
    (
        "transactionPendingAckBatchedWriteMaxDelayInMillis",
        "pending_ack_batch_delay_ms",
        POSITIVE_MILLISECONDS,
        "How long the first record of such an entry waits for others.",
    ),
    (
        "transactionPendingAckLogIndexMinLag",
        "pending_ack_records_max",
        COUNT,
        "Records after which a subscription's log of pending acknowledgements is shortened.",
    ),
    (
        "transactionBufferClientMaxConcurrentRequests",
        "transaction_participants_at_once",
        COUNT,
        "Topics and subscriptions that are told of an end at the same time.",
    ),
    (
        "transactionBufferClientOperationTimeoutInMills",
        "transaction_participant_timeout_ms",
        POSITIVE_MILLISECONDS,
        "How long the end of a transaction waits for those who took part before it is answered all the same.",
    ),
)
