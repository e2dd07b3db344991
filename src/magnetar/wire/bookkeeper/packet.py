# SPDX-License-Identifier: Apache-2.0
"""Packets: what travels between a ledger client and a bookie, in either version of the protocol.

    4 size | version 2: packet header, fields, entry — version 3: one protobuf Request or Response

Both versions share a connection's beginning, so a packet is told apart by its first byte: a version 2 header begins
with the version, 0 to 2, and a protobuf with the tag of its first field, which is none of those.
Decides.
"""

from typing import Final

from magnetar.wire.cutter import SIZE_BYTES, Cutter

PACKET_BYTES_MAX: Final = 5 * 1024 * 1024
"""BookKeeper's default (nettyMaxFrameSizeBytes); a bookie's must be above what its clients' largest entry needs."""
_PACKET_BYTES_MIN: Final = 4


class PacketCutter(Cutter[bytes]):
    """Cuts packets; each is given without its size."""

    __slots__ = ()

    header_bytes = SIZE_BYTES
    size_min = _PACKET_BYTES_MIN

    def __init__(self, bytes_max: int = PACKET_BYTES_MAX) -> None:
        super().__init__(bytes_max)

    def feed(self, chunk: bytes) -> list[bytes]:
        packets: list[bytes] = []
        if self.fault is not None:
            return packets
        start = self._complete(chunk, packets) if self._held else 0
        size = len(chunk)
        size_max = self._size_max
        while size - start >= SIZE_BYTES:
            packet_bytes = int.from_bytes(chunk[start : start + SIZE_BYTES], "big")
            if not _PACKET_BYTES_MIN <= packet_bytes <= size_max:
                self._refuse_size(packet_bytes)
                return packets
            until = start + SIZE_BYTES + packet_bytes
            if until > size:
                break
            packets.append(chunk[start + SIZE_BYTES : until])
            start = until
        if start < size:
            self._hold(memoryview(chunk)[start:])
        return packets

    def _is_possible(self, data: bytes | bytearray, start: int) -> bool:
        return True

    def _take(self, held: memoryview, rest: memoryview) -> bytes:
        return b"".join((held[SIZE_BYTES:], rest))


def is_protobuf(packet: bytes) -> bool:
    """Whether a packet is of version 3; anything that is not is for version 2 to read or refuse."""
    return packet[0] > 2
