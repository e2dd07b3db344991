# SPDX-License-Identifier: Apache-2.0
"""What the machine says of its use: processors, memory of this process, network.

Counters since the start, as Linux keeps them; where they are not to be had, nothing is used.
Carries.
"""

import os
from typing import NamedTuple


class HostReading(NamedTuple):
    processors: int
    # Seconds of processor time that this machine has been busy, over all processors.
    busy_s: float = 0.0
    memory_bytes: float = 0.0
    memory_limit_bytes: float = 0.0
    received_bytes: int = 0
    sent_bytes: int = 0


def read_host() -> HostReading:
    """Small files that the kernel makes up: reading them does not wait for a disk."""
    processors = os.cpu_count() or 1
    page = os.sysconf("SC_PAGE_SIZE")
    statm = _words("/proc/self/statm")
    received, sent = _network()
    return HostReading(
        processors,
        _busy_s(),
        float(statm[1]) * page if len(statm) > 1 else 0.0,
        float(os.sysconf("SC_PHYS_PAGES") * page),
        received,
        sent,
    )


def _busy_s() -> float:
    """User, nice, system, interrupts and what others took; not idle and not waiting for a disk."""
    words = _words("/proc/stat")
    if len(words) < 9 or words[0] != "cpu":
        return 0.0
    user, nice, system, _, _, irq, soft, steal = (int(word) for word in words[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def _network() -> tuple[int, int]:
    received = sent = 0
    for line in _text("/proc/net/dev").splitlines()[2:]:
        name, _, counters = line.partition(":")
        words = counters.split()
        if name.strip() != "lo" and len(words) > 8:
            received, sent = received + int(words[0]), sent + int(words[8])
    return received, sent


def _words(path: str) -> list[str]:
    return _text(path).split(maxsplit=20)


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
