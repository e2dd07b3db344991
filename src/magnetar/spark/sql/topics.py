# SPDX-License-Identifier: Apache-2.0
"""Which topics there are, asked as a client asks; asking makes none.

Carries.
"""

from collections.abc import Mapping

from magnetar.errors import TopicNotFound
from magnetar.names import NamespaceName, TopicName
from magnetar.spark.cluster import Cluster, cluster
from magnetar.spark.options import TopicChoice, source_options
from magnetar.wire.proto import pulsar_api_pb2 as pb


class Topics:
    """Of one cluster, reached as the data source's options say."""

    def __init__(self, connection: Mapping[str, str]) -> None:
        # A topic's name is needed to read options and not to ask; none of this name is asked for.
        self._options = source_options({**connection, "topic": "any"}, streaming=False).connection

    def _here(self) -> Cluster:
        return cluster(self._options)

    def listed(self, namespace: str) -> list[str]:
        """Topics of a namespace, each once however many partitions it has; sorted."""
        here = self._here()
        name = NamespaceName.parse(namespace)
        mode = pb.CommandGetTopicsOfNamespace.PERSISTENT

        async def ask() -> list[str]:
            core = here.core()
            return list((await core.retried(lambda: core.lookup.topics(name, mode, "", ""))).topics)

        return sorted({str(TopicName.parse(topic).base) for topic in here.run(ask())})

    def check(self, topic: str) -> None:
        """Raises TopicNotFound; a reader would make a topic that is not there."""
        name = TopicName.parse(topic)
        namespace = str(name.namespace)
        here = self._here()
        try:
            if here.run(here.partitions_of(TopicChoice((topic,)))) != [topic]:
                return
            is_there = str(name.base) in self.listed(namespace)
        except TopicNotFound:
            is_there = False
        if not is_there:
            raise TopicNotFound(f'There is no topic {topic}; show tables in "{namespace}" lists those that are there')
