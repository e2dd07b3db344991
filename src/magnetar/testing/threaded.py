# SPDX-License-Identifier: Apache-2.0
"""A LocalPulsar in a thread and loop of its own, for blocking clients in any language.

Carries.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Self, Unpack

from magnetar.blocking import Client
from magnetar.client.authentication import Authentication
from magnetar.client.keywords import ClientKeywords
from magnetar.runtime.loop_thread import LoopThread
from magnetar.testing.local_pulsar import LocalPulsar


class ThreadedPulsar:
    """`with ThreadedPulsar() as pulsar:` serves `pulsar.service_url`; its switches work from the test's thread."""

    def __init__(
        self,
        directory: str | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        clock: Literal["real", "manual"] = "real",
    ) -> None:
        self._local = LocalPulsar(directory, settings, clock=clock)
        self._thread: LoopThread | None = None

    @property
    def service_url(self) -> str:
        return self._local.service_url

    def client(self, authentication: Authentication | None = None, **settings: Unpack[ClientKeywords]) -> Client:
        """A blocking client on the broker's own thread and clock, so that `advance` moves its timers too."""
        thread = self._running
        return Client.on(thread, thread.call(lambda: self._local.client(authentication, **settings)))

    # --- time --------------------------------------------------------------------------------------

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Move message time on (clock="manual"); returns when everything that became due has been done."""
        self._running.run(
            self._local.advance(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        )

    def now_ms(self) -> int:
        """Message time."""
        return self._local.clock.now_ms()

    # --- troubles ----------------------------------------------------------------------------------

    def restart(self) -> None:
        self._running.run(self._local.restart())

    def drop_connections(self) -> None:
        self._running.call(self._local.drop_connections)

    def slow_disk(self, milliseconds: float) -> None:
        self._running.call(lambda: self._local.slow_disk(milliseconds))

    def break_disk(self) -> None:
        self._running.call(self._local.break_disk)

    def mend_disk(self) -> None:
        self._running.call(self._local.mend_disk)

    # --- running -----------------------------------------------------------------------------------

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
