# SPDX-License-Identifier: Apache-2.0
"""Which doors of a standalone were asked for, beside those for clients and administration.

Decides.
"""

from typing import Final, NamedTuple


class DoorPorts(NamedTuple):
    """Ports that were asked for; 0 picks a free one, None is a closed door."""

    bookie: int | None = None
    metadata: int | None = None


NO_DOORS: Final = DoorPorts()
