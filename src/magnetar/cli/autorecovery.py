# SPDX-License-Identifier: Apache-2.0
"""`magnetar autorecovery`: the repair of what bookies lost, in a process of its own.

Stands for election as auditor and copies, as a bookie's process does; where it runs, bookies can leave it alone
(autoRecoveryDaemonEnabled=false).
Assembles.
"""

import sys
from contextlib import AsyncExitStack

from magnetar.bookie.http import BookieHttp
from magnetar.bookie.http_routes import Answer, Asked, said
from magnetar.bookie.server import take_port
from magnetar.cli.cluster_inventory import ClusterInventory
from magnetar.cli.ledger_client import ledger_client
from magnetar.cli.role import RoleFlags, announce, cluster_store, role_settings
from magnetar.config.key import AUTORECOVERY
from magnetar.ledger.auto_recovery import AutoRecovery
from magnetar.runtime.chance import fresh_seed, stream
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.log import start_logging
from magnetar.runtime.loop import Process, run
from magnetar.runtime.real_disk import RealDisk
from magnetar.runtime.tasks import Tasks


def run_autorecovery(flags: RoleFlags, given: dict[str, str | None]) -> int:
    """Repair until told to stop; returns the exit code."""
    settings = role_settings(flags, AUTORECOVERY, given)
    start_logging(settings.runtime, sys.stderr)

    async def serve(process: Process) -> None:
        clock = SystemClock()
        random = stream(fresh_seed(), "autorecovery")
        ports = settings.bookie_server
        async with AsyncExitStack() as opened:
            taken = take_port(ports.bind_address, ports.http_port, "--http-port")
            opened.callback(taken.close)
            disk = RealDisk(flags.data_dir)
            opened.push_async_callback(disk.close)
            store = await opened.enter_async_context(cluster_store(settings, disk, clock, process))
            tasks = Tasks("auto-recovery", process.fail)
            client = await opened.enter_async_context(ledger_client(store, settings, clock, random, tasks))
            opened.push_async_callback(tasks.close)
            host = ports.advertised_address or ports.bind_address
            port = taken.getsockname()[1]
            # Its place in votes and locks; unique, because the address is.
            owner = f"{host}:{port}"
            recovery = AutoRecovery(
                store, client.ledgers, client.bookies, clock, settings.repair, owner, client.standing(settings)
            )
            recovery.describe(process.metrics)
            inventory = ClusterInventory(store, client, clock, settings)
            inventory.describe(process.metrics)
            http = BookieHttp(process.metrics, {**inventory.routes(), ("GET", "/heartbeat"): _heartbeat})
            await http.start(taken)
            opened.push_async_callback(http.stop)
            await recovery.start(tasks)
            facts = {"administration": f"http://{owner}", "metadata": settings.metadata.url}
            announce("Magnetar auto-recovery", facts, flags, {"owner": owner, "httpserver": owner})
            process.serving()
            await process.stop_requested()

    return run(serve, settings.runtime)


async def _heartbeat(asked: Asked) -> Answer:
    return said("OK")
