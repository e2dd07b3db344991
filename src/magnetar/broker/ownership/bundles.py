# SPDX-License-Identifier: Apache-2.0
"""Bundles: a namespace's ring of 32-bit hashes, cut into ranges that brokers own.

A topic's place on the ring is the CRC-32 of its full name, so which bundle it lies in is computed and nowhere stored. A
range holds its lower bound and not its upper one, except the last, which ends the ring and holds both.
Decides.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

from magnetar.errors import BadName, DamagedRecord
from magnetar.names import NamespaceName, TopicName

FULL: Final = 0xFFFFFFFF
BUNDLES_MAX: Final = 4096
OWNERSHIP_ROOT: Final = "/namespace"


def hash_of(topic: TopicName | str) -> int:
    """Where a topic lies on the ring of its namespace."""
    return crc32(str(topic).encode())


def equal_bounds(count: int) -> tuple[int, ...]:
    """The bounds of so many bundles of the same size."""
    step = (FULL + 1) // count
    return (*(step * index for index in range(count)), FULL)


class Bundle(NamedTuple):
    """One range of one namespace."""

    namespace: NamespaceName
    low: int
    high: int

    @property
    def range(self) -> str:
        return f"0x{self.low:08x}_0x{self.high:08x}"

    @property
    def path(self) -> str:
        """Where its owner stands in the metadata."""
        return f"{OWNERSHIP_ROOT}/{self.namespace}/{self.range}"

    def holds(self, point: int) -> bool:
        return self.low <= point < self.high or (self.high == FULL and point == FULL)

    def has(self, topic: TopicName) -> bool:
        return topic.namespace == self.namespace and self.holds(hash_of(topic))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range}"


class Bundles(NamedTuple):
    """All bundles of a namespace, and the version of the record that says so."""

    namespace: NamespaceName
    bounds: tuple[int, ...]
    version: int = 0

    def of(self, topic: TopicName) -> Bundle:
        return self.at(hash_of(topic))

    def at(self, point: int) -> Bundle:
        place = min(bisect_right(self.bounds, point), len(self.bounds) - 1)
        return Bundle(self.namespace, self.bounds[place - 1], self.bounds[place])

    def all(self) -> list[Bundle]:
        return [Bundle(self.namespace, low, high) for low, high in zip(self.bounds[:-1], self.bounds[1:], strict=True)]

    def has(self, bundle: Bundle) -> bool:
        return bundle.namespace == self.namespace and self.at(bundle.low) == bundle

    def split(self, bundle: Bundle, points: Iterable[int]) -> "Bundles":
        """Cut one bundle at these points, which lie inside it."""
        inside = {point for point in points if bundle.low < point < bundle.high}
        return self._replace(bounds=tuple(sorted({*self.bounds, *inside})))


def parse_range(namespace: NamespaceName, text: str) -> Bundle | None:
    """The bundle that a text such as 0x00000000_0x40000000 names; None when it names none."""
    low, separator, high = text.partition("_")
    try:
        bundle = Bundle(namespace, int(low, 16), int(high, 16))
    except ValueError:
        return None
    return bundle if separator and 0 <= bundle.low < bundle.high <= FULL else None


def parse_bundle(text: str) -> Bundle | None:
    """The bundle that a text such as public/default/0x00000000_0x40000000 names; None when it names none."""
    namespace, _, part = text.rpartition("/")
    tenant, _, local = namespace.partition("/")
    try:
        return parse_range(NamespaceName(tenant, local), part)
    except BadName:
        return None


def encode_bounds(bounds: Sequence[int]) -> dict[str, Any]:
    """BundlesData, as namespace policies and local policies hold it."""
    return {"boundaries": [f"0x{bound:08x}" for bound in bounds], "numBundles": len(bounds) - 1}


def decode_bounds(data: object, where: str) -> tuple[int, ...] | None:
    """Bounds from BundlesData; None when it says nothing. DamagedRecord when it makes no ring."""
    if not isinstance(data, dict):
        return None
    texts, count = data.get("boundaries"), data.get("numBundles", 0)
    if not texts:
        if not isinstance(count, int) or not 0 <= count <= BUNDLES_MAX:
            raise DamagedRecord(f"The bundles in {where} are {count!r} in number")
        return equal_bounds(count) if count else None
    try:
        bounds = tuple(sorted({int(text, 16) for text in texts}))
    except (TypeError, ValueError) as error:
        raise DamagedRecord(f"The bundles in {where} have bounds that are no numbers") from error
    if len(bounds) < 2 or len(bounds) > BUNDLES_MAX + 1 or bounds[0] != 0 or bounds[-1] != FULL:
        raise DamagedRecord(f"The bundles in {where} do not go from 0x00000000 to 0xffffffff")
    return bounds
