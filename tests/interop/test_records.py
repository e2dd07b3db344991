# SPDX-License-Identifier: Apache-2.0
"""Records of ours, with what we say beside Pulsar's fields, and compressed, are read by Apache's own classes."""

import subprocess
from pathlib import Path

import pytest

from magnetar.broker.ownership.load_data import BrokerLoad, encode_load
from magnetar.broker.ownership.owner import Owner, encode_owner, parse_listeners
from magnetar.managed_ledger.record_format import compressed
from magnetar.wire.bookkeeper.registry import FORMAT_LEVEL_PROPERTY, Endpoint, encode_listing
from magnetar.wire.proto.ml_formats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from tests.interop.apache import distribution

KINDS = ("LZ4", "ZLIB", "ZSTD", "SNAPPY")


def topic_record() -> bytes:
    info = ManagedLedgerInfo()
    for number in range(100):
        info.ledgerInfo.add(ledgerId=number, entries=50_000, size=10**9, timestamp=1_700_000_000_000)
    return info.SerializeToString()


def cursor_record() -> bytes:
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=3, markDeleteEntryId=4)
    for number in range(100):
        hole = info.individualDeletedMessages.add()
        hole.lowerEndpoint.ledgerId = hole.upperEndpoint.ledgerId = 3
        hole.lowerEndpoint.entryId, hole.upperEndpoint.entryId = 2 * number, 2 * number + 1
    return info.SerializeToString()


@pytest.mark.feature("B-24")
def test_apaches_classes_read_our_records() -> None:
    listeners = parse_listeners("out:pulsar://gate:6650,out:https://gate:8443")
    owner = Owner("pulsar://b:6650", "http://b:8080", "pulsar+ssl://b:6651", "https://b:8443", listeners)
    listing = encode_listing((Endpoint("bookie", "b", 3181, "bookie-rpc"),), {FORMAT_LEVEL_PROPERTY: "2"})
    records = [
        ("broker", encode_load(BrokerLoad(owner, "instance", format_level=2))),
        ("owner", encode_owner(owner)),
        ("bookie", listing),
        *(("topic", compressed(topic_record(), kind)) for kind in KINDS),
        *(("cursor", compressed(cursor_record(), kind)) for kind in KINDS),
    ]
    words = [word for kind, value in records for word in (kind, value.hex())]
    line = ["java", "-Xmx256m", "-cp", f"{distribution()}/lib/*", str(Path(__file__).with_name("Parse.java")), *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "pulsar://b:6650 https://b:8443 [out]",
        "pulsar://b:6650 https://b:8443",
        "b {magnetar.formatLevel=2}",
        *["100"] * 8,
    ]
