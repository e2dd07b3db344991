# SPDX-License-Identifier: Apache-2.0
"""`magnetar broker`: a broker of a cluster, which stores with the bookies that the metadata lists.

The same parts as a standalone's, joined by TCP.
Assembles.
"""

import sys
from contextlib import AsyncExitStack

from magnetar.admin.server import AdminServer, take_port
from magnetar.broker.broker import Broker
from magnetar.broker.policies.policies import Policies
from magnetar.cli.exposure import check_exposure
from magnetar.cli.ledger_client import ledger_client
from magnetar.cli.role import RoleFlags, announce, cluster_store, role_settings
from magnetar.config.key import BROKER
from magnetar.managed_ledger.managed_ledgers import ManagedLedgers
from magnetar.runtime.chance import fresh_seed, stream
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.log import start_logging
from magnetar.runtime.loop import Process, run
from magnetar.runtime.real_disk import RealDisk
from magnetar.runtime.tasks import Tasks


def run_broker(flags: RoleFlags, given: dict[str, str | None]) -> int:
    """Serve until told to stop; returns the exit code."""
    settings = role_settings(flags, BROKER, given)
    check_exposure(settings, sys.stderr.write)
    start_logging(settings.runtime, sys.stderr)

    async def serve(process: Process) -> None:
        clock = SystemClock()
        async with AsyncExitStack() as opened:
            listener = take_port(settings.broker)
            opened.callback(listener.close)
            disk = RealDisk(flags.data_dir)
            opened.push_async_callback(disk.close)
            store = await opened.enter_async_context(cluster_store(settings, disk, clock))
            tasks = Tasks("broker process", process.fail)
            random = stream(fresh_seed(), "broker")
            client = await opened.enter_async_context(ledger_client(store, settings, clock, random, tasks))
            opened.push_async_callback(tasks.close)
            managed_ledgers = ManagedLedgers(store, client.ledgers, clock, tasks, settings.managed_ledger)
            broker = Broker(settings.broker, store, managed_ledgers, clock, process.fail, settings.security)
            url = await broker.start()
            opened.push_async_callback(broker.stop)
            policies = Policies(store, settings.broker, settings.managed_ledger)
            opened.callback(policies.close)
            admin = AdminServer(broker, store, policies, clock, process.metrics, settings.admin, tasks)
            admin.start(listener)
            opened.push_async_callback(admin.stop)
            web_url = f"http://{settings.broker.advertised_address}:{listener.getsockname()[1]}"
            announce(
                f"Magnetar broker of cluster '{settings.broker.cluster_name}'",
                {"clients": url, "administration": web_url, "metadata": settings.metadata.url},
                flags,
                {"serviceUrl": url, "webServiceUrl": web_url},
            )
            process.serving()
            await process.stop_requested()

    return run(serve, settings.runtime)
