# SPDX-License-Identifier: Apache-2.0
"""Every error that Magnetar raises on purpose, in three families.

PeerFault: the other side broke the protocol; answer once, then close.
Refused: an expected no; the caller learns why and whether trying again can help.
Damaged: bytes on disk or on the wire are not what was written; stop using them, repair from a replica.

A bug is an assertion, not a family: met in a client's command it costs that client its connection; InvariantBroken is
the one that ends a role. `wire/error_codes.py` alone turns a class into protocol codes and HTTP status.
Decides.
"""


class MagnetarError(Exception):
    """Root of the families; the text is a sentence that names what is wrong and what to do."""

    retryable: bool = False


class PeerFault(MagnetarError):
    """The peer broke the protocol. The connection is closed after one answer."""


class Refused(MagnetarError):
    """An expected no."""


class Damaged(MagnetarError):
    """Stored bytes are not what was written."""


class InvariantBroken(AssertionError):
    """What storage or ownership stands on is not so any more: nobody can say what is true, so the role ends, and its
    next start reads what is stored.
    """


# --- start and settings ---------------------------------------------------------------------


class BadSetting(Refused):
    """A setting cannot be used; names key, value and what is allowed."""


class CannotStart(Refused):
    """A port, a directory, a permission or space is missing; names the flag that changes it."""


class BadName(Refused):
    """A tenant, namespace, topic or subscription name is not allowed."""


class BadMessageId(Refused):
    """Bytes or text are not a message id."""


class OwnerClosed(Refused):
    """The owner of this work is closed or closing; nothing new is started for it."""

    retryable = True


# --- wire -----------------------------------------------------------------------------------


class BadFrame(PeerFault):
    """A frame's sizes, magic or structure are impossible."""


class BadCommand(PeerFault):
    """A command that cannot be parsed, is unknown, or is not legal in this state."""


class UnknownCommand(BadCommand):
    """A command of a type that is not known here: the peer may be newer."""


class ChecksumMismatch(Refused):
    """A message's checksum does not match its bytes; nothing was stored."""


class BadPayload(Refused):
    """A payload is not what its metadata says: compression, sizes, or the messages of a batch."""


class UnsupportedVersion(Refused):
    """The peer speaks a version of a protocol or format that we do not."""


# --- metadata -------------------------------------------------------------------------------


class MetadataError(Refused):
    """The metadata store could not answer."""

    retryable = True


class BadVersion(MetadataError):
    """The record changed since it was read, or it exists although it must not."""

    retryable = False


class NoRecord(MetadataError):
    """There is no record at this path."""

    retryable = False


class HasChildren(MetadataError):
    """A record with children cannot be deleted."""

    retryable = False


class SessionLost(MetadataError):
    """The store's session ended: ephemeral records are gone, what we owned is not ours any more."""


class OutcomeUnknown(MetadataError):
    """The connection broke after the request left: it may or may not have been carried out."""


class StoreGivenUp(MetadataError):
    """This process is stopping and the store is away: nobody waits for it any more."""

    retryable = False


class BadPath(MetadataError):
    """No record can be at this path: it is malformed, too long, or below an ephemeral record."""

    retryable = False


class ValueTooLarge(MetadataError):
    """The record is larger than the store takes; names both sizes."""

    retryable = False


class LockHeld(MetadataError):
    """Another owner holds the lock; the text names it."""


class DamagedRecord(Damaged):
    """A record of the metadata store, or the saved state of a cursor, cannot be read."""


# --- bookie and ledger ------------------------------------------------------------------------


class BookieUnavailable(Refused):
    """A bookie cannot be reached or did not answer in time; the outcome is unknown."""

    retryable = True


class NoSuchLedger(Refused):
    """The bookie or the metadata proves that this ledger does not exist."""


class NoSuchEntry(Refused):
    """The bookie proves that it does not hold this entry: an explicit negative."""


class EntryUnknown(Damaged):
    """The bookie cannot say: an I/O error, a checksum mismatch, or lost data. Never an absence."""

    retryable = True


class LedgerInLimbo(EntryUnknown):
    """The bookie may have lost part of this ledger, so it will not say that something of it is absent."""


class DigestMismatch(Damaged):
    """A packed entry's digest, ledger or entry id is not what it must be; another replica may have it right."""


class LedgerFenced(Refused):
    """Another owner has taken over this ledger; the outcome of pending adds is unknown."""


class LedgerClosed(Refused):
    """The ledger is closed; nothing can be added."""


class WrongMasterKey(Refused):
    """The password does not match the ledger's."""


class BookieReadOnly(Refused):
    """The bookie takes no adds now."""

    retryable = True


class TooManyRequests(Refused):
    """A bounded queue is full; try again later."""

    retryable = True


class NotEnoughBookies(Refused):
    """Fewer bookies are available than the ensemble or quorum asks for."""

    retryable = True


class StorageFailed(Refused):
    """A journal write or sync failed; nothing that waited was acknowledged, and this role ends."""


class DiskFull(Refused):
    """No space is left where bytes must go."""

    retryable = True


class BadCookie(CannotStart):
    """A directory belongs to another bookie or cluster, or has lost its data; names the directory and both sides."""


class DataDirectoryInUse(CannotStart):
    """Another process holds the data directory."""


# --- broker -----------------------------------------------------------------------------------


class ServiceNotReady(Refused):
    """The broker is starting, draining, or not the owner: look the topic up again."""

    retryable = True


class BundleBusy(Refused):
    """Another order about this bundle is being carried out; the text says which."""

    retryable = True

    def __init__(self, text: str, action: str = "") -> None:
        super().__init__(text)
        # What is being done with it.
        self.action = action


class TopicNotFound(Refused):
    """No such topic, namespace or tenant."""


class SubscriptionNotFound(Refused):
    """No such subscription."""


class ConsumerNotFound(Refused):
    """No such consumer on this connection."""


class ConsumerBusy(Refused):
    """The subscription has an exclusive consumer, or one of another type."""


class ProducerBusy(Refused):
    """A producer of this name is connected already."""


class ProducerFenced(Refused):
    """A newer producer has taken over."""


class BadSequence(Refused):
    """A batch's sequence ids are in part stored already; storing it would repeat them, dropping it would lose the
    rest.
    """


class BadPosition(Refused):
    """The position does not exist in this managed ledger, or not yet."""


class TopicBusy(Refused):
    """Clients are connected to the topic; deleting it must be forced, or wait until they are gone."""


class TopicExists(Refused):
    """There is a topic of this name already."""


class TopicTerminated(Refused):
    """The topic was terminated; it takes no more messages."""


class MessageTooLarge(Refused):
    """The message is larger than the announced limit."""


class NotSupported(Refused):
    """A known request that this broker does not serve; the text names the feature."""


class LimitReached(NotSupported):
    """A limit on how many there may be: delete some, or raise it."""


class NewerFormat(CannotStart, NotSupported):
    """A newer version of Magnetar wrote this file; it is not read, and nothing is changed."""

    @classmethod
    def of(cls, where: str, version: int, known: int) -> "NewerFormat":
        return cls(
            f"{where} has format version {version}, this Magnetar reads up to {known}: start the newer version that "
            "wrote it; nothing was changed"
        )


class PersistenceFailed(Refused):
    """The message could not be stored; it was not acknowledged."""

    retryable = True


class QuotaExceeded(Refused):
    """The backlog quota of the topic is used up; its policy says whether a producer waits or fails."""

    retryable = True


class ProducersHeld(QuotaExceeded):
    """As QuotaExceeded, where the policy says that producers wait: the client keeps its messages and comes again."""


class IncompatibleSchema(Refused):
    """The schema does not fit those that the topic has."""


class ConsumerAssignRefused(Refused):
    """The key ranges that the consumer brought overlap those of another."""


# --- who may do what --------------------------------------------------------------------------


class NotAuthenticated(Refused):
    """The credentials are missing, wrong or expired."""


class NotAuthorized(Refused):
    """The role is known, and may not do this."""


# --- transactions -----------------------------------------------------------------------------


class NoTransactionCoordinator(Refused):
    """This broker does not serve that transaction coordinator now."""

    retryable = True


class BadTransactionStatus(Refused):
    """The transaction is not in a state that allows this."""


class TransactionConflict(Refused):
    """Another transaction holds the acknowledgement."""


class TransactionNotFound(Refused):
    """No such transaction; it may have timed out."""


# --- client -----------------------------------------------------------------------------------


class ConnectionLost(Refused):
    """A broker cannot be reached, or the connection to it broke; what was under way has an unknown outcome."""

    retryable = True


class TimedOut(Refused):
    """No answer came in time; the outcome is unknown."""

    retryable = True


class AlreadyClosed(Refused):
    """This client, producer, consumer or reader was closed, or belongs to the process that forked this one."""


class TooManyRedirects(Refused):
    """Brokers sent a look-up to one another more often than allowed."""

    retryable = True


class ProducerQueueFull(Refused):
    """The producer holds as many unconfirmed messages as it may, and was told not to wait."""

    retryable = True


class MemoryLimitReached(Refused):
    """The client holds as many bytes of unconfirmed messages as it may, and was told not to wait."""

    retryable = True


class BadSchema(Refused):
    """A value does not fit the schema, bytes cannot be decoded with it, or a schema cannot be made of this type."""


class CryptoFailed(Refused):
    """A message cannot be encrypted or decrypted: a key is missing, wrong or damaged."""
