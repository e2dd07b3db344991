# SPDX-License-Identifier: Apache-2.0
"""The sink with two drivers at once, without the broker's memory of sequence ids, and over connections that are cut."""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from random import Random
from typing import Any

import pytest
from pyspark.sql.datasource import WriterCommitMessage

from magnetar.blocking import Client
from magnetar.client.connection import Connection
from magnetar.client.partition_producer import PartitionProducer
from magnetar.errors import ConnectionLost, MagnetarError
from magnetar.spark import publisher, sink_log
from magnetar.spark.committer import SinkTopics
from magnetar.spark.offsets import BEFORE_ALL
from magnetar.spark.stream_writer import PulsarStreamWriter
from magnetar.spark.writer import Staged, committer_of, staged_in
from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.processes import StandaloneProcess
from tests.spark.in_process import Stream
from tests.spark.test_sink_crashes import POINTS, Crash, published, run_batch, stage, writer
from tests.spark.test_source_reads import publish

pytestmark = pytest.mark.usefixtures("small_batches")

BATCH_ROWS = 200


def rows_of(batches: int) -> Counter[str]:
    return Counter(f"{batch}-{number}" for batch in range(batches) for number in range(BATCH_ROWS))


# --- two drivers -------------------------------------------------------------------------------------


def commit_of(
    sink: PulsarStreamWriter, staged: list[WriterCommitMessage | None], batch: int
) -> Coroutine[Any, Any, None]:
    """What Spark's commit waits for."""
    (sink_id,) = {one.sink_id for one in staged if isinstance(one, Staged)}
    topics = SinkTopics.of(sink._options.topic, sink_id)
    return committer_of(sink._options, sink._encoder(), topics, sink_id).commit(batch, staged_in(staged))


@pytest.mark.feature("F-SPK-06")
@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        (sink_log.SinkLog, "open", True),
        (sink_log.SinkLog, "write", False),
        (sink_log.SinkLog, "write", True),
        (publisher.Publisher, "publish", True),
    ],
    ids=["log-open", "not-decided", "decided", "published"],
)
def test_a_driver_that_was_thought_dead_writes_nothing_twice(
    standalone: StandaloneProcess, topic: str, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool
) -> None:
    """A second driver commits the same batch in the middle of the first one's commit; then the first goes on."""
    run_batch(standalone, topic, 0, seed=1)
    first, second = writer(standalone, topic), writer(standalone, topic, operationTimeout="2s")
    mine, others = stage(first, 1, seed=2), stage(second, 1, seed=3)
    step: Callable[..., Any] = getattr(owner, name)
    outcomes: list[str] = []

    async def interrupted(*given: Any, **more: Any) -> Any:
        found = await step(*given, **more) if after else None
        if not outcomes:
            outcomes.append("begun")
            try:
                await commit_of(second, others, 1)
                outcomes.append("done")
            except MagnetarError as error:
                outcomes.append(type(error).__name__)
        return found if after else await step(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        try:
            first.commit(mine, 1)
        except MagnetarError as error:
            outcomes.append(f"first: {type(error).__name__}")
    assert outcomes[0] == "begun"
    assert len(outcomes) > 1
    # Whoever is left runs the batch again, and goes on.
    run_batch(standalone, topic, 1, seed=4)
    run_batch(standalone, topic, 2, seed=5)
    assert published(standalone, topic) == rows_of(3), outcomes


# --- a broker that remembers nothing -----------------------------------------------------------------


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """As if every producer's last sequence id were dropped at once: it deduplicates nothing at all."""
    with StandaloneProcess(tmp_path_factory.mktemp("forgetful")) as process:
        yield process


@pytest.mark.feature("F-SPK-06")
@pytest.mark.parametrize("point", ["first-batch", "in-the-middle", "published", "not-done"])
def test_a_replay_is_exact_when_the_broker_forgot_its_producers(
    forgetful: StandaloneProcess, topic: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_batch(forgetful, topic, 0, seed=1)
    with monkeypatch.context() as patch:
        POINTS[point](patch)
        with pytest.raises(Crash):
            run_batch(forgetful, topic, 1, seed=2)
    run_batch(forgetful, topic, 1, seed=3)
    assert published(forgetful, topic) == rows_of(2)


# --- cut connections ---------------------------------------------------------------------------------


class Cuts:
    """Every n-th chunk of bytes that comes from a broker is the last one of its connection, more or less.

    Not exactly: whoever needs as many chunks as lie between two cuts would be cut at the same place for ever.
    """

    def __init__(self, patch: pytest.MonkeyPatch, every: int) -> None:
        self.count = 0
        random = Random(every)
        left = every
        received = Connection.data_received

        def cutting(connection: Connection, data: bytes) -> None:
            nonlocal left
            if connection.is_open:
                left -= 1
                if left <= 0:
                    left = random.randint(every // 2, 2 * every)
                    self.count += 1
                    connection.abandon(ConnectionLost("cut by the test"))
                    return
            received(connection, data)

        patch.setattr(Connection, "data_received", cutting)


def insisting(run: Callable[[], object]) -> None:
    """As Spark and whoever restarts a query do: again, until it goes through."""
    errors: Counter[str] = Counter()
    for _ in range(40):
        try:
            run()
            return
        except (MagnetarError, TimeoutError) as error:
            errors[repr(error)] += 1
    raise AssertionError(f"it never went through: {errors}")


@pytest.mark.feature("F-SPK-02", "F-SPK-06")
@pytest.mark.parametrize("every", [23, 60])
def test_connections_cut_again_and_again_cost_no_row(
    standalone: StandaloneProcess,
    client: Client,
    topic: str,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    every: int,
) -> None:
    publish(client, topic, 1_000)
    with monkeypatch.context() as patch:
        cuts = Cuts(patch, every)
        for batch in range(3):
            insisting(partial(run_batch, standalone, f"{topic}-out", batch, seed=batch))
        read: list[int] = []

        def read_all() -> None:
            read[:] = []
            stream = Stream({**options, "maxMessagesPerTrigger": "400"})
            while (found := stream.next()) is not None:
                read.extend(found.numbers)

        insisting(read_all)
    assert cuts.count > 3
    assert read == list(range(1_000))
    assert published(standalone, f"{topic}-out") == rows_of(3)


class LostReceipts:
    """No receipt comes over a producer's first connection, which is cut when the broker has stored all it was sent."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.first: dict[PartitionProducer, Connection] = {}
        self._lost: Counter[PartitionProducer] = Counter()
        self._flushed: set[PartitionProducer] = set()
        heard, flush = PartitionProducer.on_receipt, PartitionProducer.flush

        def losing(producer: PartitionProducer, receipt: pb.CommandSendReceipt) -> None:
            connection = producer._link.connection
            assert connection is not None
            if self.first.setdefault(producer, connection) is not connection:
                heard(producer, receipt)
                return
            self._lost[producer] += 1
            self._cut_when_all_is_stored(producer)

        async def flushing(producer: PartitionProducer) -> None:
            self._flushed.add(producer)
            self._cut_when_all_is_stored(producer)
            await flush(producer)

        patch.setattr(PartitionProducer, "on_receipt", losing)
        patch.setattr(PartitionProducer, "flush", flushing)

    def _cut_when_all_is_stored(self, producer: PartitionProducer) -> None:
        """Only who flushes has sent everything."""
        if producer in self._flushed and 0 < self._lost[producer] == producer.describe()["pending"]:
            self.first[producer].abandon(ConnectionLost("cut by the test"))


@pytest.mark.feature("F-SPK-06")
def test_batches_whose_receipts_were_lost_are_found_where_they_were_staged(
    standalone: StandaloneProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are sent again, and a broker that deduplicates says only that it has them, not where."""
    run_batch(standalone, topic, 0, seed=1)
    sink = writer(standalone, topic)
    with monkeypatch.context() as patch:
        lost = LostReceipts(patch)
        staged = stage(sink, 1, seed=2)
    assert lost.first
    assert BEFORE_ALL not in {attempt.last for attempt in staged_in(staged)}
    sink.commit(staged, 1)
    assert published(standalone, topic) == rows_of(2)
