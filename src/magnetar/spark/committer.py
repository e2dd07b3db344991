# SPDX-License-Identifier: Apache-2.0
"""The end of a batch: decide once what it is, publish it, say that it is done, forget what was staged.

Each step can be done again after a crash at any point: the log's last record says how far it came.
Carries.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from magnetar.client.schema_info import SchemaInfo
from magnetar.errors import DamagedRecord, ProducerFenced
from magnetar.names import TopicName
from magnetar.spark.cluster import Cluster
from magnetar.spark.cursors import drop, move
from magnetar.spark.manifest import Manifest, StagedAttempt, decide
from magnetar.spark.offsets import Offset
from magnetar.spark.publisher import Publisher
from magnetar.spark.sink_log import SinkLog
from magnetar.spark.staging import SUBSCRIPTION, fresh_name

DEFAULT_NAMESPACE: Final = "public/default"


class SinkTopics(NamedTuple):
    """Where a sink keeps what it needs, and the subscription that holds its staged messages."""

    staging: str
    log: str | None
    subscription: str

    @staticmethod
    def of(topic: str | None, sink_id: str) -> "SinkTopics":
        """Of a sink that may come again: its own topics, beside the target."""
        front = f"persistent://{_namespace(topic)}/spark-sink-{sink_id}"
        return SinkTopics(f"{front}-staging", f"{front}-log", SUBSCRIPTION)

    @staticmethod
    def once(topic: str | None) -> "SinkTopics":
        """Of a write that happens once: a staging topic that such writes share, and a subscription of its own."""
        staging = f"persistent://{_namespace(topic)}/spark-writes-staging"
        return SinkTopics(staging, None, fresh_name("spark-write"))


def _namespace(topic: str | None) -> str:
    return DEFAULT_NAMESPACE if topic is None else str(TopicName.parse(topic).namespace)


class Committer:
    def __init__(self, here: Cluster, topics: SinkTopics, sink_id: str, info: SchemaInfo, timeout_s: float) -> None:
        self._client = here.client
        self._topics = topics
        self._name = f"spark-sink-{sink_id}"
        self._info = info
        self._timeout_s = timeout_s

    def _publisher(self) -> Publisher:
        return Publisher(self._client, self._topics.staging, self._name, self._info, self._timeout_s)

    async def commit(self, batch: int, attempts: Sequence[StagedAttempt], query: str = "") -> None:
        """Returns when the batch is in its targets, whole and once. Raises ProducerFenced where another took over.

        DamagedRecord where the checkpoint that the batch comes from, or the sink's log, is not what it was.
        """
        if self._topics.log is None:
            await self._commit_once(attempts)
            return
        log = SinkLog(self._client, self._topics.log, self._timeout_s)
        await log.open()
        try:
            last = log.last
            if last is not None:
                last.check_follower(batch, query)
            if last is not None and not last.is_done:
                # A predecessor decided and did not finish; its word counts, for this batch or the one before.
                await self._finish(log, last, self._publisher(), is_new=False)
                last = log.last
            if last is None or last.batch < batch:
                publisher = self._publisher()
                try:
                    wanted = {topic: None for one in attempts for topic in one.counts}
                    manifest = decide(last, batch, attempts, await publisher.ends(wanted), query)
                    await self._check_log(log, publisher.ahead(manifest))
                    await log.write(manifest)
                except BaseException:
                    await publisher.close()
                    raise
                await self._finish(log, manifest, publisher, is_new=True)
        finally:
            await log.close()

    async def _check_log(self, log: SinkLog, ahead: Mapping[str, int]) -> None:
        last = log.last
        if not ahead:
            return
        await log.catch_up()
        if log.last != last:
            raise ProducerFenced(f"{self._topics.log}: another driver has gone on")
        target, sequence_id = min(ahead.items())
        raise DamagedRecord(
            f"{target} has messages of this sink up to number {sequence_id}, which its log {self._topics.log} does not "
            "know of: it was deleted, or a time to live has cut it. Nothing was written; give the query another sinkId"
        )

    async def _finish(self, log: SinkLog, manifest: Manifest, publisher: Publisher, *, is_new: bool) -> None:
        try:
            await publisher.publish(manifest, is_new=is_new)
        finally:
            await publisher.close()
        written = await log.write(manifest.done())
        await log.trim(written)
        if manifest.attempts:
            await move(self._client, self._topics.subscription, {self._topics.staging: Offset(None, manifest.last)})

    async def _commit_once(self, attempts: Sequence[StagedAttempt]) -> None:
        publisher = self._publisher()
        try:
            ends = await publisher.ends({topic: None for one in attempts for topic in one.counts})
            await publisher.publish(decide(None, 0, attempts, ends), is_new=True)
        finally:
            await publisher.close()
        await self.forget(attempts)

    async def forget(self, attempts: Sequence[StagedAttempt]) -> None:
        """What was staged for a write that happens once is not held any longer."""
        if self._topics.log is None and any(one.messages for one in attempts):
            await drop(self._client, self._topics.staging, self._topics.subscription)
