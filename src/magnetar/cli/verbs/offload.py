# SPDX-License-Identifier: Apache-2.0
"""Where old ledgers are moved to: the flags, under the names that each noun has them, and the policy they become.

Decides.
"""

from typing import Any, Final

from magnetar.cli.values import WrongUse
from magnetar.cli.verbs.policies import Setting
from magnetar.cli.words import Flag, Given, Kind, flag

# The flags in their order: what they take, what they mean, and which member of the policy they become.
_ROWS: Final = {
    "driver": (Kind.TEXT, "aws-s3, S3, google-cloud-storage, azureblob, filesystem …"),
    "region": (Kind.TEXT, "Region of the store."),
    "bucket": (Kind.TEXT, "Bucket to write to."),
    "endpoint": (Kind.TEXT, "Where the store serves."),
    "aws_id": (Kind.TEXT, "Id of the key for the store."),
    "aws_secret": (Kind.TEXT, "The key for the store."),
    "s3_role": (Kind.TEXT, "Role to assume."),
    "s3_role_session_name": (Kind.TEXT, "Session of that role."),
    "block": (Kind.SIZE, "Largest block: 32M, 64M."),
    "buffer": (Kind.SIZE, "Read buffer: 1M, 5M."),
    "bytes": (Kind.SIZE, "Move once the topic holds so much: 10M, 16G."),
    "seconds": (Kind.SECONDS, "Move once it is so old: 10m, 5h."),
    "lag": (Kind.MILLIS, "Delete the first copy so long after: 4h, 1d."),
    "priority": (Kind.TEXT, "Which copy is read first."),
}
_MEMBERS: Final = {
    "managedLedgerOffloadDriver": "driver",
    "managedLedgerOffloadRegion": "region",
    "managedLedgerOffloadBucket": "bucket",
    "managedLedgerOffloadServiceEndpoint": "endpoint",
    "managedLedgerOffloadMaxBlockSizeInBytes": "block",
    "managedLedgerOffloadReadBufferSizeInBytes": "buffer",
    "managedLedgerOffloadThresholdInBytes": "bytes",
    "managedLedgerOffloadThresholdInSeconds": "seconds",
    "managedLedgerOffloadDeletionLagInMillis": "lag",
    "s3ManagedLedgerOffloadCredentialId": "aws_id",
    "s3ManagedLedgerOffloadCredentialSecret": "aws_secret",
    "s3ManagedLedgerOffloadRole": "s3_role",
    "s3ManagedLedgerOffloadRoleSessionName": "s3_role_session_name",
}
_S3: Final = ("Region", "Bucket", "ServiceEndpoint", "MaxBlockSizeInBytes", "ReadBufferSizeInBytes")
_DEFAULTS: Final = {"block": 64 << 20, "buffer": 1 << 20}


def offload_setting(**names: str) -> Setting:
    """The setting with the names that a noun has the flags under."""
    flags: dict[str, Flag] = {}
    for row, (kind, help) in _ROWS.items():
        flags[row] = flag(names[row], kind, help, required=row == "driver", default=_DEFAULTS.get(row))

    def body(given: Given) -> dict[str, Any]:
        by_row = {row: given[each.key] for row, each in flags.items()}
        policy = {member: by_row[row] for member, row in _MEMBERS.items() if by_row[row] is not None}
        if by_row["priority"] is not None:
            policy["managedLedgerOffloadedReadPriority"] = by_row["priority"].replace("-", "_").upper()
        if by_row["driver"].lower() in ("aws-s3", "s3"):
            if by_row["region"] is None and by_row["endpoint"] is None:
                raise WrongUse("the store needs --region or --endpoint")
            policy |= {
                f"s3ManagedLedgerOffload{part}": policy[f"managedLedgerOffload{part}"]
                for part in _S3
                if f"managedLedgerOffload{part}" in policy
            }
        return policy

    return Setting(tuple(flags.values()), body)
