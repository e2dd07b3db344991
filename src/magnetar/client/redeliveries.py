# SPDX-License-Identifier: Apache-2.0
"""Which messages of a consumer are due for another delivery, and the one timer that says so.

Two reasons: the application refused a message, which waits for its delay, or it did not acknowledge one in time.
Carries.
"""

import math
from collections.abc import Callable
from typing import Any

from magnetar.client.core import Core
from magnetar.client.message import Message
from magnetar.client.options import ConsumerOptions
from magnetar.client.redelivery import DueEntries
from magnetar.client.statistics import ConsumerStatistics
from magnetar.ids import MessageId, Position
from magnetar.runtime.clock import Timer

# Due times are rounded up to this share of the delay, so that many messages come back in one request.
_ROUNDING = 0.05
_TICK_S_MAX = 1.0
_ROUNDING_S = 0.0005


class Redeliveries:
    def __init__(
        self,
        core: Core,
        options: ConsumerOptions,
        redeliver: Callable[[list[Position] | None], None],
        statistics: ConsumerStatistics,
    ) -> None:
        self._core = core
        self._options = options
        self._redeliver = redeliver
        self._statistics = statistics
        self._refused = DueEntries()
        self._unacked = DueEntries()
        self._timeout_ms = options.unacked_messages_timeout_ms or 0
        self.has_timeout = self._timeout_ms > 0
        # False until something was ever to be delivered again; acknowledging is quick then.
        self.is_used = self.has_timeout
        self._timer: Timer | None = None
        self._timer_at_s = 0.0
        self._closed = False

    def on_taken(self, message: Message[Any]) -> None:
        """The time-out of a message runs from when the application got it."""
        if self._timeout_ms:
            self._watch(message.position, message.redelivery_count())

    def watch(self, position: Position) -> None:
        """Of an entry that the application never sees: bring it back as if it had been refused."""
        self._refuse(position, 0)

    def _watch(self, position: Position, redelivery_count: int) -> None:
        backoff = self._options.ack_timeout_redelivery_backoff
        delay_ms = self._timeout_ms if backoff is None else max(self._timeout_ms, backoff.delay_ms(redelivery_count))
        self._unacked.add(position, self._due(delay_ms))
        self._arm()

    def on_done(self, position: Position) -> None:
        """Acknowledged."""
        self._unacked.remove(position)
        self._refused.remove(position)

    def on_done_up_to(self, position: Position) -> None:
        self._unacked.remove_up_to(position)
        self._refused.remove_up_to(position)

    def refuse(self, message: "Message[Any] | MessageId") -> None:
        """The application does not want it now."""
        self._statistics.negatively_acknowledged += 1
        count = message.redelivery_count() if isinstance(message, Message) else 0
        self._refuse(message.position, count)

    def _refuse(self, position: Position, redelivery_count: int) -> None:
        backoff = self._options.negative_ack_redelivery_backoff
        delay_ms = self._options.negative_ack_redelivery_delay_ms
        if backoff is not None:
            delay_ms = backoff.delay_ms(redelivery_count)
        self.is_used = True
        self._unacked.remove(position)
        self._refused.add(position, self._due(delay_ms))
        self._arm()

    def _due(self, delay_ms: int) -> float:
        delay_s = delay_ms / 1000
        tick_s = min(_TICK_S_MAX, max(0.001, delay_s * _ROUNDING))
        return math.ceil((self._core.clock.elapsed_s() + delay_s) / tick_s) * tick_s

    def _arm(self) -> None:
        dues = [due for due in (self._refused.next_due_s, self._unacked.next_due_s) if due is not None]
        if self._closed or not dues:
            return
        due = min(dues)
        if self._timer is not None:
            if self._timer_at_s <= due:
                return
            self._timer.cancel()
        self._timer_at_s = due
        self._timer = self._core.clock.call_later(max(0.0, due - self._core.clock.elapsed_s()), self._fire)

    def _fire(self) -> None:
        self._timer = None
        # Clocks and timers round differently.
        now = self._core.clock.elapsed_s() + _ROUNDING_S
        refused = self._refused.take_due(now)
        late = self._unacked.take_due(now)
        self._statistics.ack_timeouts += len(late)
        if refused or late:
            self._redeliver(refused + late)
        self._arm()

    def __len__(self) -> int:
        return len(self._refused) + len(self._unacked)

    def clear(self) -> None:
        self._refused.clear()
        self._unacked.clear()

    def close(self) -> None:
        self._closed = True
        self.clear()
        if self._timer is not None:
            self._timer.cancel()
