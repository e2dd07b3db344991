# SPDX-License-Identifier: Apache-2.0
"""A LocalPulsar in a thread and loop of its own, for blocking clients in any language.

Carries.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from magnetar.runtime.loop_thread import LoopThread
from magnetar.testing.local_pulsar import LocalPulsar


class ThreadedPulsar:
    """`with ThreadedPulsar() as pulsar:` serves `pulsar.service_url`; its switches work from the test's thread."""

    def __init__(self, directory: str | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._local = LocalPulsar(directory, settings)
        self._thread: LoopThread | None = None

    @property
    def service_url(self) -> str:
        return self._local.service_url

    def restart(self) -> None:
        self._running.run(self._local.restart())

    def drop_connections(self) -> None:
        self._running.call(self._local.drop_connections)

    def __enter__(self) -> Self:
        self._thread = LoopThread("magnetar-testing")
        try:
            self._thread.run(self._local.__aenter__())
        except BaseException:
            self._thread.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._running.run(self._local.__aexit__(kind, error, traceback))
        finally:
            self._running.close()

    @property
    def _running(self) -> LoopThread:
        assert self._thread is not None, "the broker is not running"
        return self._thread
