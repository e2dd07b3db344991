# SPDX-License-Identifier: Apache-2.0
"""Decoders under hostile bytes for a set time.

    python -m tests.fuzz.run [--minutes M | --inputs N] [--seed S] [--only WORD]
    python -m tests.fuzz.run --replay .results/fuzz/FILE     one input again

The decoders run in a process of their own whose memory is bounded, so that a length that is believed shows as a
failure, and so does a crash of native code. An input that takes longer than `INPUT_SECONDS_MAX` of the processor is a
failure, too; native code that does not come back at all is ended from outside. What fails is made smaller and kept
under .results/fuzz; the last line says how often each target was asked. The same seed and number of inputs ask the
same.
Carries.
"""

import argparse
import contextlib
import logging
import mmap
import os
import resource
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from types import FrameType
from typing import Final

from magnetar.errors import MagnetarError
from tests.fuzz.mutation import BYTES_MAX, hostile, smaller
from tests.fuzz.target import Target

KEPT = Path(__file__).resolve().parents[2] / ".results" / "fuzz"
# What decoders may take beyond what the process has when it begins; one input has 64 KiB.
MEMORY_BYTES_MAX: Final = 512 << 20
# Of the processor, not of the clock: other work on the machine makes nobody fail.
INPUT_SECONDS_MAX = 0.5
# After so long by the clock the process is ended: what hangs in native code sees no signal.
SILENT_SECONDS_MAX = 30.0
SMALLER_SECONDS_MAX = 20.0
INPUTS_BETWEEN_LOOKS: Final = 50
_FRONT_BYTES: Final = 4096


class TooSlowError(BaseException):
    """No decoder may catch it."""


def main(arguments: Sequence[str] | None = None, targets: Sequence[Target] = ()) -> int:
    given = _arguments(arguments)
    if not targets:
        from tests.fuzz.targets import TARGETS

        targets = TARGETS
    if given.replay is not None:
        return _replay(given.replay, targets)
    chosen = [each for each in targets if given.only in each.name]
    if not chosen:
        raise SystemExit(f"no target has {given.only!r} in its name; there are: {', '.join(t.name for t in targets)}")
    seed = secrets.randbits(32) if given.seed is None else given.seed
    print(f"{len(chosen)} decoders, seed {seed}", flush=True)
    return _apart(lambda asked: _run(chosen, Random(seed), given.inputs, given.minutes * 60, asked))


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--inputs", type=int, help="so many of each target instead")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", default="", help="targets with this word in their name")
    parser.add_argument("--replay", type=Path)
    return parser.parse_args(arguments)


def _apart(work: Callable[[mmap.mmap], int]) -> int:
    """In a process of its own, which a signal may end; what was asked last is then the failure."""
    asked = mmap.mmap(-1, BYTES_MAX + _FRONT_BYTES)
    child = os.fork()
    if child == 0:
        try:
            os._exit(work(asked))
        except BaseException:  # the forked process must not go on with what the first one does
            traceback.print_exc()
            os._exit(2)
    status, hung = _waited(child, asked)
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    target, data = _asked(asked)
    why = (
        f"did not come back within {SILENT_SECONDS_MAX:.0f} s"
        if hung
        else f"ended the process by signal {os.WTERMSIG(status)}"
    )
    print(f"{target} {why}: {_keep(target, data)}", flush=True)
    return 1


def _waited(child: int, asked: mmap.mmap) -> tuple[int, bool]:
    """The child's status, and whether it had to be ended because it went on with one input for too long."""
    last, since = asked[:_FRONT_BYTES], time.monotonic()
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status, False
        if asked[:_FRONT_BYTES] != last:
            last, since = asked[:_FRONT_BYTES], time.monotonic()
        if time.monotonic() - since > SILENT_SECONDS_MAX:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1], True
        time.sleep(0.02)


def _run(chosen: Sequence[Target], random: Random, inputs: int | None, seconds: float, asked: mmap.mmap) -> int:
    _bound(chosen)
    failed: dict[str, str] = {}
    counts = dict.fromkeys((target.name for target in chosen), 0)
    for target in _turns(chosen, inputs, seconds):
        for _ in range(INPUTS_BETWEEN_LOOKS if inputs is None else inputs):
            data = hostile(target.good, random)
            counts[target.name] += 1
            _note(asked, target.name, data, sum(counts.values()))
            why = failure(target, data)
            if why and target.name not in failed:
                least = _least(target, data, asked)
                failed[target.name] = f"{why}\n  {_keep(target.name, least)}"
                print(f"{target.name}: {failed[target.name]}", flush=True)
    print(
        f"{sum(counts.values()):,} inputs, at least {min(counts.values()):,} of each; {len(failed)} decoders failed",
        flush=True,
    )
    return 1 if failed else 0


def _bound(chosen: Sequence[Target]) -> None:
    for target in chosen:
        for data in target.good:
            failure(target, data)  # what it imports and allocates once is not held against it
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY_BYTES_MAX
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    logging.disable()


def _least(target: Target, data: bytes, asked: mmap.mmap) -> bytes:
    """A shorter input that fails as well, as far as time allows."""
    until = time.monotonic() + SMALLER_SECONDS_MAX
    number = 0

    def fails(part: bytes) -> bool:
        nonlocal number
        number -= 1
        if time.monotonic() > until:
            return False
        _note(asked, target.name, part, number)
        return bool(failure(target, part))

    return smaller(data, fails)


def _turns(chosen: Sequence[Target], inputs: int | None, seconds: float) -> Iterator[Target]:
    """Every target once for a number of inputs, or one after another until the time is over."""
    if inputs is not None:
        yield from chosen
        return
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield from chosen


def failure(target: Target, data: bytes) -> str:
    """What went wrong that may not; empty when the bytes were read or refused in time."""
    try:
        with _in_time():
            target.decode(data)
    except MagnetarError:
        return ""
    except TooSlowError:
        return f"it took more than {INPUT_SECONDS_MAX} s of the processor for {len(data)} bytes"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:200]} ({Path(last.filename).name}:{last.lineno})"
    return ""


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    before = signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, INPUT_SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlowError


def _note(asked: mmap.mmap, name: str, data: bytes, number: int) -> None:
    """Where the parent finds what was asked last; the number says that it is another than before."""
    asked.seek(0)
    asked.write(f"{name}\n{len(data)}\n{number}\n".encode())
    asked.write(data)


def _asked(asked: mmap.mmap) -> tuple[str, bytes]:
    asked.seek(0)
    name, size, _ = asked.readline().decode().strip(), int(asked.readline()), asked.readline()
    return name, asked.read(size)


def _keep(name: str, data: bytes) -> Path:
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{_file_name(name)}.{sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path


def _file_name(name: str) -> str:
    return name.replace(" ", "-").replace("/", "-")


def _replay(path: Path, targets: Sequence[Target]) -> int:
    name = path.name.rpartition(".")[0]
    target = next((each for each in targets if _file_name(each.name) == name), None)
    if target is None:
        known = ", ".join(sorted(_file_name(each.name) for each in targets))
        raise SystemExit(
            f"no target is called {name!r}, as the file's name says before its last dot; there are: {known}"
        )
    data = path.read_bytes()
    return _apart(lambda asked: _once(target, data, asked))


def _once(target: Target, data: bytes, asked: mmap.mmap) -> int:
    _bound([target])
    _note(asked, target.name, data, 1)
    why = failure(target, data)
    if why:
        print(f"{target.name}: {why}", flush=True)
        return 1
    try:
        print(f"read: {target.decode(data)!r}"[:2_000], flush=True)
    except MagnetarError as error:
        print(f"refused: {type(error).__name__}: {error}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
