# SPDX-License-Identifier: Apache-2.0
"""The other clusters that messages go to: a client for each, made from the record under which it is registered.

Owns the clients. A record that changes makes a new client; what was attached by the old one loses its connection and
comes again by the new. Credentials are the record's, or else those that this broker shows to other brokers.
Carries.
"""

import ssl
from collections.abc import Mapping
from typing import Any, Final

from magnetar.broker.as_client import AsClient
from magnetar.client.authentication import Authentication, authentication_of
from magnetar.client.client import Client
from magnetar.client.core import Core
from magnetar.client.pool import Connect, over_tcp
from magnetar.client.tls import tls_context
from magnetar.config.client import ClientSettings
from magnetar.config.security import SecuritySettings
from magnetar.errors import BadSetting, ConnectionLost, Refused, TopicNotFound
from magnetar.metadata.json_record import decode_json
from magnetar.metadata.store import MetadataStore
from magnetar.names import TopicName, cluster_path
from magnetar.runtime.clock import WallClock

_BACKOFF_MS_MAX: Final = 10_000
_CREATED: Final = (204, 409)


class RemoteCluster:
    """One other cluster as it is registered now."""

    def __init__(
        self,
        name: str,
        record: Mapping[str, Any],
        as_client: AsClient,
        security: SecuritySettings,
        clock: WallClock,
        connect: Connect = over_tcp,
    ) -> None:
        """BadSetting when the record cannot be used."""
        self.name = name
        self.record = dict(record)
        self._uses_tls = bool(record.get("brokerClientTlsEnabled")) or as_client.uses_tls
        self._authentication = self._own_authentication() or as_client.authentication
        self._is_own = self._authentication is not as_client.authentication
        self._tls = self._tls_context(as_client, security) if self._uses_tls else None
        self._client = Client(
            self._url("brokerServiceUrl"),
            self._authentication,
            clock=clock,
            connect=connect,
            tls=self._tls,
            use_tls=self._uses_tls,
            backoff_ms_max=_BACKOFF_MS_MAX,
            client_name="replication",
        )

    @property
    def core(self) -> Core:
        return self._client.core

    async def create_partitioned(self, topic: TopicName, partitions: int) -> None:
        """Make a topic with so many partitions over there; nothing happens when there is one."""
        # The HTTP library is for those who replicate topics with partitions.
        import httpx

        from magnetar.runtime.http_client import http_client

        url = f"{self._url('serviceUrl').rstrip('/')}/admin/v2/{topic.lookup_name}/partitions"
        headers = dict(await self._authentication.http_headers()) if self._authentication is not None else {}
        headers["Content-Type"] = "application/json"
        limit_s = self.core.settings.operation_timeout_seconds
        try:
            async with http_client(self._tls, trust_env=True, timeout=limit_s, follow_redirects=True) as http:
                answer = await http.put(url, content=str(partitions), headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConnectionLost(f"Cluster {self.name}: {url} cannot be reached: {error}") from error
        if answer.status_code not in _CREATED:
            raise Refused(f"Cluster {self.name} does not make {topic}: {answer.status_code} {answer.text[:200]}")

    async def close(self) -> None:
        await self._client.close()
        if self._is_own and self._authentication is not None:
            await self._authentication.close()

    def _url(self, member: str) -> str:
        wanted = f"{member}Tls" if self._uses_tls else member
        found = self.record.get(wanted)
        if not found or not isinstance(found, str):
            raise BadSetting(f"Cluster {self.name} is registered without {wanted}: set it with `clusters update`")
        return found

    def _own_authentication(self) -> Authentication | None:
        plugin = self.record.get("authenticationPlugin")
        return authentication_of(plugin, self.record.get("authenticationParameters") or "") if plugin else None

    def _tls_context(self, as_client: AsClient, security: SecuritySettings) -> ssl.SSLContext | None:
        if not self.record.get("brokerClientTlsEnabled"):
            return as_client.tls
        settings = ClientSettings(
            tls_trust_certs_file_path=self.record.get("brokerClientTrustCertsFilePath") or None,
            tls_allow_insecure_connection=bool(self.record.get("tlsAllowInsecureConnection")),
            tls_validate_hostname=security.client_hostname_verified,
            tls_certificate_file_path=self.record.get("brokerClientCertificateFilePath") or None,
            tls_private_key_file_path=self.record.get("brokerClientKeyFilePath") or None,
        )
        return tls_context(settings, self._authentication)


class RemoteClusters:
    def __init__(
        self,
        store: MetadataStore,
        as_client: AsClient,
        security: SecuritySettings,
        clock: WallClock,
        connect: Connect = over_tcp,
    ) -> None:
        self._store = store
        self._as_client = as_client
        self._security = security
        self._clock = clock
        self._connect = connect
        self._open: dict[str, RemoteCluster] = {}

    async def cluster(self, name: str) -> RemoteCluster:
        """As it is registered now. TopicNotFound when it is not; BadSetting when its record cannot be used."""
        found = await self._store.get(cluster_path(name))
        if found is None:
            raise TopicNotFound(f"Cluster {name} is not registered here: use `clusters create {name}`")
        record = decode_json(found.value, f"The record of cluster {name}")
        present = self._open.get(name)
        if present is not None and present.record == record:
            return present
        # Nothing is awaited between here and the end but the farewell: two who ask get the same one.
        made = self._open[name] = RemoteCluster(
            name, record, self._as_client, self._security, self._clock, self._connect
        )
        if present is not None:
            await present.close()
        return made

    async def close(self) -> None:
        for cluster in list(self._open.values()):
            await cluster.close()
        self._open.clear()
