# SPDX-License-Identifier: Apache-2.0
"""Hooks of the application into the way of its messages.

An error in a hook reaches whoever made the call; in `on_send_acknowledgement`, which nobody called, it is logged.

Decides.
"""

from typing import TYPE_CHECKING, Any

from magnetar.ids import MessageId

if TYPE_CHECKING:
    from magnetar.client.consumer import Consumer
    from magnetar.client.message import Message
    from magnetar.client.outgoing import OutgoingMessage
    from magnetar.client.producer import Producer


class ProducerInterceptor:
    def before_send(self, producer: "Producer[Any]", message: "OutgoingMessage") -> "OutgoingMessage":
        """May change or replace the message."""
        return message

    def on_send_acknowledgement(
        self,
        producer: "Producer[Any]",
        message: "OutgoingMessage",
        message_id: MessageId | None,
        error: BaseException | None,
    ) -> None:
        """The outcome is known."""


class ConsumerInterceptor:
    def before_consume(self, consumer: "Consumer[Any]", message: "Message[Any]") -> "Message[Any]":
        """May change or replace the message."""
        return message

    def on_acknowledge(self, consumer: "Consumer[Any]", message_id: MessageId) -> None:
        """Before an individual acknowledgement is noted."""

    def on_acknowledge_cumulative(self, consumer: "Consumer[Any]", message_id: MessageId) -> None:
        """Before a cumulative one is."""

    def on_negative_acks_send(self, consumer: "Consumer[Any]", message_id: MessageId) -> None:
        """When the application refuses a message."""
