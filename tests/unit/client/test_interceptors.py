# SPDX-License-Identifier: Apache-2.0
"""An application's hook that raises: it costs the message that it raised for, and no other."""

import asyncio
from typing import Any

import pytest

from magnetar.client.interceptors import ProducerInterceptor
from magnetar.client.outgoing import OutgoingMessage
from magnetar.client.producer import Producer
from magnetar.ids import MessageId
from magnetar.testing.local_pulsar import LocalPulsar
from tests.conftest import RunOnLoop

TOPIC = "persistent://public/default/intercepted"
MESSAGES = 20
REFUSED = (0, 7, 8, MESSAGES - 1)


class HookError(Exception):
    """What the application's own code raises."""


class Picky(ProducerInterceptor):
    """Refuses some messages before they are sent, changes the others, and fails for each of which it is told."""

    def __init__(self) -> None:
        self.told: list[bytes] = []

    def before_send(self, producer: Producer[Any], message: OutgoingMessage) -> OutgoingMessage:
        if int(message.payload) in REFUSED:
            raise HookError(message.payload.decode())
        message.payload += b"!"
        return message

    def on_send_acknowledgement(
        self,
        producer: Producer[Any],
        message: OutgoingMessage,
        message_id: MessageId | None,
        error: BaseException | None,
    ) -> None:
        self.told.append(message.payload)
        raise HookError("told")


@pytest.mark.feature("B-14")
@pytest.mark.parametrize("batching", [False, True])
def test_a_hook_that_raises_fails_its_own_message_and_the_others_come_in_order(
    loop_run: RunOnLoop, batching: bool
) -> None:
    """F101: all are on their way at once, alone or in batches."""

    async def scenario() -> None:
        picky = Picky()
        async with LocalPulsar(transport="memory") as pulsar, pulsar.client() as client:
            consumer = await client.subscribe(TOPIC, "s")
            producer = await client.create_producer(TOPIC, interceptors=[picky], batching_enabled=batching)
            sends = [producer.send(str(number).encode()) for number in range(MESSAGES)]
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            refused = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, HookError)]
            stored = [outcome for outcome in outcomes if isinstance(outcome, MessageId)]
            assert tuple(refused) == REFUSED
            assert len(stored) == MESSAGES - len(REFUSED)
            assert stored == sorted(stored)
            expected = [b"%d!" % number for number in range(MESSAGES) if number not in REFUSED]
            assert picky.told == expected
            for body in expected:
                message = await consumer.receive()
                assert message.data() == body
                await consumer.acknowledge(message)
            await producer.send(b"100")
            assert (await consumer.receive()).data() == b"100!", "nothing else lies in between"

    loop_run(scenario())
