# SPDX-License-Identifier: Apache-2.0
"""`magnetar metadata`: the embedded store for a cluster of several processes, over TCP.

Assembles.
"""

import sys
from typing import Annotated

import typer

from magnetar.cli.role import RoleFlags, announce, role_settings
from magnetar.config.key import STANDALONE
from magnetar.metadata.durable_tree import DurableTree
from magnetar.metadata.remote_server import MetadataServer
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.log import start_logging
from magnetar.runtime.loop import Process, run
from magnetar.runtime.real_disk import RealDisk

app = typer.Typer(
    name="metadata", help="The metadata of a cluster.", no_args_is_help=True, pretty_exceptions_enable=False
)


@app.callback()
def commands() -> None:
    """The metadata of a cluster."""


@app.command()
def serve(
    data_dir: Annotated[str, typer.Option(help="Where the metadata is kept.")] = "data",
    bind: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.")] = 2281,
    config: Annotated[list[str] | None, typer.Option(help="A configuration file; may be repeated.")] = None,
    ready_file: Annotated[str | None, typer.Option(help="Written with the URL, as JSON, once it serves.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Log as JSON lines.")] = False,
) -> None:
    """Serve a cluster's metadata to processes of this machine, without ZooKeeper."""
    flags = RoleFlags(data_dir, None, tuple(config or ()), ready_file, json)
    raise typer.Exit(run_metadata_server(flags, bind, port))


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
