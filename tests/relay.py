# SPDX-License-Identifier: Apache-2.0
"""A TCP relay on loopback that can be cut, held, slowed and mended: a network between two processes of one machine."""

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 65_536


class Relay:
    """Carries every connection to `port` on to `target_port`. Cut, it ends those it has and refuses new ones; held, it
    carries nothing on and ends none.
    """

    def __init__(self, target_port: int, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server((host, port))
        # How long each piece waits on its way.
        self.delay_s = 0.0
        self.port: int = self._listener.getsockname()[1]
        self._guard = threading.Lock()
        self._is_cut = False
        self._flows = threading.Event()
        self._flows.set()
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        with self._guard:
            self._is_cut = True
            ends, self._ends = self._ends, []
        for end in ends:
            _end(end)

    def mend(self) -> None:
        with self._guard:
            self._is_cut = False

    def hold(self) -> None:
        self._flows.clear()

    def let_go(self) -> None:
        self._flows.set()

    def close(self) -> None:
        _end(self._listener)
        self.cut()
        self.let_go()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            with self._guard:
                if not self._is_cut:
                    self._ends += (near, far)
                    for source, target in ((near, far), (far, near)):
                        threading.Thread(target=self._carry, args=(source, target), daemon=True).start()
                    continue
            near.close()
            far.close()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                if self.delay_s:
                    time.sleep(self.delay_s)
                self._flows.wait()
                target.sendall(data)
        _end(source)
        _end(target)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
