# SPDX-License-Identifier: Apache-2.0
"""`magnetar metadata serve`: the embedded store for a cluster of several processes, over TCP.

Assembles.
"""

import sys

from magnetar.cli.role import RoleFlags, announce, role_settings
from magnetar.config.key import STANDALONE
from magnetar.metadata.durable_tree import DurableTree
from magnetar.metadata.remote_server import MetadataServer
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.log import start_logging
from magnetar.runtime.loop import Process, run
from magnetar.runtime.real_disk import RealDisk


def run_metadata_server(flags: RoleFlags, bind: str, port: int) -> int:
    """Serve until told to stop; returns the exit code."""
    settings = role_settings(flags, STANDALONE, {})
    start_logging(settings.runtime, sys.stderr)

    async def serve(process: Process) -> None:
        disk = RealDisk(flags.data_dir)
        try:
            tree = await DurableTree.open(disk, "metadata", clock=SystemClock(), settings=settings.metadata)
            tree.watch_failure(lambda error: process.fail("metadata", error))
            try:
                server = MetadataServer(tree, settings.metadata)
                taken = await server.start(bind, port)
                try:
                    url = f"remote:{bind}:{taken}"
                    facts = {"metadata": url, "data directory": flags.data_dir}
                    announce("Magnetar serves metadata", facts, flags, {"metadataUrl": url})
                    process.serving()
                    await process.stop_requested()
                finally:
                    await server.close()
            finally:
                await tree.close()
        finally:
            await disk.close()

    return run(serve, settings.runtime)
