# SPDX-License-Identifier: Apache-2.0
"""What keys of our own mean, where neither upstream nor the comment above the field says it.

Decides.
"""

from typing import Final

OWN_MEANINGS: Final[dict[str, str]] = {
    "admin.request_bytes_max": "Largest body of an HTTP request.",
    "admin.idle_timeout_ms": "How long an HTTP connection without a request is kept.",
    "admin.request_timeout_ms": "Time for one HTTP request.",
    "admin.requests_max": "HTTP requests that run at one time.",
    "admin.connections_max": "HTTP connections at one time.",
    "admin.namespace_bundles": "Bundles of a new namespace that asks for no number of its own.",
    "broker.session_requests_max": "Requests of one connection that wait for an answer.",
    "broker.producers_per_connection_max": "Producers on one connection.",
    "broker.consumers_per_connection_max": "Consumers on one connection.",
    "broker.exclusive_waiters_per_topic_max": "Producers that wait for exclusive access to one topic.",
    "broker.topic_watchers_per_connection_max": "Watchers of topic lists on one connection.",
    "broker.topic_upkeep_interval_s": "How often each topic looks for what time brings.",
    "broker.liveness_check_interval_ms": "How often a subscription that could send and does not is looked for.",
    "managed_ledger.retry_delay_ms": "First wait before an operation is tried again; it doubles each time.",
    "managed_ledger.retry_delay_max_ms": "Longest wait before an operation is tried again.",
    "ledger.read_entries_in_flight_max": "Entries asked of bookies at one time by one reader.",
    "ledger.recovery_read_timeout_ms": "Time for one read while a ledger is recovered.",
    "ledger.recovery_attempts_max": "How often a ledger's recovery is tried.",
    "ledger.recovery_entries_in_flight_max": "Entries copied at one time while a ledger is recovered.",
    "ledger.metadata_retry_delay_ms": "Wait before a ledger's record is read and changed again.",
    "ledger.metadata_retries_max": "How often a change of a ledger's record is tried again.",
    "placement.regions_per_write_quorum_min": "Regions that the copies of an entry span.",
    "channel.outstanding_requests_max": "Requests to one bookie that wait for an answer.",
    "channel.outstanding_bytes_max": "Bytes sent to one bookie that wait for an answer.",
    "channel.reconnect_delay_ms": "First wait before a lost bookie is called again; it doubles each time.",
    "channel.reconnect_delay_max_ms": "Longest wait before a lost bookie is called again.",
    "repair.retry_delay_ms": "First wait before a failed repair is tried again; it doubles each time.",
    "repair.retry_delay_max_ms": "Longest wait before a failed repair is tried again.",
    "repair.workers_max": "Ledgers repaired at one time.",
    "bookie.open_entry_logs_max": "Entry logs held open for reading.",
    "bookie.compaction_bytes_per_second_max": "Speed of compaction.",
    "bookie.scrub_bytes_per_second_max": "Speed at which stored entries are verified.",
    "metadata.cache_records_max": "Records held in a cache.",
    "metadata.path_bytes_max": "Longest path of a record.",
    "metadata.operations_pending_max": "Operations that wait for an answer.",
    "metadata.watches_max": "Watches held at one time.",
    "metadata.log_bytes_max": "Size from which the embedded store's log is rewritten as a snapshot.",
    "metadata.sessions_max": "Sessions of one metadata server.",
    "metadata.frame_bytes_max": "Largest frame between metadata server and client.",
    "metadata.reconnect_delay_min_ms": "First wait before a lost metadata server is called again.",
    "metadata.reconnect_delay_max_ms": "Longest wait before a lost metadata server is called again.",
    "runtime.collect_interval_ms": "Full collections of an idle process are at least this far apart.",
    "runtime.log_repeat_interval_ms": "Interval over which equal lines are counted.",
}
