# SPDX-License-Identifier: Apache-2.0
"""Lists of topic names as clients ask for them: by domain, by pattern, with a hash that says whether they have changed.

Owns which topics are the system's own, how a pattern meets a name (without domain and partition, as Apache Pulsar
does), and the hash that all official clients compute too. Patterns come from clients: they are matched in linear time
(RE2), whatever they say. Never reads the metadata store.
Decides.
"""

from collections.abc import Collection, Iterable
from enum import Enum
from typing import Any, Final, NamedTuple

import google_crc32c
import re2

from magnetar.errors import BadName, NotAuthorized
from magnetar.names import TopicName

_EVENT_TOPICS: Final = (
    "__change_events",
    "__transaction_buffer_snapshot",
    "__transaction_buffer_snapshot_segments",
    "__transaction_buffer_snapshot_indexes",
)
_TRANSACTION_LOGS: Final = "persistent://pulsar/system/__transaction_log_"
_COORDINATOR_TOPICS: Final = ("persistent://pulsar/system/transaction_coordinator_assign", _TRANSACTION_LOGS)
_PENDING_ACKS: Final = "__transaction_pending_ack"
# What a pattern may cost to compile.
_PATTERN_BYTES_MAX: Final = 1024 * 1024


class ListMode(Enum):
    PERSISTENT = 0
    NON_PERSISTENT = 1
    ALL = 2


class ListChange(NamedTuple):
    new: list[str]
    deleted: list[str]

    def __bool__(self) -> bool:
        return bool(self.new or self.deleted)


def is_system_topic(topic: TopicName) -> bool:
    """Topics that brokers make for themselves; clients are not shown them."""
    base = topic.base
    full = str(base)
    return base.local_name in _EVENT_TOPICS or full.startswith(_COORDINATOR_TOPICS) or full.endswith(_PENDING_ACKS)


def check_not_a_log(topic: TopicName) -> None:
    """NotAuthorized for the names under which brokers keep records of transactions: nobody opens these as a topic.

    Whoever did would take the log from its owner, and what was written there could not be read as records.
    """
    full = str(topic.base)
    if full.startswith(_TRANSACTION_LOGS) or full.endswith(_PENDING_ACKS):
        raise NotAuthorized(f"{topic} is a log of the broker's own, which no client opens")


def hash_of(names: Collection[str]) -> str:
    """CRC32C of the sorted names with commas between, as hexadecimal digits of its little-endian bytes."""
    checksum = google_crc32c.value(",".join(sorted(names)).encode())
    return int(checksum).to_bytes(4, "little").hex()


def compile_pattern(text: str) -> Any:
    """A pattern that takes no longer for one name than for another. BadName when it cannot be used."""
    options = re2.Options()
    options.max_mem = _PATTERN_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        raise BadName(f"Topic pattern {text[:100]!r} cannot be used: {error}") from error


class TopicPattern:
    """What a client's pattern matches: the whole of `tenant/namespace/topic`, for a partition that of its topic."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._compiled = compile_pattern(_without_domain(text))

    def matches(self, topic: TopicName) -> bool:
        base = topic.base
        return self._compiled.fullmatch(f"{base.namespace}/{base.local_name}") is not None

    def filter(self, topics: Iterable[TopicName]) -> list[str]:
        return [str(topic) for topic in topics if self.matches(topic)]


class ListView:
    """What one watcher was told of, so that it can be told of changes alone."""

    __slots__ = ("_names", "pattern")

    def __init__(self, pattern: TopicPattern) -> None:
        self.pattern = pattern
        # A dict keeps the order in which topics were listed.
        self._names: dict[str, None] = {}

    @property
    def names(self) -> list[str]:
        return list(self._names)

    @property
    def hash(self) -> str:
        return hash_of(self._names)

    def replace(self, matching: Iterable[str]) -> ListChange:
        """What is new and what is gone, now that all that match are these."""
        present = dict.fromkeys(matching)
        change = ListChange(
            [name for name in present if name not in self._names],
            [name for name in self._names if name not in present],
        )
        self._names = present
        return change

    def change(self, came: Iterable[TopicName], went: Iterable[TopicName]) -> ListChange:
        """What is new and what is gone, now that these came and those went."""
        change = ListChange(
            [name for name in self.pattern.filter(came) if name not in self._names],
            [name for name in map(str, went) if name in self._names],
        )
        self._names.update(dict.fromkeys(change.new))
        for name in change.deleted:
            del self._names[name]
        return change


def _without_domain(pattern: str) -> str:
    """Patterns are written with the domain or without; they are matched without."""
    before, separator, after = pattern.partition("://")
    if not separator:
        return pattern
    for domain in ("non-persistent", "persistent"):
        if before.endswith(domain):
            return before.removesuffix(domain) + after
    raise BadName(f"Topic pattern {pattern[:100]!r} has a domain that is neither persistent nor non-persistent")
