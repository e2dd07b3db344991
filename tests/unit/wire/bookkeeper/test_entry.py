# SPDX-License-Identifier: Apache-2.0
"""Packed entries: equal to what Apache BookKeeper 4.17.2 packs, and every kind of damage noticed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import Damaged, DigestMismatch
from magnetar.wire.bookkeeper.digest import DIGEST_BYTES, DigestType, master_key
from magnetar.wire.bookkeeper.entry import (
    EntryHeader,
    EntryPacker,
    entry_id_of,
    last_add_confirmed_of,
    ledger_id_of,
    length_of,
    read_header,
)

LEDGER_ID = 0x0102030405060708
BODY = b"A body that is not empty."
METADATA = "0102030405060708000000000000004d000000000000004b0000000000001000"
LAST_CONFIRMED = "0102030405060708000000000000004b"

# Digests that Apache BookKeeper's DigestManager made of BODY as entry 77, LAC 75, length 4096; then of LAC 75 alone.
GOLDEN = [
    (DigestType.CRC32, b"", "0000000078eb72c4", "000000009e91b832"),
    (DigestType.CRC32, b"secret", "0000000078eb72c4", "000000009e91b832"),
    (DigestType.CRC32C, b"", "f441c655", "d27c97a4"),
    (DigestType.CRC32C, b"secret", "f441c655", "d27c97a4"),
    (
        DigestType.HMAC,
        b"",
        "4f16538311860e843701d067a3dcff0bc9006f27",
        "2af2a157b7ab8dd85311fa7b8b9211e0fd90e3f4",
    ),
    (
        DigestType.HMAC,
        b"secret",
        "60c0d01df293d999ebeb472d564d41f6b4687666",
        "58c68575251eb278e4d79ddd287ca7ea69c2f940",
    ),
    (DigestType.DUMMY, b"", "", ""),
]
LONGS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
TYPES = st.sampled_from(DigestType)
CHECKED = [kind for kind in DigestType if kind is not DigestType.DUMMY]


@pytest.mark.feature("F-BKC-08", "F-BKC-09")
@pytest.mark.parametrize(("digest_type", "password", "digest", "last_confirmed_digest"), GOLDEN)
def test_bytes_are_those_of_apache_bookkeeper(
    digest_type: DigestType, password: bytes, digest: str, last_confirmed_digest: str
) -> None:
    packer = EntryPacker(LEDGER_ID, digest_type, password)
    entry = packer.pack(77, 75, 4096, [BODY[:5], memoryview(BODY)[5:]])
    assert entry.hex() == METADATA + digest + BODY.hex()
    assert packer.pack_last_confirmed(75).hex() == LAST_CONFIRMED + last_confirmed_digest
    assert packer.unpack(entry, 77) == BODY
    assert packer.unpack_last_confirmed(packer.pack_last_confirmed(75)) == 75


@pytest.mark.parametrize(
    ("password", "key"),
    [
        (b"", "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"),
        (b"secret", "e793cbc379107648537183605cd361d3bb789a39"),
    ],
)
def test_master_keys_are_those_of_apache_bookkeeper(password: bytes, key: str) -> None:
    assert master_key(password).hex() == key
    assert EntryPacker(1, DigestType.CRC32C, password).master_key.hex() == key


@settings(max_examples=60)
@given(TYPES, LONGS, LONGS, LONGS, LONGS, st.lists(st.binary(max_size=40), max_size=4), st.binary(max_size=8))
def test_what_was_packed_comes_back(
    digest_type: DigestType,
    ledger_id: int,
    entry_id: int,
    last_add_confirmed: int,
    length: int,
    parts: list[bytes],
    password: bytes,
) -> None:
    packer = EntryPacker(ledger_id, digest_type, password)
    entry = packer.pack(entry_id, last_add_confirmed, length, parts)
    assert packer.header_bytes == 32 + DIGEST_BYTES[digest_type]
    assert read_header(entry) == EntryHeader(ledger_id, entry_id, last_add_confirmed, length)
    assert (ledger_id_of(entry), entry_id_of(entry)) == (ledger_id, entry_id)
    assert (last_add_confirmed_of(entry), length_of(entry)) == (last_add_confirmed, length)
    for buffer in (entry, bytearray(entry), memoryview(entry)):
        assert packer.unpack(buffer, entry_id) == packer.unpack(buffer, None) == b"".join(parts)


@pytest.mark.feature("F-BKC-09")
@settings(max_examples=60)
@given(st.sampled_from(CHECKED), st.binary(max_size=40), st.data())
def test_any_flipped_bit_is_noticed(digest_type: DigestType, body: bytes, data: st.DataObject) -> None:
    packer = EntryPacker(9, digest_type, b"pw")
    for packed, unpack in (
        (packer.pack(3, 2, 100, [body]), lambda damaged: packer.unpack(damaged, 3)),
        (packer.pack_last_confirmed(3), packer.unpack_last_confirmed),
    ):
        bit = data.draw(st.integers(0, len(packed) * 8 - 1))
        damaged = bytearray(packed)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DigestMismatch):
            unpack(bytes(damaged))


@pytest.mark.parametrize("digest_type", DigestType)
def test_too_few_bytes_are_damage_not_a_crash(digest_type: DigestType) -> None:
    packer = EntryPacker(9, digest_type, b"")
    entry = packer.pack(0, -1, 0, [])
    for size in range(len(entry)):
        with pytest.raises(Damaged):
            packer.unpack(entry[:size], 0)
    last_confirmed = packer.pack_last_confirmed(0)
    for size in range(len(last_confirmed)):
        with pytest.raises(Damaged):
            packer.unpack_last_confirmed(last_confirmed[:size])


@pytest.mark.parametrize("digest_type", DigestType)
def test_another_entry_or_ledger_is_not_taken_for_the_one_asked_for(digest_type: DigestType) -> None:
    entry = EntryPacker(9, digest_type, b"").pack(4, 3, 10, [BODY])
    with pytest.raises(DigestMismatch, match="asked for entry 5, got 4"):
        EntryPacker(9, digest_type, b"").unpack(entry, 5)
    with pytest.raises(DigestMismatch, match="Asked for ledger 8, got 9"):
        EntryPacker(8, digest_type, b"").unpack(entry, 4)


def test_a_wrong_password_is_noticed_by_the_keyed_digest() -> None:
    entry = EntryPacker(9, DigestType.HMAC, b"right").pack(4, 3, 10, [BODY])
    with pytest.raises(DigestMismatch):
        EntryPacker(9, DigestType.HMAC, b"wrong").unpack(entry, 4)


@given(TYPES, st.lists(st.lists(st.binary(max_size=9), min_size=1, max_size=3), max_size=5), st.booleans())
def test_a_run_is_packed_as_its_entries_one_by_one(kind: DigestType, bodies: list[list[bytes]], viewed: bool) -> None:
    packer = EntryPacker(LEDGER_ID, kind, b"secret")
    entries = [[memoryview(part) if viewed else part for part in parts] for parts in bodies]
    length = 4_096
    expected = []
    for entry_id, parts in enumerate(entries, 77):
        length += sum(map(len, parts))
        expected.append(packer.pack(entry_id, 75, length, parts))
    assert packer.pack_run(77, 75, 4_096, entries) == (expected, length)
