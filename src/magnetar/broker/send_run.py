# SPDX-License-Identifier: Apache-2.0
"""Messages that came together, made ready for the log together, and answered together: what is stored of each, what its
answer needs, and which of those that wait have theirs.

Never stores and never refuses: where one message needs a look of its own, it says so for the whole run. The functions
here are the plain ones; at the end the compiled twins take their names, where there are any.
Decides.
"""

from collections import deque
from typing import Final

from magnetar.broker.producer import Producer
from magnetar.wire import compiled
from magnetar.wire.broker_entry import entry_front
from magnetar.wire.runs import Send

# Producer, sequence id, highest sequence id, bytes, messages.
Waiting = tuple[Producer, int, int, int, int]

# The entries, what waits for their answers, the last one's index, and the bytes of all.
ReadyRun = tuple[list[tuple[bytes, bytes]], list[Waiting], int, int]


def ready_run(
    producer: Producer, run: list[Send], bytes_max: int, last_index: int, timestamp_ms: int
) -> ReadyRun | None:
    """The run with its indexes, which go on after the last one; None if a message is too large or holds none."""
    entries: list[tuple[bytes, bytes]] = []
    waiting: list[Waiting] = []
    size = 0
    for sequence_id, highest_sequence_id, messages, payload in run:
        length = len(payload)
        if length > bytes_max or messages < 1:
            return None
        size += length
        last_index += messages
        entries.append((entry_front(timestamp_ms, last_index), payload))
        waiting.append((producer, sequence_id, highest_sequence_id, length, messages))
    return entries, waiting, last_index, size


def take_answered(waiting: deque[Waiting], count_max: int) -> tuple[list[tuple[int, int]], int, int]:
    """Take those of the first one's producer from the front, up to another's and not more than so many.

    Their sequence ids, as a receipt has them; and how many bytes and messages they are.
    """
    producer = waiting[0][0]
    receipts: list[tuple[int, int]] = []
    size_in_all = messages_in_all = 0
    while waiting and len(receipts) < count_max and waiting[0][0] is producer:
        _, sequence_id, highest_sequence_id, size, messages = waiting.popleft()
        receipts.append((sequence_id, highest_sequence_id))
        size_in_all += size
        messages_in_all += messages
    return receipts, size_in_all, messages_in_all


PLAIN: Final = (ready_run, take_answered)

if (_twins := compiled.load()) is not None:
    ready_run = _twins.ready_run
    take_answered = _twins.take_answered
