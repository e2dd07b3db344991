# SPDX-License-Identifier: Apache-2.0
"""Where the brokers are: named by URLs, or listed in the metadata store and followed there.

Gives them one after another, so that look-ups spread. While the store is away, the last list that it gave is used.
Carries.
"""

import json
import logging
from random import Random
from typing import Any, Final, NamedTuple

import httpx

from magnetar.config.proxy import ProxySettings
from magnetar.errors import BadSetting, MagnetarError, ServiceNotReady
from magnetar.metadata.store import Change, MetadataStore, SessionEvent
from magnetar.proxy.targets import Target, parse_target
from magnetar.runtime.tasks import Tasks

BROKERS_PATH: Final = "/loadbalance/brokers"
BROKERS_MAX: Final = 10_000
HOSTS_MAX: Final = 10
_WEB_PORTS: Final = {"http": 80, "https": 443}

_log = logging.getLogger(__name__)


class BrokerAddress(NamedTuple):
    """Where one broker serves; empty where it does not."""

    service: Target | None = None
    service_tls: Target | None = None
    web_url: str = ""
    web_url_tls: str = ""


class Brokers:
    """Usable when `open` returns."""

    def __init__(self, settings: ProxySettings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self._known: list[BrokerAddress] = []
        self._store: MetadataStore | None = None
        self._tasks: Tasks | None = None
        self._stale = False
        self._reading = False

    @classmethod
    async def open(
        cls, settings: ProxySettings, random: Random, store: MetadataStore | None, tasks: Tasks
    ) -> "Brokers":
        brokers = cls(settings, random)
        if store is None:
            brokers._known = _named(settings)
            return brokers
        brokers._store, brokers._tasks = store, tasks
        store.watch(BROKERS_PATH, brokers._on_change)
        store.watch_session(brokers._on_session)
        await brokers._read(store)
        return brokers

    @property
    def has_registry(self) -> bool:
        return self._store is not None

    def known(self) -> set[Target]:
        """Addresses that brokers announced in the metadata store, or that the configuration names."""
        found = [target for broker in self._known for target in (broker.service, broker.service_tls)]
        return {target for target in found if target is not None}

    def services(self) -> list[Target]:
        """Brokers to ask, a different one first each time. ServiceNotReady when there is none."""
        tls = self._settings.tls_with_broker
        return self._shuffled([each.service_tls if tls else each.service for each in self._known])

    def service_url(self) -> str:
        """All of them as one URL, for a client that tries one after another."""
        scheme = "pulsar+ssl" if self._settings.tls_with_broker else "pulsar"
        return f"{scheme}://" + ",".join(str(target) for target in self.services()[:HOSTS_MAX])

    def web_urls(self) -> list[str]:
        tls = self._settings.tls_with_broker
        return self._shuffled([(each.web_url_tls if tls else each.web_url) or None for each in self._known])

    def known_web(self) -> set[Target]:
        """Where `web_urls` lead, whether over TLS or not."""
        urls = [url for broker in self._known for url in (broker.web_url, broker.web_url_tls)]
        return {web_target(httpx.URL(url)) for url in urls if url}

    def _shuffled(self, found: "list[Any]") -> "list[Any]":
        usable = [each for each in found if each is not None]
        if not usable:
            raise ServiceNotReady("No broker is there to ask; try again later")
        self._random.shuffle(usable)
        return usable

    # --- the metadata store ----------------------------------------------------------------------

    def _on_change(self, change: Change) -> None:
        self._refresh()

    def _on_session(self, event: SessionEvent) -> None:
        if event in (SessionEvent.RECONNECTED, SessionEvent.REESTABLISHED):
            self._refresh()

    def _refresh(self) -> None:
        self._stale = True
        if not self._reading and self._tasks is not None and not self._tasks.is_closed and self._store is not None:
            self._tasks.start(self._read(self._store), "read the list of brokers")

    async def _read(self, store: MetadataStore) -> None:
        self._reading = True
        try:
            self._stale = True
            while self._stale:
                self._stale = False
                names = (await store.children(BROKERS_PATH))[:BROKERS_MAX]
                found = []
                for name in names:
                    record = await store.get(f"{BROKERS_PATH}/{name}")
                    if record is not None:
                        found += _announced(name, record.value)
                self._known = found
        except MagnetarError as error:
            _log.warning("the list of brokers cannot be read, the last one is used: %s", error)
        finally:
            self._reading = False


def _named(settings: ProxySettings) -> list[BrokerAddress]:
    def targets(url: str) -> list[Target]:
        try:
            return [parse_target(part) for part in url.partition("://")[2].split(",") if part.strip()]
        except MagnetarError as error:
            raise BadSetting(f"A broker's URL cannot be used: {error}") from error

    known = [BrokerAddress(service=target) for target in targets(settings.broker_url)]
    known += [BrokerAddress(service_tls=target) for target in targets(settings.broker_url_tls)]
    known += [BrokerAddress(web_url=url) for url in _web_urls(settings.broker_web_url)]
    known += [BrokerAddress(web_url_tls=url) for url in _web_urls(settings.broker_web_url_tls)]
    return known


def _web_urls(text: str) -> list[str]:
    scheme, _, hosts = text.partition("://")
    try:
        return [_web_url(f"{scheme}://{host.strip().rstrip('/')}") for host in hosts.split(",") if host.strip()]
    except ValueError as error:
        raise BadSetting(f"A broker's web URL cannot be used: {error}") from error


def _web_url(text: str) -> str:
    """As it is, empty where there is none. ValueError when a request can have no such URL."""
    if text:
        try:
            web_target(httpx.URL(text))
        except httpx.InvalidURL as error:
            raise ValueError(f"{text[:300]!r} is not the URL of a web server") from error
    return text


def web_target(url: httpx.URL) -> Target:
    """Where a request to this URL is sent. InvalidURL when there is no such place."""
    usual = _WEB_PORTS.get(url.scheme)
    port = usual if url.port is None else url.port
    if usual is None or not url.host or not port or port >= 65_536:
        raise httpx.InvalidURL(f"{str(url)[:300]!r} is not the URL of a web server")
    return Target(url.host, port)


def _announced(name: str, value: bytes) -> list[BrokerAddress]:
    """A broker's record, as Pulsar's load managers write it; one that cannot be read is left out and said."""
    try:
        found = json.loads(value)
        service, tls = found.get("pulsarServiceUrl") or "", found.get("pulsarServiceUrlTls") or ""
        return [
            BrokerAddress(
                parse_target(service) if service else None,
                parse_target(tls) if tls else None,
                _web_url(str(found.get("webServiceUrl") or "")),
                _web_url(str(found.get("webServiceUrlTls") or "")),
            )
        ]
    except (ValueError, AttributeError, TypeError, RecursionError, MagnetarError) as error:
        _log.warning("the record of broker %s cannot be read and is left out: %s", name, error)
        return []
