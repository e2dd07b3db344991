# SPDX-License-Identifier: Apache-2.0
"""CRC-32C, the checksum of messages, entries and records: ours where it is compiled, else the library's.

Decides.
"""

import google_crc32c

from magnetar.wire import compiled


def extend(checksum: int, data: bytes | bytearray | memoryview) -> int:
    """The checksum of bytes that have this one, with data behind them. What is not `bytes` is copied here."""
    extended: int = google_crc32c.extend(checksum, data if type(data) is bytes else bytes(data))
    return extended


PLAIN = extend

# A build from before there was one has none, and the library's serves as well.
if (_twins := compiled.load()) is not None:
    extend = getattr(_twins, "extend", extend)
