# SPDX-License-Identifier: Apache-2.0
"""JSON records: what is none is refused by name."""

import pytest

from magnetar.errors import DamagedRecord
from magnetar.metadata.json_record import decode_json, encode_json


def test_an_object_comes_back_and_an_empty_record_is_an_empty_object() -> None:
    record = {"bundles": {"boundaries": ["0x00000000", "0xffffffff"]}, "é": None}
    assert decode_json(encode_json(record)) == record
    assert decode_json(b"") == {}


@pytest.mark.parametrize("value", [b"[]", b"3", b"{", b"\xff", b"null"])
def test_anything_else_is_refused_with_its_name(value: bytes) -> None:
    with pytest.raises(DamagedRecord, match="The record /a is not"):
        decode_json(value, "The record /a")
