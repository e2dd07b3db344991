# SPDX-License-Identifier: Apache-2.0
"""Ports that several processes of this machine listen on at once (SO_REUSEPORT): reserved by one, joined by each.

Carries.
"""

import contextlib
import errno
import socket
from typing import Final

from magnetar.errors import CannotStart

_QUEUE: Final = 1_024


def reserve(address: str, port: int, setting: str) -> socket.socket:
    """Take a port that others then join; it gets no connection itself. CannotStart when somebody else has it.

    Sharing is only asked for once nobody was there: two groups on one port would get each other's clients.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise CannotStart("This system does not let processes share a port; start without --workers")
    try:
        with _new(address) as alone:
            alone.bind((address, port))
            port = alone.getsockname()[1]
            alone.listen(1)
        return _shared(address, port)
    except OSError as error:
        where = f"{address}:{port}"
        if error.errno == errno.EADDRINUSE:
            raise CannotStart(
                f"Port {where} is in use by another process; choose another with {setting} (0 picks a free one)"
            ) from error
        raise CannotStart(f"Cannot listen on {where}: {error.strerror}; check --bind and {setting}") from error


def join(address: str, port: int) -> socket.socket:
    """Listen on a port that was reserved."""
    try:
        joined = _shared(address, port)
        joined.listen(_QUEUE)
    except OSError as error:
        raise CannotStart(f"Cannot share {address}:{port} with the other workers: {error.strerror}") from error
    joined.setblocking(False)
    return joined


def is_free(address: str, port: int) -> bool:
    with contextlib.suppress(OSError), _new(address) as probe:
        probe.bind((address, port))
        probe.listen(1)
        return True
    return False


def free_port(address: str) -> int:
    with _new(address) as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def _shared(address: str, port: int) -> socket.socket:
    made = _new(address)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made


def _new(address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made
