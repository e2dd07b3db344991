# SPDX-License-Identifier: Apache-2.0
"""`magnetar websocket`: the WebSocket API in a process of its own, in front of a cluster's brokers.

Assembles.
"""

import sys
from contextlib import AsyncExitStack

from magnetar.admin.http import HttpServer
from magnetar.admin.server import WebPorts, take_ports
from magnetar.broker.as_client import AsClient
from magnetar.broker.auth.opening import open_authentication, open_tls
from magnetar.cli.exposure import check_exposure
from magnetar.cli.proxy import brokers_store
from magnetar.cli.role import RoleFlags, announce, role_settings
from magnetar.config.key import WEBSOCKET
from magnetar.config.load import Settings
from magnetar.errors import BadSetting
from magnetar.proxy.brokers import Brokers
from magnetar.runtime.chance import fresh_seed, stream
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.log import start_logging
from magnetar.runtime.loop import Process, run
from magnetar.runtime.server_tls import ServerTls, watch_files
from magnetar.runtime.tasks import Tasks
from magnetar.websocket.before_brokers import BeforeBrokers
from magnetar.websocket.own_http import OwnHttp
from magnetar.websocket.service import WebSocketService


def run_websocket(flags: RoleFlags, given: dict[str, str | None]) -> int:
    """Serve until told to stop; returns the exit code."""
    asked = role_settings(flags, WEBSOCKET, given)
    check_exposure(asked, sys.stderr.write)
    is_named = _are_named(asked, has_metadata=flags.metadata is not None)
    start_logging(asked.runtime, sys.stderr)

    async def serve(process: Process) -> None:
        clock = SystemClock()
        async with AsyncExitStack() as opened:
            store = await opened.enter_async_context(brokers_store(asked, clock, process, named=is_named))
            tasks = Tasks("websocket process", process.fail)
            opened.push_async_callback(tasks.close)
            brokers = await Brokers.open(asked.proxy, stream(fresh_seed(), "websocket"), store, tasks)
            ports, settings = opened.enter_context(take_ports(asked))
            tls = open_tls(settings.security)
            authentication = open_authentication(settings.security, clock)
            as_client = AsClient(settings.security)
            opened.push_async_callback(as_client.close)
            if authentication is not None:
                opened.push_async_callback(authentication.close)
                for upkeep in authentication.upkeep:
                    tasks.start(upkeep(), "authentication")
            if tls is not None:
                tasks.start(watch_files(tls, settings.security.tls_reload_check_s), "watch certificates")
            backend = BeforeBrokers(
                authentication,
                as_client,
                lambda: _service_url(settings, brokers),
                settings.websocket,
                clock,
                check_interval_s=settings.security.refresh_check_s,
            )
            service = WebSocketService(settings.websocket, backend, process.metrics)
            app = OwnHttp(service, backend, process.metrics, settings.security)
            http = HttpServer(app, settings.admin, service.new_connection)
            opened.push_async_callback(http.stop)
            service.start()
            opened.push_async_callback(service.stop)
            urls = await _listen(http, ports, settings, tls)
            announce("Magnetar WebSocket service", urls, flags, urls)
            process.serving()
            await process.stop_requested()

    return run(serve, asked.runtime)


async def _listen(http: HttpServer, ports: WebPorts, settings: Settings, tls: ServerTls | None) -> dict[str, str]:
    host, urls = settings.broker.advertised_address, {}
    if ports.plain is not None:
        await http.start(ports.plain)
        urls["webServiceUrl"] = f"http://{host}:{settings.broker.http_port}"
    if ports.tls is not None and tls is not None:
        await http.start(ports.tls, tls.context)
        urls["webServiceUrlTls"] = f"https://{host}:{settings.security.https_port}"
    return urls


def _service_url(settings: Settings, brokers: Brokers) -> str:
    """Where brokers are: those of the metadata store, those that were named, or whoever answers over HTTP."""
    proxy = settings.proxy
    named = proxy.broker_url_tls if proxy.tls_with_broker else proxy.broker_url
    web = proxy.broker_web_url_tls if proxy.tls_with_broker else proxy.broker_web_url
    return web if web and not named and not brokers.has_registry else brokers.service_url()


def _are_named(settings: Settings, *, has_metadata: bool) -> bool:
    """Whether brokers are named, or listed in a metadata store. BadSetting when neither."""
    proxy = settings.proxy
    plain, encrypted = (proxy.broker_url, proxy.broker_web_url), (proxy.broker_url_tls, proxy.broker_web_url_tls)
    is_named = any(encrypted if proxy.tls_with_broker else plain)
    if not is_named and not has_metadata and settings.metadata.url.partition(":")[0] in ("memory", "embedded"):
        raise BadSetting(
            "A WebSocket service must know where brokers are: give --metadata, or brokerServiceUrl "
            "(brokerServiceUrlTls with brokerClientTlsEnabled=true)"
        )
    return is_named
