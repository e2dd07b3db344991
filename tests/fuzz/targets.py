# SPDX-License-Identifier: Apache-2.0
"""Every decoder of bytes that others made, with good inputs to begin from.

A target gives a value or raises a MagnetarError, whatever the bytes; anything else is a bug. Some check more: that a
stream gives the same pieces however it is cut, and that the two readers of one format agree.
Decides.
"""

from collections.abc import Callable
from typing import Final

from magnetar.bookie import entry_log_format, journal_format, last_mark, ledger_state
from magnetar.broker.auth import htpasswd, open_id, revocation
from magnetar.broker.compaction import compacted_format
from magnetar.broker.delayed import bucket_format
from magnetar.broker.entry_facts import parse_facts, with_key
from magnetar.broker.ownership import load_data, owner
from magnetar.broker.schemas import avro, protobuf, schema
from magnetar.broker.transactions import coordinator_state, marker, record_batch, segment_format
from magnetar.broker.transactions.txn_id import TxnId
from magnetar.client import schema_key_value
from magnetar.client.schema_protobuf import ProtobufNativeSchema
from magnetar.config.properties import parse_properties
from magnetar.errors import BadFrame, MagnetarError
from magnetar.ids import Position
from magnetar.ledger import record_format as ledger_records
from magnetar.managed_ledger import cursor_format, record_format
from magnetar.managed_ledger.entry import Entry
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.metadata import embedded_format, format_level_record, remote_protocol, transfer_format
from magnetar.metadata.store import Change, ChangeKind, Record
from magnetar.metadata.tree import Counted, Held, Removed, SessionClosed, SessionOpened, Written
from magnetar.names import NamespaceName, TopicName
from magnetar.wire import broker_entry, commands, compression, frame, haproxy, hot, message
from magnetar.wire.bookkeeper import cookie, entry_set, ledger_metadata, packet, registry, v2, v3
from magnetar.wire.bookkeeper import entry as packed_entry
from magnetar.wire.proto import bookkeeper_pb2 as bk
from magnetar.wire.proto import ledger_formats_pb2 as ledger_pb
from magnetar.wire.proto import ml_formats_pb2 as ml
from magnetar.wire.proto import pulsar_api_pb2 as pb
from magnetar.wire.proto import transaction_metadata_pb2
from tests.fuzz.by_hand import BY_HAND
from tests.fuzz.client_targets import CLIENT
from tests.fuzz.role_targets import ROLES
from tests.fuzz.target import PIECE_BYTES_MAX, Target, answer_of
from tests.fuzz.twins import TWINS

# --- Pulsar's wire --------------------------------------------------------------------------------


def _metadata(**more: object) -> bytes:
    return pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1, **more).SerializeToString()  # type: ignore[arg-type]


def _message(**more: object) -> bytes:
    return b"".join(map(bytes, message.join(_metadata(**more), b"payload")))


def _stored(**more: object) -> bytes:
    return broker_entry.entry_front(1_700_000_000_000, 42) + _message(**more)


_CONNECT: Final = pb.BaseCommand(
    type=pb.BaseCommand.CONNECT, connect=pb.CommandConnect(client_version="x", protocol_version=21)
).SerializeToString()
_SUBSCRIBE: Final = pb.BaseCommand(
    type=pb.BaseCommand.SUBSCRIBE,
    subscribe=pb.CommandSubscribe(
        topic="t", subscription="s", subType=pb.CommandSubscribe.Exclusive, consumer_id=1, request_id=2
    ),
).SerializeToString()
_SEND: Final = hot.encode_send(3, 300, 5, 304)
_ACK: Final = hot.encode_ack(1, [(5, 6), (5, 7)])[frame.HEADER_BYTES :]


def _frames(data: bytes) -> None:
    """However a stream is cut into chunks, the frames are the same."""
    whole = frame.FrameCutter(PIECE_BYTES_MAX)
    at_once = whole.feed(data)
    parts = frame.FrameCutter(PIECE_BYTES_MAX)
    middle = len(data) // 3
    in_parts = parts.feed(data[:middle]) + parts.feed(data[middle:])
    assert at_once == in_parts, "frames depend on how the stream was cut"
    assert (whole.fault is None) == (parts.fault is None), "a fault depends on how the stream was cut"


def _packets(data: bytes) -> None:
    whole, parts = packet.PacketCutter(PIECE_BYTES_MAX), packet.PacketCutter(PIECE_BYTES_MAX)
    middle = len(data) // 3
    assert whole.feed(data) == parts.feed(data[:middle]) + parts.feed(data[middle:])


def _facts(data: bytes) -> None:
    entry = Entry(1, 2, memoryview(data))
    with_key(entry, parse_facts(entry))
    marker.read_in_transaction(entry)


def _compressed(kind: pb.CompressionType.ValueType) -> Target:
    good = tuple(compression.compress(kind, text) for text in (b"", b"a" * 1000, bytes(range(250)) * 4))
    return Target(
        f"compression {pb.CompressionType.Name(kind)}",
        lambda data: compression.decompress(kind, data, 1000, PIECE_BYTES_MAX),
        good,
    )


_PULSAR: Final = (
    Target("frames", _frames, (frame.join(_CONNECT) + frame.join(_SEND, _message()) * 3, frame.join(_ACK))),
    Target(
        "commands of clients", lambda data: commands.parse(data, commands.Sender.CLIENT), (_CONNECT, _SUBSCRIBE, _SEND)
    ),
    Target(
        "commands of brokers",
        lambda data: commands.parse(data, commands.Sender.BROKER),
        (
            pb.BaseCommand(type=pb.BaseCommand.SUCCESS, success=pb.CommandSuccess(request_id=1)).SerializeToString(),
            _CONNECT,
        ),
    ),
    Target("message", message.split, (_message(), _message(partition_key="k", num_messages_in_batch=3))),
    Target("message's checksum", message.check_intact, (_message(),)),
    Target("broker entry", broker_entry.read, (_stored(),)),
    Target(
        "facts of an entry",
        _facts,
        (
            _stored(),
            _stored(deliver_at_time=5, partition_key="k"),
            _stored(txnid_least_bits=1, txnid_most_bits=2),
            _message(),
        ),
    ),
    Target(
        "HAProxy's header",
        lambda data: haproxy.HaproxyHeader().feed(data),
        (
            b"PROXY TCP4 10.0.0.1 10.0.0.2 1000 6650\r\nrest",
            b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12),
        ),
    ),
    *(_compressed(kind) for kind in (pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY)),
)

# --- BookKeeper's wire ----------------------------------------------------------------------------

_READ: Final = v3.request(bk.READ_ENTRY, 9)
_READ.readRequest.ledgerId, _READ.readRequest.entryId = 5, 6
_LEDGER: Final = ledger_pb.LedgerMetadataFormat(
    quorumSize=2,
    ackQuorumSize=2,
    ensembleSize=2,
    length=0,
    lastEntryId=-1,
    state=ledger_pb.LedgerMetadataFormat.OPEN,
    digestType=ledger_pb.LedgerMetadataFormat.CRC32C,
    password=b"p",
)
_LEDGER.segment.add(ensembleMember=["a:1", "b:2"], firstEntryId=0)
_LEDGERS: Final = tuple(ledger_metadata.encode(_LEDGER, version) for version in (1, 2, 3))
_ADD: Final = v2.add_front(40, b"k" * 20)[4:] + bytes(40)

_BOOKKEEPER: Final = (
    Target("packets", _packets, (v2.encode_read(5, 6), v3.encode(_READ) * 2)),
    Target("version 2 requests", v2.decode_request, (v2.encode_read(5, 6, b"k" * 20)[4:], _ADD)),
    Target("version 2 requests refused", lambda data: v2.encode_refusal(data, 5), (_ADD,)),
    Target(
        "version 2 answers",
        v2.decode_response,
        (
            v2.encode_add_response(0, 5, 6)[4:],
            v2.read_response_front(0, 5, 6, 3)[4:] + b"abc",
            b"".join(v2.encode_batch_read_response(0, 5, 6, 7, [b"abc", b"defg"]))[4:],
        ),
    ),
    Target("version 3 requests", v3.decode_request, (v3.encode(_READ)[4:],)),
    Target("version 3 requests refused", v3.read_header, (v3.encode(_READ)[4:],)),
    Target("version 3 answers", v3.decode_response, (v3.answer(_READ, bk.EOK).SerializePartialToString(),)),
    Target("packed entry", packed_entry.read_header, (bytes(60),)),
    Target("set of entry ids", lambda data: entry_set.decode(data, 10_000), (entry_set.encode([1, 2, 3, 9, 10]),)),
    Target(
        "bookie's listing",
        registry.decode_listing,
        (registry.encode_listing((registry.Endpoint("b", "h", 1, "p"),), {"a": "b"}),),
    ),
    Target("ledger's metadata", ledger_metadata.decode, _LEDGERS),
    Target("ledger's record", lambda data: ledger_records.decode_record(5, data), _LEDGERS),
    Target(
        "cookie", cookie.decode, (cookie.encode(cookie.Cookie("b:1", ("/j",), ("/l", "/m"), "i")), b"3\nb\n/j\n1\t/l\n")
    ),
)

# --- what lies on disks ---------------------------------------------------------------------------


def _journal(data: bytes) -> None:
    """Memory stays bounded by a piece and one record; what the two halves give is what the whole gives."""
    header = journal_format.decode_file_header(data) or journal_format.FileHeader(1, 0, session_start=True)
    found = []
    for cut in (len(data), len(data) // 3):
        scan = journal_format.JournalScan(header, offset=0, payload_bytes_max=PIECE_BYTES_MAX)
        found.append([*scan.feed(data[:cut]), *scan.feed(data[cut:]), *scan.end()])
    assert found[0] == found[1], "records depend on how the file was read"


def _entry_log(data: bytes) -> None:
    entry_log_format.decode_header(data)
    found = []
    for cut in (len(data), len(data) // 3):
        scan = entry_log_format.EntryLogScan(3, entry_bytes_max=PIECE_BYTES_MAX)
        found.append([*scan.feed(data[:cut]), *scan.feed(data[cut:]), *scan.end()])
    assert found[0] == found[1], "entries depend on how the log was read"


def _journal_file() -> bytes:
    seed, offset, parts = journal_format.checksum_seed(1), 0, []
    for payload in (b"x" * 40, b"y" * 50):
        parts.append(journal_format.encode_record(seed, offset, 0, 1, payload))
        offset += len(parts[-1])
    return b"".join(parts)


def _entry_log_file() -> bytes:
    seed, offset, parts = entry_log_format.checksum_seed(3), entry_log_format.HEADER_BYTES, []
    for number in range(3):
        entry = (5).to_bytes(8, "big") + number.to_bytes(8, "big") + bytes(40)
        parts.append(b"".join(entry_log_format.encode_record(seed, offset, entry)))
        offset += len(parts[-1])
    return b"".join(parts)


def _embedded(data: bytes) -> None:
    header = embedded_format.decode_header(data, "a file")
    if header is not None:
        for record in embedded_format.records_after(header, data, embedded_format.HEADER_BYTES):
            embedded_format.decode_items(record.body, "a place")


_ITEMS: Final = embedded_format.encode_items(
    [
        Written("/a/b", Held(b"value", 1, 2, 3, 4)),
        Removed("/a"),
        Counted("/c", 5),
        SessionOpened(1, 30_000),
        SessionClosed(1),
        embedded_format.SnapshotEnd(5, 2),
        embedded_format.Closed(),
    ]
)
_STORE: Final = embedded_format.FileHeader(embedded_format.FileKind.LOG, 1, 2, 3)
_STORE_FILE: Final = embedded_format.encode_header(_STORE) + embedded_format.encode_record(
    _STORE, embedded_format.HEADER_BYTES, 3, 2, _ITEMS
)
_STATE: Final = ledger_state.LedgerState(5, b"k" * 20)

_DISKS: Final = (
    Target("journal", _journal, (_journal_file(),)),
    Target(
        "journal's header",
        journal_format.decode_file_header,
        (journal_format.encode_file_header(journal_format.FileHeader(1, 2, session_start=True)),),
    ),
    Target("entry log", _entry_log, (_entry_log_file(),)),
    Target(
        "entry log's map",
        lambda data: entry_log_format.decode_map(1, 9, data),
        (entry_log_format.encode_map(1, 9, {5: 6, 7: 8}),),
    ),
    Target("last mark", last_mark.decode_mark, (last_mark.encode_mark(last_mark.LastMark(1, 2, 3, 4)),)),
    Target("ledger's state", lambda data: ledger_state.decode_state(5, data), (_STATE.encode(),)),
    Target("embedded metadata", _embedded, (_STORE_FILE,)),
    Target("embedded metadata's items", lambda data: embedded_format.decode_items(data, "a place"), (_ITEMS,)),
)

# --- records of the metadata store ----------------------------------------------------------------


def _remote(data: bytes) -> None:
    for each in remote_protocol.FrameCutter(PIECE_BYTES_MAX).cut(data):
        for decode in _REMOTE_BODIES:
            try:
                decode(each.body)
            except MagnetarError:
                continue


_REMOTE_BODIES: Final[tuple[Callable[[bytes], object], ...]] = (
    remote_protocol.decode_hello,
    remote_protocol.decode_welcome,
    remote_protocol.decode_put,
    remote_protocol.decode_delete,
    remote_protocol.decode_stored,
    remote_protocol.decode_record,
    remote_protocol.decode_names,
    remote_protocol.decode_changes,
    remote_protocol.decode_refusal,
)


def _remote_frames() -> tuple[bytes, ...]:
    bodies = {
        remote_protocol.Kind.HELLO: remote_protocol.encode_hello(remote_protocol.Hello(1, 0, 30_000)),
        remote_protocol.Kind.PUT: remote_protocol.encode_put(remote_protocol.Put("/a", b"v", 1, False, True)),
        remote_protocol.Kind.DELETE: remote_protocol.encode_delete("/a", None),
        remote_protocol.Kind.ANSWER: remote_protocol.encode_names(["a", "b"]),
        remote_protocol.Kind.GET: remote_protocol.encode_record(Record(b"v", 1, False, 2, 3)),
        remote_protocol.Kind.CHANGES: remote_protocol.encode_changes([Change(ChangeKind.CREATED, "/a")]),
        remote_protocol.Kind.REFUSAL: remote_protocol.encode_refusal(BadFrame("no")),
    }
    return tuple(remote_protocol.encode_frame(kind, 7, body) for kind, body in bodies.items())


def _cursor(data: bytes) -> None:
    entry = cursor_format.decode_entry(data)
    cursor_format.snapshot_of([entry], LedgerList([]))


_CURSOR: Final = ml.ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=5, markDeleteEntryId=6, lastActive=1)
_POSITION: Final = ml.PositionInfo(ledgerId=5, entryId=6)
_POSITION.individualDeletedMessages.add(
    lowerEndpoint=ml.NestedPositionInfo(ledgerId=5, entryId=7),
    upperEndpoint=ml.NestedPositionInfo(ledgerId=5, entryId=9),
)
_TOPIC: Final = ml.ManagedLedgerInfo()
_TOPIC.ledgerInfo.add(ledgerId=5, entries=6, size=7, timestamp=8)
_TOPIC_RECORDS: Final = (
    _TOPIC.SerializeToString(),
    *(record_format.compressed(_TOPIC.SerializeToString(), kind) for kind in ("LZ4", "ZLIB", "ZSTD", "SNAPPY")),
)
_OWNER: Final = owner.Owner("pulsar://a:1", "http://a:2")

_RECORDS: Final = (
    Target("metadata server's frames", _remote, _remote_frames()),
    Target(
        "exported metadata",
        lambda line: transfer_format.decode(line, "a line"),
        (transfer_format.encode(transfer_format.ExportedRecord("/a", b"v", 1, 2)),),
    ),
    Target(
        "format level", format_level_record.decode, (format_level_record.encode(format_level_record.LevelRecord(2, 0)),)
    ),
    Target("topic's record", record_format.decode_ledger_record, _TOPIC_RECORDS),
    Target("cursor's record", record_format.decode_cursor_record, (_CURSOR.SerializeToString(),)),
    Target("cursor ledger's entry", _cursor, (_POSITION.SerializeToString(),)),
    Target("bundle's owner", owner.decode_owner, (owner.encode_owner(_OWNER),)),
    Target(
        "broker's load",
        load_data.decode_load,
        (b'{"pulsarServiceUrl":"a","lastStats":{"b":{"topics":1}},"cpu":{"usage":1}}',),
    ),
)

# --- what brokers and clients read ----------------------------------------------------------------


def _key_and_value(definition: bytes) -> None:
    schema.key_and_value(schema.Schema(schema.SchemaType.KEY_VALUE, definition, {}))


def _name(data: bytes) -> None:
    text = data.decode(errors="replace")
    answer_of(lambda: TopicName.parse(text))
    answer_of(lambda: NamespaceName.parse(text))


_SEGMENT, _SEGMENT_FACTS = bucket_format.encode_segment([(1, 2, 3), (4, 5, 6)])
_ABORTED = segment_format.encode_segment([(TxnId(3, number), Position(5, number)) for number in range(3)])
_NATIVE: Final = ProtobufNativeSchema(pb.MessageIdData).info.definition
_AVRO: Final = b'{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"],"default":null}]}'

_BROKER: Final = (
    Target("Avro schema", avro.parse, (_AVRO, b'{"type":"array","items":"long"}')),
    Target("native protobuf schema", protobuf.parse, (_NATIVE,)),
    Target("key-value schema", _key_and_value, (b"\x00\x00\x00\x01k\x00\x00\x00\x02vv", bytes(8))),
    Target("stored schema", lambda data: schema.decode_stored(1, data), (b"\x0a\x04\x0a\x02id", b"")),
    Target("key-value payload", schema_key_value.split, (b"\x00\x00\x00\x01k\x00\x00\x00\x02vv",)),
    Target(
        "compacted entry",
        lambda data: compacted_format.decode_entry(memoryview(data)),
        (compacted_format.encode_entry(Position(5, 6), _message()),),
    ),
    Target("bucket's head", bucket_format.decode_metadata, (bucket_format.encode_metadata([_SEGMENT_FACTS]),)),
    Target("bucket's segment", bucket_format.decode_segment, (_SEGMENT,)),
    Target("batch of records", record_batch.records_in, (record_batch.entry_of([b"\x08\x00", b"\x08" * 200]),)),
    Target("segment of aborted transactions", segment_format.decode_segment, (_ABORTED,)),
    Target(
        "transaction log",
        coordinator_state.decode,
        (
            transaction_metadata_pb2.TransactionMetadataEntry(
                metadata_op=transaction_metadata_pb2.TransactionMetadataEntry.NEW,
                txnid_most_bits=1,
                txnid_least_bits=2,
                timeout_ms=3,
            ).SerializeToString(),
        ),
    ),
    Target("transaction's marker", _facts, (marker.encode_marker(TxnId(1, 2), 3, commit=True),)),
    Target("revoked tokens", revocation.parse_revoked, (b"jti:abc\n# no\nsub:x\n",)),
    Target(
        "provider's keys",
        open_id.parse_keys,
        (
            b'{"keys":[{"kty":"RSA","kid":"a","n":"u1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0gunVTLw7onLRnrq0_IzW7yWR7QkrmBL7jTKEn5u-qKhbwKfBstIs-bMY2Zkp18gnTxKLxoS2tFczGkPLPgizskuemMghRniWaoLcyehkd3qqGElvW_VDL5AaWTg0nLVkjRo9z-40RQzuVaE8AkAFmxZzow3x-VJYKdjykkJ0iT9wCS0DRTXu269V264Vf_3jvredZiKRkgwlL9xNAwxXFg0x_XFw005UWVRIkdgcKWTjpBP2dPwVZ4WWC-9aGVd-Gyn1o0CLelf4rEjGoXbAAEgAqeGUxrcIlbjXfbcmw","e":"AQAB"}]}',
        ),
    ),
    Target(
        "users",
        lambda data: htpasswd.parse_users(data.decode(errors="replace")),
        (b"u:{SHA}abc\nv:$apr1$salt$hash\n",),
    ),
    Target(
        "configuration file", lambda data: parse_properties(data.decode(errors="replace")), (b"a=b\nc : d\\\n e\n#x\n",)
    ),
    Target("names", _name, (b"persistent://a/b/c-partition-3", b"a/b", b"t")),
)

TARGETS: Final[tuple[Target, ...]] = (
    *_PULSAR,
    *_BOOKKEEPER,
    *_DISKS,
    *_RECORDS,
    *_BROKER,
    *BY_HAND,
    *TWINS,
    *CLIENT,
    *ROLES,
)
