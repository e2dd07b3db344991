# SPDX-License-Identifier: Apache-2.0
"""The start and the end of a process: its event loop, its signals, its exit code.

Owns the loop, the signal handlers and the deadline of an orderly stop. The first SIGTERM or SIGINT asks the main
coroutine to stop and drain; a second one ends the process at once, which storage survives as it survives a power cut.
Never knows what runs on the loop.
Assembles.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

import uvloop

from magnetar.config.runtime import RuntimeSettings
from magnetar.errors import BadSetting, CannotStart
from magnetar.runtime.collector import Collector
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.short_turns import ask_for_short_turns

EXIT_STOPPED: Final = 0
EXIT_FAILED: Final = 1
EXIT_CANNOT_START: Final = 2
EXIT_DRAIN_TIMED_OUT: Final = 3
# What a main coroutine may take beyond its cancellation before the process ends without it.
ABANDON_S: Final = 10.0

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)


class Process:
    """What a main coroutine knows of its process: whether to stop, and whom to tell of a crash."""

    def __init__(self, settings: RuntimeSettings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.exit_code = EXIT_STOPPED
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._when_stopping: list[Callable[[], None]] = []
        self._deadline: asyncio.Timeout | None = None
        self._abandon: asyncio.TimerHandle | None = None
        self._collector = Collector(settings, metrics)

    def serving(self) -> None:
        """Everything has started: from now on the collector leaves alone what is there."""
        self._collector.settle()

    def stop(self, reason: str) -> None:
        """Ask for an orderly stop. Asking again changes nothing."""
        if self._stop.is_set():
            return
        _log.info("stopping: %s", reason)
        self._stop.set()
        for call in self._when_stopping:
            call()
        patience_s = self.settings.drain_timeout_ms / 1000
        if self._deadline is not None:
            self._deadline.reschedule(self._loop.time() + patience_s)
        self._abandon = self._loop.call_later(patience_s + ABANDON_S, self._end_now, EXIT_DRAIN_TIMED_OUT)

    def fail(self, name: str, error: BaseException) -> None:
        """A component died; what is left stops in order, and the exit code tells. Fits `Tasks` as on_crash."""
        self.exit_code = EXIT_FAILED
        self.stop(f"{name} failed: {type(error).__name__}: {error}")

    def abandon(self, reason: str) -> None:
        """End at once, as a power cut would end it: nothing that is left could be done in order."""
        _log.error("ending at once: %s", reason)
        self._end_now(EXIT_FAILED)

    def when_stopping(self, call: Callable[[], None]) -> None:
        """Called on the loop once a stop is asked for, before anything is closed; at once when it has been."""
        self._when_stopping.append(call)
        if self.is_stopping:
            call()

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    async def stop_requested(self) -> None:
        """Returns once the process shall stop; then close everything and return from main."""
        await self._stop.wait()

    async def _run(self, main: Callable[["Process"], Coroutine[Any, Any, None]]) -> int:
        for number in _SIGNALS:
            self._loop.add_signal_handler(number, self._on_signal, number)
        self._loop.set_exception_handler(self._on_loop_error)
        try:
            async with asyncio.timeout(None) as self._deadline:
                await main(self)
        except TimeoutError as error:
            if self._deadline is None or not self._deadline.expired():
                raise
            _log.error("not drained after %d ms: %s", self.settings.drain_timeout_ms, error)
            return EXIT_DRAIN_TIMED_OUT
        finally:
            self._collector.close()
            if self._abandon is not None:
                self._abandon.cancel()
            for number in _SIGNALS:
                self._loop.remove_signal_handler(number)
        return self.exit_code

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stop.is_set():
            _log.warning("second signal (%s): ending at once", number.name)
            self._end_now(128 + number)
        self.stop(f"received {number.name}")

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        _log.error("event loop: %s", context.get("message", "error"), exc_info=error)
        # An error in a bare callback has no owner who could go down with it. A protocol's error closes its transport.
        if "handle" in context and isinstance(error, Exception):
            self.fail("a callback", error)

    def _end_now(self, exit_code: int) -> None:
        logging.shutdown()
        os._exit(exit_code)


def run(
    main: Callable[[Process], Coroutine[Any, Any, None]],
    settings: RuntimeSettings,
    metrics: Metrics | None = None,
) -> int:
    """Run main on a fresh loop until it returns; the result is the exit code for `sys.exit`."""
    if not __debug__:
        return _cannot_start(CannotStart("assertions are switched off: start Python without -O and PYTHONOPTIMIZE"))
    sys.setswitchinterval(settings.switch_interval_us / 1_000_000)
    factory = uvloop.new_event_loop if settings.event_loop == "uvloop" else asyncio.new_event_loop

    async def supervised() -> int:
        return await Process(settings, metrics or Metrics(settings.metric_series_max))._run(main)

    ask_for_short_turns()
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(supervised())
    except (CannotStart, BadSetting) as refusal:
        return _cannot_start(refusal)
    except Exception:
        _log.exception("the process failed")
        return EXIT_FAILED


def _cannot_start(refusal: CannotStart | BadSetting) -> int:
    sys.stderr.write(f"magnetar: {refusal}\n")
    return EXIT_CANNOT_START
