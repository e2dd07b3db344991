# SPDX-License-Identifier: Apache-2.0
"""Withdrawn permissions reach what is open: producers, consumers and watchers that may no longer be are closed.

Looks as soon as the record of a tenant or namespace has changed, and at everything once in an interval, in case a
change went by unheard. A client that is closed comes back, and is refused then with the reason. Where records cannot be
read nothing is closed: it is looked again later.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from magnetar.broker.auth.authenticator import Principal
from magnetar.broker.auth.grants import Need, Target
from magnetar.broker.auth.guard import Guard
from magnetar.broker.session.session import Session
from magnetar.errors import MetadataError, NotAuthorized
from magnetar.names import NamespaceName, tenant_path

_EVERYTHING: Final = ""
# Questions before other work on the loop has its turn.
_SLICE: Final = 100

_log = logging.getLogger(__name__)


class Withdrawals:
    def __init__(self, guard: Guard, sessions: Callable[[], Iterable[Session]], interval_s: float) -> None:
        self._guard = guard
        self._sessions = sessions
        self._interval_s = interval_s
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        self._asked = 0

    async def watch(self) -> None:
        """Runs as long as the broker does."""
        unwatch = self._guard.on_permissions_changed(self._on_changed)
        try:
            while True:
                try:
                    async with asyncio.timeout(self._interval_s):
                        await self._wake.wait()
                except TimeoutError:
                    self._changed.add(_EVERYTHING)
                self._wake.clear()
                changed, self._changed = self._changed, set()
                try:
                    await self.look(changed)
                except MetadataError as error:
                    _log.warning("permissions of what is open are looked at again later: %s", error)
        finally:
            unwatch()

    async def look(self, changed: set[str]) -> None:
        """Close what the present records do not allow, of those whose record is among these paths."""
        for session in list(self._sessions()):
            if session.principal is not None:
                await self._look_at(session, session.principal, changed)

    def _on_changed(self, path: str) -> None:
        self._changed.add(path)
        self._wake.set()

    async def _look_at(self, session: Session, principal: Principal, changed: set[str]) -> None:
        for opened in list(session.producers.values()):
            target = Target.of(opened.topic.name)
            if await self._is_withdrawn(principal, Need.PRODUCE, target, changed):
                opened.topic.remove_producer(opened.producer)
                session.disconnect_producer(opened.producer)
        for open_consumer in list(session.consumers.values()):
            if open_consumer is None:
                continue
            target = Target.of(open_consumer.topic.name, open_consumer.subscription.name)
            withdrawn = await self._is_withdrawn(principal, Need.CONSUME, target, changed)
            if withdrawn and session.consumers.get(open_consumer.consumer.consumer_id) is open_consumer:
                session.leave(open_consumer)
                session.disconnect_consumer(open_consumer.consumer)
        for watcher_id, watch in list(session.topic_watches.items()):
            target = Target(watch.namespace.tenant, watch.namespace)
            if await self._is_withdrawn(principal, Need.LIST, target, changed):
                watch.close()
                session.topic_watches.pop(watcher_id, None)

    async def _is_withdrawn(self, principal: Principal, need: Need, target: Target, changed: set[str]) -> bool:
        self._asked += 1
        if self._asked % _SLICE == 0:
            await asyncio.sleep(0)
        if target.namespace is None or not _concerns(target.namespace, changed):
            return False
        try:
            await self._guard.require(principal, need, target)
        except NotAuthorized as error:
            _log.info("closing what was open: %s", error)
            return True
        return False


def _concerns(namespace: NamespaceName, changed: set[str]) -> bool:
    return _EVERYTHING in changed or namespace.policies_path in changed or tenant_path(namespace.tenant) in changed
