# SPDX-License-Identifier: Apache-2.0
"""Which broker serves a topic, how many partitions it has, which topics a namespace has, which schema a topic has.

`Lookup` is the question; `BinaryLookup` asks over the protocol itself, following redirects up to a limit, and tries
the hosts of the service URL in turn. Never retries: whoever asks knows how long it may take.
Carries.
"""

import asyncio
from abc import ABC, abstractmethod
from random import Random
from typing import NamedTuple

from magnetar.client.connection import Connection
from magnetar.client.pool import Pool, Way
from magnetar.client.schema_info import SchemaInfo
from magnetar.client.service_url import Address, ServiceUrl, parse_address
from magnetar.config.client import ClientSettings
from magnetar.errors import ConnectionLost, IncompatibleSchema, Refused, TimedOut, TooManyRedirects, TopicNotFound
from magnetar.names import NamespaceName, TopicName
from magnetar.wire.commands import Type
from magnetar.wire.error_codes import error_of_server_error
from magnetar.wire.proto import pulsar_api_pb2 as pb

Mode = pb.CommandGetTopicsOfNamespace.Mode


class NamespaceTopics(NamedTuple):
    """Topics of a namespace (partitions by their own names), and a hash of the list, if the broker gave one."""

    topics: list[str]
    digest: str
    is_filtered: bool
    has_changed: bool


class Hosts:
    """The addresses of a service URL, one after the other; the first by chance, so that clients spread."""

    def __init__(self, url: ServiceUrl, random: Random) -> None:
        self.url = url
        self._next = random.randrange(len(url.addresses))

    @property
    def current(self) -> Address:
        return self.url.addresses[self._next % len(self.url.addresses)]

    def advance(self) -> None:
        """The current one did not answer."""
        self._next += 1

    def switch(self, url: ServiceUrl) -> None:
        """Another cluster from now on."""
        self.url = url
        self._next = 0

    def __len__(self) -> int:
        return len(self.url.addresses)


class Lookup(ABC):
    @abstractmethod
    async def locate(self, topic: TopicName) -> Way:
        """How to reach the broker that serves the topic."""

    @abstractmethod
    async def partitions(self, topic: TopicName, *, create: bool = True) -> int:
        """How many partitions; 0 for a topic without. Creates the topic if asked and allowed."""

    @abstractmethod
    async def topics(
        self, namespace: NamespaceName, mode: "Mode.ValueType", pattern: str, digest: str
    ) -> NamespaceTopics:
        """The namespace's topics; brokers that can apply the pattern and compare the hash."""

    @abstractmethod
    async def schema(self, topic: TopicName, version: bytes | None = None) -> tuple[SchemaInfo, bytes] | None:
        """The topic's schema of this version (None: the latest), and its version; None if it has none."""

    async def close(self) -> None:  # noqa: B027 only look-ups over HTTP hold something
        """Give back what the look-up holds."""


class BinaryLookup(Lookup):
    def __init__(self, hosts: Hosts, pool: Pool, settings: ClientSettings) -> None:
        self._hosts = hosts
        self._pool = pool
        self._settings = settings
        self._turns = asyncio.Semaphore(settings.concurrent_lookup_requests)

    async def service_connection(self) -> Connection:
        """A connection to any host of the service URL: each is tried once."""
        for attempt in range(len(self._hosts), 0, -1):
            try:
                return await self._pool.connect(Way(self._hosts.current))
            except (ConnectionLost, TimedOut):
                self._hosts.advance()
                if attempt == 1:
                    raise
        raise AssertionError("a service URL has at least one host")

    async def locate(self, topic: TopicName) -> Way:
        async with self._turns:
            connection = await self.service_connection()
            authoritative = False
            for _ in range(self._settings.lookup_redirects_max + 1):
                answer = await self._ask_owner(connection, topic, authoritative)
                way = self._way(topic, answer)
                if answer.response == pb.CommandLookupTopicResponse.Connect:
                    return way
                authoritative = answer.authoritative
                connection = await self._pool.connect(way)
        raise TooManyRedirects(f"{topic}: brokers redirected the look-up {self._settings.lookup_redirects_max} times")

    async def _ask_owner(
        self, connection: Connection, topic: TopicName, authoritative: bool
    ) -> pb.CommandLookupTopicResponse:
        request = pb.CommandLookupTopic(topic=str(topic), authoritative=authoritative)
        if self._settings.listener_name:
            request.advertised_listener_name = self._settings.listener_name
        answer: pb.CommandLookupTopicResponse = await connection.request(Type.LOOKUP, request)
        if answer.response == pb.CommandLookupTopicResponse.Failed:
            raise error_of_server_error(answer.error, f"{topic}: {answer.message or 'the look-up failed'}")
        return answer

    def _way(self, topic: TopicName, answer: pb.CommandLookupTopicResponse) -> Way:
        tls = self._hosts.url.uses_tls or self._settings.use_tls
        url = answer.brokerServiceUrlTls if tls else answer.brokerServiceUrl
        if not url:
            raise Refused(f"{topic}: the look-up's answer has no {'TLS' if tls else 'plain'} address")
        proxy = self._hosts.current if answer.proxy_through_service_url else None
        return Way(parse_address(url), proxy)

    async def partitions(self, topic: TopicName, *, create: bool = True) -> int:
        async with self._turns:
            connection = await self.service_connection()
            request = pb.CommandPartitionedTopicMetadata(topic=str(topic))
            if not create:
                if not connection.features.supports_get_partitioned_metadata_without_auto_creation:
                    raise Refused(f"{connection.name} cannot tell partitions without creating the topic")
                request.metadata_auto_creation_enabled = False
            answer: pb.CommandPartitionedTopicMetadataResponse = await connection.request(
                Type.PARTITIONED_METADATA, request
            )
            if answer.response == pb.CommandPartitionedTopicMetadataResponse.Failed:
                raise error_of_server_error(answer.error, f"{topic}: {answer.message}")
            return answer.partitions

    async def topics(
        self, namespace: NamespaceName, mode: "Mode.ValueType", pattern: str, digest: str
    ) -> NamespaceTopics:
        async with self._turns:
            connection = await self.service_connection()
            request = pb.CommandGetTopicsOfNamespace(namespace=str(namespace), mode=mode)
            if pattern:
                request.topics_pattern = pattern
            if digest:
                request.topics_hash = digest
            answer: pb.CommandGetTopicsOfNamespaceResponse = await connection.request(
                Type.GET_TOPICS_OF_NAMESPACE, request
            )
            return NamespaceTopics(list(answer.topics), answer.topics_hash, answer.filtered, answer.changed)

    async def schema(self, topic: TopicName, version: bytes | None = None) -> tuple[SchemaInfo, bytes] | None:
        connection = await self._pool.connect(await self.locate(topic))
        request = pb.CommandGetSchema(topic=str(topic))
        if version is not None:
            request.schema_version = version
        try:
            answer: pb.CommandGetSchemaResponse = await connection.request(Type.GET_SCHEMA, request)
        except (TopicNotFound, IncompatibleSchema):
            return None
        return SchemaInfo.from_wire(answer.schema), answer.schema_version
