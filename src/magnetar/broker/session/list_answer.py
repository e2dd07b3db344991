# SPDX-License-Identifier: Apache-2.0
"""A long list of topics as an answer, made in slices: its names, its hash, its bytes. Others have turns in between.

What a list as a whole costs the loop is one sort of names that are sorted already.
Carries.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

import google_crc32c

from magnetar.names import TopicName
from magnetar.wire.proto import pulsar_api_pb2 as pb

# Well below a millisecond's work.
SLICE: Final = 1_000


async def names_of(topics: Sequence[TopicName]) -> list[str]:
    names: list[str] = []
    for start in range(0, len(topics), SLICE):
        names += map(str, topics[start : start + SLICE])
        await asyncio.sleep(0)
    return names


async def sliced_hash(names: Sequence[str]) -> str:
    """What `topic_list.hash_of` says."""
    checksum = 0
    for number, part in enumerate(_slices(sorted(names))):
        checksum = google_crc32c.extend(checksum, (("," if number else "") + ",".join(part)).encode())
        await asyncio.sleep(0)
    return int(checksum).to_bytes(4, "little").hex()


async def list_parts(answer: pb.CommandGetTopicsOfNamespaceResponse, names: Sequence[str]) -> list[bytes]:
    """The bytes of an answer with these names: a message in parts is the parts' bytes one behind another."""
    parts = [answer.SerializeToString()]
    for part in _slices(names):
        parts.append(pb.CommandGetTopicsOfNamespaceResponse(topics=part).SerializePartialToString())
        await asyncio.sleep(0)
    return parts


def _slices(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + SLICE] for start in range(0, len(names), SLICE))
