# SPDX-License-Identifier: Apache-2.0
"""The commands that run servers: their flags, and what is started with what was typed.

A server's own modules are imported when its command runs; Typer never is, for it costs a tenth of a standalone's start.
Assembles.
"""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from magnetar.cli import exits
from magnetar.cli.values import WrongUse
from magnetar.cli.words import Command, Flag, Given, Kind, flag
from magnetar.errors import MagnetarError

if TYPE_CHECKING:
    from magnetar.cli.role import RoleFlags

_BIND: Final = flag("--bind", Kind.TEXT, "Address to listen on [default: 127.0.0.1].")
_PORT: Final = flag("--port", Kind.TEXT, "Port for clients; 0 picks a free one [default: 6650].")
_HTTP_PORT: Final = flag("--http-port", Kind.TEXT, "Port for HTTP; 0 picks a free one [default: 8080].")
_BOOKIE_HTTP_PORT: Final = flag("--http-port", Kind.TEXT, "Port for HTTP; 0 picks a free one [default: 8000].")
_PULSAR_FILES: Final = flag("--config", Kind.REPEATED, "A Pulsar configuration file; may be repeated.")
_BOOKKEEPER_FILES: Final = flag("--config", Kind.REPEATED, "A BookKeeper configuration file; may be repeated.")
_READY_FILE: Final = flag("--ready-file", Kind.TEXT, "Written with the addresses, as JSON, once it serves.")
_JSON: Final = flag("--json", Kind.SWITCH, "Log as JSON lines.")
_PRODUCTION: Final = flag("--production", Kind.SWITCH, "Refuse to start where clients need not say who they are.")
_METADATA: Final = flag(
    "--metadata", Kind.TEXT, "The cluster's metadata: zk:…, etcd:…, remote:… [or metadataStoreUrl]."
)
_WORKERS: Final = (
    flag("--workers", Kind.NUMBER, "So many broker processes share the ports [default: none]."),
    flag("--worker-port", Kind.NUMBER, "First of the workers' own ports, four for each [default: free ones, kept]."),
)

STANDALONE: Final = Command(
    "standalone",
    "Run broker, bookie and metadata in one process.",
    (),
    (
        flag("--data-dir", Kind.TEXT, "Where everything is kept.", default="data"),
        _BIND,
        _PORT,
        _HTTP_PORT,
        _PULSAR_FILES,
        _READY_FILE,
        flag("--wipe", Kind.SWITCH, "Delete what the data directory holds first."),
        _JSON,
        _PRODUCTION,
        flag(
            "--bookie-port",
            Kind.NUMBER,
            "Loopback port for those who read storage themselves; 0 picks one [default: none].",
        ),
        flag("--metadata-port", Kind.NUMBER, "Loopback port for the metadata; 0 picks a free one [default: none]."),
        *_WORKERS,
    ),
)
BROKER: Final = Command(
    "broker",
    "Run a broker of a cluster.",
    (),
    (
        _METADATA,
        flag("--data-dir", Kind.TEXT, "Where the broker keeps what is its own.", default="data"),
        _BIND,
        _PORT,
        _HTTP_PORT,
        _PULSAR_FILES,
        _READY_FILE,
        _JSON,
        _PRODUCTION,
        *_WORKERS,
    ),
)
BOOKIE: Final = Command(
    "bookie",
    "Run a storage server of a cluster.",
    (),
    (
        _METADATA,
        flag("--data-dir", Kind.TEXT, "Where journal and entries are kept.", default="data"),
        _BIND,
        flag("--port", Kind.TEXT, "Port for clients; 0 picks a free one [default: 3181]."),
        _BOOKIE_HTTP_PORT,
        flag("--bookie-id", Kind.TEXT, "Its name [default: address and port]."),
        _BOOKKEEPER_FILES,
        _READY_FILE,
        _JSON,
        _PRODUCTION,
    ),
)
AUTORECOVERY: Final = Command(
    "autorecovery",
    "Run the repair of lost copies in a process of its own.",
    (),
    (
        flag(
            "--metadata",
            Kind.TEXT,
            "The cluster's metadata: remote:HOST:PORT or zk:HOST:PORT/CHROOT.",
            required=True,
        ),
        flag("--data-dir", Kind.TEXT, "Nothing is kept; relative paths of settings begin here.", default="data"),
        _BIND,
        _BOOKIE_HTTP_PORT,
        _BOOKKEEPER_FILES,
        _READY_FILE,
        _JSON,
    ),
)
PROXY: Final = Command(
    "proxy",
    "Run a proxy: one address in front of a cluster's brokers.",
    (),
    (
        flag("--metadata", Kind.TEXT, "The cluster's metadata, which lists the brokers."),
        flag("--broker-url", Kind.TEXT, "Brokers by name instead: pulsar://HOST:PORT,…"),
        flag("--broker-web-url", Kind.TEXT, "Their HTTP: http://HOST:PORT,…"),
        _BIND,
        _PORT,
        _HTTP_PORT,
        flag("--config", Kind.REPEATED, "A Pulsar proxy.conf; may be repeated."),
        _READY_FILE,
        _JSON,
        _PRODUCTION,
    ),
)
WEBSOCKET: Final = Command(
    "websocket",
    "Run the WebSocket API in a process of its own, in front of a cluster's brokers.",
    (),
    (
        flag("--metadata", Kind.TEXT, "The cluster's metadata, which lists the brokers."),
        flag("--broker-url", Kind.TEXT, "Brokers by name instead: pulsar://HOST:PORT,…"),
        _BIND,
        _HTTP_PORT,
        flag("--config", Kind.REPEATED, "A Pulsar websocket.conf; may be repeated."),
        _READY_FILE,
        _JSON,
        _PRODUCTION,
    ),
)
# What a process of several is told by the one that starts it; nobody types it.
_CHARGE: Final[tuple[Flag, ...]] = (flag("--worker", Kind.TEXT, "What a worker is told."),)


def run_role(name: str, words: Sequence[str]) -> int:
    """Serve until told to stop; returns the exit code."""
    command, body = _ROLES[name]
    if {"--help", "-h"} & set(words):
        sys.stdout.write(command.help_text(f"magnetar {name}"))
        return exits.OK
    try:
        return body(command.read(words, more=_CHARGE if name == "broker" else ()))
    except MagnetarError as error:
        sys.stderr.write(f"magnetar: {error}\n")
        return exits.WRONG_USE if isinstance(error, WrongUse) else exits.REFUSED


def _standalone(given: Given) -> int:
    from magnetar.cli.standalone import StandaloneFlags, run_standalone

    known = {name: given[name] for name in StandaloneFlags._fields if name != "config"}
    return run_standalone(StandaloneFlags(**known | {"workers": _workers(given)}, config=tuple(given["config"] or ())))


def _broker(given: Given) -> int:
    workers = _workers(given)
    if workers is not None:
        from magnetar.cli.workers import WorkerFlags, run_broker_workers

        return run_broker_workers(_flags(given), _addresses(given), WorkerFlags(workers, given["worker_port"]))
    from magnetar.cli.broker import run_broker
    from magnetar.cli.worker_plan import decode_charge

    charge = given.get("worker")
    return run_broker(_flags(given), _addresses(given), None if charge is None else decode_charge(charge))


def _bookie(given: Given) -> int:
    from magnetar.cli.bookie import run_bookie

    settings = {
        "bookie_server.bind_address": given["bind"],
        "bookiePort": given["port"],
        "httpServerPort": given["http_port"],
        "bookieId": given["bookie_id"],
    }
    return run_bookie(_flags(given), settings | _production(given))


def _autorecovery(given: Given) -> int:
    from magnetar.cli.autorecovery import run_autorecovery

    settings = {"bookie_server.bind_address": given["bind"], "httpServerPort": given["http_port"]}
    return run_autorecovery(_flags(given), settings)


def _proxy(given: Given) -> int:
    from magnetar.cli.proxy import run_proxy

    brokers = {"brokerServiceURL": given["broker_url"], "brokerWebServiceURL": given["broker_web_url"]}
    return run_proxy(_flags({**given, "data_dir": ""}), _addresses(given) | brokers)


def _websocket(given: Given) -> int:
    from magnetar.cli.websocket import run_websocket

    settings = {"--bind": given["bind"], "--http-port": given["http_port"], "brokerServiceURL": given["broker_url"]}
    return run_websocket(_flags({**given, "data_dir": ""}), settings | _production(given))


def _flags(given: Given) -> "RoleFlags":
    from magnetar.cli.role import RoleFlags

    config = tuple(given["config"] or ())
    return RoleFlags(given["data_dir"], given["metadata"], config, given["ready_file"], given["json"])


def _addresses(given: Given) -> dict[str, str | None]:
    found = {"--bind": given["bind"], "--port": given["port"], "--http-port": given["http_port"]}
    return found | _production(given)


def _production(given: Given) -> dict[str, str]:
    return {"security.production": "true"} if given["production"] else {}


def _workers(given: Given) -> int | None:
    count: int | None = given["workers"]
    if count is not None and count < 1:
        raise WrongUse(f"--workers: {count} should be 1 or more")
    return count


_ROLES: Final[dict[str, tuple[Command, Callable[[dict[str, Any]], int]]]] = {
    "standalone": (STANDALONE, _standalone),
    "broker": (BROKER, _broker),
    "bookie": (BOOKIE, _bookie),
    "autorecovery": (AUTORECOVERY, _autorecovery),
    "proxy": (PROXY, _proxy),
    "websocket": (WEBSOCKET, _websocket),
}
COMMANDS: Final = {name: command for name, (command, _) in _ROLES.items()}
