# SPDX-License-Identifier: Apache-2.0
"""`magnetar cluster`: a whole cluster on this machine by one command, for trying, teaching and testing.

Assembles.
"""

import asyncio
import json as json_text
import os
import shutil
import signal
from collections.abc import Coroutine
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from magnetar.cli import cluster_members, cluster_plan
from magnetar.cli.cluster_members import ClusterDirectory
from magnetar.cli.cluster_plan import AUTORECOVERY, BOOKIE, BROKER, METADATA, PROXY, ROLES, Member, Plan
from magnetar.errors import BadSetting

app = typer.Typer(
    name="cluster", help="A whole cluster on this machine.", no_args_is_help=True, pretty_exceptions_enable=False
)

DataDir = Annotated[str, typer.Option(help="Where the cluster keeps everything.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(help="A process by its name: broker-1, bookie-2, metadata …")]
FOLLOW_INTERVAL_S: Final = 0.2


class Signal(StrEnum):
    KILL = "KILL"
    TERM = "TERM"
    STOP = "STOP"
    CONT = "CONT"


@app.command()
def up(
    brokers: Annotated[int | None, typer.Option(min=1, help="How many brokers [default: 1].")] = None,
    bookies: Annotated[int | None, typer.Option(min=1, help="How many bookies [default: 3].")] = None,
    proxies: Annotated[int | None, typer.Option(min=0, help="How many proxies [default: 0].")] = None,
    autorecoveries: Annotated[int | None, typer.Option(min=0, help="Processes that only repair [default: 0].")] = None,
    data_dir: DataDir = "data/cluster",
    metadata: Annotated[
        str | None, typer.Option(help="zk:HOST:PORT/CHROOT or etcd:http://HOST:PORT [default: one of its own].")
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="The cluster's name [default: local].")] = None,
    broker_config: Annotated[list[str] | None, typer.Option(help="A file of settings for the brokers.")] = None,
    bookie_config: Annotated[list[str] | None, typer.Option(help="A file of settings for the bookies.")] = None,
    proxy_config: Annotated[list[str] | None, typer.Option(help="A file of settings for the proxies.")] = None,
    json: Json = False,
) -> None:
    """Start a cluster, or what is missing of it, and wait until it serves. Larger numbers add processes."""
    directory = ClusterDirectory(data_dir)
    given = {BROKER: broker_config, BOOKIE: bookie_config, PROXY: proxy_config}
    configs = {role: tuple(str(Path(name).absolute()) for name in files or ()) for role, files in given.items()}

    if directory.is_foreign():
        raise BadSetting(f"{directory.path} holds something else than a cluster; choose another --data-dir")

    async def run() -> None:
        async with directory.locked():
            plan = _planned(directory, cluster, metadata, configs)
            wanted = {BROKER: brokers, BOOKIE: bookies, PROXY: proxies, AUTORECOVERY: autorecoveries}
            if not plan.of_role(BROKER):
                wanted |= {BROKER: brokers or 1, BOOKIE: bookies or 3}
            numbers = {role: number for role, number in wanted.items() if number is not None}
            plan = cluster_plan.grown(plan, numbers, cluster_members.free_ports())
            directory.keep(plan)
            await _start(directory, plan, plan.members)

    _run(run())
    _print_status(directory, json)


@app.command()
def status(data_dir: DataDir = "data/cluster", json: Json = False) -> None:
    """Where the cluster serves, and how its processes are. Exit code 1 unless all of them serve."""
    directory = ClusterDirectory(data_dir)
    _print_status(directory, json)
    plan = _existing(directory)
    if any(directory.state_of(member) != "serving" for member in plan.members):
        raise typer.Exit(1)


@app.command()
def kill(
    name: Name,
    data_dir: DataDir = "data/cluster",
    signal_name: Annotated[Signal, typer.Option("--signal", help="What it is sent.")] = Signal.KILL,
) -> None:
    """End one process as a power cut would, or send it another signal."""
    member = _existing(ClusterDirectory(data_dir)).member(name)
    number = signal.Signals[f"SIG{signal_name.value}"]
    if not cluster_members.is_running(member):
        raise BadSetting(f"{name} is not running")
    if number is signal.SIGKILL:
        _run(cluster_members.kill(member))
    else:
        cluster_members.send(member, number)
    typer.echo(f"{name}: sent SIG{signal_name.value} to process {member.pid}")


@app.command()
def restart(name: Name, data_dir: DataDir = "data/cluster") -> None:
    """Stop one process in order, if it runs, and start it on the same data and ports."""
    directory = ClusterDirectory(data_dir)

    async def run() -> None:
        async with directory.locked():
            plan = _existing(directory)
            member = plan.member(name)
            # One that was stopped by SIGSTOP would never hear SIGTERM.
            cluster_members.send(member, signal.SIGCONT)
            await cluster_members.end(member, typer.echo)
            await _start(directory, plan, [member])

    _run(run())
    typer.echo(f"{name}: serves as process {_existing(directory).member(name).pid}")


@app.command()
def logs(
    name: Name,
    data_dir: DataDir = "data/cluster",
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many of the last lines.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the log grows.")] = False,
) -> None:
    """Print what a process logged."""
    directory = ClusterDirectory(data_dir)
    member = _existing(directory).member(name)
    typer.echo(directory.log_tail(member, lines))
    if follow:
        _run(_follow(directory.log_of(member)))


@app.command()
def down(
    data_dir: DataDir = "data/cluster",
    wipe: Annotated[bool, typer.Option("--wipe", help="Delete the cluster's data as well.")] = False,
) -> None:
    """Stop every process in order: proxies, brokers, bookies, metadata. The data stays."""
    directory = ClusterDirectory(data_dir)

    async def run() -> None:
        plan = _existing(directory)
        async with directory.locked():
            for role in reversed(ROLES):
                members = plan.of_role(role)
                for member in members:
                    cluster_members.send(member, signal.SIGCONT)
                await asyncio.gather(*(cluster_members.end(member, typer.echo) for member in members))

    _run(run())
    if wipe:
        shutil.rmtree(directory.path)
    typer.echo(f"The cluster in {directory.path} is down{', its data deleted' if wipe else ''}.")


# --- leaves ---------------------------------------------------------------------------------------


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def _existing(directory: ClusterDirectory) -> Plan:
    plan = directory.plan()
    if plan is None:
        raise BadSetting(f"There is no cluster in {directory.path}: start one with `magnetar cluster up`")
    return plan


def _planned(
    directory: ClusterDirectory, name: str | None, metadata: str | None, configs: dict[str, tuple[str, ...]]
) -> Plan:
    """The plan that is there, or a new one. BadSetting when what is asked for is another cluster."""
    plan = directory.plan()
    if plan is not None:
        if name is not None and name != plan.name:
            raise BadSetting(
                f"The cluster in {directory.path} is called {plan.name!r}, and a cluster keeps its name; "
                "give another --data-dir for another cluster"
            )
        if metadata is not None and metadata != plan.metadata_url:
            raise BadSetting(
                f"The cluster in {directory.path} keeps its metadata in {plan.metadata_url}; "
                "give another --data-dir for another store"
            )
        return replace(plan, configs={role: configs[role] or plan.configs.get(role, ()) for role in configs})
    name = name or "local"
    if metadata is not None:
        return Plan(name, metadata, configs=configs)
    port = cluster_members.free_ports()()
    return Plan(name, f"remote:{cluster_plan.HOST}:{port}", (Member(METADATA, METADATA, port),), configs)


async def _start(directory: ClusterDirectory, plan: Plan, members: "list[Member] | tuple[Member, ...]") -> None:
    """Start those that do not run, role by role; each role serves before the next begins."""
    for role in ROLES:
        started = []
        for member in members:
            if member.role != role or cluster_members.is_running(member):
                continue
            started.append(directory.launch(plan, member))
            plan = plan.replaced(started[-1])
            directory.keep(plan)
        for member in started:
            await directory.until_serving(member)


def _print_status(directory: ClusterDirectory, as_json: bool) -> None:
    plan = _existing(directory)
    processes = {
        member.name: {
            "role": member.role,
            "state": directory.state_of(member),
            "pid": member.pid if cluster_members.is_running(member) else None,
            "port": member.port,
            "http_port": member.http_port or None,
            "log": str(directory.log_of(member)),
        }
        for member in plan.members
    }
    if as_json:
        facts = {
            "cluster": plan.name,
            "service_url": plan.service_url,
            "admin_url": plan.admin_url,
            "metadata_url": plan.metadata_url,
            "data_dir": str(directory.path),
            "processes": processes,
        }
        typer.echo(json_text.dumps(facts, indent=2))
        return
    typer.echo(f"Cluster '{plan.name}'")
    facts = {"clients": plan.service_url, "administration": plan.admin_url, "metadata": plan.metadata_url}
    for name, value in facts.items():
        typer.echo(f"  {name:15}{value}")
    typer.echo(f"  {'stop':15}magnetar cluster down --data-dir {directory.path}")
    for name, facts_of in processes.items():
        typer.echo(f"  {name:15}{facts_of['state']:14} pid {facts_of['pid'] or '-'!s:8} port {facts_of['port']}")


async def _follow(file: Path) -> None:
    with file.open("rb") as log:
        log.seek(0, os.SEEK_END)
        while True:
            text = log.read()
            if text:
                typer.echo(text.decode(errors="replace"), nl=False)
            else:
                await asyncio.sleep(FOLLOW_INTERVAL_S)
