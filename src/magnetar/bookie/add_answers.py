# SPDX-License-Identifier: Apache-2.0
"""Who is told of adds that came over a connection, and says so to its client, in the version that it speaks.

Owns the shape of the answers. Counting and sending are the connection's.
Decides.
"""

from typing import Final, Protocol

from magnetar.wire.bookkeeper import v2, v3
from magnetar.wire.bookkeeper.codes import status_of
from magnetar.wire.bookkeeper.plain_adds import answer_adds
from magnetar.wire.proto import bookkeeper_pb2 as bk

_encode_add_responses: Final = v2.encode_add_responses


class AddAnswerer(Protocol):
    """The connection."""

    def answer_adds(self, answer: bytes, count: int, code: int) -> None: ...


class LedgerAnswers:
    """Answers this connection's version 2 adds of one ledger; adds of any number of entries share it."""

    __slots__ = ("_answer", "_ledger_id")

    def __init__(self, connection: AddAnswerer, ledger_id: int) -> None:
        self._answer = connection.answer_adds
        self._ledger_id = ledger_id

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        self._answer(_encode_add_responses(code, self._ledger_id, first, last), last - first + 1, code)


class BatchAnswers:
    """Answers version 2 adds of any ledgers that came together; told of them by their numbers."""

    __slots__ = ("_answer", "_entries")

    def __init__(self, connection: AddAnswerer, entries: list[bytes]) -> None:
        self._answer = connection.answer_adds
        self._entries = entries

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        count = last - first + 1
        entries = self._entries if count == len(self._entries) else self._entries[first : last + 1]
        self._answer(answer_adds(code, entries), count, code)


class OldAnswer:
    """Answers one add of a client that speaks an earlier version of the fixed frames."""

    __slots__ = ("_connection", "_request")

    def __init__(self, connection: AddAnswerer, request: v2.AddRequest) -> None:
        self._connection = connection
        self._request = request

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        request = self._request
        answer = v2.encode_add_response(code, request.ledger_id, request.entry_id, request.version)
        self._connection.answer_adds(answer, 1, code)


class ProtobufAnswer:
    """Answers one version 3 add."""

    __slots__ = ("_connection", "_request")

    def __init__(self, connection: AddAnswerer, request: bk.Request) -> None:
        self._connection = connection
        self._request = request

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        self._connection.answer_adds(v3.encode(v3.answer(self._request, status_of(code))), 1, code)
