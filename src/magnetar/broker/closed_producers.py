# SPDX-License-Identifier: Apache-2.0
"""Producers that the broker has closed lately, on one connection.

Their clients may have messages on the way for them, which are dropped in silence: they will be sent again. A SEND for
any other producer that is not open breaks the protocol. Bounded in number and in time.
Decides.
"""


class ClosedProducers:
    __slots__ = ("_closed", "_kept_max", "_kept_s")

    def __init__(self, kept_max: int, kept_s: float) -> None:
        self._kept_max = kept_max
        self._kept_s = kept_s
        # Producer id and when it was closed, oldest first.
        self._closed: dict[int, float] = {}

    def remember(self, producer_id: int, now_s: float) -> None:
        self._closed.pop(producer_id, None)
        self._closed[producer_id] = now_s
        if len(self._closed) > self._kept_max:
            del self._closed[next(iter(self._closed))]

    def forget(self, producer_id: int) -> None:
        """The id is in use again, or its client has closed it too."""
        self._closed.pop(producer_id, None)

    def knows(self, producer_id: int, now_s: float) -> bool:
        closed_s = self._closed.get(producer_id)
        if closed_s is None:
            return False
        if now_s - closed_s > self._kept_s:
            del self._closed[producer_id]
            return False
        return True

    def __len__(self) -> int:
        return len(self._closed)
