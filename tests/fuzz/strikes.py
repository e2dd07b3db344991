# SPDX-License-Identifier: Apache-2.0
"""What is sent to the ports of running processes: whole conversations that begin rightly, and then go wrong.

Decides.
"""

import json
import struct
from random import Random
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from magnetar.metadata import remote_protocol
from magnetar.wire import batch, commands, hot, message
from magnetar.wire.bookkeeper import v2, v3
from magnetar.wire.commands import Type
from magnetar.wire.proto import bookkeeper_pb2 as bk
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.fuzz.mutation import hostile

PRODUCER_ID: Final = 1
CONSUMER_ID: Final = 1
_NO: Final = 2**64 - 1
_TXN: Final[dict[str, Any]] = {"txnid_least_bits": 1, "txnid_most_bits": 0, "request_id": 9}


def connect(token: str, target: bytes | None = None) -> bytes:
    """`target` is the broker that a proxy is asked to lead to; its bytes need not be text."""
    asked = pb.CommandConnect(client_version="fuzz", protocol_version=21, auth_method_name="token")
    asked.auth_data = token.encode()
    asked.feature_flags.supports_auth_refresh = True
    if target is None:
        return commands.encode(Type.CONNECT, asked)
    # What protobuf would not write stands in the place of text as long.
    stand_in = "~" * len(target)
    asked.proxy_to_broker_url = stand_in
    return commands.encode(Type.CONNECT, asked).replace(stand_in.encode(), target)


def opening(topic: str) -> bytes:
    """A producer and a consumer, as most that follows is about them."""
    producer = pb.CommandProducer(topic=topic, producer_id=PRODUCER_ID, request_id=1)
    consumer = pb.CommandSubscribe(
        topic=topic, subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=CONSUMER_ID, request_id=2
    )
    return (
        commands.encode(Type.PRODUCER, producer)
        + commands.encode(Type.SUBSCRIBE, consumer)
        + hot.encode_flow(CONSUMER_ID, 100)
    )


def conversation(topic: str, chance: Random) -> bytes:
    """Commands of a connected client in any order: most as they should be, some not, or in wrong frames."""
    return b"".join(_command(topic, chance) for _ in range(chance.choice((1, 3, 10))))


def _command(topic: str, chance: Random) -> bytes:
    kind, body = chance.choice(_bodies(topic))
    if chance.random() < 0.5:
        _twist(body, chance)
    command = commands.wrap(kind, body).SerializePartialToString()
    payload = chance.choice(_PAYLOADS) if kind == Type.SEND else b""
    # One that cannot be parsed ends the conversation.
    if chance.random() < 0.15:
        command = hostile((command,), chance)
    if payload and chance.random() < 0.5:
        payload = hostile((payload,), chance)
    size = len(command) if chance.random() < 0.98 else chance.randrange(2**32)
    return struct.pack(">II", 4 + len(command) + len(payload), size) + command + payload


def _twist(body: Any, chance: Random) -> None:
    """A command that can be parsed, and says something odd in one of its fields."""
    plain = [field for field in body.DESCRIPTOR.fields if not field.is_repeated and field.message_type is None]
    if not plain:
        return
    field = chance.choice(plain)
    odd = {
        FieldDescriptor.CPPTYPE_STRING: (
            "",
            "x" * 5_000,
            "a/b/c/d",
            "persistent://public/default/none",
            "\0",
            "(" * 50,
        ),
        FieldDescriptor.CPPTYPE_BOOL: (True, False),
        FieldDescriptor.CPPTYPE_UINT64: (0, 1, 2**31, 2**63, _NO),
        FieldDescriptor.CPPTYPE_INT64: (-1, 0, 2**63 - 1, -(2**63)),
        FieldDescriptor.CPPTYPE_UINT32: (0, 1, 2**31, 2**32 - 1),
        FieldDescriptor.CPPTYPE_INT32: (-1, 0, 2**31 - 1, -(2**31)),
        FieldDescriptor.CPPTYPE_ENUM: tuple(field.enum_type.values_by_number) if field.enum_type is not None else (),
    }.get(field.cpp_type, ())
    if odd and chance.random() < 0.9:
        value = chance.choice(odd)
        is_bytes = field.type == FieldDescriptor.TYPE_BYTES
        setattr(body, field.name, value.encode() if is_bytes and isinstance(value, str) else value)
    else:
        body.ClearField(field.name)


def _metadata(**more: Any) -> bytes:
    return pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1, **more).SerializeToString()


def _sent(metadata: bytes, payload: bytes) -> bytes:
    return b"".join(map(bytes, message.join(metadata, payload)))


_SINGLES: Final = batch.join([batch.BatchedMessage(pb.SingleMessageMetadata(payload_size=0), b"xyz")] * 3)
_PAYLOADS: Final = (
    _sent(_metadata(), b"payload"),
    _sent(_metadata(num_messages_in_batch=3), _SINGLES),
    _sent(_metadata(partition_key="k", deliver_at_time=5), b""),
    _sent(_metadata(num_chunks_from_msg=3, chunk_id=1, uuid="u", total_chunk_msg_size=9), b"x"),
    _sent(_metadata(marker_type=10, txnid_least_bits=1, txnid_most_bits=2), b"x"),
    _sent(_metadata(compression=pb.ZLIB, uncompressed_size=2**31), b"x"),
)


def _bodies(topic: str) -> tuple[tuple[Type.ValueType, Any], ...]:
    return (*_of_messages(topic), *_of_topics(topic), *_of_transactions(topic))


def _of_messages(topic: str) -> tuple[tuple[Type.ValueType, Any], ...]:
    place = pb.MessageIdData(ledgerId=0, entryId=0)
    return (
        (Type.PRODUCER, pb.CommandProducer(topic=topic, producer_id=2, request_id=3, producer_name="n")),
        (
            Type.SUBSCRIBE,
            pb.CommandSubscribe(
                topic=topic,
                subscription="s",
                subType=pb.CommandSubscribe.Key_Shared,
                consumer_id=2,
                request_id=4,
                start_message_id=place,
                keySharedMeta=pb.KeySharedMeta(keySharedMode=pb.STICKY, hashRanges=[pb.IntRange(start=0, end=9)]),
            ),
        ),
        (Type.SEND, pb.CommandSend(producer_id=PRODUCER_ID, sequence_id=7, num_messages=3)),
        (Type.ACK, pb.CommandAck(consumer_id=CONSUMER_ID, ack_type=pb.CommandAck.Individual, message_id=[place])),
        (
            Type.ACK,
            pb.CommandAck(
                consumer_id=CONSUMER_ID,
                ack_type=pb.CommandAck.Cumulative,
                message_id=[pb.MessageIdData(ledgerId=0, entryId=0, batch_index=1, ack_set=[5], batch_size=3)],
                **_TXN,
            ),
        ),
        (Type.FLOW, pb.CommandFlow(consumer_id=CONSUMER_ID, messagePermits=10)),
        (Type.SEEK, pb.CommandSeek(consumer_id=CONSUMER_ID, request_id=5, message_id=place)),
        (Type.SEEK, pb.CommandSeek(consumer_id=CONSUMER_ID, request_id=5, message_publish_time=_NO)),
        (Type.UNSUBSCRIBE, pb.CommandUnsubscribe(consumer_id=2, request_id=6)),
        (
            Type.REDELIVER_UNACKNOWLEDGED_MESSAGES,
            pb.CommandRedeliverUnacknowledgedMessages(consumer_id=CONSUMER_ID, message_ids=[place], consumer_epoch=1),
        ),
        (Type.CLOSE_PRODUCER, pb.CommandCloseProducer(producer_id=2, request_id=7)),
        (Type.CLOSE_CONSUMER, pb.CommandCloseConsumer(consumer_id=2, request_id=8)),
        (Type.GET_LAST_MESSAGE_ID, pb.CommandGetLastMessageId(consumer_id=CONSUMER_ID, request_id=9)),
        (Type.CONSUMER_STATS, pb.CommandConsumerStats(consumer_id=CONSUMER_ID, request_id=10)),
        (Type.PING, pb.CommandPing()),
        # Only brokers say this.
        (Type.MESSAGE, pb.CommandMessage(consumer_id=CONSUMER_ID, message_id=place)),
    )


def _of_topics(topic: str) -> tuple[tuple[Type.ValueType, Any], ...]:
    return (
        (Type.LOOKUP, pb.CommandLookupTopic(topic=topic, request_id=11, advertised_listener_name="x")),
        (Type.PARTITIONED_METADATA, pb.CommandPartitionedTopicMetadata(topic=topic, request_id=12)),
        (
            Type.GET_TOPICS_OF_NAMESPACE,
            pb.CommandGetTopicsOfNamespace(namespace="public/default", request_id=13, topics_pattern="a.*(b|c)+"),
        ),
        (
            Type.WATCH_TOPIC_LIST,
            pb.CommandWatchTopicList(
                namespace="public/default", topics_pattern="a.*", request_id=14, watcher_id=1, topics_hash="x"
            ),
        ),
        (Type.WATCH_TOPIC_LIST_CLOSE, pb.CommandWatchTopicListClose(request_id=15, watcher_id=1)),
        (Type.GET_SCHEMA, pb.CommandGetSchema(topic=topic, request_id=16, schema_version=bytes(8))),
        (
            Type.GET_OR_CREATE_SCHEMA,
            pb.CommandGetOrCreateSchema(
                topic=topic,
                request_id=17,
                schema=pb.Schema(
                    name="s", type=pb.Schema.Avro, schema_data=b'{"type":"record","name":"R","fields":[]}'
                ),
            ),
        ),
    )


def _of_transactions(topic: str) -> tuple[tuple[Type.ValueType, Any], ...]:
    subscription = pb.Subscription(topic=topic, subscription="s")
    return (
        (Type.TC_CLIENT_CONNECT_REQUEST, pb.CommandTcClientConnectRequest(tc_id=0, request_id=18)),
        (Type.NEW_TXN, pb.CommandNewTxn(tc_id=0, request_id=19)),
        (Type.ADD_PARTITION_TO_TXN, pb.CommandAddPartitionToTxn(partitions=[topic], **_TXN)),
        (Type.ADD_SUBSCRIPTION_TO_TXN, pb.CommandAddSubscriptionToTxn(subscription=[subscription], **_TXN)),
        (Type.END_TXN, pb.CommandEndTxn(txn_action=pb.COMMIT, **_TXN)),
        (Type.END_TXN_ON_PARTITION, pb.CommandEndTxnOnPartition(topic=topic, txn_action=pb.ABORT, **_TXN)),
        (
            Type.END_TXN_ON_SUBSCRIPTION,
            pb.CommandEndTxnOnSubscription(subscription=subscription, txn_action=pb.ABORT, **_TXN),
        ),
        (Type.AUTH_RESPONSE, pb.CommandAuthResponse(response=pb.AuthData(auth_method_name="token", auth_data=b"x"))),
        (Type.PONG, pb.CommandPong()),
    )


# --- HTTP -----------------------------------------------------------------------------------------

_SPACE: Final = "/admin/v2/namespaces/public/struck"
_TOPIC: Final = "/admin/v2/persistent/public/struck/t"
_ADMIN: Final[tuple[tuple[str, str, Any], ...]] = (
    ("PUT", "/admin/v2/tenants/struck", {"allowedClusters": ["standalone"], "adminRoles": ["a"]}),
    ("PUT", _SPACE, {"bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}}),
    ("POST", f"{_SPACE}/retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}),
    ("POST", f"{_SPACE}/backlogQuota", {"limitSize": 9, "limitTime": 9, "policy": "producer_exception"}),
    ("POST", f"{_SPACE}/persistence", {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}),
    ("POST", f"{_SPACE}/dispatchRate", {"dispatchThrottlingRateInMsg": 5, "ratePeriodInSecond": 1}),
    ("POST", f"{_SPACE}/permissions/role", ["produce", "consume"]),
    ("PUT", f"{_TOPIC}/subscription/s", {"ledgerId": 5, "entryId": 6, "partitionIndex": -1}),
    ("POST", f"{_TOPIC}/subscription/s/resetcursor", {"ledgerId": 5, "entryId": 6}),
    ("PUT", f"{_TOPIC}/properties", {"a": "b"}),
    ("POST", "/admin/v2/schemas/public/struck/t/schema", {"type": "AVRO", "schema": '"string"', "properties": {}}),
    ("POST", "/admin/v2/schemas/public/struck/t/compatibility", {"type": "JSON", "schema": "{}", "properties": {}}),
    ("POST", "/topics/persistent/public/struck/t", {"producerName": "p", "messages": [{"payload": "eA=="}]}),
    ("PUT", "/admin/v2/clusters/struck", {"serviceUrl": "http://a:1", "brokerServiceUrl": "pulsar://a:2"}),
    ("POST", "/admin/v2/bookies/racks-info/b:1?group=g", {"rack": "/r", "hostname": "h"}),
    ("PUT", "/admin/v2/resourcegroups/g", {"publishRateInMsgs": 5}),
    ("POST", "/admin/v2/clusters/standalone/namespaceIsolationPolicies/p", {"namespaces": ["x/y"], "primary": ["z"]}),
)
_BOOKIE: Final = (
    ("PUT", "/api/v1/bookie/gc", {"isForceMajor": True, "majorCompaction": True}),
    ("PUT", "/api/v1/config/server_config", {"a": "b"}),
    ("PUT", "/api/v1/autorecovery/lost_bookie_recovery_delay", {"delay_seconds": 5}),
)
DEEP: Final = b"[" * 50_000


def _request(method: str, path: str, body: bytes, token: str) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    if token:
        head += f"Authorization: Bearer {token}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


def admin_request(token: str, chance: Random) -> bytes:
    """A path that there is, and a body that is nearly right."""
    method, path, body = chance.choice(_ADMIN)
    return _request(method, path, _hostile_json(body, chance), token)


def bookie_request(chance: Random) -> bytes:
    method, path, body = chance.choice(_BOOKIE)
    return _request(method, path, _hostile_json(body, chance), "")


def _hostile_json(body: Any, chance: Random) -> bytes:
    return DEEP if chance.random() < 0.1 else hostile((json.dumps(body).encode(), b"null", b"[1]"), chance)


# --- proxies --------------------------------------------------------------------------------------

# What proxies are asked to lead to, and do not.
NOWHERE: Final = (
    b"nonsense",
    b"a:b@c/d?e#f:6650",
    b"pulsar://user@127.0.0.1:1",
    b":6650",
    b"127.0.0.1:99999",
    b"127.0.0.1:1",
    b"[::1",
    b"file:///etc/hosts",
    b"192.0.2.1:6650",
    b"192.0.2.1:1",
    b"[::1]:1",
    b"pulsar://203.0.113.9:6651,127.0.0.1:1",
    b"\x00:1",
    b"\x1b[31m:6650",
    b"\xff\xfe:6650",
    b"\xed\xa0\x80.\xc0:1",
    b"x" * 5_000 + b":6650",
    # Longer than a proxy reads.
    b"x" * (1 << 20),
)

# Never changed, for only a right one is known to have a password in it.
WITH_A_PASSWORD: Final = b"pulsar://user:canary-of-a-url@127.0.0.1:1"


def stray_target(chance: Random) -> bytes:
    return hostile(NOWHERE, chance)


def broker_answers(chance: Random) -> bytes:
    """What somebody who is no broker says to a proxy's CONNECT."""
    welcome = pb.CommandConnected(server_version="fuzz", protocol_version=21, max_message_size=2**31 - 1)
    challenge = pb.CommandAuthChallenge(
        challenge=pb.AuthData(auth_method_name="token", auth_data=b"x"), protocol_version=21
    )
    good = (
        commands.encode(Type.CONNECTED, welcome),
        commands.encode(Type.AUTH_CHALLENGE, challenge),
        commands.error(commands.REQUEST_ID_NONE, pb.AuthenticationError, "no"),
        commands.encode(Type.PING, pb.CommandPing()),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    )
    answers = [chance.choice(good) if chance.random() < 0.5 else hostile(good, chance) for _ in range(3)]
    return b"".join(answers[: chance.randrange(4)])


_PASSED: Final = (
    b"/admin/v2/tenants",
    b"/admin/v2/namespaces/public/struck?a=b&c=%zz",
    b"/admin/v2/persistent/public/struck/t%2F..%2f%00/stats",
    b"/admin/../../etc/passwd",
    b"/admin/\x7f\xff",
    b"/admin/#a?b",
    b"/admin//192.0.2.1:1/",
    b"http://192.0.2.1:1/admin/v2/tenants",
    b"/lookup/v2/topic/persistent/public/struck/t?listenerName=x",
    b"/topics/persistent/public/struck/t",
    b"/metrics",
    b"/ws/v2/producer/persistent/public/struck/t",
)
# Headers, and what may come behind the head that has them.
_BODIES: Final = (
    (b"Accept: */*", b""),
    (b"Content-Length: 5", b"[1,2]"),
    (b"Content-Length: 50", b"{" * 20),
    (b"Transfer-Encoding: chunked", b"5\r\n[1,2]\r\n0\r\n\r\n"),
    (b"Transfer-Encoding: chunked", b"ffffffff\r\n{"),
    (b"Transfer-Encoding: chunked", b"zz\r\n"),
    # Larger than a server reads.
    (b"Transfer-Encoding: chunked", b"200000\r\n" + b"[" * 0x200000),
)
_SAID: Final = (
    b"X-Original-Principal: other",
    b"Connection: authorization, x-original-principal",
    b"Expect: 100-continue",
    b"Content-Encoding: gzip",
    b"Range: bytes=5-1",
    b"Host: 192.0.2.1:1",
    b"X: \xff\x80",
)


def unfinished_request(token: str, chance: Random) -> bytes:
    """A path that there is, and a body that breaks off, is too large, or none."""
    method, path, _ = chance.choice(_ADMIN)
    length, body = chance.choice(_BODIES)
    start = f"{method} {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n".encode()
    return start + length + b"\r\n\r\n" + body


def passed_request(token: str, chance: Random) -> bytes:
    """A request that a proxy takes to a broker, or should not: any path, any header, a body that may not come."""
    method = chance.choice((b"GET", b"HEAD", b"POST", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT"))
    path = chance.choice(_PASSED)
    if chance.random() < 0.3:
        path = hostile((path,), chance)
    length, body = chance.choice(_BODIES)
    said = b"\r\n".join((*chance.sample(_SAID, chance.randrange(3)), length))
    start = method + b" " + path + b" HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " + token.encode() + b"\r\n"
    return start + said + b"\r\n\r\n" + body


_SOCKETS: Final = (
    b"producer/persistent/public/struck/t",
    b"consumer/persistent/public/struck/t/s?subscriptionType=Shared&receiverQueueSize=5",
    b"reader/persistent/public/struck/t?messageId=earliest",
    b"reader/persistent/public/struck/t?messageId=%00",
    b"producer/persistent/public/struck",
)
_TEXTS: Final = (
    b'{"payload":"eA==","context":"1","properties":{"a":"b"}}',
    b'{"messageId":"CAEQARgA"}',
    b'{"type":"permit","permitMessages":100}',
    b'{"type":"isEndOfTopic"}',
    b"[]",
    b"null",
)


def web_socket(token: str, chance: Random) -> bytes:
    """An upgrade, and frames behind it whose texts, lengths and kinds may be wrong."""
    head = (
        b"GET /ws/v2/" + chance.choice(_SOCKETS) + b" HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        b"Authorization: Bearer " + token.encode() + b"\r\n\r\n"
    )
    return head + b"".join(_ws_frame(chance) for _ in range(chance.choice((1, 3, 10))))


def _ws_frame(chance: Random) -> bytes:
    text = DEEP if chance.random() < 0.1 else hostile(_TEXTS, chance)
    first = 0x81 if chance.random() < 0.8 else chance.randrange(256)
    size = len(text) if chance.random() < 0.9 else chance.choice((0, 2**31, 2**63, 2**64 - 1))
    # Four zeros mask nothing.
    return struct.pack(">BBQ", first, 0xFF, size) + bytes(4) + text


# --- BookKeeper and metadata ----------------------------------------------------------------------


def bookie_frame(chance: Random) -> bytes:
    """A request of either version, right or with bytes that are not, in a frame that fits or lies."""
    body = hostile(_REQUESTS, chance)
    size = len(body) if chance.random() < 0.8 else chance.choice((0, 3, 2**31 - 1, 2**32 - 1, chance.randrange(2**32)))
    return struct.pack(">I", size) + body


def _third_version() -> list[bytes]:
    found = []
    for operation, field in (
        (bk.READ_ENTRY, "readRequest"),
        (bk.ADD_ENTRY, "addRequest"),
        (bk.READ_LAC, "readLacRequest"),
    ):
        asked = v3.request(operation, 9)
        inner = getattr(asked, field)
        inner.ledgerId = 5
        if operation != bk.READ_LAC:
            inner.entryId = 6
        if operation == bk.ADD_ENTRY:
            inner.masterKey, inner.body = b"k" * 20, bytes(60)
        found.append(v3.encode(asked)[4:])
    return found


_REQUESTS: Final = (
    v2.encode_read(5, 6, b"k" * 20)[4:],
    v2.add_front(60, b"k" * 20)[4:] + (5).to_bytes(8, "big") + bytes(52),
    *_third_version(),
)


def metadata_frames(chance: Random) -> bytes:
    hello = remote_protocol.encode_frame(
        remote_protocol.Kind.HELLO, 1, remote_protocol.encode_hello(remote_protocol.Hello(1, 0, 30_000))
    )
    return hello + b"".join(hostile(_QUESTIONS, chance) for _ in range(chance.choice((1, 5))))


_PATH: Final = remote_protocol.encode_path("/struck/a")
_QUESTIONS: Final = (
    remote_protocol.encode_frame(remote_protocol.Kind.GET, 2, _PATH),
    remote_protocol.encode_frame(
        remote_protocol.Kind.PUT,
        3,
        remote_protocol.encode_put(remote_protocol.Put("/struck/a", b"v", None, False, False)),
    ),
    remote_protocol.encode_frame(remote_protocol.Kind.DELETE, 4, remote_protocol.encode_delete("/struck/b", None)),
)
