# SPDX-License-Identifier: Apache-2.0
"""Variable-length integers: as protobuf's, for every number, and no crash on bytes that are none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.errors import BadCommand
from magnetar.wire import varint
from magnetar.wire.proto.pulsar_api_pb2 import CommandSuccess, MessageIdData

UINT64 = st.one_of(
    st.integers(0, 2**64 - 1), st.sampled_from([2**power - less for power in range(64) for less in (0, 1)])
)


@settings(max_examples=200)
@given(UINT64)
def test_numbers_are_written_as_protobuf_writes_them(number: int) -> None:
    encoded = varint.encode(number)
    assert b"\x08" + encoded == CommandSuccess(request_id=number).SerializeToString()
    assert varint.decode(b"??" + encoded + b"?", 2) == (number, 2 + len(encoded))


@given(st.integers(-(2**31), 2**31 - 1))
def test_negative_numbers_are_sign_extended(number: int) -> None:
    encoded = varint.encode(number)
    assert encoded == MessageIdData(ledgerId=0, entryId=0, partition=number).SerializeToString()[5:]
    assert varint.signed(varint.decode(encoded, 0)[0]) == number


@given(st.binary(max_size=12))
def test_any_bytes_give_a_number_or_a_named_error(data: bytes) -> None:
    ends = any(byte < 128 for byte in data[:10])
    if ends:
        number, until = varint.decode(data, 0)
        assert 0 <= number < 2**64
        assert until <= 10
    else:
        with pytest.raises(BadCommand):
            varint.decode(data, 0)
