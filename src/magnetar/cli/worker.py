# SPDX-License-Identifier: Apache-2.0
"""What makes a broker process one of several workers: the ports that it shares with them, and its supervisor's pipe.

Carries.
"""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from typing import Final

from magnetar.admin.server import AdminServer
from magnetar.broker.broker import Broker
from magnetar.broker.ownership.owner import Owner
from magnetar.cli.shared_ports import join
from magnetar.cli.worker_plan import Charge, Ports
from magnetar.config.broker import BrokerSettings
from magnetar.runtime.loop import Process

_CHUNK_BYTES: Final = 1_024


def own_settings(charge: Charge) -> dict[str, str | None]:
    """The ports that this worker has for itself, as settings."""
    own = charge.own
    given: dict[str, str | None] = {"--port": str(own.clients), "--http-port": str(own.http)}
    if own.clients_tls >= 0:
        given["brokerServicePortTls"] = str(own.clients_tls)
    if own.https >= 0:
        given["webServicePortTls"] = str(own.https)
    return given


def front_of(charge: Charge, settings: BrokerSettings) -> Owner:
    """Where the cluster's record says that it is served: at the ports that all workers share."""
    return shared_front(charge.shared, settings.advertised_address)


def shared_front(shared: Ports, host: str) -> Owner:
    return Owner(
        f"pulsar://{host}:{shared.clients}" if shared.clients >= 0 else "",
        f"http://{host}:{shared.http}" if shared.http >= 0 else "",
        f"pulsar+ssl://{host}:{shared.clients_tls}" if shared.clients_tls >= 0 else "",
        f"https://{host}:{shared.https}" if shared.https >= 0 else "",
    )


def end_with_supervisor(process: Process) -> None:
    """Its end of the pipe closes when the supervisor ends, however it ends; storage may be gone with it."""

    def look() -> None:
        if not os.read(sys.stdin.fileno(), _CHUNK_BYTES):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            if not process.is_stopping:
                process.abandon("the supervisor is gone")

    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), look)


async def open_front(opened: AsyncExitStack, broker: Broker, admin: AdminServer, charge: Charge) -> None:
    """Answer on the shared ports as well. They are left first: whoever comes then finds another worker."""
    address, shared = broker.settings.bind_address, charge.shared
    for port, tls in ((shared.clients, False), (shared.clients_tls, True)):
        if port >= 0:
            server = await broker.listen_on(join(address, port), tls=tls)
            opened.callback(server.close)
    await admin.until_serving()
    for port, tls in ((shared.http, False), (shared.https, True)):
        if port >= 0:
            await admin.listen_on(join(address, port), tls=tls)
