# SPDX-License-Identifier: Apache-2.0
"""The numbers of the bookie protocol: operations, return codes, flags and fixed sizes.

A `ReturnCode` has version 2's number, which is what we pass around inside; version 3 says the same with other numbers,
and this module alone knows which. What a code means to a caller is in `wire/error_codes.py`.
Decides.
"""

from enum import IntEnum, IntFlag
from typing import Final

from magnetar.wire.proto import bookkeeper_pb2 as bk

PROTOCOL_VERSION: Final = 2
PROTOCOL_VERSION_MIN: Final = 0
MASTER_KEY_BYTES: Final = 20

LAST_ADD_CONFIRMED: Final = -1
"""As an entry id in a read: the last entry that this bookie holds of the ledger."""


class Operation(IntEnum):
    """Version 2 operations. Bookies serve the last add confirmed and their free space over version 3 only."""

    ADD = 1
    READ = 2
    AUTH = 3
    READ_LAC = 4
    WRITE_LAC = 5
    BOOKIE_INFO = 6
    BATCH_READ = 7


class ReturnCode(IntEnum):
    OK = 0
    NO_LEDGER = 1
    NO_ENTRY = 2
    BAD_REQUEST = 100
    IO_ERROR = 101
    UNAUTHORIZED = 102
    BAD_VERSION = 103
    FENCED = 104
    READ_ONLY = 105
    TOO_MANY_REQUESTS = 106
    UNKNOWN_LEDGER_STATE = 107
    """The bookie may have lost part of this ledger, so it will not say that an entry is absent."""


class RequestFlag(IntFlag):
    NONE = 0
    FENCE = 1
    """With a read: fence the ledger durably first. A master key follows the entry id."""
    RECOVERY_ADD = 2
    """With an add: accepted although the ledger is fenced."""
    HIGH_PRIORITY = 4


class WriteFlag(IntFlag):
    """Of a version 3 add."""

    NONE = 0
    DEFERRED_SYNC = 1
    """Answer before the entry is synced; a later force makes it durable."""


_STATUS_OF: Final = {
    ReturnCode.OK: bk.EOK,
    ReturnCode.NO_LEDGER: bk.ENOLEDGER,
    ReturnCode.NO_ENTRY: bk.ENOENTRY,
    ReturnCode.BAD_REQUEST: bk.EBADREQ,
    ReturnCode.IO_ERROR: bk.EIO,
    ReturnCode.UNAUTHORIZED: bk.EUA,
    ReturnCode.BAD_VERSION: bk.EBADVERSION,
    ReturnCode.FENCED: bk.EFENCED,
    ReturnCode.READ_ONLY: bk.EREADONLY,
    ReturnCode.TOO_MANY_REQUESTS: bk.ETOOMANYREQUESTS,
    ReturnCode.UNKNOWN_LEDGER_STATE: bk.EUNKNOWNLEDGERSTATE,
}
_CODE_OF: Final = {int(status): code for code, status in _STATUS_OF.items()}


def status_of(code: int) -> bk.StatusCode.ValueType:
    """Version 3's status of a return code; a code that version 3 lacks is an I/O error, which promises nothing."""
    return _STATUS_OF.get(code, bk.EIO)  # type: ignore[call-overload, no-any-return]


def code_of(status: int) -> ReturnCode:
    """The return code of a version 3 status; an unknown one is an I/O error, which promises nothing."""
    return _CODE_OF.get(status, ReturnCode.IO_ERROR)
