# SPDX-License-Identifier: Apache-2.0
"""Official clients at work in threads of their own, which end with their test, however that ends."""

import threading
from abc import ABC, abstractmethod
from typing import ClassVar

import pulsar


class ClientThread(ABC):
    """Something that a client does again and again until it is told to stop."""

    _running: ClassVar[list["ClientThread"]] = []

    def __init__(self, client: pulsar.Client) -> None:
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def begin(self) -> None:
        self._thread.start()
        self._running.append(self)

    def _work(self) -> None:
        try:
            self._run()
        except pulsar.PulsarException:
            if not self._stop.is_set():
                raise

    @abstractmethod
    def _run(self) -> None:
        """Until `_stop` is set."""

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self in self._running:
            self._running.remove(self)

    @classmethod
    def end_all(cls) -> None:
        """What a failed test left: a thread that waits for a receipt would keep the whole run from ending."""
        for left in cls._running[:]:
            left._stop.set()
            left._client.shutdown()
            left.stop()
