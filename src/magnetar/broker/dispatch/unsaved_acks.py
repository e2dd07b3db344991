# SPDX-License-Identifier: Apache-2.0
"""A pause of dispatch while acknowledgements cannot be saved, for subscriptions whose policy asks for it.

Every acknowledgement is saved here, however many holes there are; what can keep that from happening is storage that
does not take it. While that lasts, whatever is sent would be sent again after a restart.
Decides.
"""

from typing import Final

from magnetar.managed_ledger.cursor import Cursor

_PLENTY: Final = 2**31
_RETRY_S: Final = 0.5


class UnsavedAcks:
    """A limit as dispatch asks for it: nothing while the cursor's last save failed, any amount otherwise."""

    __slots__ = ("_cursor", "name")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self.name = f"acknowledgements of {cursor.name} that cannot be saved now"

    def available(self) -> tuple[int, int]:
        return (0, 0) if self._cursor.is_save_failing else (_PLENTY, _PLENTY)

    def consume(self, messages: int, size_bytes: int) -> None:
        """What goes out does not change what can be saved."""

    def delay_s(self) -> float:
        return _RETRY_S
