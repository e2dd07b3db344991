# SPDX-License-Identifier: Apache-2.0
"""Where BookKeeper keeps its facts in the metadata store: ledgers, bookies, cookies and what needs repair.

Decides.
"""

from typing import Final

# Where bookies write themselves down; the same names, from the one place that has them.
from magnetar.wire.bookkeeper.registry import AVAILABLE as AVAILABLE
from magnetar.wire.bookkeeper.registry import BOOTS as BOOTS
from magnetar.wire.bookkeeper.registry import COOKIES as COOKIES
from magnetar.wire.bookkeeper.registry import INSTANCE_ID as INSTANCE_ID
from magnetar.wire.bookkeeper.registry import READONLY as READONLY
from magnetar.wire.bookkeeper.registry import READONLY_NAME as READONLY_NAME
from magnetar.wire.bookkeeper.registry import ROOT as ROOT

LAYOUT: Final = f"{ROOT}/LAYOUT"
ID_GENERATOR: Final = f"{ROOT}/idgen"
HEALTH_CHECK_DISABLED: Final = f"{ROOT}/disableHealthCheck"
LONG_ID_GENERATOR: Final = f"{ROOT}/idgen-long"

REPAIR: Final = f"{ROOT}/underreplication"
REPAIR_LAYOUT: Final = f"{REPAIR}/LAYOUT"
REPAIR_LEDGERS: Final = f"{REPAIR}/ledgers"
REPAIR_LOCKS: Final = f"{REPAIR}/locks"
REPAIR_DISABLED: Final = f"{REPAIR}/disable"
REPAIR_LOST_BOOKIE_DELAY: Final = f"{REPAIR}/lostBookieRecoveryDelay"
REPAIR_CHECKED_ALL: Final = f"{REPAIR}/checkallledgersctime"
REPAIR_CHECKED_PLACEMENT: Final = f"{REPAIR}/placementpolicycheckctime"
AUDITOR_ELECTION: Final = f"{REPAIR}/auditorelection"

# As BookKeeper writes it: format version, then the class that knows this tree, with its version.
LAYOUT_VALUE: Final = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"

# From this id on a ledger lies in the five-level tree.
LONG_IDS_FROM: Final = 2**31 - 1
_SHORT_TOP_DIGITS: Final = 2
_LONG_TOP_DIGITS: Final = 3


def ledger_path(ledger_id: int) -> str:
    if ledger_id < LONG_IDS_FROM:
        digits = f"{ledger_id:010d}"
        return f"{ROOT}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    return f"{ROOT}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def ledger_id_at(path: str) -> int | None:
    """The ledger whose record lies at path; None when it is not a ledger's."""
    parts = path.removeprefix(f"{ROOT}/").split("/")
    if len(parts) not in (3, 5) or not parts[-1].startswith("L"):
        return None
    digits = "".join(parts[:-1]) + parts[-1][1:]
    return int(digits) if digits.isdecimal() and len(digits) == (10 if len(parts) == 3 else 19) else None


def tree_depth(top_name: str) -> int:
    """Levels below a directory of ledgers at the root, its records included; 0 when it is something else."""
    if not top_name.isdecimal():
        return 0
    return {_SHORT_TOP_DIGITS: 2, _LONG_TOP_DIGITS: 4}.get(len(top_name), 0)


def repair_path(ledger_id: int) -> str:
    digits = f"{ledger_id:016x}"
    levels = "/".join(digits[i : i + 4] for i in range(0, 16, 4))
    return f"{REPAIR_LEDGERS}/{levels}/urL{ledger_id:010d}"


def repair_lock_path(ledger_id: int) -> str:
    return f"{REPAIR_LOCKS}/urL{ledger_id:010d}"


def repaired_ledger_at(path: str) -> int | None:
    name = path.rpartition("/")[2]
    return int(name[3:]) if name.startswith("urL") and name[3:].isdecimal() else None
