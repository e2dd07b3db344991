# SPDX-License-Identifier: Apache-2.0
"""The servers that loads run against: a Magnetar standalone, and the same questions asked of whatever else is measured.

Memory is PSS (what the processes would give back), summed over a server's whole process tree; CPU likewise.
"""

import compileall
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import psutil

import magnetar
from magnetar.config.admin import AdminSettings
from magnetar.wire import compiled
from tests.processes import StandaloneProcess


class Server(Protocol):
    """One running broker with its storage, on loopback, every receipt after a sync."""

    name: str

    @property
    def data_directory(self) -> Path: ...

    @property
    def service_url(self) -> str: ...

    @property
    def web_url(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def start(self) -> object: ...

    def kill(self) -> None: ...

    def admin(self, *words: str) -> list[str]:
        """The command line of one admin command on the shell."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class Peer(Protocol):
    """A kind of server: what it is called, what is said of it beside its numbers, and how one is made."""

    name: str

    def words(self) -> str: ...

    def server(self, directory: Path, config: dict[str, str] | None = None) -> Server: ...


class MagnetarServer(StandaloneProcess):
    """A standalone with its defaults, or with a few keys changed."""

    name = "magnetar"

    def __init__(self, directory: Path, config: dict[str, str] | None = None) -> None:
        arguments: list[str] = []
        if config:
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / "broker.conf"
            path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
            arguments = ["--config", str(path)]
        super().__init__(directory, *arguments)
        directory.mkdir(parents=True, exist_ok=True)

    def admin(self, *words: str) -> list[str]:
        return [str(Path(sys.executable).with_name("magnetar")), "admin", "--admin-url", self.web_url, *words]


class Magnetar:
    """This working copy, with bytecode as an installed one has it, whatever the environment says about writing it."""

    name = "magnetar"

    def __init__(self) -> None:
        compileall.compile_dir(Path(magnetar.__file__).parent, quiet=1)

    def words(self) -> str:
        python = ".".join(map(str, sys.version_info[:3]))
        return (
            f"Magnetar {version('magnetar')} at {_commit()}, Python {python}, uvloop {version('uvloop')}, "
            f"official client {version('pulsar-client')}, "
            f"compiled twins {'in use' if compiled.load() is not None else 'not in use'}, defaults, sync before receipt"
        )

    def server(self, directory: Path, config: dict[str, str] | None = None) -> Server:
        return MagnetarServer(directory, config)


def _commit() -> str:
    house = Path(__file__).resolve().parent.parent
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=house, capture_output=True, text=True)
    changed = subprocess.run(["git", "status", "--porcelain", "-uno"], cwd=house, capture_output=True, text=True)
    commit = asked.stdout.strip() or "an unknown commit"
    return f"{commit} with changes" if changed.stdout.strip() else commit


def family(pid: int) -> list[psutil.Process]:
    first = psutil.Process(pid)
    return [first, *first.children(recursive=True)]


def pss_mb(pid: int) -> float:
    """Megabytes that belong to these processes alone, and their share of what is shared."""
    total = 0
    for process in family(pid):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def cpu_s(pid: int) -> float:
    """Seconds of all cores that a server has used so far."""
    return sum(time.clock_gettime(_cpu_clock(process.pid)) for process in family(pid))


def _cpu_clock(pid: int) -> int:
    """Linux's clock of what a process has used, ended threads included, which is finer than its ticks of 10 ms."""
    return ~pid << 3 | 2


def disk_bytes(directory: Path) -> int:
    """Blocks that a data directory takes: what is allocated ahead counts, holes do not."""
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def until_settled(pid: int, limit_s: float = 60.0) -> None:
    """Until a server has written out what the last load left behind: less than a megabyte in a second.

    And the system what any of the others did: the disk is everybody's.
    """
    until = time.monotonic() + limit_s
    before = _written_bytes(pid)
    while time.monotonic() < until:
        time.sleep(1.0)
        now = _written_bytes(pid)
        if now - before < 2**20:
            break
        before = now
    os.sync()


def _written_bytes(pid: int) -> int:
    return sum(process.io_counters().write_bytes for process in family(pid))


def busy_percent(pid: int, seconds: float) -> float:
    """Percent of one core over so many seconds."""
    before, since = cpu_s(pid), time.perf_counter()
    time.sleep(seconds)
    return (cpu_s(pid) - before) / (time.perf_counter() - since) * 100


def scraped(web_url: str) -> dict[str, float]:
    """A server's exported metrics, summed over their labels."""
    found: dict[str, float] = {}
    with urllib.request.urlopen(f"{web_url}/metrics", timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            if line and not line.startswith("#"):
                name = line.partition("{")[0].split()[0]
                value = (line.rpartition("}")[2] if "}" in line else line.removeprefix(name)).split()[0]
                found[name] = found.get(name, 0.0) + float(value)
    return found


def freshly_scraped(web_url: str) -> dict[str, float]:
    """Not the text of a scrape of a moment ago, which is answered again for a while."""
    time.sleep(AdminSettings().metrics_kept_ms / 1000)
    return scraped(web_url)


class Disk(NamedTuple):
    """What data directories lie on, which is half of what is measured."""

    kind: str
    device: str
    free_gb: float
    total_gb: float = 0.0

    @property
    def room_gb(self) -> float:
        """Servers stop writing where less than a twentieth of a disk is free."""
        return self.free_gb - self.total_gb / 20

    @property
    def is_memory(self) -> bool:
        return self.kind in ("tmpfs", "ramfs")

    @property
    def words(self) -> str:
        return f"data on {self.kind} ({self.device}), {self.free_gb:.0f} GB free"


def disk_of(directory: Path) -> Disk:
    """That of a directory which is there; where one is mounted over another, the upper one."""
    within = directory.resolve()
    mounted = [
        each for each in psutil.disk_partitions(all=True) if within.is_relative_to(each.mountpoint) and each.fstype
    ]
    last = max(enumerate(mounted), key=lambda each: (len(each[1].mountpoint), each[0]), default=None)
    kind, device = (last[1].fstype, last[1].device) if last else ("an unknown file system", "no device")
    usage = shutil.disk_usage(within)
    return Disk(kind, device, usage.free / 2**30, usage.total / 2**30)


def machine_words(directory: Path | None = None) -> str:
    """The machine, with the disk under a directory or under the temporary ones."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "an unnamed processor",
    )
    memory_gb = psutil.virtual_memory().total / 2**30
    kernel = os.uname()
    disk = disk_of(directory or Path(tempfile.gettempdir())).words
    return f"{os.cpu_count()} cores ({model}), {memory_gb:.0f} GB, {kernel.sysname} {kernel.release}, {disk}"
