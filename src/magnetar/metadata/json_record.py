# SPDX-License-Identifier: Apache-2.0
"""Records of the metadata store that are JSON objects: anything else is refused by name, and an empty one is empty.

Decides.
"""

import json
from collections.abc import Mapping
from typing import Any

from magnetar.errors import DamagedRecord


def decode_json(value: bytes, what: str = "The record") -> dict[str, Any]:
    """DamagedRecord, naming what it is, where the bytes are no JSON object."""
    try:
        decoded = json.loads(value or b"{}")
    except (ValueError, RecursionError) as error:
        raise DamagedRecord(f"{what} is not JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise DamagedRecord(f"{what} is not a JSON object")
    return decoded


def encode_json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
