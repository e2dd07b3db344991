# SPDX-License-Identifier: Apache-2.0
"""A bug that a client's command meets costs that client its connection, and nobody else anything."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from magnetar.broker.connection import Connection
from magnetar.broker.session.session import Serving, Session
from magnetar.errors import ConnectionLost, InvariantBroken
from magnetar.ledger.writer import LedgerWriter
from magnetar.testing.local_pulsar import LocalPulsar
from magnetar.wire.proto.pulsar_api_pb2 import BaseCommand

TOPIC = "persistent://public/default/orders"


async def cold_bug(session: Session, asked: Any) -> None:
    await asyncio.sleep(0)
    raise KeyError("planted")


def hot_bug(session: Session, asked: Any) -> None:
    raise ZeroDivisionError("planted")


def plant(connection: Connection, command: int, serving: Serving) -> None:
    """This session serves the command by a bug; every other session as always, and so does its client's next one."""
    session = connection.session
    session._table = {**session._table, command: serving}


@pytest.mark.feature("F-CONS-32")
@pytest.mark.parametrize("serving", [Serving(cold=cold_bug), Serving(hot=hot_bug)], ids=["cold", "hot"])
def test_a_bug_in_a_command_costs_its_own_connection_only(loop_run: Any, serving: Serving) -> None:
    async def scenario() -> None:
        reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
        async with LocalPulsar(transport="memory") as pulsar:
            broker = pulsar.standalone.broker
            async with pulsar.client() as unlucky, pulsar.client() as other:
                held = await unlucky.subscribe(TOPIC, "held")
                producer = await other.create_producer(TOPIC)
                await producer.send(b"before")
                assert (await held.receive()).data() == b"before"
                doomed, kept = broker.connections
                plant(doomed, BaseCommand.GET_LAST_MESSAGE_ID, serving)

                with pytest.raises(ConnectionLost):
                    await held.get_last_message_id()
                await producer.send(b"after")
                messages = [await held.receive() for _ in range(2)]

                assert not doomed.is_open
                assert kept in broker.connections
                assert broker.sessions_failed == 1
                assert [message.data() for message in messages] == [b"before", b"after"], "what it held comes again"
        assert len(reported) == 1
        assert "planted" in reported[0]

    loop_run(scenario())


@pytest.mark.feature("F-DISP-01")
def test_an_append_that_ends_half_way_ends_the_broker(loop_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def half_way(writer: LedgerWriter, entries: Sequence[Any]) -> Any:
        raise ZeroDivisionError("planted")

    async def scenario() -> None:
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        async with LocalPulsar(transport="memory") as pulsar:
            broker = pulsar.standalone.broker
            broker._on_crash = lambda _, error: failed.set_result(error)
            async with pulsar.client() as client:
                # Nobody is left who would answer the second message.
                producer = await client.create_producer(TOPIC, send_timeout_millis=500)
                await producer.send(b"whole")
                with monkeypatch.context() as broken:
                    broken.setattr(LedgerWriter, "append", half_way)
                    broken.setattr(LedgerWriter, "append_run", half_way)
                    sending = asyncio.ensure_future(producer.send(b"half"))
                    error = await failed
                sending.cancel()
            assert isinstance(error, InvariantBroken)
            assert "orders" in str(error)
            assert broker.sessions_failed == 0, "it is not one client's affair"

    loop_run(scenario())
