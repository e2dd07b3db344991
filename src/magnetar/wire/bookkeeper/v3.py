# SPDX-License-Identifier: Apache-2.0
"""Version 3 of the bookie protocol: one protobuf Request or Response per packet, matched by transaction id.

All operations have it; version 2 has only those on entries. `answer` builds the response that a request expects, with
its ids; the bookie fills in the rest.
Decides.
"""

from typing import Final, NamedTuple

from google.protobuf.message import DecodeError, Message

from magnetar.errors import BadCommand
from magnetar.wire.proto import bookkeeper_pb2 as bk
from magnetar.wire.required import missing

_SIZE_BYTES: Final = 4


class Fields(NamedTuple):
    """Where an operation's request and response lie in their envelopes; None where it has none."""

    request: str | None
    response: str | None


OPERATIONS: Final[dict[int, Fields]] = {
    bk.READ_ENTRY: Fields("readRequest", "readResponse"),
    bk.ADD_ENTRY: Fields("addRequest", "addResponse"),
    bk.RANGE_READ_ENTRY: Fields(None, None),
    bk.RANGE_ADD_ENTRY: Fields(None, None),
    bk.AUTH: Fields("authRequest", "authResponse"),
    bk.WRITE_LAC: Fields("writeLacRequest", "writeLacResponse"),
    bk.READ_LAC: Fields("readLacRequest", "readLacResponse"),
    bk.GET_BOOKIE_INFO: Fields("getBookieInfoRequest", "getBookieInfoResponse"),
    bk.START_TLS: Fields("startTLSRequest", "startTLSResponse"),
    bk.FORCE_LEDGER: Fields("forceLedgerRequest", "forceLedgerResponse"),
    bk.GET_LIST_OF_ENTRIES_OF_LEDGER: Fields("getListOfEntriesOfLedgerRequest", "getListOfEntriesOfLedgerResponse"),
    bk.BATCH_READ_ENTRY: Fields(None, None),
}
"""One row per operation; ranges were never defined, and batch reads exist in version 2 only."""


def encode(envelope: bk.Request | bk.Response) -> bytes:
    """A whole packet with its size. Raises EncodeError if a required field is missing, which is a bug of the caller."""
    data = envelope.SerializeToString()
    return len(data).to_bytes(_SIZE_BYTES, "big") + data


def request(operation: bk.OperationType.ValueType, txn_id: int) -> bk.Request:
    """An empty request of this operation; the caller fills in the message that OPERATIONS names."""
    header = bk.BKPacketHeader(version=bk.VERSION_THREE, operation=operation, txnId=txn_id)
    return bk.Request(header=header)


def decode_request(packet: bytes) -> bk.Request:
    """A request whose operation has its message. Raises BadCommand, also for what only later versions know."""
    parsed = bk.Request()
    _parse(parsed, packet)
    field = OPERATIONS[parsed.header.operation].request
    name = bk.OperationType.Name(parsed.header.operation)
    if field is None:
        raise BadCommand(f"{name} is not an operation of version 3.")
    if not parsed.HasField(field):  # type: ignore[arg-type]
        raise BadCommand(f"A {name} request does not carry its field {field}.")
    return parsed


def decode_response(packet: bytes) -> bk.Response:
    """A response; one that failed may lack its operation's message. Raises BadCommand."""
    parsed = bk.Response()
    _parse(parsed, packet)
    return parsed


def read_header(packet: bytes) -> bk.BKPacketHeader | None:
    """What a request that decode_request refuses says of itself, if that much can be read: enough to answer it."""
    parsed = bk.Request()
    try:
        parsed.ParseFromString(packet)
    except DecodeError:
        return None
    return None if missing(parsed.header) else parsed.header


def answer(asked: bk.Request, status: bk.StatusCode.ValueType) -> bk.Response:
    """The response to a request with this status, and the ids that its client expects to see again."""
    response = refusal(asked.header, status)
    fields = OPERATIONS[asked.header.operation]
    if fields.request is None or fields.response is None or asked.header.operation == bk.AUTH:
        return response
    said: Message = getattr(response, fields.response)
    said.SetInParent()
    about: Message = getattr(asked, fields.request)
    for name in ("ledgerId", "entryId"):
        if name in said.DESCRIPTOR.fields_by_name:
            setattr(said, name, getattr(about, name))
    if "status" in said.DESCRIPTOR.fields_by_name:
        setattr(said, "status", status)  # noqa: B010 - the class is not known statically
    return response


def refusal(header: bk.BKPacketHeader, status: bk.StatusCode.ValueType) -> bk.Response:
    """A response with a status and nothing else."""
    echoed = bk.BKPacketHeader(version=header.version, operation=header.operation, txnId=header.txnId)
    return bk.Response(header=echoed, status=status)


def _parse(parsed: bk.Request | bk.Response, packet: bytes) -> None:
    try:
        parsed.ParseFromString(packet)
    except DecodeError as error:
        raise BadCommand(f"A packet of {len(packet)} bytes cannot be parsed.") from error
    if lacking := missing(parsed):
        raise BadCommand(f"A packet lacks {lacking}, or its value is not known here.")
