# SPDX-License-Identifier: Apache-2.0
"""`magnetar proxy`: one address in front of a cluster's brokers.

Assembles.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.admin.http import HttpServer
from magnetar.admin.server import take_ports
from magnetar.cli.exposure import check_exposure
from magnetar.cli.role import RoleFlags, announce, cluster_store, role_settings
from magnetar.config.key import PROXY
from magnetar.config.load import Settings
from magnetar.errors import BadSetting
from magnetar.metadata.store import MetadataStore
from magnetar.proxy.brokers import Brokers
from magnetar.proxy.proxy import Proxy
from magnetar.proxy.reverse import ReverseProxy
from magnetar.runtime.chance import fresh_seed, stream
from magnetar.runtime.clock import SystemClock, WallClock
from magnetar.runtime.log import start_logging
from magnetar.runtime.loop import Process, run
from magnetar.runtime.metrics import Metrics
from magnetar.runtime.real_disk import RealDisk
from magnetar.runtime.tasks import Tasks

if TYPE_CHECKING:
    from magnetar.websocket.service import WebSocketService


def run_proxy(flags: RoleFlags, given: dict[str, str | None]) -> int:
    """Serve until told to stop; returns the exit code."""
    asked = role_settings(flags, PROXY, given)
    check_exposure(asked, sys.stderr.write)
    check_discovery(asked, flags.metadata is not None)
    start_logging(asked.runtime, sys.stderr)

    async def serve(process: Process) -> None:
        clock = SystemClock()
        async with AsyncExitStack() as opened:
            named = bool(asked.proxy.broker_url or asked.proxy.broker_url_tls)
            store = await opened.enter_async_context(brokers_store(asked, clock, process, named=named))
            tasks = Tasks("proxy process", process.fail)
            opened.push_async_callback(tasks.close)
            brokers = await Brokers.open(asked.proxy, stream(fresh_seed(), "proxy"), store, tasks)
            ports, settings = opened.enter_context(take_ports(asked))
            parts = (settings.proxy, settings.broker, settings.security, brokers, clock, process.metrics, process.fail)
            proxy = Proxy(*parts)
            opened.push_async_callback(proxy.stop)
            urls = await proxy.start()
            reverse = ReverseProxy(proxy, process.metrics)
            opened.push_async_callback(reverse.close)
            bounds = replace(settings.admin, request_timeout_ms=settings.proxy.http_timeout_ms)
            websockets = open_websockets(proxy, settings, clock, process.metrics)
            http = HttpServer(reverse, bounds, None if websockets is None else websockets.new_connection)
            opened.push_async_callback(http.stop)
            if websockets is not None:
                websockets.start()
                opened.push_async_callback(websockets.stop)
            host = settings.broker.advertised_address
            if ports.plain is not None:
                await http.start(ports.plain)
                urls["webServiceUrl"] = f"http://{host}:{settings.broker.http_port}"
            if ports.tls is not None and proxy.tls is not None:
                await http.start(ports.tls, proxy.tls.context)
                urls["webServiceUrlTls"] = f"https://{host}:{settings.security.https_port}"
            facts = {**urls, "brokers": settings.metadata.url if store is not None else settings.proxy.broker_url}
            announce("Magnetar proxy", facts, flags, urls)
            process.serving()
            await process.stop_requested()

    return run(serve, asked.runtime)


def open_websockets(proxy: Proxy, settings: Settings, clock: WallClock, metrics: Metrics) -> "WebSocketService | None":
    """The WebSocket service before the brokers, where it is asked for."""
    if not settings.websocket.enabled:
        return None
    from magnetar.websocket.before_brokers import BeforeBrokers
    from magnetar.websocket.service import WebSocketService

    backend = BeforeBrokers(
        proxy.authentication,
        proxy.as_client,
        proxy.brokers.service_url,
        settings.websocket,
        clock,
        check_interval_s=settings.security.refresh_check_s,
    )
    return WebSocketService(settings.websocket, backend, metrics)


def check_discovery(settings: Settings, has_metadata: bool) -> None:
    """BadSetting unless it is clear where brokers are."""
    proxy = settings.proxy
    named = proxy.broker_url_tls if proxy.tls_with_broker else proxy.broker_url
    if not named and not has_metadata and settings.metadata.url.partition(":")[0] in ("memory", "embedded"):
        raise BadSetting(
            "A proxy must know where brokers are: give --metadata, or brokerServiceURL and brokerWebServiceURL "
            "(brokerServiceURLTLS and brokerWebServiceURLTLS with tlsEnabledWithBroker)"
        )


@asynccontextmanager
async def brokers_store(
    settings: Settings, clock: WallClock, process: Process, *, named: bool
) -> AsyncIterator[MetadataStore | None]:
    """The metadata store that lists the brokers; none where they are named by URLs."""
    if named:
        yield None
        return
    disk = RealDisk(".")
    try:
        async with cluster_store(settings, disk, clock, process) as store:
            yield store
    finally:
        await disk.close()
