# SPDX-License-Identifier: Apache-2.0
"""`magnetar metadata`: the embedded store for several processes, over TCP; and metadata moved between stores.

Assembles.
"""

import json as json_text
import sys
from typing import Annotated

import typer

from magnetar.cli.exposure import check_metadata_exposure
from magnetar.cli.role import RoleFlags, announce, role_settings
from magnetar.config.key import STANDALONE
from magnetar.errors import BadSetting
from magnetar.metadata.durable_tree import DurableTree
from magnetar.metadata.remote_server import MetadataServer
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.log import start_logging
from magnetar.runtime.loop import Process, run
from magnetar.runtime.real_disk import RealDisk

app = typer.Typer(
    name="metadata", help="The metadata of a cluster.", no_args_is_help=True, pretty_exceptions_enable=False
)
StoreUrl = Annotated[
    str,
    typer.Option("--metadata", help="The store: zk:HOST:PORT/CHROOT, etcd:http://HOST:PORT, remote:…, embedded:DIR."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


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
    check_metadata_exposure(bind, settings, sys.stderr.write)
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


# --- moving metadata ------------------------------------------------------------------------------


@app.command("export")
def export_command(
    file: Annotated[str, typer.Argument(help="Where to write; it must not be there.")],
    metadata: StoreUrl,
    json: Json = False,
) -> None:
    """Write everything that a store holds into a file. Stop the cluster first when the copy is to take over."""
    from magnetar.cli.metadata_transfer import export_file

    moved = export_file(metadata, file)
    _say(json, {"records": moved.records, "sequences": moved.sequences, "ephemeral_left_out": moved.left_out})


@app.command("import")
def import_command(
    file: Annotated[str, typer.Argument(help="What `magnetar metadata export` wrote.")],
    metadata: StoreUrl,
    merge: Annotated[bool, typer.Option("--merge", help="Add what is missing; never change what is there.")] = False,
    json: Json = False,
) -> None:
    """Write a file's records into an empty store."""
    from magnetar.cli.metadata_transfer import import_file

    moved = import_file(metadata, file, merge=merge)
    _say(json, {"records": moved.records, "sequences": moved.sequences, "there_already": moved.left_out})


@app.command()
def verify(
    metadata: StoreUrl,
    file: Annotated[str | None, typer.Argument(help="An export to compare with.")] = None,
    against: Annotated[str | None, typer.Option(help="Another store to compare with.")] = None,
    json: Json = False,
) -> None:
    """Say what a store has otherwise than a file or another store; exit code 1 when there is something."""
    from magnetar.cli.metadata_transfer import verify_file, verify_stores

    if (file is None) == (against is None):
        raise BadSetting("Give either a file or --against URL to compare the store with")
    found = verify_file(metadata, file) if file is not None else verify_stores(metadata, against or "")
    if json:
        typer.echo(json_text.dumps([{"path": each.path, "what": each.what} for each in found]))
    else:
        for each in found:
            typer.echo(f"{each.path} {each.what}")
        typer.echo(f"{len(found)} differences" if found else "They are the same.")
    if found:
        raise typer.Exit(1)


def _say(as_json: bool, numbers: dict[str, int]) -> None:
    typer.echo(
        json_text.dumps(numbers)
        if as_json
        else ", ".join(f"{name.replace('_', ' ')}: {number}" for name, number in numbers.items())
    )
