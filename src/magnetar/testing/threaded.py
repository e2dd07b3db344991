# SPDX-License-Identifier: Apache-2.0
"""A LocalPulsar in a thread and loop of its own, for blocking clients in any language.

Carries.
"""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from magnetar.testing.local_pulsar import LocalPulsar

Result = TypeVar("Result")
CALL_LIMIT_S = 60.0


class ThreadedPulsar:
    """`with ThreadedPulsar() as pulsar:` serves `pulsar.service_url`; its switches work from the test's thread."""

    def __init__(self, directory: str | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._local = LocalPulsar(directory, settings)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="magnetar-testing", daemon=True)

    @property
    def service_url(self) -> str:
        return self._local.service_url

    def restart(self) -> None:
        self._run(self._local.restart())

    def drop_connections(self) -> None:
        async def drop() -> None:
            self._local.drop_connections()

        self._run(drop())

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self._local.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._run(self._local.__aexit__(kind, error, traceback))
        finally:
            self._end()

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_LIMIT_S)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
