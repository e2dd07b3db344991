# SPDX-License-Identifier: Apache-2.0
"""A `magnetar` command in a process of its own, forked from one that has everything imported; used as a Popen is.

One starter serves the whole test process and ends with it; so do the processes that it forked.
Carries.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.warm_start import NUMBER


class WarmProcess:
    """Starts at once. `returncode` is known after `poll` or `wait` have seen the end."""

    def __init__(self, arguments: list[str], output: Path, environment: dict[str, str]) -> None:
        self.args = arguments
        self.returncode: int | None = None
        self._nanny, far = socket.socketpair()
        order = {
            "arguments": arguments,
            "output": str(output.absolute()),
            "environment": environment,
            "directory": os.getcwd(),
        }
        with far:
            socket.send_fds(_starter(), [json.dumps(order).encode()], [far.fileno()])
        self.pid = self._hear()
        self._descriptor = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        if self.returncode is None:
            self._nanny.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._nanny.settimeout(timeout)
            try:
                self._end()
            except TimeoutError as error:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from error
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        if self.returncode is None:
            self._forget()

    def _end(self) -> None:
        self.returncode = self._hear()
        self._forget()

    def _forget(self) -> None:
        self._nanny.close()
        os.close(self._descriptor)

    def _hear(self) -> int:
        heard = self._nanny.recv(NUMBER.size, socket.MSG_WAITALL)
        assert len(heard) == NUMBER.size, f"nobody looks after {self.args} any more"
        number: int = NUMBER.unpack(heard)[0]
        return number


@cache
def _starter() -> socket.socket:
    orders, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with far:
        command = [sys.executable, "-m", "tests.warm_start", str(far.fileno())]
        starter = subprocess.Popen(
            command, pass_fds=[far.fileno()], start_new_session=True, cwd=Path(__file__).parents[1]
        )

    def stop() -> None:
        orders.close()
        starter.wait()

    atexit.register(stop)
    return orders
