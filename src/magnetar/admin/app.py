# SPDX-License-Identifier: Apache-2.0
"""The application: every noun's routes, in the order in which they are tried, and what becomes of errors.

Imported beside the loop when the server starts, never before: it brings FastAPI with it.
Assembles.
"""

import asyncio
import logging
from importlib import import_module

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute

import magnetar
from magnetar.admin import (
    balance,
    bookies,
    broker_stats,
    brokers,
    bundle_routes,
    clusters,
    compaction,
    description,
    health,
    lookup,
    messages,
    metrics,
    namespace_groups,
    namespace_policies,
    namespaces,
    partitions,
    permissions,
    publishing,
    resource_groups,
    resource_quotas,
    schemas,
    stats,
    subscriptions,
    tenants,
    topic_policies,
    topic_records,
    topics,
    transactions,
    websocket_routes,
)
from magnetar.admin.ages import Ages
from magnetar.admin.answers import refusal_of, refused
from magnetar.admin.at_owner import AnsweredElsewhereError, at_owner
from magnetar.admin.bounds import BodyTooLarge, refused_body
from magnetar.admin.counting import counted_in
from magnetar.admin.door import let_in
from magnetar.admin.known_paths import unserved_feature
from magnetar.admin.metrics import Scrapes
from magnetar.admin.otlp import export_metrics
from magnetar.admin.parts import AdminParts
from magnetar.admin.peers import Peers
from magnetar.admin.rates import Rates
from magnetar.admin.records import Records
from magnetar.admin.route_index import RouteIndex
from magnetar.admin.slices import Turns
from magnetar.broker.broker import Broker
from magnetar.broker.ownership.usage import UsageMeter
from magnetar.broker.policies.policies import Policies
from magnetar.config.admin import AdminSettings
from magnetar.errors import MagnetarError
from magnetar.runtime.clock import WallClock
from magnetar.runtime.host import read_host
from magnetar.runtime.metrics import Metrics

_RATES_PER_SLICE = 500

_log = logging.getLogger(__name__)

# For the server, which imports this module only.
__all__ = ["ROUTERS", "all_routes", "build", "export_metrics", "new_app", "watch_ages", "watch_rates"]

# Tried in this order: a route that takes any policy's name comes after those that name theirs.
ROUTERS = (
    metrics.router,
    health.router,
    lookup.router,
    clusters.router,
    tenants.router,
    namespace_groups.router,
    permissions.router,
    bundle_routes.router,
    namespaces.router,
    namespace_policies.router,
    partitions.router,
    topic_records.router,
    stats.router,
    subscriptions.router,
    messages.router,
    compaction.router,
    topics.router,
    topic_policies.router,
    balance.router,
    brokers.router,
    broker_stats.router,
    bookies.router,
    resource_groups.router,
    resource_quotas.router,
    schemas.router,
    transactions.router,
    publishing.router,
    websocket_routes.router,
    description.router,
)


def build(
    broker: Broker,
    records: Records,
    policies: Policies,
    clock: WallClock,
    metrics: Metrics,
    settings: AdminSettings,
) -> tuple[FastAPI, AdminParts]:
    usage = UsageMeter() if broker.cluster is None else broker.cluster.reports.usage
    app = new_app()
    peers = Peers(broker, app)
    parts = AdminParts(broker, records, policies, clock, metrics, settings, Rates(), Ages(), Scrapes(), usage, peers)
    app.state.parts = parts
    return app, parts


def new_app() -> FastAPI:
    """The routes and what becomes of errors, without anything behind them."""
    app = FastAPI(
        title="Magnetar",
        version=magnetar.__version__,
        redirect_slashes=False,
        # Its own pages would be open to everybody.
        openapi_url=None,
        dependencies=[Depends(let_in), Depends(at_owner)],
    )
    _add_routes(app)
    # What is streamed needs this, and asks for it when the first answer is.
    import_module("anyio._backends._asyncio")
    app.add_exception_handler(MagnetarError, _on_refused)
    app.add_exception_handler(AnsweredElsewhereError, _on_answered)
    app.add_exception_handler(RequestValidationError, _on_bad_request)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(BodyTooLarge, _on_large_body)
    app.add_exception_handler(ClientDisconnect, _on_half_a_body)
    app.add_exception_handler(Exception, _on_bug)
    return app


def _add_routes(app: FastAPI) -> None:
    """One by one: a router that is included is asked whole, twice, and built only when the first request comes by."""
    for route in all_routes():
        if isinstance(route, APIRoute):
            app.add_api_route(
                route.path,
                route.endpoint,
                methods=sorted(route.methods or ()),
                status_code=route.status_code,
                dependencies=route.dependencies,
                tags=route.tags,
                include_in_schema=route.include_in_schema,
            )
        else:
            app.router.routes.append(route)
    served = [route for route in app.router.routes if isinstance(route, APIRoute)]
    app.router.routes.insert(0, RouteIndex(served))


def all_routes() -> list[BaseRoute]:
    """Every route, in the order in which they are tried."""
    return [route for router in ROUTERS for route in router.routes]


async def watch_rates(parts: AdminParts) -> None:
    while True:
        counted = await counted_in(parts)
        turns = Turns(_RATES_PER_SLICE)
        for _ in parts.rates.looking(counted, parts.clock.now_ms()):
            await turns.after()
        await asyncio.sleep(parts.settings.rates_interval_s)


async def watch_ages(parts: AdminParts) -> None:
    while True:
        if parts.broker.cluster is None:
            parts.usage.look(read_host(), asyncio.get_running_loop().time())
        await parts.ages.look(parts.broker.topics.loaded())
        await asyncio.sleep(parts.settings.ages_interval_s)


async def _on_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, MagnetarError)
    return refusal_of(error)


async def _on_answered(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnsweredElsewhereError)
    return error.response


async def _on_bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return refused(400, f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    feature = unserved_feature(request.method, request.scope["path"])
    if feature is not None and error.status_code in (404, 405):
        return refused(501, f"Not served by this broker: {feature}")
    return refused(error.status_code, str(error.detail))


async def _on_large_body(request: Request, error: Exception) -> Response:
    assert isinstance(error, BodyTooLarge)
    return refused_body(error)


async def _on_half_a_body(request: Request, error: Exception) -> Response:
    """Nobody reads it; the audit log and the metrics have its status."""
    return refused(400, "The body broke off")


async def _on_bug(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return refused(500, "The request failed; the broker's log says why")
