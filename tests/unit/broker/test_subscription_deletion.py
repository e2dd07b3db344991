# SPDX-License-Identifier: Apache-2.0
"""A subscription that is deleted while clients come back to it: they get a new one, whole, or are told to wait."""

import asyncio
from typing import Any

import pytest

from magnetar.broker.topic import Topic
from magnetar.errors import ServiceNotReady
from magnetar.ids import EARLIEST
from magnetar.managed_ledger.cursor import Cursor
from tests.unit.broker.publishers import Brokers


@pytest.mark.parametrize("step", ["close", "delete"])
def test_a_consumer_that_comes_back_while_its_subscription_is_deleted_gets_one_that_stays(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleting sends consumers away, and they come back at once."""

    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        await topic.open_subscription("s", initial=EARLIEST)
        told: list[type[Exception]] = []
        plain: Any = getattr(Cursor, step)

        async def met(cursor: Cursor) -> None:
            told.append(await _outcome(topic))
            await plain(cursor)
            told.append(await _outcome(topic))

        with monkeypatch.context() as patch:
            patch.setattr(Cursor, step, met)
            await topic.delete_subscription("s")
        assert set(told) == {ServiceNotReady}
        assert "s" not in topic.subscriptions
        again = await topic.open_subscription("s", initial=EARLIEST)
        assert topic.managed_ledger.cursors["s"] is again.cursor
        await brokers.die()
        await brokers.start()
        assert "s" in (await brokers.topic()).subscriptions
        await brokers.stop()

    asyncio.run(main())


async def _outcome(topic: Topic) -> type[Any]:
    try:
        async with asyncio.timeout(5):
            await topic.open_subscription("s", initial=EARLIEST)
    except (ServiceNotReady, TimeoutError) as error:
        return type(error)
    return type(None)


def test_a_subscription_whose_deletion_failed_is_there_again() -> None:
    async def main() -> None:
        brokers = Brokers()
        await brokers.start()
        topic = await brokers.topic()
        subscription = await topic.open_subscription("s", initial=EARLIEST)

        async def fail() -> None:
            raise ServiceNotReady("the store is away")

        subscription.delete_stored = fail  # type: ignore[method-assign]
        with pytest.raises(ServiceNotReady, match="the store is away"):
            await topic.delete_subscription("s")
        assert (await topic.open_subscription("s", initial=EARLIEST)).cursor is topic.managed_ledger.cursors["s"]
        await topic.delete_subscription("s")
        await brokers.stop()

    asyncio.run(main())
