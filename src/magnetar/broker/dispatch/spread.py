# SPDX-License-Identifier: Apache-2.0
"""How a Shared subscription spreads its entries: who is next among the consumers that have room.

Whatever the choice, a better (lower) priority level goes first, and a lower one is asked only while all better ones
have no room. Another way to spread is one more class here and its name in SPREADS.
Decides.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

from magnetar.broker.consumer import Consumer


class Spread(ABC):
    def next(self, consumers: Sequence[Consumer]) -> Consumer | None:
        """Who gets the next entries; consumers come by priority. None when nobody has room."""
        for _, level in groupby(consumers, key=lambda consumer: consumer.priority):
            chosen = self.choose(list(level))
            if chosen is not None:
                return chosen
        return None

    @abstractmethod
    def choose(self, peers: Sequence[Consumer]) -> Consumer | None:
        """One of the consumers of a level, in the order in which they came; None when none of them has room."""

    @abstractmethod
    def restart(self) -> None:
        """All consumers are gone: what was remembered of them goes, too."""


class InTurn(Spread):
    """One after the other."""

    def __init__(self) -> None:
        self._last: Consumer | None = None

    def choose(self, peers: Sequence[Consumer]) -> Consumer | None:
        begin = peers.index(self._last) + 1 if self._last in peers else 0
        for step in range(len(peers)):
            consumer = peers[(begin + step) % len(peers)]
            if consumer.room() > 0:
                self._last = consumer
                return consumer
        return None

    def restart(self) -> None:
        self._last = None


class FewestUnacked(Spread):
    """Whoever has the least to do still: slow consumers get less, without a limit having to stop them."""

    def choose(self, peers: Sequence[Consumer]) -> Consumer | None:
        return min((peer for peer in peers if peer.room() > 0), key=lambda peer: peer.unacked, default=None)

    def restart(self) -> None:
        """Nothing is remembered."""


SPREADS: Final[dict[str, Callable[[], Spread]]] = {"round_robin": InTurn, "fewest_unacked": FewestUnacked}


def new_spread(name: str) -> Spread:
    return SPREADS[name]()
