# SPDX-License-Identifier: Apache-2.0
"""Ledger metadata: the bytes of Apache BookKeeper 4.17.2 in all three forms, and damage always noticed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import Damaged, DamagedRecord, UnsupportedVersion
from magnetar.wire.bookkeeper import ledger_metadata
from magnetar.wire.bookkeeper.ledger_metadata import BINARY_PROTOBUF, TEXT_LINES, TEXT_PROTOBUF
from magnetar.wire.proto.ledger_formats_pb2 import LedgerMetadataFormat

State = LedgerMetadataFormat
HEADER = b"BookieMetadataFormatVersion\t"
LINES = b"2\n3\n%d\n0\th1:3181\th2:3181\th3:3181\n17\th1:3181\th4:3181\th3:3181\n"
TEXT = """quorumSize: 2
ensembleSize: 3
length: {length}
lastEntryId: {last}
state: {state}
segment {{
  ensembleMember: "h1:3181"
  ensembleMember: "h2:3181"
  ensembleMember: "h3:3181"
  firstEntryId: 0
}}
segment {{
  ensembleMember: "h1:3181"
  ensembleMember: "h4:3181"
  ensembleMember: "h3:3181"
  firstEntryId: 17
}}
digestType: CRC32C
password: "pa\\303\\244\\"\\n\\\\x"
ackQuorumSize: 1
ctime: 1700000000000
customMetadata {{
  key: "application"
  value: "pulsar"
}}
customMetadata {{
  key: "bin"
  value: "\\000\\310\\n\\""
}}
"""
BINARY_TAIL = (
    "321d0a0768313a333138310a0768323a333138310a0768333a333138311000321d0a0768313a333138310a0768343a333138310a0768333a"
    "333138311011380342087061c3a4220a5c7848015080d095ffbc315a150a0b6170706c69636174696f6e120670756c7361725a0b0a036269"
    "6e120400c80a2260b3ffffffffffffffff01"
)

# What Apache BookKeeper's LedgerMetadataSerDe wrote of one ledger when open, in recovery, and closed at entry 99.
GOLDEN = [
    (TEXT_LINES, State.OPEN, LINES % 0),
    (TEXT_LINES, State.IN_RECOVERY, LINES % 0 + b"-102\tCLOSED"),
    (TEXT_LINES, State.CLOSED, LINES % 12345 + b"99\tCLOSED"),
    (TEXT_PROTOBUF, State.OPEN, TEXT.format(length=0, last=-1, state="OPEN").encode()),
    (TEXT_PROTOBUF, State.IN_RECOVERY, TEXT.format(length=0, last=-1, state="IN_RECOVERY").encode()),
    (TEXT_PROTOBUF, State.CLOSED, TEXT.format(length=12345, last=99, state="CLOSED").encode()),
    (BINARY_PROTOBUF, State.OPEN, bytes.fromhex("950108021003180020ffffffffffffffffff012801" + BINARY_TAIL)),
    (BINARY_PROTOBUF, State.IN_RECOVERY, bytes.fromhex("950108021003180020ffffffffffffffffff012802" + BINARY_TAIL)),
    (BINARY_PROTOBUF, State.CLOSED, bytes.fromhex("8d010802100318b96020632803" + BINARY_TAIL)),
]


@pytest.mark.feature("F-MD-14")
@pytest.mark.parametrize(("version", "state", "body"), GOLDEN)
def test_bytes_are_those_of_apache_bookkeeper(version: int, state: State.State.ValueType, body: bytes) -> None:
    stored = HEADER + str(version).encode() + b"\n" + body
    record = ledger_metadata.decode(stored)
    assert ledger_metadata.encode(record, version) == stored
    assert ledger_metadata.version_of(stored) == version
    assert record.state == state
    assert (record.quorumSize, record.ensembleSize) == (2, 3)
    assert record.ackQuorumSize == (2 if version == TEXT_LINES else 1)
    assert (record.lastEntryId, record.length) == ((99, 12345) if state == State.CLOSED else (-1, 0))
    assert [(segment.firstEntryId, list(segment.ensembleMember)) for segment in record.segment] == [
        (0, ["h1:3181", "h2:3181", "h3:3181"]),
        (17, ["h1:3181", "h4:3181", "h3:3181"]),
    ]
    if version != TEXT_LINES:
        assert record.password == 'paä"\n\\x'.encode()
        assert {each.key: each.value for each in record.customMetadata} == {
            "application": b"pulsar",
            "bin": b'\x00\xc8\n"',
        }


RECORDS = st.builds(
    LedgerMetadataFormat,
    quorumSize=st.integers(1, 9),
    ensembleSize=st.integers(1, 9),
    ackQuorumSize=st.integers(1, 9),
    length=st.integers(0, 2**63 - 1),
    lastEntryId=st.integers(-1, 2**63 - 1),
    state=st.sampled_from([State.OPEN, State.IN_RECOVERY, State.CLOSED]),
    segment=st.lists(
        st.builds(
            LedgerMetadataFormat.Segment,
            firstEntryId=st.integers(0, 2**63 - 1),
            ensembleMember=st.lists(st.from_regex(r"[a-z]{1,8}:[0-9]{1,5}", fullmatch=True), min_size=1, max_size=3),
        ),
        max_size=3,
    ),
    digestType=st.sampled_from(LedgerMetadataFormat.DigestType.values()),
    password=st.binary(max_size=10),
    ctime=st.integers(0, 2**63 - 1),
    customMetadata=st.lists(
        st.builds(LedgerMetadataFormat.cMetadataMapEntry, key=st.text(max_size=5), value=st.binary(max_size=5)),
        max_size=2,
    ),
)


@settings(max_examples=80)
@given(RECORDS, st.integers(-(2**63), 2**63 - 1))
def test_any_record_comes_back(record: LedgerMetadataFormat, token: int) -> None:
    assert ledger_metadata.decode(ledger_metadata.encode(record, TEXT_PROTOBUF)) == record
    record.cToken = token
    assert ledger_metadata.decode(ledger_metadata.encode(record)) == record
    text = ledger_metadata.decode(ledger_metadata.encode(record, TEXT_PROTOBUF))
    assert not text.HasField("cToken")
    lines = ledger_metadata.decode(ledger_metadata.encode(record, TEXT_LINES))
    assert list(lines.segment) == list(record.segment)
    assert (lines.quorumSize, lines.ensembleSize, lines.length) == (
        record.quorumSize,
        record.ensembleSize,
        record.length,
    )


def test_an_old_record_without_an_ack_quorum_waits_for_all_writes() -> None:
    record = LedgerMetadataFormat(quorumSize=2, ensembleSize=3, length=0, state=State.OPEN)
    assert ledger_metadata.decode(ledger_metadata.encode(record)).ackQuorumSize == 2


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "begins with b''"),
        (b"BookieMetadata", "begins with"),
        (HEADER, "for a version"),
        (HEADER + b"3", "for a version"),
        (HEADER + b"three\n", "for a version"),
        (HEADER + b"00000000003\n", "for a version"),
        (HEADER + b"3\n", "cannot be parsed"),
        (HEADER + b"3\n\x05\x08", "ends after 1"),
        (HEADER + b"3\n\x02\x08\x02", "lacks ensembleSize, length, state"),
        (HEADER + b"3\n\x01\xff", "cannot be parsed"),
        (HEADER + b"2\nquorumSize: 2", "lacks ensembleSize"),
        (HEADER + b"2\nnonsense", "cannot be parsed as text"),
        (HEADER + b"2\n\xff", "cannot be parsed as text"),
        (HEADER + b"1\n2\n3", "cannot be parsed as lines"),
        (HEADER + b"1\n2\n3\nx\n", "cannot be parsed as lines"),
        (HEADER + b"1\n99999999999\n3\n0\n", "cannot be parsed as lines"),
        (HEADER + b"1\n2\n3\n0\n17\n", "names no bookie"),
    ],
)
def test_damage_is_named(data: bytes, text: str) -> None:
    with pytest.raises(DamagedRecord, match=text):
        ledger_metadata.decode(data)


@pytest.mark.parametrize("version", [0, 4, 99])
def test_a_form_from_the_future_is_not_damage(version: int) -> None:
    with pytest.raises(UnsupportedVersion, match=f"version {version}"):
        ledger_metadata.decode(HEADER + str(version).encode() + b"\n")


@settings(max_examples=300)
@given(
    st.binary(max_size=40)
    | st.tuples(st.sampled_from(GOLDEN), st.integers(0, 400), st.binary(max_size=2)).map(
        lambda drawn: HEADER + b"%d\n" % drawn[0][0] + drawn[0][2][: drawn[1]] + drawn[2]
    )
)
def test_any_bytes_are_a_record_or_damage(data: bytes) -> None:
    try:
        record = ledger_metadata.decode(data)
    except (Damaged, UnsupportedVersion):
        return
    assert record.IsInitialized()
