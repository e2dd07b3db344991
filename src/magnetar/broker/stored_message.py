# SPDX-License-Identifier: Apache-2.0
"""Single facts of a stored entry, for those who need one now and then; dispatch has a table of them.

Decides.
"""

from magnetar.errors import BadFrame
from magnetar.managed_ledger.entry import Entry
from magnetar.wire import broker_entry, message


def last_batch_index(entry: Entry) -> int:
    """The index of the last message of a batch; -1 for an entry that is no batch."""
    try:
        metadata = message.read_metadata(entry.body, broker_entry.message_start(entry.body))
    except BadFrame:
        return -1
    return message.messages_in(metadata) - 1 if message.is_batch(metadata) else -1


def stored_index(entry: Entry) -> int:
    """The dense index of the entry's last message; -1 where the broker that stored it gave none."""
    metadata = broker_entry.read(entry.body)
    return metadata.index if metadata is not None and metadata.HasField("index") else -1


def stored_time_ms(entry: Entry) -> int:
    """When a broker took the entry, or where it did not note that, when its producer published it."""
    metadata = broker_entry.read(entry.body)
    return metadata.broker_timestamp if metadata is not None and metadata.broker_timestamp else publish_time_ms(entry)


def publish_time_ms(entry: Entry) -> int:
    """When its producer published the entry; 0 where that cannot be read, so that a search by time passes it."""
    try:
        metadata = message.read_metadata(entry.body, broker_entry.message_start(entry.body))
    except BadFrame:
        return 0
    return metadata.publish_time
