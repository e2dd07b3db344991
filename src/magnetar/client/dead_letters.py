# SPDX-License-Identifier: Apache-2.0
"""Messages that failed: to the retry-letter topic for another try later, or to the dead-letter topic for good.

Topic names and message properties are those of the Java client, so that a chain of retries may go on in either. A
message is acknowledged only after its copy is durable; if that fails, it is delivered again.
Carries.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from magnetar.client.core import Core
from magnetar.client.message import Message
from magnetar.client.options import DeadLetterPolicy, ProducerOptions
from magnetar.client.outgoing import OutgoingMessage
from magnetar.client.producer import Producer
from magnetar.errors import MagnetarError
from magnetar.ids import MessageId, Position
from magnetar.names import TopicName
from magnetar.runtime.tasks import Tasks

if TYPE_CHECKING:
    from magnetar.client.partition_consumer import PartitionConsumer

RECONSUME_TIMES: Final = "RECONSUMETIMES"
DELAY_TIME: Final = "DELAY_TIME"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
# What Java's client wrote before, and still writes beside it.
ORIGIN_MESSAGE_ID_OLD: Final = "ORIGIN_MESSAGE_IDY_TIME"

RECONSUME_TIMES_MAX: Final = 16

_log = logging.getLogger(__name__)

MakeProducer = Callable[[str, ProducerOptions], Awaitable[Producer[bytes]]]


def policy_with_names(policy: DeadLetterPolicy | None, topic: TopicName, subscription: str) -> DeadLetterPolicy:
    """The policy with both topics named; without one, as many tries as Java's client gives."""
    base = str(topic.base)
    policy = policy or DeadLetterPolicy(RECONSUME_TIMES_MAX)
    return replace(
        policy,
        dead_letter_topic=policy.dead_letter_topic or f"{base}-{subscription}-DLQ",
        retry_letter_topic=policy.retry_letter_topic or f"{base}-{subscription}-RETRY",
    )


def letter_properties(message: Message[Any], subscription: str) -> dict[str, str]:
    """The message's own properties, and where it first came from."""
    properties = message.properties()
    message_id = message.message_id()
    text = f"{message_id.ledger_id}:{message_id.entry_id}:{message_id.partition}"
    if message_id.batch_index >= 0:
        text += f":{message_id.batch_index}"
    properties.setdefault(REAL_TOPIC, message.topic_name())
    properties.setdefault(ORIGIN_MESSAGE_ID, text)
    properties.setdefault(ORIGIN_MESSAGE_ID_OLD, text)
    properties.setdefault(REAL_SUBSCRIPTION, subscription)
    return properties


class DeadLetters:
    """Of one consumer. Its producers are made when they are first needed."""

    def __init__(
        self, core: Core, policy: DeadLetterPolicy, subscription: str, make_producer: MakeProducer, tasks: Tasks
    ) -> None:
        self.policy = policy
        self._core = core
        self._subscription = subscription
        self._make_producer = make_producer
        self._tasks = tasks
        self._producers: dict[str, Producer[bytes]] = {}
        # Messages that have had their last try, by entry, while the application has them.
        self._candidates: dict[tuple[str, Position], list[Message[Any]]] = {}

    # --- messages that were refused too often ----------------------------------------------------

    def on_delivered(self, consumer: "PartitionConsumer", messages: list[Message[Any]]) -> bool:
        """Note a last try; true if the messages have had it already and must not be seen again."""
        count = messages[0].redelivery_count()
        if count < self.policy.max_redeliver_count:
            return False
        key = (str(consumer.topic), messages[0].position)
        self._candidates[key] = messages
        if count == self.policy.max_redeliver_count:
            return False
        self._tasks.start(self._bury(consumer, key), "dead letters")
        return True

    def on_done(self, topic: str, position: Position) -> None:
        self._candidates.pop((topic, position), None)

    def bury(self, consumer: "PartitionConsumer", positions: list[Position]) -> list[Position]:
        """Of entries that are due for redelivery, take those that had their last try; the rest is returned."""
        rest = []
        for position in positions:
            key = (str(consumer.topic), position)
            if key in self._candidates:
                self._tasks.start(self._bury(consumer, key), "dead letters")
            else:
                rest.append(position)
        return rest

    async def _bury(self, consumer: "PartitionConsumer", key: tuple[str, Position]) -> None:
        messages = self._candidates.get(key, [])
        try:
            for message in messages:
                await self._send_dead(message, letter_properties(message, self._subscription))
        except MagnetarError as error:
            _log.warning("%s: a dead letter could not be sent, its message comes again: %s", consumer.topic, error)
            consumer.redeliveries.watch(key[1])
            return
        consumer.statistics.dead_letters += len(messages)
        self._candidates.pop(key, None)
        for message in messages:
            consumer.acks.add(message.message_id())

    async def _send_dead(self, message: Message[Any], properties: Mapping[str, str]) -> MessageId:
        assert self.policy.dead_letter_topic is not None
        options = ProducerOptions(
            block_if_queue_full=True, initial_subscription_name=self.policy.initial_subscription_name
        )
        producer = await self._producer(self.policy.dead_letter_topic, options)
        return await (await producer.submit_message(_copy(message, properties)))

    # --- retry letters -----------------------------------------------------------------------------

    async def reconsume_later(
        self, message: Message[Any], delay_ms: int, custom_properties: Mapping[str, str] | None
    ) -> None:
        """Publish the message for another try; to the dead letters if it had enough. The caller acknowledges it."""
        properties = letter_properties(message, self._subscription)
        properties.update(custom_properties or {})
        times = _number(properties.get(RECONSUME_TIMES)) + 1
        properties[RECONSUME_TIMES] = str(times)
        properties[DELAY_TIME] = str(max(0, delay_ms))
        if times > self.policy.max_redeliver_count:
            await self._send_dead(message, properties)
            return
        assert self.policy.retry_letter_topic is not None
        producer = await self._producer(self.policy.retry_letter_topic, ProducerOptions(block_if_queue_full=True))
        letter = _copy(message, properties)
        if delay_ms > 0:
            letter.deliver_at_ms = self._core.clock.now_ms() + delay_ms
        await (await producer.submit_message(letter))

    async def _producer(self, topic: str, options: ProducerOptions) -> Producer[bytes]:
        producer = self._producers.get(topic)
        if producer is None:
            made = await self._make_producer(topic, options)
            # Another may have been quicker while this one was made.
            producer = self._producers.setdefault(topic, made)
            if producer is not made:
                await made.close()
        return producer

    async def close(self) -> None:
        self._candidates.clear()
        for producer in self._producers.values():
            await producer.close()


def _copy(message: Message[Any], properties: Mapping[str, str]) -> OutgoingMessage:
    key = message.key_bytes() if message.has_bytes_key() else (message.partition_key() if message.has_key() else None)
    return OutgoingMessage(
        b"" if message.has_null_value() else message.data(),
        properties=properties,
        partition_key=key,
        ordering_key=message.ordering_key() or None,
        event_time_ms=message.event_timestamp(),
        is_null=message.has_null_value(),
        schema_version=message.schema_version_bytes(),
    )


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
