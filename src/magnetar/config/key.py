# SPDX-License-Identifier: Apache-2.0
"""One row of the table of settings, and the kinds of values that many rows share.

Decides.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from magnetar.config.values import Decimal, Value, Whole

STANDALONE: Final = "standalone"
BROKER: Final = "broker"
BOOKIE: Final = "bookie"
AUTORECOVERY: Final = "autorecovery"
PROXY: Final = "proxy"
WEBSOCKET: Final = "websocket"
ROLES: Final = (STANDALONE, BROKER, BOOKIE, AUTORECOVERY, PROXY, WEBSOCKET)

KIB: Final = 1024
MIB: Final = 1024 * 1024
SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000

PORT: Final = Whole(0, 65_535)
OPTIONAL_PORT: Final = Whole(-1, 65_535)
COUNT: Final = Whole(1, 2**31 - 1)
MILLISECONDS: Final = Whole(0, 2**31 - 1)
POSITIVE_MILLISECONDS: Final = Whole(1, 2**31 - 1)
SECONDS: Final = Whole(0, 2**31 - 1, factor=SECOND_MS)
MINUTES: Final = Whole(0, 10**6, factor=MINUTE_MS)
POSITIVE_SECONDS: Final = Whole(1, 2**31 - 1, factor=SECOND_MS)
MEGABYTES: Final = Whole(1, 2**20, factor=MIB)
SHARE: Final = Decimal(0.0, 1.0)
FRAME: Final = Whole(1024, 2**30)


@dataclass(frozen=True, slots=True)
class Key:
    """A key, the owner and field that it fills, what it allows, and what it means."""

    name: str
    owner: str
    field: str
    value: Value
    meaning: str
    # The command's flag for the same setting.
    flag: str = ""
    # The roles that heed this row; empty means all.
    roles: tuple[str, ...] = ()
    secret: bool = False


class Order(NamedTuple):
    """A rule between two fields: the first must not be larger than the second."""

    owner: str
    field: str
    larger_owner: str
    larger_field: str


def rows(owner: str, *described: tuple[str, str, Value, str]) -> tuple[Key, ...]:
    """Plain rows of one owner: key, field, kind, meaning."""
    return tuple(Key(name, owner, field, value, meaning) for name, field, value, meaning in described)
