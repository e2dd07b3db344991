# SPDX-License-Identifier: Apache-2.0
"""Commands: which there are, who may send them, how they are read, built and refused.

`COMMANDS` has one row per type of the protocol; a new command is a row there. `parse` turns the bytes of a frame's
command into a BaseCommand or raises BadCommand; `encode` does the reverse; `refusal` builds the answer that the client
of a failed request waits for, which differs from request to request.
Decides.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from magnetar.errors import BadCommand, UnknownCommand
from magnetar.wire import frame, varint
from magnetar.wire.proto import pulsar_api_pb2 as api
from magnetar.wire.required import missing
from magnetar.wire.text_fields import unreadable

BaseCommand = api.BaseCommand
Type = api.BaseCommand.Type

PROTOCOL_VERSION: Final = 21
REQUEST_ID_NONE: Final = 2**64 - 1
"""In an ERROR that answers no numbered request, such as a failed CONNECT; clients read it as -1."""


class Since(IntEnum):
    """The protocol version from which on a peer understands something."""

    KEEP_ALIVE = 1
    REDELIVER_UNACKNOWLEDGED = 2
    COMPRESSION = 3
    BATCHES = 4
    CLOSE_FROM_BROKER = 5
    CHECKSUMS = 6
    BINARY_LOOKUP = 7
    CONSUMER_STATS = 8
    END_OF_TOPIC = 9
    PROXY_TO_BROKER = 10
    CHECKSUMS_IN_CPP_CONSUMERS = 11
    LAST_MESSAGE_ID = 12
    ACTIVE_CONSUMER_CHANGE = 12
    TOPICS_OF_NAMESPACE = 12
    JSON_SCHEMA_AS_AVRO = 13
    AUTH_CHALLENGE = 14
    KEY_SHARED = 14
    GET_OR_CREATE_SCHEMA = 15
    BROKER_ENTRY_METADATA_ON_BROKER = 16
    ACK_RESPONSE = 17
    BROKER_ENTRY_METADATA = 18
    TRANSACTION_COORDINATOR_CONNECT = 19
    TOPIC_MIGRATED = 20
    AUTO_CONSUME_SCHEMA = 21


class Sender(IntEnum):
    CLIENT = 1
    BROKER = 2
    BOTH = 3


class Row(NamedTuple):
    """One command: its field in BaseCommand, who sends it, and the command that says no to it (if a no is possible)."""

    field: str
    sender: Sender
    refused_by: "Type.ValueType | None" = None


_CLIENT, _BROKER, _BOTH = Sender.CLIENT, Sender.BROKER, Sender.BOTH

COMMANDS: Final[dict[int, Row]] = {
    Type.CONNECT: Row("connect", _CLIENT, Type.ERROR),
    Type.CONNECTED: Row("connected", _BROKER),
    Type.SUBSCRIBE: Row("subscribe", _CLIENT, Type.ERROR),
    Type.PRODUCER: Row("producer", _CLIENT, Type.ERROR),
    Type.SEND: Row("send", _CLIENT, Type.SEND_ERROR),
    Type.SEND_RECEIPT: Row("send_receipt", _BROKER),
    Type.SEND_ERROR: Row("send_error", _BROKER),
    Type.MESSAGE: Row("message", _BROKER),
    Type.ACK: Row("ack", _CLIENT, Type.ACK_RESPONSE),
    Type.FLOW: Row("flow", _CLIENT),
    Type.UNSUBSCRIBE: Row("unsubscribe", _CLIENT, Type.ERROR),
    Type.SUCCESS: Row("success", _BROKER),
    Type.ERROR: Row("error", _BROKER),
    Type.CLOSE_PRODUCER: Row("close_producer", _BOTH, Type.ERROR),
    Type.CLOSE_CONSUMER: Row("close_consumer", _BOTH, Type.ERROR),
    Type.PRODUCER_SUCCESS: Row("producer_success", _BROKER),
    Type.PING: Row("ping", _BOTH),
    Type.PONG: Row("pong", _BOTH),
    Type.REDELIVER_UNACKNOWLEDGED_MESSAGES: Row("redeliverUnacknowledgedMessages", _CLIENT),
    Type.PARTITIONED_METADATA: Row("partitionMetadata", _CLIENT, Type.PARTITIONED_METADATA_RESPONSE),
    Type.PARTITIONED_METADATA_RESPONSE: Row("partitionMetadataResponse", _BROKER),
    Type.LOOKUP: Row("lookupTopic", _CLIENT, Type.LOOKUP_RESPONSE),
    Type.LOOKUP_RESPONSE: Row("lookupTopicResponse", _BROKER),
    Type.CONSUMER_STATS: Row("consumerStats", _CLIENT, Type.CONSUMER_STATS_RESPONSE),
    Type.CONSUMER_STATS_RESPONSE: Row("consumerStatsResponse", _BROKER),
    Type.REACHED_END_OF_TOPIC: Row("reachedEndOfTopic", _BROKER),
    Type.SEEK: Row("seek", _CLIENT, Type.ERROR),
    Type.GET_LAST_MESSAGE_ID: Row("getLastMessageId", _CLIENT, Type.ERROR),
    Type.GET_LAST_MESSAGE_ID_RESPONSE: Row("getLastMessageIdResponse", _BROKER),
    Type.ACTIVE_CONSUMER_CHANGE: Row("active_consumer_change", _BROKER),
    Type.GET_TOPICS_OF_NAMESPACE: Row("getTopicsOfNamespace", _CLIENT, Type.ERROR),
    Type.GET_TOPICS_OF_NAMESPACE_RESPONSE: Row("getTopicsOfNamespaceResponse", _BROKER),
    Type.GET_SCHEMA: Row("getSchema", _CLIENT, Type.GET_SCHEMA_RESPONSE),
    Type.GET_SCHEMA_RESPONSE: Row("getSchemaResponse", _BROKER),
    Type.AUTH_CHALLENGE: Row("authChallenge", _BROKER),
    Type.AUTH_RESPONSE: Row("authResponse", _CLIENT, Type.ERROR),
    Type.ACK_RESPONSE: Row("ackResponse", _BROKER),
    Type.GET_OR_CREATE_SCHEMA: Row("getOrCreateSchema", _CLIENT, Type.GET_OR_CREATE_SCHEMA_RESPONSE),
    Type.GET_OR_CREATE_SCHEMA_RESPONSE: Row("getOrCreateSchemaResponse", _BROKER),
    Type.NEW_TXN: Row("newTxn", _CLIENT, Type.NEW_TXN_RESPONSE),
    Type.NEW_TXN_RESPONSE: Row("newTxnResponse", _BROKER),
    Type.ADD_PARTITION_TO_TXN: Row("addPartitionToTxn", _CLIENT, Type.ADD_PARTITION_TO_TXN_RESPONSE),
    Type.ADD_PARTITION_TO_TXN_RESPONSE: Row("addPartitionToTxnResponse", _BROKER),
    Type.ADD_SUBSCRIPTION_TO_TXN: Row("addSubscriptionToTxn", _CLIENT, Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE),
    Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE: Row("addSubscriptionToTxnResponse", _BROKER),
    Type.END_TXN: Row("endTxn", _CLIENT, Type.END_TXN_RESPONSE),
    Type.END_TXN_RESPONSE: Row("endTxnResponse", _BROKER),
    Type.END_TXN_ON_PARTITION: Row("endTxnOnPartition", _CLIENT, Type.END_TXN_ON_PARTITION_RESPONSE),
    Type.END_TXN_ON_PARTITION_RESPONSE: Row("endTxnOnPartitionResponse", _BROKER),
    Type.END_TXN_ON_SUBSCRIPTION: Row("endTxnOnSubscription", _CLIENT, Type.END_TXN_ON_SUBSCRIPTION_RESPONSE),
    Type.END_TXN_ON_SUBSCRIPTION_RESPONSE: Row("endTxnOnSubscriptionResponse", _BROKER),
    Type.TC_CLIENT_CONNECT_REQUEST: Row("tcClientConnectRequest", _CLIENT, Type.TC_CLIENT_CONNECT_RESPONSE),
    Type.TC_CLIENT_CONNECT_RESPONSE: Row("tcClientConnectResponse", _BROKER),
    Type.WATCH_TOPIC_LIST: Row("watchTopicList", _CLIENT, Type.ERROR),
    Type.WATCH_TOPIC_LIST_SUCCESS: Row("watchTopicListSuccess", _BROKER),
    Type.WATCH_TOPIC_UPDATE: Row("watchTopicUpdate", _BROKER),
    Type.WATCH_TOPIC_LIST_CLOSE: Row("watchTopicListClose", _CLIENT, Type.ERROR),
    Type.TOPIC_MIGRATED: Row("topicMigrated", _BROKER),
    Type.SCALABLE_TOPIC_LOOKUP: Row("scalableTopicLookup", _CLIENT, Type.SCALABLE_TOPIC_UPDATE),
    Type.SCALABLE_TOPIC_UPDATE: Row("scalableTopicUpdate", _BROKER),
    Type.SCALABLE_TOPIC_CLOSE: Row("scalableTopicClose", _CLIENT),
    Type.SCALABLE_TOPIC_SUBSCRIBE: Row("scalableTopicSubscribe", _CLIENT, Type.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE),
    Type.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE: Row("scalableTopicSubscribeResponse", _BROKER),
    Type.SCALABLE_TOPIC_ASSIGNMENT_UPDATE: Row("scalableTopicAssignmentUpdate", _BROKER),
    Type.WATCH_SCALABLE_TOPICS: Row("watchScalableTopics", _CLIENT, Type.WATCH_SCALABLE_TOPICS_UPDATE),
    Type.WATCH_SCALABLE_TOPICS_UPDATE: Row("watchScalableTopicsUpdate", _BROKER),
    Type.WATCH_SCALABLE_TOPICS_CLOSE: Row("watchScalableTopicsClose", _CLIENT),
    Type.WATCH_TC_ASSIGNMENTS: Row("watchTcAssignments", _CLIENT, Type.WATCH_TC_ASSIGNMENTS_UPDATE),
    Type.WATCH_TC_ASSIGNMENTS_UPDATE: Row("watchTcAssignmentsUpdate", _BROKER),
    Type.WATCH_TC_ASSIGNMENTS_CLOSE: Row("watchTcAssignmentsClose", _CLIENT),
}


def agreed_version(peer_version: int) -> int:
    """The protocol version of a connection: the lower of what the two sides announced."""
    return max(0, min(PROTOCOL_VERSION, peer_version))


def name_of(command: BaseCommand) -> str:
    return Type.Name(command.type)


def parse(command: bytes, sender: Sender) -> BaseCommand:
    """The command that this sender sent; the field that its type names is set. Raises BadCommand.

    A broker's error with a code that is not known here is an UnknownError.
    """
    try:
        parsed = BaseCommand.FromString(command)
    except DecodeError as error:
        raise BadCommand(f"A command of {len(command)} bytes cannot be parsed.") from error
    if not parsed.HasField("type"):
        raise UnknownCommand(f"A command of {len(command)} bytes has no type, or one that is not known here.")
    row = COMMANDS[parsed.type]
    if not parsed.HasField(row.field):  # type: ignore[arg-type]
        raise BadCommand(f"The command {name_of(parsed)} does not carry its field {row.field}.")
    if not row.sender & sender:
        raise BadCommand(f"{name_of(parsed)} is not a command that a {sender.name.lower()} may send.")
    body: Message = getattr(parsed, row.field)
    if sender is Sender.BROKER:
        _keep_unknown_error(body)
    if lacking := missing(body):
        raise BadCommand(f"The command {name_of(parsed)} lacks {lacking}.")
    if wrong := unreadable(body):
        raise BadCommand(f"The command {name_of(parsed)} has bytes that are no UTF-8 in {wrong}.")
    return parsed


def _keep_unknown_error(answer: Message) -> None:
    """Protobuf puts a code that it does not know aside, as if the answer were none of an error."""
    field = answer.DESCRIPTOR.fields_by_name.get(_error_fields(answer)[0])
    if field is None or field.enum_type is not api.ServerError.DESCRIPTOR or answer.HasField(field.name):
        return
    aside = UnknownFieldSet(answer)
    if any(aside[number].field_number == field.number for number in range(len(aside))):
        setattr(answer, field.name, api.UnknownError)


def body_of(command: BaseCommand) -> Message:
    """The one message inside the envelope."""
    message: Message = getattr(command, COMMANDS[command.type].field)
    return message


def wrap(command_type: Type.ValueType, message: Message) -> BaseCommand:
    """The envelope around a message of the right class for the type."""
    command = BaseCommand(type=command_type)
    inner = getattr(command, COMMANDS[command_type].field)
    inner.CopyFrom(message)
    inner.SetInParent()
    return command


def encode(command_type: Type.ValueType, message: Message) -> bytes:
    """A whole frame without body. Raises ValueError if a required field is missing, which is a bug of the caller."""
    return encode_command(wrap(command_type, message))


def encode_parts(command_type: Type.ValueType, parts: Sequence[bytes]) -> list[bytes]:
    """As `encode`, of a message that was serialized in parts; the frame comes in parts, too."""
    field = BaseCommand.DESCRIPTOR.fields_by_name[COMMANDS[command_type].field].number
    size = sum(map(len, parts))
    start = BaseCommand(type=command_type).SerializeToString() + varint.encode(field << 3 | 2) + varint.encode(size)
    return [frame.command_header(len(start) + size), start, *parts]


def encode_command(command: BaseCommand) -> bytes:
    return frame.join(command.SerializeToString())


def error(request_id: int, code: api.ServerError.ValueType, text: str) -> bytes:
    """A framed ERROR; REQUEST_ID_NONE where there is no request to name."""
    return encode(Type.ERROR, api.CommandError(request_id=request_id, error=code, message=text))


def send_error(producer_id: int, sequence_id: int, code: api.ServerError.ValueType, text: str) -> bytes:
    """A framed SEND_ERROR: the message was not stored."""
    message = api.CommandSendError(producer_id=producer_id, sequence_id=sequence_id, error=code, message=text)
    return encode(Type.SEND_ERROR, message)


def success(request_id: int) -> bytes:
    return encode(Type.SUCCESS, api.CommandSuccess(request_id=request_id))


def refusal(request: BaseCommand, code: api.ServerError.ValueType, text: str) -> bytes | None:
    """The framed no that this request's client waits for; None where the protocol has none.

    An ACK without a request id expects no answer. A chain of transaction ids, watch ids and consumer ids is copied
    from the request, because clients find the waiting caller by them.
    """
    row = COMMANDS[request.type]
    asked = body_of(request)
    if row.refused_by is None or (request.type == Type.ACK and not request.ack.HasField("request_id")):
        return None
    if row.refused_by == Type.ERROR:
        return error(getattr(asked, "request_id", REQUEST_ID_NONE), code, text)
    answer = BaseCommand(type=row.refused_by)
    said = body_of(answer)
    error_field, text_field = _error_fields(said)
    setattr(said, error_field, code)
    setattr(said, text_field, text)
    for field, value in asked.ListFields():
        if field.name in _ECHOED and field.name in said.DESCRIPTOR.fields_by_name:
            setattr(said, field.name, value)
    if row.refused_by == Type.LOOKUP_RESPONSE:
        answer.lookupTopicResponse.response = api.CommandLookupTopicResponse.Failed
    elif row.refused_by == Type.PARTITIONED_METADATA_RESPONSE:
        answer.partitionMetadataResponse.response = api.CommandPartitionedTopicMetadataResponse.Failed
    return encode_command(answer)


_ECHOED: Final = frozenset(
    {
        "consumer_id",
        "producer_id",
        "request_id",
        "sequence_id",
        "session_id",
        "txnid_least_bits",
        "txnid_most_bits",
        "watch_id",
    }
)


def _error_fields(answer: Message) -> tuple[str, str]:
    """Answers call their reason either `error` and `message` or `error_code` and `error_message`."""
    if "error_code" in answer.DESCRIPTOR.fields_by_name:
        return "error_code", "error_message"
    return "error", "message"
