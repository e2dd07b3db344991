# SPDX-License-Identifier: Apache-2.0
"""Which partition a message goes to.

A message with a key goes where the key's hash says, in every mode but the custom one. Without a key: all to one, or
round robin, staying with one partition for a while where messages are batched so that batches fill.
Decides.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Any

from magnetar.client.options import HashingScheme, PartitionsRoutingMode, ProducerOptions
from magnetar.client.outgoing import OutgoingMessage
from magnetar.errors import BadSetting
from magnetar.wire.key_hash import java_string_hash, murmur3_32


class Router(ABC):
    @abstractmethod
    def choose(self, message: OutgoingMessage, partitions: int, now_ms: int) -> int:
        """A number from 0 to partitions - 1."""


def hash_of(key: str, scheme: HashingScheme) -> int:
    return java_string_hash(key) if scheme is HashingScheme.JavaStringHash else murmur3_32(key.encode())


class SinglePartitionRouter(Router):
    def __init__(self, index: int, scheme: HashingScheme) -> None:
        self._index = index
        self._scheme = scheme

    def choose(self, message: OutgoingMessage, partitions: int, now_ms: int) -> int:
        if message.partition_key is not None:
            return hash_of(message.partition_key, self._scheme) % partitions
        return self._index % partitions


class RoundRobinRouter(Router):
    """With `switch_ms` the choice depends on the time alone, so that all messages of an interval go together."""

    def __init__(self, start: int, scheme: HashingScheme, *, switch_ms: int = 0, partitions_max: int = 0) -> None:
        self._next = start
        self._start = start
        self._scheme = scheme
        self._switch_ms = switch_ms
        self._partitions_max = partitions_max

    def choose(self, message: OutgoingMessage, partitions: int, now_ms: int) -> int:
        if message.partition_key is not None:
            return hash_of(message.partition_key, self._scheme) % partitions
        used = min(partitions, self._partitions_max or partitions)
        if self._switch_ms:
            return (now_ms // self._switch_ms + self._start) % used
        chosen = self._next % used
        self._next += 1
        return chosen


class CustomRouter(Router):
    def __init__(self, function: Callable[[Any, int], int]) -> None:
        self._function = function

    def choose(self, message: OutgoingMessage, partitions: int, now_ms: int) -> int:
        chosen = self._function(message, partitions)
        if not 0 <= chosen < partitions:
            raise BadSetting(f"the message router chose partition {chosen}; there are {partitions}, from 0")
        return chosen


def router_of(options: ProducerOptions, random: Random) -> Router:
    start = random.randrange(2**31)
    if options.message_router is not None:
        return CustomRouter(options.message_router)
    if options.message_routing_mode is PartitionsRoutingMode.UseSinglePartition:
        return SinglePartitionRouter(start, options.hashing_scheme)
    switch_ms = 0
    if options.batching_enabled:
        switch_ms = max(1, options.batching_max_publish_delay_ms * options.batching_partition_switch_frequency)
    return RoundRobinRouter(
        start, options.hashing_scheme, switch_ms=switch_ms, partitions_max=options.round_robin_partitions
    )
