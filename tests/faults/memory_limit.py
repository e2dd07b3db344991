# SPDX-License-Identifier: Apache-2.0
"""So much more memory a process may take; then it is ended, as the kernel ends who has none left: by SIGKILL.

Where a control group can be made, the kernel does it, and takes back what it can of the files' pages before. Elsewhere
a thread looks at what the process holds.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LOOK_S = 0.002
_GROUPS = Path("/sys/fs/cgroup")


@contextmanager
def limited(pid: int, more_bytes: int) -> Iterator[None]:
    """As long as this lasts."""
    try:
        end = _limit_by_kernel(pid, more_bytes)
    except OSError:
        end = _limit_by_looking(pid, more_bytes)
    try:
        yield
    finally:
        end()


def _limit_by_kernel(pid: int, more_bytes: int) -> Callable[[], None]:
    """What it has already stays on the account of the group that it comes from."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers == "memory":
            above, limit = _GROUPS / "memory" / place.lstrip("/"), "memory.limit_in_bytes"
            break
    else:
        above, limit = _GROUPS / place.lstrip("/"), "memory.max"
    group = above / f"magnetar-{pid}"
    group.mkdir()
    try:
        (group / limit).write_text(str(more_bytes))
        (group / "cgroup.procs").write_text(str(pid))
    except OSError:
        group.rmdir()
        raise

    def end() -> None:
        with contextlib.suppress(OSError):
            (group / limit).write_text("-1" if limit == "memory.limit_in_bytes" else "max")
            (above / "cgroup.procs").write_text(str(pid))
        group.rmdir()

    return end


def _limit_by_looking(pid: int, more_bytes: int) -> Callable[[], None]:
    ended = threading.Event()
    process = os.pidfd_open(pid)
    limit = _held_bytes(pid) + more_bytes

    def look() -> None:
        with contextlib.suppress(OSError):
            while not ended.wait(_LOOK_S):
                if _held_bytes(pid) > limit:
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    return

    thread = threading.Thread(target=look)
    thread.start()

    def end() -> None:
        ended.set()
        thread.join()
        os.close(process)

    return end


def _held_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
