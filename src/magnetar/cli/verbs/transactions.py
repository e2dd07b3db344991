# SPDX-License-Identifier: Apache-2.0
"""`transactions`: coordinators, open transactions, buffers and pending acknowledgements.

Decides.
"""

from typing import Final

from magnetar.cli.verbs.verb import Verb, value, verb
from magnetar.cli.words import Kind, flag

_ROOT: Final = "/admin/v3/transactions"
_TOPIC: Final = flag("--topic -t", Kind.TEXT, "The topic.", required=True)
_SUBSCRIPTION: Final = flag("--subscription-name -s", Kind.TEXT, "The subscription.", required=True)
_SUB: Final = flag("--sub-name -s", Kind.TEXT, "The subscription.", required=True)
_MOST: Final = flag("--most-sig-bits -m", Kind.NUMBER, "First half of the transaction's id.", required=True)
_LEAST: Final = flag("--least-sig-bits -l", Kind.NUMBER, "Second half of the transaction's id.", required=True)
_METADATA: Final = flag("--metadata -m", Kind.SWITCH, "The ledgers' metadata too.")
_LOW: Final = flag("--low-water-mark -l", Kind.SWITCH, "The low-water marks too.")
_COORDINATOR: Final = flag("--coordinator-id -c", Kind.NUMBER, "Which coordinator.")
_METADATA_QUERY: Final = "metadata=metadata"


def _at(what: str, *more: str) -> str:
    """A path with the topic's name, which has no domain here, and more."""
    return "/".join((f"{_ROOT}/{what}", "{bare_topic}", *more))


TRANSACTION_VERBS: Final[list[Verb]] = [
    verb(
        "coordinator-internal-stats",
        "Show the ledgers of a coordinator's log.",
        "GET",
        _ROOT + "/coordinatorInternalStats/{coordinator_id}",
        _COORDINATOR._replace(is_required=True),
        _METADATA,
        query=_METADATA_QUERY,
    ),
    verb(
        "pending-ack-internal-stats",
        "Show the ledgers of a subscription's pending acknowledgements.",
        "GET",
        _at("pendingAckInternalStats", "{subscription_name}"),
        _TOPIC,
        _SUBSCRIPTION,
        _METADATA,
        query=_METADATA_QUERY,
    ),
    verb(
        "buffer-snapshot-internal-stats",
        "Show the ledgers of a topic's buffer snapshots.",
        "GET",
        _at("transactionBufferInternalStats"),
        _TOPIC,
        _METADATA,
        query=_METADATA_QUERY,
    ),
    verb(
        "coordinator-stats",
        "Show a coordinator, or all.",
        "GET",
        _ROOT + "/coordinatorStats",
        _COORDINATOR,
        query="coordinatorId=coordinator_id",
    ),
    verb(
        "transaction-buffer-stats",
        "Show a topic's buffer.",
        "GET",
        _at("transactionBufferStats"),
        _TOPIC,
        _LOW,
        flag("--segment-stats -s", Kind.SWITCH, "Its segments too."),
        query="lowWaterMarks=low_water_mark segmentStats=segment_stats",
    ),
    verb(
        "pending-ack-stats",
        "Show a subscription's pending acknowledgements.",
        "GET",
        _at("pendingAckStats", "{sub_name}"),
        _TOPIC,
        _SUB,
        _LOW,
        query="lowWaterMarks=low_water_mark",
    ),
    verb(
        "transaction-in-buffer-stats",
        "Show what a transaction published to a topic.",
        "GET",
        _at("transactionInBufferStats", "{most_sig_bits}", "{least_sig_bits}"),
        _MOST,
        _LEAST,
        _TOPIC,
    ),
    verb(
        "transaction-in-pending-ack-stats",
        "Show what a transaction acknowledged in a subscription.",
        "GET",
        _at("transactionInPendingAckStats", "{sub_name}", "{most_sig_bits}", "{least_sig_bits}"),
        _MOST,
        _LEAST,
        _TOPIC,
        _SUB,
    ),
    verb(
        "transaction-metadata",
        "Show a transaction.",
        "GET",
        _ROOT + "/transactionMetadata/{most_sig_bits}/{least_sig_bits}",
        _MOST,
        _LEAST,
    ),
    verb(
        "slow-transactions",
        "List transactions that are open for long.",
        "GET",
        _ROOT + "/slowTransactions/{time}",
        _COORDINATOR,
        flag("--time -t", Kind.MILLIS, "For so long: 1s, 10m.", required=True),
        query="coordinatorId=coordinator_id",
    ),
    verb(
        "scale-transactionCoordinators",
        "Set how many coordinators there are.",
        "POST",
        _ROOT + "/transactionCoordinator/replicas",
        flag("--replicas -r", Kind.NUMBER, "How many.", required=True),
        body=value("replicas"),
    ),
    verb(
        "position-stats-in-pending-ack",
        "Show whether a message is held by a pending acknowledgement.",
        "GET",
        _at("positionStatsInPendingAck", "{subscription_name}", "{ledger_id}", "{entry_id}"),
        _TOPIC,
        _SUBSCRIPTION,
        flag("--ledger-id -l", Kind.NUMBER, "Its ledger.", required=True),
        flag("--entry-id -e", Kind.NUMBER, "Its entry.", required=True),
        flag("--batch-index -b", Kind.NUMBER, "Its place in the batch."),
        query="batchIndex=batch_index",
    ),
    verb("coordinators-list", "List the coordinators and their brokers.", "GET", _ROOT + "/coordinators"),
    verb(
        "abort-transaction",
        "Abort a transaction.",
        "POST",
        _ROOT + "/abortTransaction/{most_sig_bits}/{least_sig_bits}",
        _MOST,
        _LEAST,
    ),
]
