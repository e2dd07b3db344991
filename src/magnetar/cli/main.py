# SPDX-License-Identifier: Apache-2.0
"""`magnetar`: the one command, and its sub-commands.

A sub-command's module is imported when it is called, so that each starts as quickly as it can.
Assembles.
"""

import logging
import sys
from enum import StrEnum
from typing import Annotated

import typer

import magnetar
from magnetar.cli.role_commands import COMMANDS, run_role
from magnetar.errors import CannotStart, MagnetarError

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


_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True}


def _serve(context: typer.Context) -> None:
    """One of the servers: they read their flags themselves."""
    raise typer.Exit(run_role(context.info_name or "", context.args))


for _name, _command in COMMANDS.items():
    app.command(_name, context_settings=_PASSED_ON, add_help_option=False, help=_command.help)(_serve)


@app.command(
    context_settings=_PASSED_ON,
    add_help_option=False,
    help="The metadata of a cluster: serve, export, import, verify.",
)
def metadata(context: typer.Context) -> None:
    from magnetar.cli.metadata import app as commands

    commands(args=context.args, prog_name="magnetar metadata")


@app.command("initialize-cluster-metadata")
def initialize_cluster_metadata(
    cluster: Annotated[str, typer.Option("--cluster", "-c", help="The cluster's name.")],
    web_service_url: Annotated[str, typer.Option("--web-service-url", "-uw", help="Its HTTP.")],
    metadata_store: Annotated[
        str, typer.Option("--metadata-store", "-md", "--zookeeper", "-zk", help="Its metadata: zk:HOST:2181 …")
    ],
    configuration_store: Annotated[
        str,
        typer.Option(
            "--configuration-metadata-store", "-cms", "--configuration-store", "-cs", help="What clusters share."
        ),
    ] = "",
    web_service_url_tls: Annotated[str, typer.Option("--web-service-url-tls", "-tw", help="Its HTTPS.")] = "",
    broker_service_url: Annotated[str, typer.Option("--broker-service-url", "-ub", help="Its brokers.")] = "",
    broker_service_url_tls: Annotated[str, typer.Option("--broker-service-url-tls", "-tb", help="With TLS.")] = "",
    proxy_url: Annotated[str, typer.Option("--proxy-url", "-pu", help="Its proxy.")] = "",
    proxy_protocol: Annotated[str, typer.Option("--proxy-protocol", "-pp", help="How to talk to it: SNI.")] = "",
    auth_plugin: Annotated[str, typer.Option(help="How other clusters say who they are.")] = "",
    auth_parameters: Annotated[str, typer.Option(help="What that plug-in needs.")] = "",
    tls_enable: Annotated[bool, typer.Option("--tls-enable", "-te", help="Other clusters use TLS.")] = False,
    bundles: Annotated[
        int, typer.Option("--default-namespace-bundle-number", "-bn", min=0, help="Bundles of public/default [16].")
    ] = 0,
    coordinators: Annotated[
        int, typer.Option("--initial-num-transaction-coordinators", min=1, help="How many coordinators.")
    ] = 16,
    existing_bookkeeper: Annotated[
        str, typer.Option("--existing-bk-metadata-service-uri", help="A BookKeeper cluster that is there already.")
    ] = "",
    stream_containers: Annotated[
        int, typer.Option("--initial-num-stream-storage-containers", hidden=True, help="Taken and not used.")
    ] = 16,
    session_timeout_ms: Annotated[
        int, typer.Option("--zookeeper-session-timeout-ms", hidden=True, help="Taken and not used.")
    ] = 30_000,
) -> None:
    """Write the records that a new cluster begins with; what is there stays as it is."""
    from magnetar.cli.initialize import ClusterFlags, initialize

    flags = ClusterFlags(
        cluster,
        metadata_store,
        web_service_url,
        configuration_store=configuration_store,
        web_service_url_tls=web_service_url_tls,
        broker_service_url=broker_service_url,
        broker_service_url_tls=broker_service_url_tls,
        proxy_url=proxy_url,
        proxy_protocol=proxy_protocol,
        authentication_plugin=auth_plugin,
        authentication_parameters=auth_parameters,
        tls_enabled=tls_enable,
        bundles=bundles,
        transaction_coordinators=coordinators,
        existing_bookkeeper=existing_bookkeeper,
    )
    made = initialize(flags)
    typer.echo(f"Cluster metadata for '{cluster}' setup: {len(made)} records made")


@app.command(
    context_settings=_PASSED_ON,
    add_help_option=False,
    help="A whole cluster on this machine: up, status, kill, restart, logs, down.",
)
def cluster(context: typer.Context) -> None:
    from magnetar.cli.cluster import app as commands

    commands(args=context.args, prog_name="magnetar cluster")


@app.command(
    context_settings=_PASSED_ON,
    add_help_option=False,
    help="The storage shell: ledgers, bookies, repairs.",
)
def bookkeeper(context: typer.Context) -> None:
    from magnetar.cli.bookkeeper import app as shell
    from magnetar.cli.bookkeeper import with_two_dashes

    shell(args=with_two_dashes(context.args), prog_name="magnetar bookkeeper")


class InspectedFile(StrEnum):
    JOURNAL = "journal"
    ENTRY_LOG = "entrylog"
    INDEX = "index"


@app.command()
def inspect(
    kind: Annotated[InspectedFile, typer.Argument(help="What the file is.")],
    file: Annotated[str, typer.Argument(help="The file; an index is a directory.")],
) -> None:
    """Print what is in a file of a bookie."""
    import asyncio

    from magnetar.cli import inspect as files

    inspected = {
        InspectedFile.JOURNAL: files.inspect_journal,
        InspectedFile.ENTRY_LOG: files.inspect_entry_log,
        InspectedFile.INDEX: files.inspect_index,
    }
    try:
        asyncio.run(inspected[kind](file, typer.echo))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CannotStart(f"{file} cannot be read: {error.strerror}") from error


@app.command()
def fsck(
    metadata: Annotated[str, typer.Option(help="The cluster's metadata: remote:HOST:PORT or zk:HOST:PORT/CHROOT.")],
    deep: Annotated[bool, typer.Option(help="Read every entry and check its digest.")] = False,
    repair: Annotated[bool, typer.Option(help="Copy what is missing.")] = False,
) -> None:
    """Check that every bookie holds what the metadata says it holds."""
    from magnetar.cli.bookkeeper_shell import Shell, run_shell
    from magnetar.cli.fsck import check

    clean: list[bool] = []

    async def command(shell: Shell) -> None:
        clean.append((await check(shell, deep=deep, repair=repair)).is_clean)

    code = run_shell(metadata, command, typer.echo)
    raise typer.Exit(code or int(clean != [True]))


@app.command(
    context_settings=_PASSED_ON,
    add_help_option=False,
    help="Keys and tokens that clients prove their role with.",
)
def tokens(context: typer.Context) -> None:
    from magnetar.cli.tokens import app as commands

    commands(args=context.args, prog_name="magnetar tokens")


@app.command(
    context_settings=_PASSED_ON,
    add_help_option=False,
    help="Administer a cluster: pulsar-admin's nouns, verbs and flags.",
)
def admin(context: typer.Context) -> None:
    from magnetar.cli.admin import run_admin

    raise typer.Exit(run_admin(context.args))


@app.command(context_settings=_PASSED_ON, add_help_option=False, help="Send and receive messages, as pulsar-client.")
def client(context: typer.Context) -> None:
    from magnetar.cli.client_tool import run_client

    raise typer.Exit(run_client(context.args))


@app.command(context_settings=_PASSED_ON, add_help_option=False, help="Put load on a cluster, as pulsar-perf.")
def perf(context: typer.Context) -> None:
    from magnetar.cli.perf import run_perf

    raise typer.Exit(run_perf(context.args))


@app.command(context_settings=_PASSED_ON, add_help_option=False, help="Say why a subscription delivers nothing now.")
def explain(context: typer.Context) -> None:
    from magnetar.cli.explain import run_explain

    raise typer.Exit(run_explain(context.args))


@app.command(context_settings=_PASSED_ON, add_help_option=False, help="Show the busiest topics, live.")
def top(context: typer.Context) -> None:
    from magnetar.cli.top import run_top

    raise typer.Exit(run_top(context.args))


@app.command(context_settings=_PASSED_ON, add_help_option=False, help="Check this machine and a cluster; give advice.")
def doctor(context: typer.Context) -> None:
    from magnetar.cli.doctor import run_doctor

    raise typer.Exit(run_doctor(context.args))


@app.command()
def sizing(
    publish_mb: Annotated[float, typer.Option(help="MB a second that are published.")],
    disk_mb: Annotated[float, typer.Option(help="MB a second that one disk writes, and reads.")],
    disk_gb: Annotated[float, typer.Option(help="GB of one disk.")] = 1_000.0,
    copies: Annotated[int, typer.Option(help="Copies of each message.")] = 1,
    read_mb: Annotated[float, typer.Option(help="MB a second that consumers read from disks.")] = 0.0,
    keep_hours: Annotated[float, typer.Option(help="How long messages are kept.")] = 0.0,
) -> None:
    """How many disks journals and ledgers need."""
    from magnetar.cli.sizing import DiskKind, Load, size

    needed = size(Load(publish_mb, read_mb, copies, keep_hours), DiskKind(disk_mb, disk_mb, disk_gb))
    typer.echo("\n".join((f"journal disks: {needed.journals}", f"ledger disks: {needed.ledgers}", *needed.reasons)))


@app.command(context_settings=_PASSED_ON, add_help_option=False, help="Make a cluster as a YAML file wants it.")
def apply(context: typer.Context) -> None:
    from magnetar.cli.apply import run_apply

    raise typer.Exit(run_apply(context.args))


@app.command(context_settings=_PASSED_ON, add_help_option=False, help="Name clusters and switch between them.")
def contexts(context: typer.Context) -> None:
    from magnetar.cli.context_command import run_contexts

    raise typer.Exit(run_contexts(context.args))


@app.command(context_settings=_PASSED_ON, add_help_option=False, help="Ask topics with SQL; a shell; Spark Connect.")
def sql(context: typer.Context) -> None:
    from magnetar.cli.sql import run_sql

    raise typer.Exit(run_sql(context.args))


@app.command(context_settings=_PASSED_ON, add_help_option=False, help="Pipelines on Spark: check, run, archive …")
def pipeline(context: typer.Context) -> None:
    from magnetar.cli.pipeline import run_pipeline

    raise typer.Exit(run_pipeline(context.args))


@app.command(
    context_settings=_PASSED_ON,
    add_help_option=False,
    help="Install pulsar-admin, pulsar-client and pulsar-perf as look-alikes.",
)
def aliases(context: typer.Context) -> None:
    from magnetar.cli.lookalike import run_aliases

    raise typer.Exit(run_aliases(context.args))


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="Which shell.")]) -> None:
    """Print a script that completes commands in a shell: source it."""
    from magnetar.cli.completion import SCRIPTS

    typer.echo(SCRIPTS[shell.value], nl=False)


@app.command(context_settings=_PASSED_ON, add_help_option=False, hidden=True)
def complete(context: typer.Context) -> None:
    """What the last word may become; asked by the scripts of `completion`."""
    from magnetar.cli.completion import completions

    names = [
        each.name or each.callback.__name__ for each in app.registered_commands if each.callback and not each.hidden
    ]
    typer.echo("\n".join(completions(context.args, names)))


def main() -> None:
    # What it has to say of a store that does not answer is said once, by the command.
    logging.getLogger("kazoo").addHandler(logging.NullHandler())
    try:
        app()
    except MagnetarError as error:
        sys.stderr.write(f"magnetar: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
