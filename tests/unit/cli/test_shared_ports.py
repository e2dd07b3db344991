# SPDX-License-Identifier: Apache-2.0
import socket

import pytest

from magnetar.cli.shared_ports import is_free, join, reserve
from magnetar.errors import CannotStart

HOST = "127.0.0.1"


def test_those_who_join_get_the_connections_and_the_reservation_none() -> None:
    with reserve(HOST, 0, "--port") as held:
        port = held.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port))
        with join(HOST, port) as first, join(HOST, port) as second:
            waiting = [socket.create_connection((HOST, port)) for _ in range(40)]
            taken = [_accepted(first), _accepted(second)]
            assert sum(taken) == 40
            assert min(taken) > 0
            for each in waiting:
                each.close()


def test_a_port_of_somebody_else_is_not_shared() -> None:
    with reserve(HOST, 0, "--port") as held:
        port = held.getsockname()[1]
        with join(HOST, port):
            assert not is_free(HOST, port)
            with pytest.raises(CannotStart, match=f"{HOST}:{port} is in use by another process.*--http-port"):
                reserve(HOST, port, "--http-port")
    assert is_free(HOST, port)


def test_an_address_that_is_not_here_is_refused() -> None:
    with pytest.raises(CannotStart, match="check --bind and --port"):
        reserve("192.0.2.1", 0, "--port")


def _accepted(listener: socket.socket) -> int:
    number = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return number
        number += 1
