# SPDX-License-Identifier: Apache-2.0
"""What a broker says of its load while things go away under it."""

import pytest

from magnetar.broker.ownership.traffic import TopicCounts
from magnetar.names import NamespaceName
from tests.unit.broker.ownership.worlds import NAMESPACE, Members, run


@pytest.mark.feature("F-LB-02")
def test_a_topic_of_a_deleted_namespace_does_not_keep_the_others_from_being_told() -> None:
    async def scenario() -> None:
        async with Members(1) as members:
            member = members.all[0]
            kept, gone = NAMESPACE.topic("kept"), NamespaceName("public", "gone").topic("still-served")
            await member.ownership.locate(kept, authoritative=False)
            member.cluster.reports.counts = lambda: [TopicCounts(kept, producers=1), TopicCounts(gone, producers=5)]
            load = await member.cluster.reports.look(member.own)
            assert sum(bundle.topics for bundle in load.bundles.values()) == 1
            assert sum(bundle.producers for bundle in load.bundles.values()) == 1

    run(scenario)
