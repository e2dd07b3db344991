# SPDX-License-Identifier: Apache-2.0
"""Bundles of a namespace: ranges of the hash that divides its topics among brokers.

Decides.
"""

from bisect import bisect_right
from typing import Any, Final
from zlib import crc32

from magnetar.admin.answers import AdminRefused
from magnetar.names import NamespaceName, TopicName

_FULL: Final = 0xFFFFFFFF
BUNDLES_MAX: Final = 4096


def boundaries(count: int) -> list[int]:
    """The bounds of so many bundles of the same size."""
    step = (_FULL + 1) // count
    return [step * index for index in range(count)] + [_FULL]


def bundle_data(bounds: list[int]) -> dict[str, Any]:
    return {"boundaries": [f"0x{bound:08x}" for bound in bounds], "numBundles": len(bounds) - 1}


def bundles_of(policies: dict[str, Any]) -> list[int]:
    """The bounds that a namespace's record says; one bundle when it says nothing."""
    return parsed_bundles(policies.get("bundles")) or boundaries(1)


def parsed_bundles(data: Any) -> list[int] | None:
    """Bounds from BundlesData, of a record or of a request; AdminRefused when they are none."""
    if not isinstance(data, dict):
        return None
    texts, count = data.get("boundaries"), data.get("numBundles", 0)
    if not texts:
        if not isinstance(count, int) or not 0 <= count <= BUNDLES_MAX:
            raise AdminRefused(412, f"Number of bundles must be between 1 and {BUNDLES_MAX}")
        return boundaries(count) if count else None
    try:
        bounds = sorted({int(text, 16) for text in texts})
    except (TypeError, ValueError) as error:
        raise AdminRefused(412, "Invalid bundle boundaries") from error
    if len(bounds) < 2 or len(bounds) > BUNDLES_MAX + 1 or bounds[0] != 0 or bounds[-1] != _FULL:
        raise AdminRefused(412, "Invalid bundle boundaries: they go from 0x00000000 to 0xffffffff")
    return bounds


def bundle_of(topic: TopicName, bounds: list[int]) -> str:
    place = min(bisect_right(bounds, crc32(str(topic).encode())), len(bounds) - 1)
    return f"0x{bounds[place - 1]:08x}_0x{bounds[place]:08x}"


def is_within(topic: TopicName, bundle: str) -> bool:
    low, high = (int(part, 16) for part in bundle.split("_"))
    point = crc32(str(topic).encode())
    return low <= point < high or (high == _FULL and point == _FULL)


def check_bundle(namespace: NamespaceName, bounds: list[int], bundle: str) -> None:
    """AdminRefused unless the text is one of the bundles."""
    try:
        low, high = (int(part, 16) for part in bundle.split("_"))
    except ValueError as error:
        raise AdminRefused(412, f"Invalid bundle range: {bundle}") from error
    if low not in bounds[:-1]:
        raise AdminRefused(412, f"Invalid lower boundary for bundle {namespace}/{bundle}")
    expected = bounds[bounds.index(low) + 1]
    if high != expected:
        raise AdminRefused(
            412,
            f"Invalid upper boundary for bundle {namespace}/{bundle}. "
            f"Expected upper boundary of {namespace}/0x{low:08x}_0x{expected:08x}",
        )
