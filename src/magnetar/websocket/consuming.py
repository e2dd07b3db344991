# SPDX-License-Identifier: Apache-2.0
"""Sessions that consume or read: messages go out as texts, and texts come in that acknowledge, refuse or ask.

So many messages are on their way as the client said it would take: those it has not answered, or those it permitted.
Never holds more messages than a few beyond that, and none while the client does not read.
Carries.
"""

import asyncio
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from magnetar.broker.topic_list import compile_pattern
from magnetar.client.consumer import Consumer
from magnetar.client.message import Message
from magnetar.client.message_id import TopicMessageId
from magnetar.client.options import ConsumerOptions, ConsumerType
from magnetar.client.schema import BYTES
from magnetar.client.topic_set import TopicPattern
from magnetar.errors import AlreadyClosed, BadSetting, ConnectionLost, MagnetarError
from magnetar.ids import MessageId
from magnetar.runtime.tasks import Tasks
from magnetar.websocket import parameters
from magnetar.websocket.session import BAD_TEXT, FAILED, Session
from magnetar.websocket.texts import (
    BadText,
    Code,
    ConsumerText,
    Order,
    encoded,
    end_text,
    message_text,
    read_consumer_text,
    read_message_id,
)

# Messages that are fetched before the client can take them.
FETCHED_AHEAD_MAX: Final = 32

_PERMITS_MAX: Final = 2**31 - 1
_TYPE_NAMES: Final = {ConsumerType.KeyShared: "Key_Shared"}


class DeliveringSession(Session):
    """What a consumer and a reader have in common."""

    _consumer: Consumer[bytes]
    # How many messages may leave now, and how many at most.
    _permits = 0
    _permits_max = 0

    async def run(self) -> None:
        tasks = Tasks(f"WebSocket {self.peer}", self._on_crash)
        self._wanted = asyncio.Event()
        self._permit(0)
        tasks.start(self._deliver(), "deliver")
        try:
            while (text := await self._connection.receive()) is not None:
                try:
                    await self._on_text(read_consumer_text(text))
                except BadText as error:
                    self._connection.close(BAD_TEXT, f"Failed to de-serialize from JSON: {error}")
                    return
                await self._connection.room()
        except MagnetarError as error:
            self._end_for(error)
        finally:
            await tasks.close()

    @abstractmethod
    async def _on_text(self, command: ConsumerText) -> None: ...

    async def _next(self) -> Message[bytes]:
        return await self._consumer.receive()

    def _note(self, message_id: TopicMessageId, text: str) -> None:
        """A message leaves under this text."""

    async def _deliver(self) -> None:
        try:
            while True:
                await self._wanted.wait()
                message = await self._next()
                message_id = message.message_id()
                text = encoded(message_id)
                self._note(message_id, text)
                self._permit(-1)
                await self._connection.send(message_text(message, text))
                for traffic in (self.traffic, self.recent):
                    traffic.on_delivered(message.size())
        except (AlreadyClosed, ConnectionLost):
            # Unsubscribed, or gone: the client may still ask, or nobody does.
            return
        except MagnetarError as error:
            self._end_for(error)

    def _permit(self, count: int) -> None:
        self._permits = min(self._permits + count, self._permits_max)
        if self._permits > 0:
            self._wanted.set()
        else:
            self._wanted.clear()

    def _say_end(self) -> None:
        self._connection.say(end_text(self._consumer.has_reached_end_of_topic()))

    def _on_crash(self, name: str, error: BaseException) -> None:
        self._connection.close(FAILED, "The session failed; the log says why")


class ConsumerSession(DeliveringSession):
    _pulls = False

    async def open(self) -> None:
        asked, endpoint = self._parameters, self.endpoint
        options = parameters.consumer_options(asked, endpoint.topics, endpoint.subscription)
        self._options = options
        self._pulls = parameters.pulls(asked)
        self._permits_max = _PERMITS_MAX if self._pulls else max(options.receiver_queue_size, 1)
        self._permits = 0 if self._pulls else self._permits_max
        # What left and was not answered, oldest first.
        self._delivered: OrderedDict[str, TopicMessageId] = OrderedDict()
        topics: list[str] | TopicPattern = [str(topic) for topic in endpoint.topics]
        if endpoint.pattern:
            topics = TopicPattern(endpoint.pattern, options.regex_subscription_mode, compile_pattern)
        fetching = _fetching(options)
        self._consumer = await self._client.open_consumer(topics, endpoint.subscription, fetching, BYTES)

    def statistics(self) -> Mapping[str, Any]:
        kind = self._options.consumer_type
        return {
            "remoteConnection": self.peer,
            "subscriptionName": self.endpoint.subscription,
            "subscriptionType": _TYPE_NAMES.get(kind, kind.name),
            "subscriptionMode": "Durable" if self._options.durable else "NonDurable",
            "numberOfMsgDelivered": self.traffic.delivered,
        }

    async def _on_text(self, command: ConsumerText) -> None:
        match command.order:
            case Order.PERMIT:
                if self._pulls:
                    self._permit(command.permits)
            case Order.UNSUBSCRIBE:
                await self._consumer.unsubscribe()
            case Order.ASK_END:
                self._say_end()
            case Order.REFUSE:
                self._consumer.negative_acknowledge(self._answered(command.message_id))
            case Order.ACKNOWLEDGE:
                await self._acknowledge(self._answered(command.message_id))
        if command.order in (Order.ACKNOWLEDGE, Order.REFUSE) and not self._pulls:
            self._permit(1)

    async def _acknowledge(self, message_id: MessageId) -> None:
        try:
            await self._consumer.acknowledge(message_id)
        except BadSetting as error:
            raise BadText(Code.NOT_JSON, str(error)) from error
        self.traffic.acknowledged += 1
        self.recent.acknowledged += 1

    def _answered(self, text: str) -> MessageId:
        """The id that left under this text; one that left long ago, or elsewhere, is read from it."""
        found = self._delivered.pop(text, None)
        return read_message_id(text) if found is None else found

    def _note(self, message_id: TopicMessageId, text: str) -> None:
        self._delivered[text] = message_id
        self._delivered.move_to_end(text)
        if len(self._delivered) > self._settings.delivered_ids_max:
            self._delivered.popitem(last=False)


class ReaderSession(DeliveringSession):
    async def open(self) -> None:
        asked = self._parameters
        options = parameters.reader_options(asked)
        self._permits = self._permits_max = max(options.receiver_queue_size, 1)
        fetching = _fetching(options)
        reader = await self._client.create_reader(
            str(self.endpoint.topics[0]),
            parameters.reader_start(asked),
            reader_name=fetching.consumer_name,
            receiver_queue_size=fetching.receiver_queue_size,
            crypto_failure_action=fetching.crypto_failure_action,
        )
        self._reader = reader
        self._consumer = reader.consumer

    def statistics(self) -> Mapping[str, Any]:
        return {
            "remoteConnection": self.peer,
            "subscriptionName": self._consumer.subscription_name(),
            "subscriptionType": "Exclusive",
            "numberOfMsgDelivered": self.traffic.delivered,
        }

    async def _next(self) -> Message[bytes]:
        return await self._reader.read_next()

    async def _on_text(self, command: ConsumerText) -> None:
        """A reader has no place to keep: an acknowledgement asks for the next message, whichever it names."""
        if command.order is Order.ASK_END:
            self._say_end()
        else:
            self._permit(1)


def _fetching(options: ConsumerOptions) -> ConsumerOptions:
    return replace(options, receiver_queue_size=min(options.receiver_queue_size, FETCHED_AHEAD_MAX))
