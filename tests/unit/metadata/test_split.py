# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.errors import BadPath
from magnetar.metadata.memory import MemoryTree
from magnetar.metadata.split import SplitStore, is_shared
from tests.contracts.metadata_stores import SeenChanges

pytestmark = [pytest.mark.feature("F-MD-03")]


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("/admin/clusters/east", True),
        ("/admin/policies/public/default", True),
        ("/admin/partitioned-topics/public/default/persistent/t", True),
        ("/admin/local-policies/public/default", False),
        ("/admin/configuration", False),
        ("/administration", False),
        ("/ledgers/LAYOUT", False),
        ("/managed-ledgers/public/default/persistent/t", False),
        ("/namespace/public/default/0x00000000_0xffffffff", False),
    ],
)
def test_the_wall_is_where_pulsar_has_it(path: str, shared: bool, loop_run: Callable[[Any], Any]) -> None:
    async def scenario() -> None:
        own, common = MemoryTree(), MemoryTree()
        store = SplitStore(own.open_session(), common.open_session())
        await store.put(path, b"value")
        assert is_shared(path) == shared
        assert await common.open_session().exists(path) == shared
        assert await own.open_session().exists(path) != shared
        await store.close()

    loop_run(scenario())


def test_two_clusters_see_each_others_tenants_and_nothing_else(loop_run: Callable[[Any], Any]) -> None:
    async def scenario() -> None:
        common = MemoryTree()
        east = SplitStore(MemoryTree().open_session(), common.open_session())
        west = SplitStore(MemoryTree().open_session(), common.open_session())
        seen = SeenChanges()
        west.watch("/", seen)
        await east.put("/admin/policies/acme", b"{}")
        await east.put("/admin/local-policies/acme/orders", b"{}")
        await east.put("/loadbalance/leader", b"east", ephemeral=True)
        assert await west.exists("/admin/policies/acme")
        assert await west.children("/admin") == ["policies"]
        assert await east.children("/admin") == ["local-policies", "policies"]
        assert not await west.exists("/loadbalance/leader")
        await seen.until(lambda items: any(each.path == "/admin/policies/acme" for each in items))
        with pytest.raises(BadPath, match="no ephemeral records"):
            await east.put("/admin/clusters/here", b"", ephemeral=True)

    loop_run(scenario())
