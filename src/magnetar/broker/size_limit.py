# SPDX-License-Identifier: Apache-2.0
"""How large a message may be.

The limit is on the message's own bytes; its metadata has the room that the frame leaves.
Decides.
"""

from magnetar.errors import MessageTooLarge
from magnetar.wire import message


def check_size(payload: bytes, bytes_max: int) -> None:
    """MessageTooLarge when the message itself, without its metadata, is larger than allowed."""
    size = len(payload) - message.metadata_span(payload)[1]
    if size > bytes_max:
        raise MessageTooLarge(f"Message of {size} bytes is larger than the limit {bytes_max}")
