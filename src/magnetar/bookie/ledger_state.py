# SPDX-License-Identifier: Apache-2.0
"""What a bookie knows of one ledger beside its entries: key, fence, limbo, explicit last add confirmed.

Owns the rule of who may add. Fenced means that no ordinary add is taken any more; limbo means that entries may be lost
here, so their absence is never claimed. Does not know journals or disks: whoever changes a state makes it durable.
Decides.
"""

import hmac
from struct import Struct
from typing import Final

from magnetar.errors import Damaged
from magnetar.wire.bookkeeper.codes import ReturnCode

# BookKeeper's keys have 20 bytes.
MASTER_KEY_BYTES_MAX: Final = 1024

_VERSION: Final = 1
_FIELDS: Final = Struct(">BBqH")
_FENCED: Final = 1
_LIMBO: Final = 2


class LedgerState:
    """Invariant: `fenced` and `limbo` never go back by themselves; the explicit last confirmed only rises."""

    __slots__ = (
        "explicit_body", "explicit_lac", "fence_durable", "fenced", "ledger_id", "limbo",
        "master_key", "open_to_adds", "touched",
    )  # fmt: skip

    def __init__(self, ledger_id: int, master_key: bytes) -> None:
        self.ledger_id = ledger_id
        self.master_key = master_key
        self.fenced = False
        # False between the fence and the sync of its record: whoever fences again waits for that same sync.
        self.fence_durable = False
        self.limbo = False
        # The one question of the hot path: neither fenced nor in limbo.
        self.open_to_adds = True
        self.explicit_lac = -1
        self.explicit_body = b""
        # The checkpoint at which it was last used.
        self.touched = 0

    def fits_key(self, master_key: bytes) -> bool:
        return hmac.compare_digest(self.master_key, master_key)

    def accept_key(self, master_key: bytes) -> bool:
        """Whether the key fits. A ledger whose key was lost takes the first one it is shown."""
        if not self.master_key and self.limbo:
            self.master_key = master_key
        return self.fits_key(master_key)

    def refusal(self, master_key: bytes, *, recovery: bool) -> int:
        """The code that an add gets now; OK when it is taken."""
        if not self.accept_key(master_key):
            return ReturnCode.UNAUTHORIZED
        if self.fenced and not recovery:
            return ReturnCode.FENCED
        if self.limbo and not recovery:
            return ReturnCode.UNKNOWN_LEDGER_STATE
        return ReturnCode.OK

    def fence(self) -> bool:
        """True when it was not fenced before."""
        if self.fenced:
            return False
        self.fenced = True
        self.open_to_adds = False
        return True

    def enter_limbo(self) -> None:
        """Entries may have been lost, and with them a fence: both are assumed."""
        self.limbo = True
        self.fenced = True
        self.fence_durable = True
        self.open_to_adds = False

    def leave_limbo(self, master_key: bytes) -> None:
        """Every entry that the metadata expects here was seen or copied again. The fence stays; a lost key is known."""
        self.limbo = False
        self.master_key = self.master_key or master_key

    def raise_explicit(self, entry_id: int, body: bytes) -> bool:
        if entry_id <= self.explicit_lac:
            return False
        self.explicit_lac = entry_id
        self.explicit_body = body
        return True

    def encode(self) -> bytes:
        flags = (_FENCED if self.fenced else 0) | (_LIMBO if self.limbo else 0)
        return (
            _FIELDS.pack(_VERSION, flags, self.explicit_lac, len(self.master_key))
            + self.master_key
            + self.explicit_body
        )


def decode_state(ledger_id: int, data: bytes) -> LedgerState:
    """A state as a checkpoint stored it; Damaged when it cannot be read."""
    if len(data) < _FIELDS.size:
        raise Damaged(f"the state of ledger {ledger_id} is cut short: rebuild the index from the entry logs")
    version, flags, explicit_lac, key_bytes = _FIELDS.unpack_from(data)
    if version != _VERSION or len(data) < _FIELDS.size + key_bytes:
        raise Damaged(f"the state of ledger {ledger_id} has version {version} or is cut short: rebuild the index")
    state = LedgerState(ledger_id, data[_FIELDS.size : _FIELDS.size + key_bytes])
    state.explicit_lac = explicit_lac
    state.explicit_body = data[_FIELDS.size + key_bytes :]
    state.fenced = state.fence_durable = bool(flags & _FENCED)
    state.limbo = bool(flags & _LIMBO)
    state.open_to_adds = not (state.fenced or state.limbo)
    return state
