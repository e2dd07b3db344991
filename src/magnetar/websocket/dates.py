# SPDX-License-Identifier: Apache-2.0
"""Moments as the JSON of Pulsar's WebSocket API writes them: ISO 8601 with an offset, here always that of UTC.

Decides.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
# The year 9999, beyond which a datetime cannot be.
_LAST_MS: Final = 253_402_300_799_999


def written(moment_ms: int) -> str:
    """`2026-11-16T11:40:00.25Z`: as many decimals as there are digits other than zero."""
    seconds, milliseconds = divmod(min(max(moment_ms, 0), _LAST_MS), 1000)
    whole = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    decimals = f"{milliseconds:03d}".rstrip("0")
    return f"{whole}.{decimals}Z" if decimals else f"{whole}Z"


def read(text: str) -> int:
    """Milliseconds since 1970. ValueError when it is no moment, or has no offset."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC, such as Z or +01:00")
    return (moment - _EPOCH) // _MILLISECOND
