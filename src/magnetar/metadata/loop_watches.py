# SPDX-License-Identifier: Apache-2.0
"""The watches of a store on the running loop: told in its next turn, their errors given to its exception handler.

Assembles.
"""

import asyncio

from magnetar.config.metadata import MetadataSettings
from magnetar.metadata.watches import PrefixListener, Watches


def loop_watches(
    settings: MetadataSettings, *, on_first: PrefixListener | None = None, on_last: PrefixListener | None = None
) -> Watches:
    loop = asyncio.get_running_loop()
    return Watches(
        loop.call_soon,
        lambda error: loop.call_exception_handler({"message": "a metadata watch failed", "exception": error}),
        watches_max=settings.watches_max,
        path_bytes_max=settings.path_bytes_max,
        on_first=on_first,
        on_last=on_last,
    )
