# SPDX-License-Identifier: Apache-2.0
"""Resource groups: one budget for all topics of the namespaces that name a group, as far as they are loaded here.

Owns the shared limits by group and gives them to topics as they load and whenever the group's record changes. What
other brokers spend of the same group is not counted here. A record that cannot be used limits nothing, and says so.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from magnetar.broker.rate_limit import NamedLimit, Rate, RateLimiter, limiter_for, named_limit
from magnetar.broker.topic import Topic
from magnetar.errors import DamagedRecord, MagnetarError, OwnerClosed, TooManyRequests
from magnetar.metadata.cache import RecordCache
from magnetar.metadata.json_record import decode_json, encode_json
from magnetar.metadata.store import MetadataStore
from magnetar.names import encode_name
from magnetar.runtime.tasks import Tasks

RESOURCE_GROUPS_ROOT: Final = "/admin/resourcegroups"

_log = logging.getLogger(__name__)


class GroupLimits(NamedTuple):
    publish: RateLimiter | None = None
    dispatch: NamedLimit | None = None


_FREE: Final = GroupLimits()


class ResourceGroups:
    def __init__(self, store: MetadataStore, tasks: Tasks, loaded: Callable[[], list[Topic]]) -> None:
        self._records: RecordCache[Mapping[str, Any]] = RecordCache(
            store, RESOURCE_GROUPS_ROOT, decode=decode_json, encode=encode_json
        )
        self._records.on_changed(self._on_changed)
        self._tasks = tasks
        self._loaded = loaded
        self._limits: dict[str, GroupLimits] = {}

    async def apply(self, topic: Topic) -> None:
        """The topic shares the limits of the group that its namespace names, from now on."""
        name = topic.policies.resource_group if topic.policies is not None else ""
        limits = await self._current(name) if name else _FREE
        topic.publish_rates.limit_group(limits.publish)
        topic.dispatch_rates.limit_group(limits.dispatch)

    def close(self) -> None:
        self._records.close()

    async def _current(self, name: str) -> GroupLimits:
        try:
            kept = await self._records.get(f"{RESOURCE_GROUPS_ROOT}/{encode_name(name)}")
        except DamagedRecord as error:
            _log.error("resource group %s limits nothing: %s", name, error)
            kept = None
        record = kept.value if kept is not None else {}
        now_s = asyncio.get_running_loop().time
        present = self._limits.get(name, _FREE)
        publish, dispatch = _rate(record, "publish"), _rate(record, "dispatch")
        limits = self._limits[name] = GroupLimits(
            limiter_for(publish, present.publish, now_s()),
            named_limit(f"dispatch rate of resource group {name}", dispatch, present.dispatch, now_s),
        )
        return limits

    def _on_changed(self, path: str) -> None:
        try:
            self._tasks.start(self._apply_all(), "resource groups: apply")
        except (OwnerClosed, TooManyRequests) as error:
            _log.warning("resource groups are applied with the next change: %s", error)

    async def _apply_all(self) -> None:
        for topic in self._loaded():
            if topic.policies is not None and topic.policies.resource_group:
                try:
                    await self.apply(topic)
                except MagnetarError as error:
                    _log.warning("resource group of topic %s: %s", topic.name, error)


def _rate(record: Mapping[str, Any], which: str) -> Rate:
    return Rate(_limit(record, f"{which}RateInMsgs"), _limit(record, f"{which}RateInBytes"))


def _limit(record: Mapping[str, Any], name: str) -> int:
    value = record.get(name, 0)
    return max(0, value) if isinstance(value, int) else 0
