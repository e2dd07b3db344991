# SPDX-License-Identifier: Apache-2.0
"""What people type for sizes, times, ids and pairs, as pulsar-admin reads it: 10M, 3h, 12:7, k=v.

A word that is none of these is a WrongUse with what it should be.
Decides.
"""

from datetime import UTC, datetime
from typing import Any, Final

from magnetar.errors import Refused

_BYTES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}
_LAST_POSITION: Final = (1 << 63) - 1
_MESSAGE_ID_REST: Final = {"partitionIndex": -1, "batchIndex": -1}


class WrongUse(Refused):
    """What was typed is no command; the text says what it should be."""


def number_of(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise WrongUse(f"{text!r} is no whole number") from None


def decimal_of(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise WrongUse(f"{text!r} is no number") from None


def boolean_of(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise WrongUse(f"{text!r} should be true or false")
    return text.lower() == "true"


def bytes_of(text: str) -> int:
    """Bytes; with K, M, G or T so many times 1024."""
    return _scaled(text, _BYTES, "a size: 4096, 10M, 16G")


def seconds_of(text: str) -> int:
    """Seconds; with m, h, d, w or y so many minutes, hours, days, weeks, years."""
    return _scaled(text, _SECONDS, "a time: 30s, 10m, 3h, 7d, 2w")


def millis_of(text: str) -> int:
    """A time as milliseconds; a bare number is seconds."""
    return seconds_of(text) * 1000


def texts_of(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def pairs_of(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in texts_of(text):
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise WrongUse(f"{part!r} should be name=value")
        pairs[name.strip()] = value.strip()
    return pairs


def message_id_of(text: str) -> dict[str, Any]:
    """`latest`, `earliest` or LEDGER:ENTRY, as the HTTP interface takes it."""
    if text == "latest":
        return {"ledgerId": _LAST_POSITION, "entryId": _LAST_POSITION, "batchSize": 0, **_MESSAGE_ID_REST}
    if text == "earliest":
        return {"ledgerId": -1, "entryId": -1, **_MESSAGE_ID_REST}
    ledger, _, entry = text.partition(":")
    try:
        return {"ledgerId": int(ledger), "entryId": int(entry.partition(":")[0]), **_MESSAGE_ID_REST}
    except ValueError:
        raise WrongUse(f"{text!r} is no message id: latest, earliest or LEDGER:ENTRY") from None


def instant_of(text: str) -> int:
    """Milliseconds since 1970 of an instant as 2026-01-02T03:04:05.000Z."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUse(f"{text!r} is no instant: 2026-01-02T03:04:05.000Z") from None
    return round((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1000)


def _scaled(text: str, units: dict[str, int], example: str) -> int:
    unit = units.get(text[-1:].lower())
    try:
        return int(text[:-1]) * unit if unit else int(text)
    except ValueError:
        raise WrongUse(f"{text!r} should be {example}") from None
