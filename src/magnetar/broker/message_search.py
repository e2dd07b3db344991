# SPDX-License-Identifier: Apache-2.0
"""Finding a message of a stored topic by its index or by its time: a binary search over entries, by reading.

Indexes are dense and rise with every message; publish times rise as far as producers' clocks agree. Never moves a
cursor.
Carries.
"""

from collections.abc import Callable

from magnetar.broker.stored_message import publish_time_ms, stored_index
from magnetar.broker.topic import Topic
from magnetar.errors import BadFrame, BadPosition
from magnetar.ids import MessageId, Position
from magnetar.managed_ledger.entry import Entry
from magnetar.wire import broker_entry, message


async def message_by_index(topic: Topic, index: int) -> MessageId:
    """The message of this index. BadPosition when there is none yet; the first one left when it was trimmed."""
    if not 0 <= index <= topic.last_index:
        raise BadPosition(f"Topic {topic.name} has no message with index {index}; its last is {topic.last_index}")
    entry = await _first_not(topic, lambda each: stored_index(each) < index)
    if entry is None:
        raise BadPosition(f"The message with index {index} of topic {topic.name} is not stored yet")
    messages = _batch_size(entry)
    if messages is None:
        return MessageId(*entry.position, topic.name.partition_index)
    batch_index = max(0, messages - 1 - (stored_index(entry) - index))
    return MessageId(*entry.position, topic.name.partition_index, batch_index, messages)


async def message_by_time(topic: Topic, time_ms: int) -> MessageId:
    """The first message published at this time or later; where the next one will be when there is none."""
    entry = await _first_not(topic, lambda each: publish_time_ms(each) < time_ms)
    if entry is None:
        log = topic.managed_ledger
        return MessageId(*log.next_position(log.last_confirmed), topic.name.partition_index)
    return MessageId(*entry.position, topic.name.partition_index)


async def _first_not(topic: Topic, is_before: Callable[[Entry], bool]) -> Entry | None:
    log = topic.managed_ledger
    last_before = await log.last_matching(is_before)
    position: Position = log.first_position if last_before is None else log.next_position(last_before)
    if position > log.last_confirmed:
        return None
    entries = await log.read(position, entries_max=1, bytes_max=1)
    return entries[0] if entries else None


def _batch_size(entry: Entry) -> int | None:
    """The messages of a batch; None for an entry that is no batch."""
    try:
        metadata = message.read_metadata(entry.body, broker_entry.message_start(entry.body))
        return message.messages_in(metadata) if message.is_batch(metadata) else None
    except BadFrame:
        return None
