# SPDX-License-Identifier: Apache-2.0
"""Topics on their way out: what fails half-way leaves a topic that serves, and what is deleted is deleted whole."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from magnetar.broker.policies.values import InactivityMode
from magnetar.broker.topic import Topic
from magnetar.broker.topic_activity import inactive_since_ms
from magnetar.errors import MagnetarError, ServiceNotReady, TopicBusy, TopicNotFound
from magnetar.ids import EARLIEST
from magnetar.names import TopicName
from tests.unit.broker.publishers import NAME, Brokers, Client, producer_of


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_a_deletion_that_fails_leaves_a_topic_that_can_be_loaded() -> None:
    """While the log is open nobody can load the topic here again."""

    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        topic = await topics.load(NAME, create=True)
        subscription = await topic.open_subscription("s", initial=EARLIEST)

        async def fail() -> None:
            raise ServiceNotReady("the store is away")

        subscription.delete_stored = fail  # type: ignore[method-assign]
        with pytest.raises(ServiceNotReady, match="the store is away"):
            await topics.delete(NAME)
        again = await topics.load(NAME, create=True)
        assert again is not topic
        assert list(again.subscriptions) == ["s"]
        await topics.delete(NAME)
        with pytest.raises(TopicNotFound):
            await topics.delete(NAME)
        await brokers.stop()

    run(main())


def test_a_client_that_comes_first_keeps_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        topic = await topics.load(NAME, create=True)
        delete = Topic.delete

        async def late(topic: Topic, *, force: bool) -> None:
            await topic.add_producer(producer_of(Client()))
            await delete(topic, force=force)

        with monkeypatch.context() as patched:
            patched.setattr(Topic, "delete", late)
            with pytest.raises(TopicBusy):
                await topics.delete(NAME)
        assert await topics.load(NAME, create=False) is topic
        await brokers.stop()

    run(main())


@pytest.mark.parametrize("way", ["by an admin", "by inactivity"])
def test_what_is_kept_beside_a_topic_is_gone_before_it_can_be_made_anew(way: str) -> None:
    """A producer that comes back at once would register a schema that is about to be deleted."""

    async def main() -> None:
        brokers = Brokers(retention_ms=0)
        topics = await brokers.start(delete_inactive_topics=True, inactive_topic_duration_max_s=60)
        topic = await topics.load(NAME, create=True)
        met: list[type[Exception]] = []

        async def come_back(deleted: TopicName) -> None:
            assert deleted == NAME
            try:
                await topics.load(NAME, create=True)
            except MagnetarError as error:
                met.append(type(error))

        topics.on_deleted = come_back
        if way == "by an admin":
            await topics.delete(NAME)
        else:
            assert inactive_since_ms(topic, InactivityMode.NO_SUBSCRIPTIONS, 0) is not None
            brokers.world.clock.time_ms += 60_000
            await topics.delete_inactive()
        assert met == [ServiceNotReady]
        assert await topics.load(NAME, create=True) is not topic
        await brokers.stop()

    run(main())


def test_whoever_unloads_a_topic_that_is_leaving_waits_until_it_has_left() -> None:
    """A bundle is given up when its topics are closed: what a deletion still does must not meet its next owner."""

    async def main() -> None:
        brokers = Brokers()
        topics = await brokers.start()
        topic = await topics.load(NAME, create=True)
        steps: list[str] = []
        begun, goes_on = asyncio.Event(), asyncio.Event()
        delete = topic.managed_ledger.delete

        async def slow_delete() -> None:
            begun.set()
            await goes_on.wait()
            await delete()
            steps.append("deleted")

        topic.managed_ledger.delete = slow_delete  # type: ignore[method-assign]

        async def unload() -> None:
            await topics.unload(NAME)
            steps.append("unloaded")

        deleting = asyncio.ensure_future(topics.delete(NAME))
        await begun.wait()
        unloading = asyncio.ensure_future(unload())
        # Long enough for an unload that waits for nothing.
        for _ in range(10):
            await asyncio.sleep(0)
        goes_on.set()
        await asyncio.gather(deleting, unloading)
        assert steps == ["deleted", "unloaded"]
        await brokers.stop()

    run(main())
