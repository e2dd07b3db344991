# SPDX-License-Identifier: Apache-2.0
"""`magnetar`: the one command, and its sub-commands.

A sub-command's module is imported when it is called, so that each starts as quickly as it can.
Assembles.
"""

import sys
from typing import Annotated

import typer

import magnetar
from magnetar.errors import MagnetarError

app = typer.Typer(
    name="magnetar",
    help="An Apache-Pulsar-compatible messaging and streaming platform.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"magnetar {magnetar.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    """An Apache-Pulsar-compatible messaging and streaming platform."""


@app.command()
def standalone(
    data_dir: Annotated[str, typer.Option(help="Where everything is kept.")] = "data",
    bind: Annotated[str | None, typer.Option(help="Address to listen on [default: 127.0.0.1].")] = None,
    port: Annotated[str | None, typer.Option(help="Port for clients; 0 picks a free one [default: 6650].")] = None,
    http_port: Annotated[str | None, typer.Option(help="Port for HTTP; 0 picks a free one [default: 8080].")] = None,
    config: Annotated[list[str] | None, typer.Option(help="A Pulsar configuration file; may be repeated.")] = None,
    ready_file: Annotated[str | None, typer.Option(help="Written with the URLs, as JSON, once it serves.")] = None,
    wipe: Annotated[bool, typer.Option(help="Delete what the data directory holds first.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Log as JSON lines.")] = False,
) -> None:
    """Run broker, bookie and metadata in one process."""
    from magnetar.cli.standalone import StandaloneFlags, run_standalone

    flags = StandaloneFlags(
        data_dir=data_dir,
        bind=bind,
        port=port,
        http_port=http_port,
        config=tuple(config or ()),
        ready_file=ready_file,
        wipe=wipe,
        json=json,
    )
    raise typer.Exit(run_standalone(flags))


def main() -> None:
    try:
        app()
    except MagnetarError as error:
        sys.stderr.write(f"magnetar: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
