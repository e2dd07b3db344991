# SPDX-License-Identifier: Apache-2.0
"""What a client sends to a bookie, cut into plain adds, many at a time, and every other packet by itself.

Owns the order: what comes out is what came in. Reads nothing but plain adds.
Decides.
"""

from typing import TypeAlias

from magnetar.wire.bookkeeper.packet import PacketCutter
from magnetar.wire.bookkeeper.plain_adds import PlainAdds, cut_adds
from magnetar.wire.cutter import SIZE_BYTES

Request: TypeAlias = bytes | PlainAdds
"""A packet without its size, or plain adds that followed each other."""


class RequestCutter(PacketCutter):
    __slots__ = ()

    def cut(self, chunk: bytes) -> list[Request]:
        """Everything that this chunk completes, in order; check `fault` after serving it."""
        requests: list[Request] = []
        if self.fault is not None:
            return requests
        start = 0
        if self._held:
            completed: list[bytes] = []
            start = self._complete(chunk, completed)
            if completed:
                start = self._go_on(completed[0], chunk, start, requests)
        size = len(chunk)
        while start < size and self.fault is None:
            entries: list[bytes] = []
            start, master_key = cut_adds(chunk, start, self._size_max, b"", entries)
            if entries:
                requests.append(PlainAdds(master_key, entries))
                continue
            packet_bytes = int.from_bytes(chunk[start : start + SIZE_BYTES], "big")
            until = start + SIZE_BYTES + packet_bytes
            if size - start >= SIZE_BYTES and not self.size_min <= packet_bytes <= self._size_max:
                self._refuse_size(packet_bytes)
                break
            if size - start < SIZE_BYTES or until > size:
                self._hold(memoryview(chunk)[start:])
                break
            requests.append(chunk[start + SIZE_BYTES : until])
            start = until
        return requests

    def _go_on(self, packet: bytes, chunk: bytes, start: int, requests: list[Request]) -> int:
        """A packet that began in an earlier chunk, together with the adds that follow it if it is one of them."""
        entries: list[bytes] = []
        whole = len(packet).to_bytes(SIZE_BYTES, "big") + packet
        _, master_key = cut_adds(whole, 0, self._size_max, b"", entries)
        if not entries:
            requests.append(packet)
            return start
        start, master_key = cut_adds(chunk, start, self._size_max, master_key, entries)
        requests.append(PlainAdds(master_key, entries))
        return start
