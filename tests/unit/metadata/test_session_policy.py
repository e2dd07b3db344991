# SPDX-License-Identifier: Apache-2.0
"""A lost session: the process ends, or goes on."""

from collections.abc import Callable

import pytest

from magnetar.config.load import load_settings
from magnetar.errors import SessionLost
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.metadata.session_policy import RECONNECT, SHUTDOWN, apply_session_policy
from tests.unit.ledger.cluster import settle


@pytest.mark.feature("D-26")
@pytest.mark.parametrize(("policy", "ends"), [(RECONNECT, 0), (SHUTDOWN, 1)])
def test_a_lost_session_ends_the_process_or_not(policy: str, ends: int, loop_run: Callable[..., None]) -> None:
    async def scenario() -> None:
        store, ended = MemoryStore(MemoryTree()), list[BaseException]()
        apply_session_policy(store, policy, ended.append)
        store.disconnect()
        store.reconnect()
        await settle()
        assert ended == []
        store.expire_session()
        await settle()
        assert [type(error) for error in ended] == [SessionLost] * ends
        store.reestablish_session()
        await settle()
        assert len(ended) == ends
        await store.close()

    loop_run(scenario())


@pytest.mark.feature("D-26")
def test_the_setting_is_upstreams() -> None:
    assert load_settings().metadata.session_lost_policy == RECONNECT
    chosen = load_settings(environ={"zookeeperSessionExpiredPolicy": "shutdown"})
    assert chosen.metadata.session_lost_policy == SHUTDOWN
