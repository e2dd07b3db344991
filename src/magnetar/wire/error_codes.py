# SPDX-License-Identifier: Apache-2.0
"""The one table from our errors to the codes that others read: Pulsar's ServerError, HTTP status, bookie return code.

A class without a row has its parent's; every class therefore has one, because the families do. The reverse tables say
what a client of ours raises for a code that it receives.
Decides.
"""

from typing import Final, NamedTuple

from magnetar import errors
from magnetar.wire.bookkeeper.codes import ReturnCode
from magnetar.wire.proto import pulsar_api_pb2 as api

ServerError = api.ServerError


class Codes(NamedTuple):
    """What one class of error is called outside."""

    server_error: "ServerError.ValueType"
    http_status: int
    return_code: ReturnCode


_TABLE: Final[dict[type[errors.MagnetarError], Codes]] = {
    errors.MagnetarError: Codes(api.UnknownError, 500, ReturnCode.IO_ERROR),
    # families
    errors.PeerFault: Codes(api.NotAllowedError, 400, ReturnCode.BAD_REQUEST),
    errors.Refused: Codes(api.UnknownError, 500, ReturnCode.IO_ERROR),
    errors.Damaged: Codes(api.PersistenceError, 500, ReturnCode.IO_ERROR),
    # start, settings, names
    errors.BadSetting: Codes(api.NotAllowedError, 400, ReturnCode.BAD_REQUEST),
    errors.CannotStart: Codes(api.ServiceNotReady, 503, ReturnCode.IO_ERROR),
    errors.BadName: Codes(api.InvalidTopicName, 412, ReturnCode.BAD_REQUEST),
    errors.BadMessageId: Codes(api.NotAllowedError, 400, ReturnCode.BAD_REQUEST),
    errors.OwnerClosed: Codes(api.ServiceNotReady, 503, ReturnCode.IO_ERROR),
    # wire
    errors.ChecksumMismatch: Codes(api.ChecksumError, 400, ReturnCode.BAD_REQUEST),
    errors.BadPayload: Codes(api.NotAllowedError, 400, ReturnCode.BAD_REQUEST),
    errors.UnsupportedVersion: Codes(api.UnsupportedVersionError, 400, ReturnCode.BAD_VERSION),
    # metadata
    errors.MetadataError: Codes(api.MetadataError, 500, ReturnCode.IO_ERROR),
    errors.BadVersion: Codes(api.MetadataError, 409, ReturnCode.IO_ERROR),
    errors.NoRecord: Codes(api.MetadataError, 404, ReturnCode.IO_ERROR),
    errors.HasChildren: Codes(api.MetadataError, 409, ReturnCode.IO_ERROR),
    errors.BadPath: Codes(api.MetadataError, 400, ReturnCode.IO_ERROR),
    errors.ValueTooLarge: Codes(api.MetadataError, 413, ReturnCode.IO_ERROR),
    # bookie and ledger
    errors.BookieUnavailable: Codes(api.PersistenceError, 503, ReturnCode.IO_ERROR),
    errors.LedgerInLimbo: Codes(api.PersistenceError, 503, ReturnCode.UNKNOWN_LEDGER_STATE),
    errors.NoSuchLedger: Codes(api.PersistenceError, 404, ReturnCode.NO_LEDGER),
    errors.NoSuchEntry: Codes(api.PersistenceError, 404, ReturnCode.NO_ENTRY),
    errors.LedgerFenced: Codes(api.ServiceNotReady, 503, ReturnCode.FENCED),
    errors.LedgerClosed: Codes(api.PersistenceError, 409, ReturnCode.FENCED),
    errors.WrongMasterKey: Codes(api.AuthorizationError, 403, ReturnCode.UNAUTHORIZED),
    errors.BookieReadOnly: Codes(api.PersistenceError, 503, ReturnCode.READ_ONLY),
    errors.TooManyRequests: Codes(api.TooManyRequests, 429, ReturnCode.TOO_MANY_REQUESTS),
    errors.NotEnoughBookies: Codes(api.PersistenceError, 503, ReturnCode.IO_ERROR),
    errors.StorageFailed: Codes(api.PersistenceError, 500, ReturnCode.IO_ERROR),
    errors.DiskFull: Codes(api.PersistenceError, 507, ReturnCode.IO_ERROR),
    # broker
    errors.ServiceNotReady: Codes(api.ServiceNotReady, 503, ReturnCode.IO_ERROR),
    errors.BundleBusy: Codes(api.ServiceNotReady, 409, ReturnCode.IO_ERROR),
    errors.TopicNotFound: Codes(api.TopicNotFound, 404, ReturnCode.IO_ERROR),
    errors.SubscriptionNotFound: Codes(api.SubscriptionNotFound, 404, ReturnCode.IO_ERROR),
    errors.ConsumerNotFound: Codes(api.ConsumerNotFound, 404, ReturnCode.IO_ERROR),
    errors.ConsumerBusy: Codes(api.ConsumerBusy, 412, ReturnCode.IO_ERROR),
    errors.ProducerBusy: Codes(api.ProducerBusy, 409, ReturnCode.IO_ERROR),
    errors.ProducerFenced: Codes(api.ProducerFenced, 409, ReturnCode.IO_ERROR),
    errors.BadSequence: Codes(api.NotAllowedError, 409, ReturnCode.IO_ERROR),
    errors.BadPosition: Codes(api.NotAllowedError, 412, ReturnCode.BAD_REQUEST),
    errors.TopicBusy: Codes(api.NotAllowedError, 412, ReturnCode.IO_ERROR),
    errors.TopicExists: Codes(api.NotAllowedError, 409, ReturnCode.IO_ERROR),
    errors.TopicTerminated: Codes(api.TopicTerminatedError, 405, ReturnCode.IO_ERROR),
    errors.MessageTooLarge: Codes(api.NotAllowedError, 413, ReturnCode.BAD_REQUEST),
    errors.NotSupported: Codes(api.NotAllowedError, 501, ReturnCode.BAD_REQUEST),
    errors.LimitReached: Codes(api.NotAllowedError, 412, ReturnCode.BAD_REQUEST),
    errors.PersistenceFailed: Codes(api.PersistenceError, 500, ReturnCode.IO_ERROR),
    errors.QuotaExceeded: Codes(api.ProducerBlockedQuotaExceededException, 409, ReturnCode.IO_ERROR),
    errors.ProducersHeld: Codes(api.ProducerBlockedQuotaExceededError, 409, ReturnCode.IO_ERROR),
    errors.IncompatibleSchema: Codes(api.IncompatibleSchema, 409, ReturnCode.IO_ERROR),
    errors.ConsumerAssignRefused: Codes(api.ConsumerAssignError, 409, ReturnCode.IO_ERROR),
    # who may do what
    errors.NotAuthenticated: Codes(api.AuthenticationError, 401, ReturnCode.UNAUTHORIZED),
    errors.NotAuthorized: Codes(api.AuthorizationError, 403, ReturnCode.UNAUTHORIZED),
    # transactions
    errors.NoTransactionCoordinator: Codes(api.TransactionCoordinatorNotFound, 503, ReturnCode.IO_ERROR),
    errors.BadTransactionStatus: Codes(api.InvalidTxnStatus, 409, ReturnCode.IO_ERROR),
    errors.TransactionConflict: Codes(api.TransactionConflict, 409, ReturnCode.IO_ERROR),
    errors.TransactionNotFound: Codes(api.TransactionNotFound, 404, ReturnCode.IO_ERROR),
}

_OF_SERVER_ERROR: Final[dict[int, type[errors.MagnetarError]]] = {
    api.UnknownError: errors.Refused,
    api.MetadataError: errors.MetadataError,
    api.PersistenceError: errors.PersistenceFailed,
    api.AuthenticationError: errors.NotAuthenticated,
    api.AuthorizationError: errors.NotAuthorized,
    api.ConsumerBusy: errors.ConsumerBusy,
    api.ServiceNotReady: errors.ServiceNotReady,
    api.ProducerBlockedQuotaExceededError: errors.ProducersHeld,
    api.ProducerBlockedQuotaExceededException: errors.QuotaExceeded,
    api.ChecksumError: errors.ChecksumMismatch,
    api.UnsupportedVersionError: errors.UnsupportedVersion,
    api.TopicNotFound: errors.TopicNotFound,
    api.SubscriptionNotFound: errors.SubscriptionNotFound,
    api.ConsumerNotFound: errors.ConsumerNotFound,
    api.TooManyRequests: errors.TooManyRequests,
    api.TopicTerminatedError: errors.TopicTerminated,
    api.ProducerBusy: errors.ProducerBusy,
    api.InvalidTopicName: errors.BadName,
    api.IncompatibleSchema: errors.IncompatibleSchema,
    api.ConsumerAssignError: errors.ConsumerAssignRefused,
    api.TransactionCoordinatorNotFound: errors.NoTransactionCoordinator,
    api.InvalidTxnStatus: errors.BadTransactionStatus,
    api.NotAllowedError: errors.NotSupported,
    api.TransactionConflict: errors.TransactionConflict,
    api.TransactionNotFound: errors.TransactionNotFound,
    api.ProducerFenced: errors.ProducerFenced,
}

_OF_RETURN_CODE: Final[dict[int, type[errors.MagnetarError]]] = {
    ReturnCode.NO_LEDGER: errors.NoSuchLedger,
    ReturnCode.NO_ENTRY: errors.NoSuchEntry,
    ReturnCode.BAD_REQUEST: errors.BadCommand,
    ReturnCode.IO_ERROR: errors.EntryUnknown,
    ReturnCode.UNAUTHORIZED: errors.WrongMasterKey,
    ReturnCode.BAD_VERSION: errors.UnsupportedVersion,
    ReturnCode.FENCED: errors.LedgerFenced,
    ReturnCode.READ_ONLY: errors.BookieReadOnly,
    ReturnCode.TOO_MANY_REQUESTS: errors.TooManyRequests,
    ReturnCode.UNKNOWN_LEDGER_STATE: errors.LedgerInLimbo,
}


def codes_of(error: errors.MagnetarError | type[errors.MagnetarError]) -> Codes:
    """The codes of an error or of its class: its own row, or the nearest parent's."""
    kind = error if isinstance(error, type) else type(error)
    for ancestor in kind.__mro__:
        if ancestor in _TABLE:
            return _TABLE[ancestor]
    raise AssertionError(f"{kind.__name__} is no MagnetarError")


def error_of_server_error(code: int, text: str) -> errors.MagnetarError:
    """What a client raises for a broker's ServerError; a code from the future is a plain Refused."""
    return _OF_SERVER_ERROR.get(code, errors.Refused)(text)


def error_of_return_code(code: int, text: str) -> errors.MagnetarError:
    """What the ledger raises for a bookie's return code.

    A code that we do not know proves nothing, so it is EntryUnknown: never an absence.
    """
    return _OF_RETURN_CODE.get(code, errors.EntryUnknown)(text)
