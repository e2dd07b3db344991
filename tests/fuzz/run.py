# SPDX-License-Identifier: Apache-2.0
"""Decoders under hostile bytes for a set time.

    python -m tests.fuzz.run [--minutes M | --inputs N] [--seed S] [--only WORD]
    python -m tests.fuzz.run --replay .results/fuzz/FILE     one input again

The decoders run in a process of their own whose memory is bounded, so that a length that is believed shows as a
failure, and so does a crash of native code. What fails is made smaller and kept under .results/fuzz; the last line says
how often each target was asked. The same seed and number of inputs ask the same.
Carries.
"""

import argparse
import logging
import mmap
import os
import resource
import secrets
import sys
import time
import traceback
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final

from magnetar.errors import MagnetarError
from tests.fuzz.mutation import BYTES_MAX, hostile, smaller
from tests.fuzz.targets import TARGETS, Target

KEPT: Final = Path(__file__).resolve().parents[2] / ".results" / "fuzz"
# What decoders may take beyond what the process has when it begins; one input has 64 KiB.
MEMORY_BYTES_MAX: Final = 512 << 20
INPUTS_BETWEEN_LOOKS: Final = 50


def main() -> int:
    arguments = _arguments()
    if arguments.replay is not None:
        return _replay(arguments.replay)
    chosen = [each for each in TARGETS if arguments.only in each.name]
    if not chosen:
        raise SystemExit(
            f"no target has {arguments.only!r} in its name; there are: {', '.join(t.name for t in TARGETS)}"
        )
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    print(f"{len(chosen)} decoders, seed {seed}", flush=True)
    asked = mmap.mmap(-1, BYTES_MAX + 4096)
    child = os.fork()
    if child == 0:
        os._exit(_run(chosen, Random(seed), arguments.inputs, arguments.minutes * 60, asked))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        target, data = _asked(asked)
        print(f"{target} ended the process by signal {os.WTERMSIG(status)}: {_keep(target, data)}", flush=True)
        return 1
    return os.WEXITSTATUS(status)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--inputs", type=int, help="so many of each target instead")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", default="", help="targets with this word in their name")
    parser.add_argument("--replay", type=Path)
    return parser.parse_args()


def _run(chosen: list[Target], random: Random, inputs: int | None, seconds: float, asked: mmap.mmap) -> int:
    for target in chosen:
        for data in target.good:
            failure(target, data)  # what it imports and allocates once is not held against it
    _bound_memory()
    logging.disable()
    failed: dict[str, str] = {}
    counts = dict.fromkeys((target.name for target in chosen), 0)
    for target in _turns(chosen, inputs, seconds):
        for _ in range(INPUTS_BETWEEN_LOOKS if inputs is None else inputs):
            data = hostile(target.good, random)
            _note(asked, target.name, data)
            counts[target.name] += 1
            why = failure(target, data)
            if why and target.name not in failed:
                least = smaller(data, lambda part, target=target: bool(failure(target, part)))  # type: ignore[misc]
                failed[target.name] = f"{why}\n  {_keep(target.name, least)}"
                print(f"{target.name}: {failed[target.name]}", flush=True)
    least_asked = min(counts.values())
    print(
        f"{sum(counts.values()):,} inputs, at least {least_asked:,} of each; {len(failed)} decoders failed", flush=True
    )
    return 1 if failed else 0


def _turns(chosen: list[Target], inputs: int | None, seconds: float) -> Iterator[Target]:
    """Every target once for a number of inputs, or one after another until the time is over."""
    if inputs is not None:
        yield from chosen
        return
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield from chosen


def failure(target: Target, data: bytes) -> str:
    """What went wrong that may not; empty when the bytes were read or refused."""
    try:
        target.decode(data)
    except MagnetarError:
        return ""
    except (Exception, RecursionError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:200]} ({Path(last.filename).name}:{last.lineno})"
    return ""


def _bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY_BYTES_MAX
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _note(asked: mmap.mmap, name: str, data: bytes) -> None:
    """Where the parent finds what was asked last."""
    asked.seek(0)
    asked.write(f"{name}\n{len(data)}\n".encode())
    asked.write(data)


def _asked(asked: mmap.mmap) -> tuple[str, bytes]:
    asked.seek(0)
    name, size = asked.readline().decode().strip(), int(asked.readline())
    return name, asked.read(size)


def _keep(name: str, data: bytes) -> Path:
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{name.replace(' ', '-')}.{sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path


def _replay(path: Path) -> int:
    name = path.name.rpartition(".")[0].replace("-", " ")
    target = next(each for each in TARGETS if each.name.replace("-", " ") == name)
    try:
        print(target.decode(path.read_bytes()))
    except MagnetarError as error:
        print(f"refused: {type(error).__name__}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
