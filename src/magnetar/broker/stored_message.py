# SPDX-License-Identifier: Apache-2.0
"""What the broker must know of a stored entry before it can send it: where the message starts, and how many it is.

Decides.
"""

import logging

from magnetar.errors import BadFrame
from magnetar.managed_ledger.entry import Entry
from magnetar.wire import broker_entry, message

_log = logging.getLogger(__name__)


def stored_size(entry: Entry) -> tuple[int, int]:
    """Offset of the message in the entry's body, and the messages in it.

    An entry that cannot be parsed is delivered as one message as it is: its consumer sees the damage, and can
    acknowledge it.
    """
    start = 0
    try:
        start = broker_entry.message_start(entry.body)
        return start, message.messages_in(message.read_metadata(entry.body, start))
    except BadFrame as error:
        _log.warning("entry %d:%d cannot be parsed: %s", entry.ledger_id, entry.entry_id, error)
        return start, 1


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
