# SPDX-License-Identifier: Apache-2.0
"""`magnetar broker`: a broker of a cluster, which stores with the bookies that the metadata lists.

The same parts as a standalone's, joined by TCP.
Assembles.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Final

from magnetar.admin.server import AdminServer, take_ports
from magnetar.broker.broker import Broker
from magnetar.broker.ownership.cluster import Clustering
from magnetar.cli.exposure import check_exposure
from magnetar.cli.ledger_client import ledger_client
from magnetar.cli.machine import describe_memory
from magnetar.cli.role import RoleFlags, announce, cluster_store, role_settings
from magnetar.cli.worker import end_with_supervisor, front_of, open_front, own_settings
from magnetar.cli.worker_plan import Charge
from magnetar.config.key import BROKER
from magnetar.config.load import Settings
from magnetar.errors import CannotStart
from magnetar.managed_ledger.managed_ledgers import ManagedLedgers
from magnetar.metadata.cluster_identity import check_cluster
from magnetar.metadata.format_level import FormatLevel
from magnetar.metadata.measured import measured_store
from magnetar.metadata.session_policy import apply_session_policy
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.chance import fresh_seed, stream
from magnetar.runtime.clock import SystemClock, WallClock
from magnetar.runtime.disk import Disk
from magnetar.runtime.log import start_logging
from magnetar.runtime.loop import Process, run
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.real_disk import RealDisk
from magnetar.runtime.tasks import Tasks
from magnetar.websocket.opening import opener as websocket_opener

_INSTANCE: Final = "broker-instance"
_INSTANCE_BYTES_MAX: Final = 100


def run_broker(flags: RoleFlags, given: dict[str, str | None], charge: Charge | None = None) -> int:
    """Serve until told to stop; returns the exit code. With a charge it is one worker of several."""
    if charge is not None:
        given = {**given, **own_settings(charge)}
    asked = role_settings(flags, BROKER if charge is None else charge.role, given)
    if charge is None:
        check_exposure(asked, sys.stderr.write)
    start_logging(asked.runtime, sys.stderr)

    async def serve(process: Process) -> None:
        if charge is not None:
            end_with_supervisor(process)
        clock = SystemClock()
        async with AsyncExitStack() as opened:
            ports, settings = opened.enter_context(take_ports(asked))
            disk = RealDisk(flags.data_dir)
            opened.push_async_callback(disk.close)
            random = stream(fresh_seed(), "broker")
            instance = await opened.enter_async_context(instance_of(disk, random))
            store = await opened.enter_async_context(_store(settings, disk, clock, process))
            describe_memory(settings, brokers=True)
            tasks = Tasks("broker process", process.fail)
            connecting = ledger_client(store, settings, clock, random, tasks, process.metrics)
            client = await opened.enter_async_context(connecting)
            opened.push_async_callback(tasks.close)
            level = FormatLevel(store, settings.metadata.format_level_max)
            managed_ledgers = ManagedLedgers(
                store, client.ledgers, clock, tasks, settings.managed_ledger, format_level=lambda: level.current
            )
            broker = Broker(
                settings.broker,
                store,
                managed_ledgers,
                clock,
                process.fail,
                settings.security,
                Clustering(settings.balance, settings.metadata, instance, format_level=level),
            )
            url = await broker.start(front=None if charge is None else front_of(charge, settings.broker))
            opened.push_async_callback(broker.stop)
            admin = _admin_server(broker, store, clock, process.metrics, settings, tasks)
            admin.start(ports)
            opened.push_async_callback(admin.stop)
            if charge is not None:
                await open_front(opened, broker, admin, charge)
            own = broker.ownership.own
            assert own is not None
            web_url = own.web_url or own.web_url_tls
            announce(
                f"Magnetar broker of cluster '{settings.broker.cluster_name}'",
                {"clients": url, "administration": web_url, "metadata": settings.metadata.url},
                flags,
                {"serviceUrl": url, "webServiceUrl": web_url},
            )
            broker.stop_process = process.stop
            process.serving()
            await process.stop_requested()

    return run(serve, asked.runtime)


def _admin_server(
    broker: Broker, store: MetadataStore, clock: WallClock, metrics: Metrics, settings: Settings, tasks: Tasks
) -> AdminServer:
    opener = websocket_opener(broker, settings.websocket, clock, metrics)
    return AdminServer(broker, store, broker.policies, clock, metrics, settings.admin, tasks, opener)


@asynccontextmanager
async def _store(settings: Settings, disk: Disk, clock: WallClock, process: Process) -> AsyncIterator[MetadataStore]:
    """The store of this broker's own cluster, measured. CannotStart when it is another's."""
    async with cluster_store(settings, disk, clock, process) as store:
        await check_cluster(store, settings.broker.cluster_name)
        policy = settings.metadata.session_lost_policy
        apply_session_policy(store, policy, lambda error: process.fail("metadata", error))
        yield measured_store(store, process.metrics)


@asynccontextmanager
async def instance_of(disk: Disk, random: Random) -> AsyncIterator[str]:
    """What tells this broker from any other at its address: kept in its directory, which it has for itself.

    Whoever holds the directory knows that a former process with the same token is dead.
    """
    try:
        await disk.make_directory(".")
    except OSError as error:
        raise CannotStart(f"the broker's data directory cannot be used: {error}; choose another --data-dir") from error
    lock = await disk.lock("broker.lock")
    try:
        token = ""
        if await disk.exists(_INSTANCE):
            token = (await disk.read_file(_INSTANCE, bytes_max=_INSTANCE_BYTES_MAX)).decode(errors="replace")
        if not token:
            token = f"{random.getrandbits(128):032x}"
            await disk.replace_file(_INSTANCE, token.encode())
        yield token
    finally:
        await lock.release()
