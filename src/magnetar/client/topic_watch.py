# SPDX-License-Identifier: Apache-2.0
"""A broker's word on which topics of a namespace come and go, where the broker gives it.

Registers a watcher on the service connection and again whenever that is lost. A broker that cannot watch is asked no
more; whoever needs the topics asks for them from time to time anyway.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from magnetar.client.connection import Connection
from magnetar.client.core import Core
from magnetar.client.lookup import BinaryLookup
from magnetar.errors import MagnetarError
from magnetar.names import NamespaceName
from magnetar.wire.commands import Type
from magnetar.wire.proto import pulsar_api_pb2 as pb

_log = logging.getLogger(__name__)


class TopicWatch:
    def __init__(
        self,
        core: Core,
        namespace: NamespaceName,
        pattern: str,
        on_changed: Callable[[Sequence[str], Sequence[str]], None],
    ) -> None:
        self._core = core
        self._namespace = namespace
        self._pattern = pattern
        self._on_changed = on_changed
        self._watcher_id = next(core.watcher_ids)
        self._connection: Connection | None = None

    async def run(self) -> None:
        """Until cancelled, or until a broker says that it cannot."""
        lookup = self._core.lookup
        if not isinstance(lookup, BinaryLookup):
            return
        backoff = self._core.backoff()
        while True:
            try:
                connection = await lookup.service_connection()
                if not connection.features.supports_topic_watchers:
                    return
                await self._register(connection)
                backoff.reset()
                await connection.ended.wait()
            except MagnetarError as error:
                _log.debug("%s: topics are not watched now: %s", self._pattern, error)
                if not error.retryable:
                    return
            await asyncio.sleep(backoff.next_s())

    async def _register(self, connection: Connection) -> None:
        request = pb.CommandWatchTopicList(
            watcher_id=self._watcher_id, namespace=str(self._namespace), topics_pattern=self._pattern
        )
        connection.topic_watchers[self._watcher_id] = self._on_update
        try:
            success: pb.CommandWatchTopicListSuccess = await connection.request(Type.WATCH_TOPIC_LIST, request)
        except BaseException:
            connection.topic_watchers.pop(self._watcher_id, None)
            raise
        self._connection = connection
        self._on_changed(list(success.topic), ())

    def _on_update(self, update: pb.CommandWatchTopicUpdate) -> None:
        self._on_changed(list(update.new_topics), list(update.deleted_topics))

    def close(self) -> None:
        connection = self._connection
        if connection is not None and connection.is_open:
            connection.topic_watchers.pop(self._watcher_id, None)
            connection.tell(Type.WATCH_TOPIC_LIST_CLOSE, pb.CommandWatchTopicListClose(watcher_id=self._watcher_id))
