# SPDX-License-Identifier: Apache-2.0
"""In which form the records of a managed ledger are written: plain, or compressed where that is set, allowed and helps.

Compressed records may be written from format level 2 on; every version reads both forms. A record that compression does
not make smaller stays plain.
Decides.
"""

from collections.abc import Callable
from typing import Final

from magnetar.config.managed_ledger import ManagedLedgerSettings
from magnetar.config.metadata import FORMAT_LEVEL_FIRST
from magnetar.managed_ledger.record_format import compressed
from magnetar.metadata.format_level_record import COMPRESSED_RECORDS

_NONE: Final = "NONE"


class RecordPacking:
    def __init__(self, settings: ManagedLedgerSettings, format_level: Callable[[], int]) -> None:
        self._settings = settings
        self._format_level = format_level

    def pack_ledger_record(self, plain: bytes) -> bytes:
        settings = self._settings
        return self._packed(plain, settings.ledger_record_compression, settings.ledger_record_compressed_from_bytes)

    def pack_cursor_record(self, plain: bytes) -> bytes:
        settings = self._settings
        return self._packed(plain, settings.cursor_record_compression, settings.cursor_record_compressed_from_bytes)

    def _packed(self, plain: bytes, compression: str, from_bytes: int) -> bytes:
        if compression == _NONE or len(plain) < from_bytes or self._format_level() < COMPRESSED_RECORDS:
            return plain
        packed = compressed(plain, compression)
        return packed if len(packed) < len(plain) else plain


# For who reads only, and for who must write what everybody reads.
PLAIN: Final = RecordPacking(ManagedLedgerSettings(), lambda: FORMAT_LEVEL_FIRST)
