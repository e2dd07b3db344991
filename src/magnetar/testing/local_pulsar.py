# SPDX-License-Identifier: Apache-2.0
"""A standalone on the caller's loop, with switches for what can go wrong.

Owns the disk, so that a restart or a crash finds what was durable and nothing else. Listens on a free loopback port,
the same one over all its restarts. Never starts a thread when the disk is in memory.
Assembles.
"""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from magnetar.config.load import Settings, load_settings
from magnetar.runtime.chance import fresh_seed, stream
from magnetar.runtime.clock import SystemClock, WallClock
from magnetar.runtime.disk import Disk
from magnetar.runtime.real_disk import RealDisk
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.simulated_faults import DiskFaults
from magnetar.standalone.standalone import Standalone


class LocalPulsar:
    """`async with LocalPulsar() as pulsar:` serves `pulsar.service_url` until the block ends.

    Settings are Pulsar's own keys: `LocalPulsar(settings={"maxMessageSize": "1048576"})`. With a directory the disk is
    real.
    """

    def __init__(
        self,
        directory: str | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        clock: WallClock | None = None,
        seed: int | None = None,
    ) -> None:
        self.seed = fresh_seed() if seed is None else seed
        self._directory = directory
        self._clock = clock or SystemClock()
        self._given = dict(settings or {})
        self._port = 0
        self._disk: Disk | None = None
        self._standalone: Standalone | None = None
        self._failure: BaseException | None = None
        self.service_url = ""

    async def __aenter__(self) -> Self:
        if self._directory is None:
            self._disk = SimulatedDisk(stream(self.seed, "disk"))
        else:
            self._disk = RealDisk(self._directory)
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stop()
        if self._disk is not None:
            await self._disk.close()
            self._disk = None
        if self._failure is not None and error is None:
            raise AssertionError("the broker failed during the test") from self._failure

    @property
    def standalone(self) -> Standalone:
        """The assembly inside, for tests that look behind the protocol."""
        assert self._standalone is not None, "the broker is not running"
        return self._standalone

    @property
    def disk_faults(self) -> DiskFaults:
        """Slow or failing storage: set its fields. Only for a disk in memory."""
        assert isinstance(self._disk, SimulatedDisk), "a real disk has no switches"
        return self._disk.kernel.faults

    def drop_connections(self) -> None:
        """Cut every client off at once; they reconnect by themselves."""
        for connection in self.standalone.broker.connections:
            connection.abort()

    async def restart(self) -> None:
        """Stop in order and start again on the same port and data."""
        await self._stop()
        await self._start()

    async def _start(self) -> None:
        assert self._disk is not None
        self._standalone = await Standalone.open(
            self._disk,
            self._settings(),
            clock=self._clock,
            random=stream(self.seed, "standalone"),
            on_failed=self._on_failed,
        )
        self.service_url = await self._standalone.start()
        self._port = int(self.service_url.rpartition(":")[2])

    async def _stop(self) -> None:
        if self._standalone is not None:
            standalone, self._standalone = self._standalone, None
            await standalone.stop()
            # The transports' last callbacks.
            await asyncio.sleep(0)

    def _settings(self) -> Settings:
        given = {"--port": str(self._port), "--http-port": "0", "journalPreAllocSizeMB": "1", **self._given}
        return load_settings((), {}, given)

    def _on_failed(self, error: BaseException) -> None:
        self._failure = self._failure or error
