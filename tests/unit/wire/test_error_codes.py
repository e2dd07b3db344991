# SPDX-License-Identifier: Apache-2.0
"""Every error class has its codes, and every code that others may send has its class."""

import inspect

import pytest

from magnetar import errors
from magnetar.errors import MagnetarError
from magnetar.wire import error_codes
from magnetar.wire.bookkeeper.codes import ReturnCode
from magnetar.wire.error_codes import codes_of, error_of_return_code, error_of_server_error
from magnetar.wire.proto.pulsar_api_pb2 import ServerError, TopicNotFound

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, MagnetarError)]
FAMILIES = (errors.PeerFault, errors.Refused, errors.Damaged)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_has_codes_from_a_row_below_the_root(kind: type[MagnetarError]) -> None:
    codes = codes_of(kind)
    assert codes == codes_of(kind("text"))
    assert codes.server_error in ServerError.values()
    assert 400 <= codes.http_status < 600
    assert codes.return_code is not ReturnCode.OK
    assert kind is MagnetarError or issubclass(kind, FAMILIES)


def test_a_subclass_has_its_parents_row() -> None:
    class Gone(errors.TopicNotFound):
        pass

    assert codes_of(Gone) == codes_of(errors.TopicNotFound)
    assert codes_of(errors.DataDirectoryInUse) == codes_of(errors.CannotStart)


@pytest.mark.parametrize("code", ServerError.values(), ids=ServerError.Name)
def test_every_server_error_comes_back_as_a_class_of_its_own_code(code: ServerError.ValueType) -> None:
    error = error_of_server_error(code, "the broker's words")
    assert str(error) == "the broker's words"
    quota = (ServerError.ProducerBlockedQuotaExceededError, ServerError.ProducerBlockedQuotaExceededException)
    assert codes_of(error).server_error in (quota if code in quota else (code,))


@pytest.mark.parametrize("code", [code for code in ReturnCode if code is not ReturnCode.OK])
def test_every_return_code_has_a_class(code: ReturnCode) -> None:
    error = error_of_return_code(code, "text")
    assert codes_of(error).return_code is code


def test_only_an_explicit_code_is_an_absence() -> None:
    for code in {*range(1000)} - {ReturnCode.NO_ENTRY, ReturnCode.NO_LEDGER}:
        assert not isinstance(error_of_return_code(code, ""), errors.NoSuchEntry | errors.NoSuchLedger)


def test_codes_from_the_future_are_plain() -> None:
    assert type(error_of_server_error(999, "")) is errors.Refused
    assert type(error_of_return_code(999, "")) is errors.EntryUnknown


def test_the_table_names_only_classes_of_the_module() -> None:
    assert set(error_codes._TABLE) <= set(CLASSES)
    assert codes_of(errors.TopicNotFound).server_error == TopicNotFound
