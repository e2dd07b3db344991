# SPDX-License-Identifier: Apache-2.0
"""What a broker does when its session at the metadata store is lost: comes back by itself, or ends to be started anew.

Pulsar's two policies. Coming back revalidates everything before it serves; ending suits those whose supervisor should
know of it.
Carries.
"""

from collections.abc import Callable
from typing import Final

from magnetar.errors import SessionLost
from magnetar.metadata.store import MetadataStore, SessionEvent

RECONNECT: Final = "reconnect"
SHUTDOWN: Final = "shutdown"


def apply_session_policy(store: MetadataStore, policy: str, end: Callable[[BaseException], None]) -> None:
    """With `shutdown` a lost session ends the process; otherwise whoever holds a claim claims it again."""
    if policy != SHUTDOWN:
        return

    def on_event(event: SessionEvent) -> None:
        if event is SessionEvent.LOST:
            end(SessionLost("the session at the metadata store is lost, and zookeeperSessionExpiredPolicy is shutdown"))

    store.watch_session(on_event)
