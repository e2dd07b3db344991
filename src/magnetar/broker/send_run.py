# SPDX-License-Identifier: Apache-2.0
"""Messages that came together, made ready for the log together: what is stored of each, and what its answer needs.

Never stores and never refuses: where one message needs a look of its own, it says so for the whole run.
Decides.
"""

from collections.abc import Callable
from typing import NamedTuple

from magnetar.broker.producer import Producer
from magnetar.wire.runs import Send


class ReadyRun(NamedTuple):
    entries: list[tuple[bytes, bytes]]
    # As `Answers` waits for them.
    waiting: list[tuple[Producer, int, int, int, int]]
    last_index: int
    size: int


def ready_run(
    producer: Producer, run: list[Send], bytes_max: int, last_index: int, prefix: Callable[[int], bytes]
) -> ReadyRun | None:
    """The run with its indexes, which go on after the last one; None if a message is too large or holds none."""
    entries: list[tuple[bytes, bytes]] = []
    waiting: list[tuple[Producer, int, int, int, int]] = []
    size = 0
    for sequence_id, highest_sequence_id, messages, payload in run:
        length = len(payload)
        if length > bytes_max or messages < 1:
            return None
        size += length
        last_index += messages
        entries.append((prefix(last_index), payload))
        waiting.append((producer, sequence_id, highest_sequence_id, length, messages))
    return ReadyRun(entries, waiting, last_index, size)
