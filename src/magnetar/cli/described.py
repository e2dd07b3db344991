# SPDX-License-Identifier: Apache-2.0
"""A ledger's record as people read it; never its password.

Decides.
"""

from typing import Any

from magnetar.ledger.record import LedgerRecord


def described(record: LedgerRecord) -> dict[str, Any]:
    quorum = record.quorum
    return {
        "formatVersion": record.form,
        "ensembleSize": quorum.ensemble_size,
        "writeQuorumSize": quorum.write_quorum,
        "ackQuorumSize": quorum.ack_quorum,
        "state": record.state.name,
        "digestType": record.digest.name,
        "length": record.length if record.is_closed else None,
        "lastEntryId": record.last_entry if record.is_closed else None,
        "ensembles": {segment.first_entry: list(segment.ensemble) for segment in record.segments},
        "ctime": record.created_ms,
        "customMetadata": {key: value.decode(errors="replace") for key, value in sorted((record.custom or {}).items())},
    }
