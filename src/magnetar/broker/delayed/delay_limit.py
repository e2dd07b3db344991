# SPDX-License-Identifier: Apache-2.0
"""How far ahead a message may be scheduled, where a policy limits that. Asked before it is stored.

Decides.
"""

from magnetar.errors import BadFrame, NotSupported
from magnetar.wire import message

# The beginning of deliver_at_time as it is encoded: metadata without it needs no parsing.
_DELIVER_AT_TAG = b"\x98\x01"


def check_delay(payload: bytes, delay_max_ms: int, now_ms: int) -> None:
    """NotSupported, with upstream's words, when the message is to be delivered later than allowed."""
    try:
        begin, until = message.metadata_span(payload)
        metadata = payload[begin:until]
        if _DELIVER_AT_TAG not in metadata:
            return
        deliver_at_ms = message.parse_metadata(metadata).deliver_at_time
    except BadFrame:
        return
    if deliver_at_ms - now_ms > delay_max_ms:
        raise NotSupported(f"Exceeds max allowed delivery delay of {delay_max_ms} milliseconds")
