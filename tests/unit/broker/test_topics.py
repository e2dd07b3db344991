# SPDX-License-Identifier: Apache-2.0
"""Topics of a broker: which there are, which may be made, partitions, watches, deletion, inactivity."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from magnetar.broker.topic import Topic
from magnetar.broker.topic_list import ListChange, ListMode, TopicPattern
from magnetar.errors import (
    BadSetting,
    MagnetarError,
    NotSupported,
    ServiceNotReady,
    TooManyRequests,
    TopicBusy,
    TopicExists,
    TopicNotFound,
)
from magnetar.ids import EARLIEST, LATEST
from magnetar.names import NamespaceName, TopicName
from tests.unit.broker.publishers import NAME, Brokers, Client, producer_of

DEFAULT = NamespaceName.parse("public/default")


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def name(text: str) -> TopicName:
    return TopicName.parse(text)


def short(names: Any) -> list[str]:
    return [each.local_name for each in names]


@pytest.mark.feature("F-TOP-14")
def test_what_first_use_makes() -> None:
    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        assert await topics.partitions(name("a"), create=True) == 0
        await topics.load(name("a"), create=True)
        with pytest.raises(TopicNotFound):
            await topics.load(name("b"), create=False)
        with pytest.raises(TopicNotFound):
            await topics.partitions(name("b"), create=False)
        with pytest.raises(TopicNotFound, match="Namespace not found"):
            await topics.load(name("persistent://public/nowhere/t"), create=True)
        await brokers.stop()

        topics = await brokers.start(auto_topic_creation_partitioned=True, default_partitions=3)
        assert await topics.partitions(name("a"), create=True) == 0, "it is there, and is not partitioned"
        assert await topics.partitions(name("p"), create=True) == 3
        assert await topics.partitions(name("p-partition-1"), create=True) == 0
        await topics.load(name("p-partition-2"), create=False)
        with pytest.raises(TopicNotFound, match="has 3 partitions"):
            await topics.load(name("p-partition-3"), create=True)
        with pytest.raises(NotSupported, match="is partitioned"):
            await topics.load(name("p"), create=True)
        await brokers.stop()

        topics = await brokers.start(allow_auto_topic_creation=False)
        for call in (
            lambda: topics.load(name("new"), create=True),
            lambda: topics.partitions(name("new"), create=True),
            lambda: topics.open(name("non-persistent://public/default/new"), create=True),
        ):
            with pytest.raises(TopicNotFound):
                await call()
        await topics.load(name("p-partition-0"), create=False)
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-TOP-09", "F-TOP-10")
def test_partitioned_topics_are_made_grow_and_go() -> None:
    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        directory = topics.directory
        await directory.create_partitioned(name("p"), 2)
        with pytest.raises(TopicExists):
            await directory.create_partitioned(name("p"), 2)
        for number in (0, -1, 100_001):
            with pytest.raises(BadSetting):
                await directory.create_partitioned(name("q"), number)
        with pytest.raises(NotSupported):
            await directory.create_partitioned(name("q-partition-0"), 2)
        assert short(await directory.missing_partitions(name("p"))) == ["p-partition-0", "p-partition-1"]
        await topics.load(name("p-partition-0"), create=False)
        assert short(await directory.missing_partitions(name("p"))) == ["p-partition-1"]
        with pytest.raises(BadSetting, match="must be larger"):
            await directory.grow_partitioned(name("p"), 2)
        await directory.grow_partitioned(name("p"), 4)
        assert await topics.partitions(name("p"), create=False) == 4
        assert short(await topics.names(DEFAULT)) == [f"p-partition-{number}" for number in range(4)]
        producer = producer_of(Client())
        topic = await topics.load(name("p-partition-3"), create=False)
        await topic.add_producer(producer)
        with pytest.raises(TopicBusy):
            await topics.delete_partitioned(name("p"))
        assert await topics.partitions(name("p"), create=False) == 4
        await topics.delete_partitioned(name("p"), force=True)
        assert await topics.names(DEFAULT) == []
        assert await brokers.world.existing_ledgers() == set()
        with pytest.raises(TopicNotFound):
            await topics.delete_partitioned(name("p"))
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-TOP-13")
def test_making_a_topic_writes_a_record_and_no_ledger() -> None:
    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start(allow_auto_topic_creation=False)
        await topics.create(name("made"), {"owner": "me"})
        assert await brokers.world.existing_ledgers() == set()
        assert short(await topics.names(DEFAULT)) == ["made"]
        with pytest.raises(TopicExists):
            await topics.create(name("made"))
        with pytest.raises(TopicExists):
            await topics.directory.create_partitioned(name("made"), 2)
        topic = await topics.load(name("made"), create=False)
        assert topic.managed_ledger.properties == {"owner": "me"}
        assert len(await brokers.world.existing_ledgers()) == 1
        await topics.directory.create_partitioned(name("p"), 3)
        assert await topics.create_missing_partitions(name("p")) == 3
        assert await topics.create_missing_partitions(name("p")) == 0
        await topics.delete(name("made"))
        await topics.create(name("made"))
        await brokers.stop()

    run(main())


@pytest.mark.feature("F-TOP-18")
def test_lists_by_domain_without_the_systems_own() -> None:
    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        await topics.load(name("a b"), create=True)
        await topics.load(name("__change_events"), create=True)
        await topics.open(name("non-persistent://public/default/n"), create=True)
        await topics.directory.create_partitioned(name("non-persistent://public/default/m"), 1)
        assert short(await topics.names(DEFAULT)) == ["a b"]
        assert short(await topics.names(DEFAULT, ListMode.NON_PERSISTENT)) == ["m-partition-0", "n"]
        assert short(await topics.names(DEFAULT, ListMode.ALL)) == ["m-partition-0", "n", "a b"]
        with pytest.raises(TopicNotFound):
            await topics.names(NamespaceName.parse("public/nowhere"))
        await brokers.stop()

    run(main())


def test_the_number_of_topics_of_a_namespace_is_limited() -> None:
    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start(topics_per_namespace_max=3)
        await topics.load(name("a"), create=True)
        with pytest.raises(NotSupported, match="maximum number of topics"):
            await topics.directory.create_partitioned(name("p"), 3)
        await topics.directory.create_partitioned(name("p"), 2)
        with pytest.raises(NotSupported):
            await topics.load(name("b"), create=True)
        await topics.load(name("p-partition-1"), create=True)
        await brokers.stop()

    run(main())


@pytest.mark.feature("B-12")
def test_watchers_are_told_what_comes_and_goes() -> None:
    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        await topics.load(name("t1"), create=True)
        changes: list[ListChange] = []
        told = asyncio.Event()

        def on_changed(change: ListChange, topics_hash: str) -> None:
            changes.append(change)
            assert topics_hash == watch.view.hash
            told.set()

        async def until(known: set[str]) -> None:
            async with asyncio.timeout(10):
                while {each.rpartition("/")[2] for each in watch.view.names} != known:
                    told.clear()
                    await told.wait()

        watch = await topics.watches.watch(DEFAULT, TopicPattern("public/default/t.*"), on_changed)
        assert watch.view.names == ["persistent://public/default/t1"]
        await topics.load(name("t2"), create=True)
        await topics.load(name("u"), create=True)
        await until({"t1", "t2"})
        await topics.directory.create_partitioned(name("t3"), 2)
        await until({"t1", "t2", "t3-partition-0", "t3-partition-1"})
        await topics.delete(name("t1"))
        await until({"t2", "t3-partition-0", "t3-partition-1"})
        assert changes[-1].deleted == ["persistent://public/default/t1"]
        watch.close()
        watch.close()
        assert len(topics.watches) == 0
        number = len(changes)
        await topics.load(name("t9"), create=True)
        assert len(changes) == number
        await brokers.stop()

    run(main())


def test_a_topic_is_loaded_once_for_all_who_ask() -> None:
    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        loaded = await asyncio.gather(*(topics.load(NAME, create=True) for _ in range(20)))
        assert all(topic is loaded[0] for topic in loaded)
        await brokers.stop()

    run(main())


def test_unloading_and_deleting_at_once_leave_one_living_topic_or_none() -> None:
    """F155: nothing half deleted keeps it from being made anew."""

    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        for _ in range(5):
            topic = await topics.load(NAME, create=True)
            client = Client()
            await topic.add_producer(producer_of(client))
            outcomes = await asyncio.gather(
                topics.unload(NAME),
                topics.delete(NAME, force=True),
                topics.unload(NAME),
                topics.load(NAME, create=True),
                return_exceptions=True,
            )
            unexpected = [
                each for each in outcomes if isinstance(each, Exception) and not isinstance(each, MagnetarError)
            ]
            assert not unexpected
            assert len(client.disconnected) == 1
        topic = await topics.load(NAME, create=True)
        await topic.add_producer(producer_of(Client()))
        await brokers.stop()

    run(main())


@pytest.mark.parametrize("first", ["unload", "delete"])
def test_who_unloads_and_deletes_in_one_turn_of_the_loop_crashes_nobody(
    first: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one began as well, ended behind the first with a KeyError, and that ended the broker."""
    close = Topic.close

    async def slow_close(self: Topic) -> None:
        await asyncio.sleep(0)
        await close(self)

    monkeypatch.setattr(Topic, "close", slow_close)

    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        for _ in range(5):
            await topics.load(NAME, create=True)
            steps = [topics.unload(NAME), topics.unload(NAME), topics.delete(NAME, force=True)]
            if first == "delete":
                steps.reverse()
            outcomes = await asyncio.gather(*steps, return_exceptions=True)
            assert not [each for each in outcomes if each is not None and not isinstance(each, MagnetarError)]
        await brokers.stop()

    run(main())
    assert "crashed" not in caplog.text


def test_a_close_that_fails_does_not_keep_the_topic_from_being_loaded_again() -> None:
    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        topic = await topics.load(NAME, create=True)
        close = topic.managed_ledger.close

        async def fail() -> None:
            await close()
            raise ServiceNotReady("the store is away")

        topic.managed_ledger.close = fail  # type: ignore[method-assign]
        with pytest.raises(ServiceNotReady):
            await topics.unload(NAME)
        assert await topics.load(NAME, create=True) is not topic
        await brokers.stop()

    run(main())


def test_a_cursor_that_cannot_be_saved_does_not_keep_the_log_open() -> None:
    """While the log is open nobody can load the topic here again."""

    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        topic = await topics.load(NAME, create=True)
        subscriptions = [await topic.open_subscription(name, initial=EARLIEST) for name in ("a", "b")]

        async def fail() -> None:
            raise ServiceNotReady("the store is away")

        subscriptions[0].close = fail  # type: ignore[method-assign]
        with pytest.raises(ServiceNotReady):
            await topics.unload(NAME)
        assert subscriptions[1].cursor.is_closed
        again = await topics.load(NAME, create=True)
        assert again is not topic
        assert list(again.subscriptions) == ["a", "b"]
        await brokers.stop()

    run(main())


@pytest.mark.feature("B-09")
@pytest.mark.parametrize("mode", ["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"])
@pytest.mark.parametrize("retention_s", [0, 120])
def test_inactive_topics_are_deleted_by_the_rule(mode: str, retention_s: int) -> None:
    async def main() -> None:
        brokers = Brokers(retention_ms=retention_s * 1_000, retention_bytes=-1)
        topics = await brokers.start(
            delete_inactive_topics=True, delete_inactive_topics_mode=mode, inactive_topic_duration_max_s=60
        )
        idle, used, read = [await topics.load(name(each), create=True) for each in ("idle", "used", "read")]
        await used.add_producer(producer_of(Client()))
        await read.open_subscription("s", initial=LATEST)
        await topics.delete_inactive()
        brokers.world.clock.time_ms += 1_000 * max(60, retention_s) - 1
        await topics.delete_inactive()
        assert len(topics.loaded()) == 3
        brokers.world.clock.time_ms += 1
        await topics.delete_inactive()
        left = [str(each.name).rpartition("/")[2] for each in topics.loaded()]
        assert left == (["used", "read"] if mode == "delete_when_no_subscriptions" else ["used"])
        assert short(await topics.names(DEFAULT)) == sorted(left)
        assert idle not in topics.loaded()
        await brokers.stop()

    run(main())


@pytest.mark.feature("B-12")
def test_watching_costs_one_question_per_topic_that_comes_and_none_for_cursors() -> None:
    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        for number in range(20):
            await topics.create(name(f"t{number}"))
        reads = 0
        read = topics.directory.names

        async def counted(*args: Any) -> list[TopicName]:
            nonlocal reads
            reads += 1
            return await read(*args)

        topics.directory.names = counted  # type: ignore[method-assign, assignment]
        told: asyncio.Queue[ListChange] = asyncio.Queue()
        readiness = [True]
        watch = await topics.watches.watch(
            DEFAULT, TopicPattern(".*"), lambda change, _: told.put_nowait(change), lambda: readiness[0]
        )
        seen: asyncio.Queue[ListChange] = asyncio.Queue()
        other = await topics.watches.watch(DEFAULT, TopicPattern(".*"), lambda change, _: seen.put_nowait(change))
        await topics.create(name("first"))
        async with asyncio.timeout(10):
            await told.get()
            await seen.get()
        reads = 0
        topic = await topics.load(name("t3"), create=False)
        await topic.open_subscription("s", initial=LATEST)
        await topics.create(name("new"))
        async with asyncio.timeout(10):
            assert (await told.get()).new == ["persistent://public/default/new"]
        await topics.delete(name("new"))
        async with asyncio.timeout(10):
            assert (await told.get()).deleted == ["persistent://public/default/new"]
        assert reads == 0

        readiness[0] = False
        late = [f"persistent://public/default/late{number}" for number in range(5)]
        for each in late:
            await topics.create(name(each))
        async with asyncio.timeout(10):
            while late[-1] not in (await seen.get()).new:
                continue
        assert told.empty(), "a client that does not read is told nothing"
        readiness[0] = True
        watch.catch_up()
        async with asyncio.timeout(10):
            assert len((await told.get()).new) == 5
        assert reads == 1
        watch.close()
        other.close()
        await brokers.stop()

    run(main())


def test_a_load_that_could_not_begin_is_tried_again_by_the_next_client() -> None:
    """As many tasks as there may be: whoever comes then is refused, and nobody waits for what never began."""

    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        tasks = brokers._tasks
        assert tasks is not None
        tasks._tasks_max, allowed = 0, tasks._tasks_max
        with pytest.raises(TooManyRequests):
            await topics.load(NAME, create=True)
        tasks._tasks_max = allowed
        async with asyncio.timeout(20):
            await topics.load(NAME, create=True)
        await brokers.stop()

    run(main())
