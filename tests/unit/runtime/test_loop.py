# SPDX-License-Identifier: Apache-2.0
"""A process from start to exit code: real processes, real signals."""

import signal
import subprocess
import sys
import textwrap

import pytest

HEAD = """
import asyncio, os, sys
from magnetar.config.runtime import RuntimeSettings
from magnetar.errors import BadSetting, CannotStart
from magnetar.runtime.log import start_logging
from magnetar.runtime.loop import Process, run
from magnetar.runtime.tasks import Tasks

def say(text):
    print(text, flush=True)
"""
EVENT_LOOPS = ("uvloop", "asyncio")


def start(
    main: str, *, event_loop: str = "uvloop", settings: str = "", flags: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    tail = f"""
settings = RuntimeSettings(event_loop={event_loop!r}, log_format="human", {settings})
start_logging(settings)
sys.exit(run(main, settings))
"""
    program = HEAD + textwrap.dedent(main) + tail
    command = [sys.executable, *flags, "-c", program]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def wait_for_line(process: subprocess.Popen[str], expected: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == expected


SERVES = """
async def main(process):
    process.serving()
    say("serving")
    await process.stop_requested()
    assert process.is_stopping
    await asyncio.sleep(0)
    say("drained")
"""


@pytest.mark.parametrize("event_loop", EVENT_LOOPS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_exits_with_0(event_loop: str, number: signal.Signals) -> None:
    process = start(SERVES, event_loop=event_loop)
    wait_for_line(process, "serving")
    process.send_signal(number)
    code, out, err = finish(process)
    assert (code, out) == (0, "drained\n")
    assert f"stopping: received {number.name}" in err


def test_a_second_signal_ends_at_once() -> None:
    process = start(
        """
        async def main(process):
            say("serving")
            await process.stop_requested()
            say("draining")
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                say("never said")
        """
    )
    wait_for_line(process, "serving")
    process.send_signal(signal.SIGTERM)
    wait_for_line(process, "draining")
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert (code, out) == (128 + signal.SIGTERM, "")
    assert "second signal (SIGTERM)" in err


def test_a_drain_that_takes_too_long_is_cut_off() -> None:
    process = start(
        """
        async def main(process):
            say("serving")
            await process.stop_requested()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                say("cancelled")
        """,
        settings="drain_timeout_ms=10",
    )
    wait_for_line(process, "serving")
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert (code, out) == (3, "cancelled\n")
    assert "not drained after 10 ms" in err


def test_a_main_that_will_not_end_is_abandoned() -> None:
    process = start(
        """
        import magnetar.runtime.loop as loop_module
        loop_module.ABANDON_S = 0.01

        async def main(process):
            say("serving")
            while True:
                try:
                    await asyncio.get_running_loop().create_future()
                except asyncio.CancelledError:
                    say("no")
        """,
        settings="drain_timeout_ms=1",
    )
    wait_for_line(process, "serving")
    process.send_signal(signal.SIGTERM)
    code, out, _ = finish(process)
    assert (code, out) == (3, "no\n")


def test_a_crashed_task_stops_the_process_in_order_with_exit_code_1() -> None:
    code, out, err = finish(
        start(
            """
            async def dies():
                raise ValueError("disk on fire")

            async def main(process):
                tasks = Tasks("bookie", process.fail)
                tasks.start(dies(), "journal")
                await process.stop_requested()
                await tasks.close()
                say("closed")
            """
        )
    )
    assert (code, out) == (1, "closed\n")
    assert "stopping: bookie/journal failed: ValueError: disk on fire" in err


@pytest.mark.parametrize("event_loop", EVENT_LOOPS)
def test_an_error_in_a_bare_callback_stops_the_process(event_loop: str) -> None:
    code, out, err = finish(
        start(
            """
            def breaks():
                raise AssertionError("impossible state")

            async def main(process):
                asyncio.get_running_loop().call_soon(breaks)
                await process.stop_requested()
                say("closed")
            """,
            event_loop=event_loop,
        )
    )
    assert (code, out) == (1, "closed\n")
    assert "impossible state" in err


@pytest.mark.parametrize("event_loop", EVENT_LOOPS)
@pytest.mark.parametrize("said", ["turn_end().run()", "None"], ids=["the event's end", "the next turn"])
def test_an_error_at_the_end_of_a_turn_stops_the_process(event_loop: str, said: str) -> None:
    code, out, err = finish(
        start(
            f"""
            from magnetar.runtime.turn_end import turn_end

            def breaks():
                raise AssertionError("impossible state")

            async def main(process):
                turn_end().call(breaks)
                {said}
                await process.stop_requested()
                say("closed")
            """,
            event_loop=event_loop,
        )
    )
    assert (code, out) == (1, "closed\n")
    assert "impossible state" in err


def test_what_cannot_start_says_one_sentence() -> None:
    for error in ("CannotStart", "BadSetting"):
        code, out, err = finish(
            start(f"async def main(process):\n    raise {error}('port 6650 is taken: use --port')\n")
        )
        assert (code, out, err) == (2, "", "magnetar: port 6650 is taken: use --port\n")


def test_a_bug_in_main_is_logged_with_its_traceback() -> None:
    code, _, err = finish(start("async def main(process):\n    raise TimeoutError('not the drain')\n"))
    assert code == 1
    assert "Traceback" in err
    assert "not the drain" in err


def test_main_may_end_by_itself() -> None:
    code, out, err = finish(start("async def main(process):\n    process.stop('done')\n    process.stop('again')\n"))
    assert (code, out) == (0, "")
    assert err.count("stopping: ") == 1


def test_assertions_must_be_on() -> None:
    code, _, err = finish(start(SERVES, flags=("-O",)))
    assert code == 2
    assert "assertions are switched off" in err


def test_the_switch_interval_is_set() -> None:
    main = "async def main(process):\n    say(round(sys.getswitchinterval() * 1e6))\n"
    assert finish(start(main, settings="switch_interval_us=700"))[:2] == (0, "700\n")
