# SPDX-License-Identifier: Apache-2.0
"""`--workers N`: several broker processes for the cores of one machine, which share its bundles and one address.

The parent serves no client. It reserves the shared ports, holds the data directory, keeps the workers running, and in a
standalone has the metadata and the bookie that they all use.
Assembles.
"""

import os
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.bookie.rocks_index import RocksLedgerIndex
from magnetar.cli.exposure import check_exposure
from magnetar.cli.role import RoleFlags, announce, role_settings
from magnetar.cli.shared_ports import free_port, is_free, reserve
from magnetar.cli.supervisor import Supervisor
from magnetar.cli.worker import shared_front
from magnetar.cli.worker_plan import Charge, Ports, Worker, decode_ports, encode_charge, encode_ports, own_ports
from magnetar.config.key import BROKER, STANDALONE
from magnetar.config.load import Settings
from magnetar.errors import BadSetting, CannotStart
from magnetar.runtime.blocking_calls import BlockingCalls
from magnetar.runtime.chance import fresh_seed, stream
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.disk import Disk
from magnetar.runtime.log import start_logging
from magnetar.runtime.loop import Process, run
from magnetar.runtime.real_disk import RealDisk
from magnetar.runtime.tasks import Tasks
from magnetar.standalone.door_ports import DoorPorts
from magnetar.standalone.doors import open_doors
from magnetar.standalone.ground import open_ground

PORTS_FILE: Final = "workers.json"
_PORTS_BYTES_MAX: Final = 65_536
_INDEX_THREADS: Final = 2
# Of the time for an orderly stop; the rest is for storage and metadata.
_WORKERS_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True)
class WorkerFlags:
    """How many workers there are, and where they listen."""

    count: int
    # The first of the workers' own ports; None: free ones, the same at each start.
    first_port: int | None = None


def run_broker_workers(flags: RoleFlags, given: dict[str, str | None], workers: WorkerFlags) -> int:
    """Several brokers of a cluster whose metadata and bookies are elsewhere; returns the exit code."""
    settings = _checked(role_settings(flags, BROKER, given))
    url = settings.metadata.url
    if url.partition(":")[0] in ("memory", "embedded"):
        raise CannotStart(
            "Brokers need the metadata that their bookies are listed in: give --metadata zk:…, etcd:… or remote:…, "
            "or use `magnetar standalone --workers`"
        )

    async def serve(process: Process) -> None:
        async with AsyncExitStack() as opened:
            disk = RealDisk(flags.data_dir)
            opened.push_async_callback(disk.close)
            await disk.make_directory(".")
            lock = await disk.lock("broker.lock")
            opened.push_async_callback(lock.release)
            tasks = Tasks("workers", process.fail)
            opened.push_async_callback(tasks.close)
            facts = await _supervise(
                opened, tasks, disk, settings, flags._replace(metadata=url), given, BROKER, workers
            )
            _announce(f"Magnetar broker of cluster '{settings.broker.cluster_name}'", facts, flags, workers)
            process.serving()
            await process.stop_requested()

    return run(serve, settings.runtime)


def run_standalone_workers(
    flags: RoleFlags, given: dict[str, str | None], workers: WorkerFlags, doors: DoorPorts
) -> int:
    """Everything on one machine, with several brokers; returns the exit code."""
    settings = _checked(role_settings(flags, STANDALONE, given))
    directory = os.path.abspath(flags.data_dir)

    async def serve(process: Process) -> None:
        async with AsyncExitStack() as opened:
            disk = RealDisk(flags.data_dir)
            opened.push_async_callback(disk.close)
            calls = BlockingCalls(_INDEX_THREADS, name="index")
            opened.push_async_callback(calls.close)
            ground = await open_ground(
                opened,
                disk,
                settings,
                clock=SystemClock(),
                random=stream(fresh_seed(), "standalone"),
                on_failed=lambda error: process.fail("standalone", error),
                index_factory=lambda directory: RocksLedgerIndex.open(
                    str(Path(flags.data_dir) / directory), calls, settings.bookie
                ),
            )
            ports = DoorPorts(doors.bookie or 0, doors.metadata or 0)
            urls = await open_doors(opened, ports, disk, ground.storage, ground.store, settings, ground.tasks)
            told = flags._replace(metadata=urls["metadata"])
            facts = await _supervise(opened, ground.tasks, disk, settings, told, given, STANDALONE, workers)
            facts |= urls | {"data directory": directory}
            _announce(f"Magnetar standalone serves cluster '{settings.broker.cluster_name}'", facts, flags, workers)
            process.serving()
            await process.stop_requested()

    return run(serve, settings.runtime)


def _checked(settings: Settings) -> Settings:
    if settings.broker.advertised_listeners or settings.broker.bind_addresses:
        raise BadSetting(
            "advertisedListeners and bindAddresses name one port, and each worker has its own: "
            "start without --workers, or give advertisedAddress"
        )
    check_exposure(settings, sys.stderr.write)
    start_logging(settings.runtime, sys.stderr)
    return settings


async def _supervise(
    opened: AsyncExitStack,
    tasks: Tasks,
    disk: Disk,
    settings: Settings,
    flags: RoleFlags,
    given: dict[str, str | None],
    role: str,
    workers: WorkerFlags,
) -> dict[str, str]:
    """Start the workers and keep them running; returns where they serve together."""
    shared = _reserve(opened, settings)
    front = shared_front(shared, settings.broker.advertised_address)
    facts = {
        "clients": front.service_url or front.service_url_tls,
        "administration": front.web_url or front.web_url_tls,
    }
    charge = Charge("", role, shared, shared)
    own = await _own_ports(disk, settings, workers)
    supervisor = Supervisor(tasks, settings.runtime.drain_timeout_ms / 1000 * _WORKERS_SHARE)
    opened.push_async_callback(supervisor.stop)
    await supervisor.start(
        [_worker(flags, given, _charged(charge, number, each)) for number, each in enumerate(own, 1)]
    )
    return facts


def _reserve(opened: AsyncExitStack, settings: Settings) -> Ports:
    broker, security = settings.broker, settings.security
    wanted = (
        (broker.port, "--port"),
        (broker.http_port, "--http-port"),
        (security.tls_port, "brokerServicePortTls"),
        (security.https_port, "webServicePortTls"),
    )
    taken = []
    for port, setting in wanted:
        if port >= 0:
            held = reserve(broker.bind_address, port, setting)
            opened.callback(held.close)
            port = held.getsockname()[1]
        taken.append(port)
    return Ports(*taken)


async def _own_ports(disk: Disk, settings: Settings, workers: WorkerFlags) -> list[Ports]:
    address = settings.broker.bind_address
    kept = []
    if await disk.exists(PORTS_FILE):
        kept = decode_ports(await disk.read_file(PORTS_FILE, bytes_max=_PORTS_BYTES_MAX))
    ports = own_ports(
        workers.count, workers.first_port, kept, lambda port: is_free(address, port), lambda: free_port(address)
    )
    await disk.replace_file(PORTS_FILE, encode_ports([*ports, *kept[len(ports) :]]))
    return ports


def _charged(charge: Charge, number: int, own: Ports) -> Charge:
    """Of its own it has what the shared ports have."""
    own = Ports(*(port if front >= 0 else -1 for port, front in zip(own, charge.shared, strict=True)))
    return charge._replace(name=f"worker-{number}", own=own)


def _worker(flags: RoleFlags, given: dict[str, str | None], charge: Charge) -> Worker:
    directory = Path(flags.data_dir).absolute() / charge.name
    ready = str(directory / "ready.json")
    words = ["broker", "--metadata", flags.metadata or "", "--data-dir", str(directory), "--ready-file", ready]
    words += [word for name in flags.config for word in ("--config", name)]
    if given.get("--bind") is not None:
        words += ["--bind", given["--bind"] or ""]
    if flags.json:
        words.append("--json")
    words += ["--worker", encode_charge(charge)]
    command = (sys.executable, "-m", "magnetar.cli.entry", *words)
    return Worker(charge.name, command, str(directory), ready)


def _announce(title: str, facts: dict[str, str], flags: RoleFlags, workers: WorkerFlags) -> None:
    ready: dict[str, str | int] = {
        "serviceUrl": facts["clients"],
        "webServiceUrl": facts["administration"],
        "dataDirectory": os.path.abspath(flags.data_dir),
        "workers": workers.count,
    }
    ready |= {f"{name}Url": facts[name] for name in ("bookie", "metadata") if name in facts}
    announce(title, {**facts, "workers": str(workers.count)}, flags, ready)
