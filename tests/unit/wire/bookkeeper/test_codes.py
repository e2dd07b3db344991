# SPDX-License-Identifier: Apache-2.0
"""Version 2's and version 3's codes say the same things."""

from magnetar.wire.bookkeeper.codes import ReturnCode, code_of, status_of
from magnetar.wire.bookkeeper.digest import DigestType
from magnetar.wire.proto import bookkeeper_pb2, ledger_formats_pb2


def test_every_code_has_a_status_and_comes_back() -> None:
    assert {code_of(status_of(code)) for code in ReturnCode} == set(ReturnCode)
    assert {status_of(code) for code in ReturnCode} == set(bookkeeper_pb2.StatusCode.values())


def test_a_number_from_the_future_promises_nothing() -> None:
    assert status_of(999) == bookkeeper_pb2.EIO
    assert code_of(999) is ReturnCode.IO_ERROR


def test_digest_types_have_the_numbers_of_the_metadata() -> None:
    assert {kind.name: kind.value for kind in DigestType} == dict(
        ledger_formats_pb2.LedgerMetadataFormat.DigestType.items()
    )
