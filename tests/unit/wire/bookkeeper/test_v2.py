# SPDX-License-Identifier: Apache-2.0
"""Version 2: byte for byte what Apache BookKeeper 4.17.2 writes, and no crash on what it never would."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import BadCommand
from magnetar.wire.bookkeeper import v2
from magnetar.wire.bookkeeper.codes import Operation, RequestFlag, ReturnCode
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.bookkeeper.entry import EntryPacker
from magnetar.wire.bookkeeper.packet import PacketCutter
from magnetar.wire.proto.bookkeeper_pb2 import AuthMessage

KEY = bytes(range(1, 21))
AUTH = AuthMessage(authPluginName="plugin", payload=b"pay")
LONGS = st.integers(-(2**63), 2**63 - 1)

# What Apache BookKeeper's BookieProtoEncoding makes of the same requests and answers.
GOLDEN_ADD = (
    "0000005502010002850bf1071c5e3d8c24235676f8816ae0cbe2f14f0102030405060708000000000000004d000000000000004b"
    "0000000000001000f441c6554120626f64792074686174206973206e6f7420656d7074792e"
)
GOLDEN = {
    "0000001402020000000000000000004d0000000000000005": v2.encode_read(77, 5),
    "0000002802020001000000000000004dffffffffffffffff0102030405060708090a0b0c0d0e0f1011121314": v2.encode_read(
        77, -1, KEY
    ),
    "0000002802070000000000000000004d000000000000000500000000000000090000000a0000000000010000": v2.encode_batch_read(
        77, 5, 9, 10, 65536
    ),
    "00000011020300000a06706c7567696e1203706179": v2.encode_auth(AUTH),
    "000000180201000000000068000000000000004d0000000000000005": v2.encode_add_response(ReturnCode.FENCED, 77, 5),
    "0000001d0202000000000000000000000000004d0000000000000005656e747279": v2.read_response_front(0, 77, 5, 5)
    + b"entry",
    "000000180202000000000002000000000000004d0000000000000005": v2.read_response_front(ReturnCode.NO_ENTRY, 77, 5),
    "000000330207000000000000000000000000004d0000000000000005000000000000000900000005656e747279000000067365636f6e64": (
        b"".join(v2.encode_batch_read_response(0, 77, 5, 9, [b"entry", b"second"]))
    ),
    "000000200207000000000001000000000000004d00000000000000050000000000000009": b"".join(
        v2.encode_batch_read_response(ReturnCode.NO_LEDGER, 77, 5, 9)
    ),
}


def packet_of(data: bytes) -> bytes:
    (packet,) = PacketCutter().feed(data)
    return packet


@pytest.mark.feature("F-BKC-27")
@pytest.mark.parametrize(("expected", "got"), GOLDEN.items())
def test_bytes_are_those_of_apache_bookkeeper(expected: str, got: bytes) -> None:
    assert got.hex() == expected


@pytest.mark.feature("F-BKC-27")
def test_an_add_is_that_of_apache_bookkeeper() -> None:
    packer = EntryPacker(0x0102030405060708, DigestType.CRC32C, b"")
    entry = packer.pack(77, 75, 4096, [b"A body that is not empty."])
    data = v2.add_front(len(entry), packer.master_key, RequestFlag.RECOVERY_ADD) + entry
    assert data.hex() == GOLDEN_ADD
    request = v2.decode_request(packet_of(data))
    assert request == v2.AddRequest(2, 2, packer.master_key, 0x0102030405060708, 77, entry)


@given(LONGS, LONGS, st.none() | st.binary(min_size=20, max_size=20))
def test_reads_come_back(ledger_id: int, entry_id: int, key: bytes | None) -> None:
    data = v2.encode_read(ledger_id, entry_id, key, RequestFlag.HIGH_PRIORITY)
    flags = RequestFlag.HIGH_PRIORITY | (RequestFlag.FENCE if key else 0)
    assert v2.decode_request(packet_of(data)) == v2.ReadRequest(2, flags, ledger_id, entry_id, key)


@given(LONGS, LONGS, LONGS, st.integers(-(2**31), 2**31 - 1), LONGS)
def test_batch_reads_come_back(
    ledger_id: int, entry_id: int, request_id: int, entries_max: int, bytes_max: int
) -> None:
    data = v2.encode_batch_read(ledger_id, entry_id, request_id, entries_max, bytes_max)
    expected = v2.BatchReadRequest(2, 0, ledger_id, entry_id, request_id, entries_max, bytes_max, None)
    assert v2.decode_request(packet_of(data)) == expected


def test_a_fencing_batch_read_brings_its_key() -> None:
    header = v2.packet_header(Operation.BATCH_READ, RequestFlag.FENCE).to_bytes(4, "big")
    packet = header + packet_of(v2.encode_batch_read(1, 2, 3, 4, 5))[4:] + KEY
    assert v2.decode_request(packet) == v2.BatchReadRequest(2, 1, 1, 2, 3, 4, 5, KEY)


def test_authentication_comes_back_both_ways() -> None:
    assert v2.decode_request(packet_of(v2.encode_auth(AUTH))) == v2.AuthRequest(2, AUTH)
    assert v2.decode_response(packet_of(v2.encode_auth(AUTH))) == v2.AuthResponse(AUTH)


@given(st.sampled_from(ReturnCode), LONGS, LONGS, LONGS, st.lists(st.binary(max_size=20), max_size=4))
def test_answers_come_back(
    code: ReturnCode, ledger_id: int, entry_id: int, request_id: int, entries: list[bytes]
) -> None:
    add = v2.decode_response(packet_of(v2.encode_add_response(code, ledger_id, entry_id)))
    assert add == v2.AddResponse(code, ledger_id, entry_id)
    entry = b"".join(entries)
    read = v2.decode_response(packet_of(v2.read_response_front(code, ledger_id, entry_id, len(entry)) + entry))
    assert read == v2.ReadResponse(code, ledger_id, entry_id, entry)
    data = b"".join(v2.encode_batch_read_response(code, ledger_id, entry_id, request_id, entries))
    batch = v2.decode_response(packet_of(data))
    assert batch == v2.BatchReadResponse(code, ledger_id, entry_id, request_id, entries)


def test_a_run_of_answers_is_the_single_ones_in_a_row() -> None:
    expected = b"".join(v2.encode_add_response(ReturnCode.OK, 7, entry_id) for entry_id in range(3, 9))
    assert v2.encode_add_responses(ReturnCode.OK, 7, 3, 8) == expected
    assert v2.encode_add_responses(ReturnCode.OK, 7, 3, 2) == b""


@pytest.mark.parametrize("version", [0, 1, 2])
def test_adds_of_every_version_are_read_alike(version: int) -> None:
    entry = EntryPacker(9, DigestType.DUMMY, b"").pack(4, 3, 10, [b"body"])
    flags = RequestFlag.RECOVERY_ADD if version else RequestFlag.NONE
    packet = v2.packet_header(Operation.ADD, flags, version).to_bytes(4, "big") + KEY + entry
    assert v2.decode_request(packet) == v2.AddRequest(version, flags, KEY, 9, 4, entry)
    answer = v2.encode_add_response(ReturnCode.OK, 9, 4, version)
    assert v2.read_packet_header(packet_of(answer)) == (version, Operation.ADD, 0)
    assert v2.decode_response(packet_of(answer)) == v2.AddResponse(0, 9, 4)


def test_a_header_of_the_first_version_is_the_operation_alone() -> None:
    assert v2.read_packet_header(b"\x00\x00\x00\x02") == (0, Operation.READ, 0)
    assert v2.packet_header(Operation.READ, 1, 0) == 2
    read = v2.decode_request(b"\x01\x02\x00\x01" + bytes(16))
    assert read == v2.ReadRequest(1, 1, 0, 0, None)  # before version 2 a fencing read had no key


@settings(max_examples=400)
@given(
    st.binary(max_size=60)
    | st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 3), st.binary(max_size=60)).map(
        lambda drawn: bytes((drawn[0], drawn[1], 0, drawn[2])) + drawn[3]
    )
)
def test_any_bytes_are_a_packet_or_a_bad_command(packet: bytes) -> None:
    for decode in (v2.decode_request, v2.decode_response):
        try:
            decode(packet)
        except BadCommand as error:
            assert str(error)  # noqa: PT017 - either outcome is right; a nameless one is not
    if len(packet) >= 4:
        refusal = v2.decode_response if packet[1] in (1, 2, 7) and packet[0] else bytes
        refusal(packet_of(v2.encode_refusal(packet, ReturnCode.BAD_REQUEST)))


@pytest.mark.parametrize("operation", [Operation.ADD, Operation.READ, Operation.BATCH_READ])
def test_requests_cut_short_anywhere_are_noticed(operation: Operation) -> None:
    header = v2.packet_header(operation, RequestFlag.FENCE).to_bytes(4, "big")
    whole = {Operation.ADD: 40, Operation.READ: 40, Operation.BATCH_READ: 60}[operation]
    v2.decode_request((header + bytes(60))[:whole])
    for size in range(whole):
        with pytest.raises(BadCommand):
            v2.decode_request((header + bytes(60))[:size])


def test_what_cannot_be_read_is_refused_with_its_ids() -> None:
    unknown = b"\x02\x09\x00\x00" + (77).to_bytes(8, "big") + (5).to_bytes(8, "big")
    answer = packet_of(v2.encode_refusal(unknown, ReturnCode.BAD_REQUEST))
    assert answer == b"\x02\x09\x00\x00" + (100).to_bytes(4, "big") + unknown[4:]
    short_add = v2.encode_refusal(b"\x02\x01\x00\x00" + KEY, ReturnCode.BAD_REQUEST)
    assert v2.decode_response(packet_of(short_add)) == v2.AddResponse(ReturnCode.BAD_REQUEST, -1, -1)


def test_entries_that_overrun_their_packet_are_noticed() -> None:
    (data,) = v2.encode_batch_read_response(0, 1, 2, 3)
    with pytest.raises(BadCommand, match="Entry 0 of a batch read"):
        v2.decode_response(data[4:] + b"\x00\x00\x00\x05abcd")
    with pytest.raises(BadCommand, match="Entry 1 of a batch read"):
        v2.decode_response(data[4:] + b"\x00\x00\x00\x01a\x00\x00")
