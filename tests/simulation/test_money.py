# SPDX-License-Identifier: Apache-2.0
"""Money on a compacted topic: transfers read balances and write new ones in transactions, in any weather.

One message for each account that a transfer touches, with the account as its key and the balance as its value, and one
in a journal on another topic; the order to transfer is acknowledged in the same transaction. Whoever looks, whenever,
sees whole transfers: the sum of all balances never changes, and each order is carried out once.
"""

import asyncio
from typing import NamedTuple

import pytest

from magnetar.client.client import Client
from magnetar.client.options import ConsumerType, InitialPosition
from magnetar.errors import MagnetarError, TransactionConflict
from magnetar.ids import EARLIEST_MESSAGE
from magnetar.runtime.chance import stream
from tests.simulation.scenarios.transactions import SOURCE, TARGETS, TransactionStory
from tests.simulation.world.broker_cluster import witnessed
from tests.simulation.world.checkers.violation import Violation
from tests.simulation.world.messaging import new_client, until_open
from tests.simulation.world.node import Node
from tests.simulation.world.storage_cluster import simulated
from tests.simulation.world.world import World

ACCOUNTS, JOURNAL = TARGETS
_NUMBER = 4
_AT_FIRST = 100
_TIMEOUT_MS = 3_000
# So many of the transactions are aborted when their balances are written.
_TAKEN_BACK = 0.4
_COMPACTED_OFTEN = {
    "brokerServiceCompactionThresholdInBytes": "300",
    "brokerServiceCompactionMonitorIntervalInSeconds": "1",
}


class Order(NamedTuple):
    number: int
    payer: int
    payee: int
    amount: int

    @staticmethod
    def of(payload: str) -> "Order":
        number = int(payload.rpartition(":")[2])
        payer = number % _NUMBER
        return Order(number, payer, (payer + 1 + number // _NUMBER % (_NUMBER - 1)) % _NUMBER, number + 1)


class Bank:
    """What the messages of the accounts' topic say, one after the other."""

    def __init__(self) -> None:
        self.balances = [_AT_FIRST] * _NUMBER
        self.written: list[int] = []

    def take(self, payload: str) -> None:
        number, account, balance = map(int, payload.split(":"))
        self.balances[account] = balance
        self.written.append(number)

    @property
    def next_order(self) -> int:
        return len(self.written) // 2

    def problem(self) -> str:
        """Empty where every order so far was carried out whole, once, in its turn."""
        if self.written != [number for number in range(self.next_order) for _ in range(2)]:
            return f"orders were carried out in part, twice or out of turn: {self.written}"
        if sum(self.balances) != _NUMBER * _AT_FIRST:
            return f"the balances {self.balances} sum up to {sum(self.balances)}"
        return ""


class MoneyStory(TransactionStory):
    def __init__(self, world: World) -> None:
        super().__init__(world, inputs=10, copiers=1, settings=_COMPACTED_OFTEN)
        self.looks = 0
        self._mind = stream(world.seed, "changes of mind")

    async def run(self) -> None:
        self.world.node("inspector").start(self._inspect)
        await super().run()

    async def _inspect(self, node: Node) -> None:
        """Looks all the time, also while transactions are open."""
        client = new_client(self.brokers.url, node)
        while not self.stopping:
            await self._outputs(client)
            await asyncio.sleep(0.1)
        await asyncio.get_running_loop().create_future()

    async def _copy(self, node: Node) -> None:
        client = new_client(self.brokers.url, node)
        orders = await until_open(
            lambda: client.subscribe(
                SOURCE, "s", consumer_type=ConsumerType.Failover, initial_position=InitialPosition.Earliest
            )
        )
        producers = [
            await until_open(lambda topic=topic: client.create_producer(topic, send_timeout_millis=0))  # type: ignore[misc]
            for topic in TARGETS
        ]
        while not self.stopping:
            try:
                message = await orders.receive(timeout_millis=500)
                order = Order.of(message.data().decode())
                bank = await self._bank(client)
                if bank.next_order != order.number:
                    # What an earlier life decided is not to be seen yet, or the order is not the next one.
                    await asyncio.sleep(0.2)
                    orders.redeliver_unacknowledged_messages()
                    continue
                async with client.transaction(timeout_ms=_TIMEOUT_MS) as txn:
                    for account, change in ((order.payer, -order.amount), (order.payee, order.amount)):
                        text = f"{order.number}:{account}:{bank.balances[account] + change}"
                        await producers[0].send(text.encode(), partition_key=str(account), txn=txn)
                    if self._mind.random() < _TAKEN_BACK:
                        raise TransactionConflict("not now")
                    await producers[1].send(message.data(), txn=txn)
                    await orders.acknowledge(message, txn=txn)
            except MagnetarError:
                orders.redeliver_unacknowledged_messages()
        await asyncio.get_running_loop().create_future()

    async def _bank(self, client: Client) -> Bank:
        """The state as it is committed now; looked at by everyone who reads it."""
        bank = Bank()
        for payload in await self._scan(client, ACCOUNTS):
            bank.take(payload)
        self._judge(bank.problem())
        return bank

    def _judge(self, problem: str) -> None:
        self.looks += 1
        if problem:
            self.world.check([Violation("I10 transactions are atomic", problem)])

    async def _outputs(self, client: Client) -> dict[str, list[str]]:
        bank = await self._bank(client)
        newest: dict[str, str] = {}
        reader = await until_open(lambda: client.create_reader(ACCOUNTS, EARLIEST_MESSAGE, is_read_compacted=True))
        while await reader.has_message_available():
            message = await reader.read_next()
            newest[message.partition_key()] = message.data().decode()
        await reader.close()
        self._balance(list(newest.values()))
        return {ACCOUNTS: [str(number) for number in bank.written[::2]], JOURNAL: await self._scan(client, JOURNAL)}

    def _balance(self, newest: list[str]) -> None:
        held = sum(int(payload.split(":")[2]) for payload in newest) + (_NUMBER - len(newest)) * _AT_FIRST
        self._judge("" if held == _NUMBER * _AT_FIRST else f"the compacted balances {newest} sum up to {held}")

    @staticmethod
    def _is_whole(inputs: list[str], outputs: dict[str, list[str]]) -> bool:
        return all(len(set(found)) >= len(inputs) for found in outputs.values())

    def _check(self, inputs: list[str], outputs: dict[str, list[str]]) -> None:
        expected = [Order.of(payload).number for payload in inputs]
        for topic, found in outputs.items():
            numbers = [int(payload.rpartition(":")[2]) for payload in found]
            if numbers != expected:
                self._judge(f"{topic} has {numbers} of the orders {expected}")


@pytest.mark.feature("F-TXN-01", "F-TXN-15")
@pytest.mark.parametrize("seed", range(2))
def test_no_money_is_made_or_lost_and_each_transfer_happens_once(seed: int) -> None:
    """F167."""
    looks = []

    async def story(world: World) -> None:
        told = MoneyStory(world)
        with simulated(told.storage), witnessed(told.brokers):
            await told.run()
        looks.append(told.looks)

    verdict = World(seed).run("money", story)
    assert not verdict.violations, verdict.violations[0]
    assert looks[0] > 10
