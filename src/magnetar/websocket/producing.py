# SPDX-License-Identifier: Apache-2.0
"""A session that produces: every text is a message, and gets one answer when it is stored or cannot be.

Texts are taken as fast as messages are stored and answers are read; who sends faster is not listened to meanwhile.
Carries.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from magnetar.client.producer import Producer
from magnetar.client.receipt import Receipt
from magnetar.client.schema import BYTES
from magnetar.errors import MagnetarError, NotAuthenticated, NotAuthorized, ProducerFenced, TopicTerminated
from magnetar.websocket.parameters import producer_options
from magnetar.websocket.sealed import SealedMessage, keys_of
from magnetar.websocket.session import Session
from magnetar.websocket.texts import BadText, Code, ProducerText, failure_text, read_producer_text, receipt_text
from magnetar.wire.proto import pulsar_api_pb2 as pb

# After these no message of this producer will ever be stored.
_FINAL = (NotAuthenticated, NotAuthorized, ProducerFenced, TopicTerminated)


class ProducerSession(Session):
    _producer: Producer[bytes]
    # Of whoever encrypts messages before sending them.
    _keys: tuple[pb.EncryptionKeys, ...]

    async def open(self) -> None:
        self._keys = keys_of(self._parameters)
        options = producer_options(self._parameters, encrypts_itself=bool(self._keys))
        if self._keys:
            options = replace(options, payloads_encrypted=True)
        self._producer = await self._client.open_producer(self.endpoint.name, options, BYTES)

    async def run(self) -> None:
        while (text := await self._connection.receive()) is not None:
            await self._on_text(text)
            await self._connection.room()

    def statistics(self) -> Mapping[str, Any]:
        return {"remoteConnection": self.peer, "numberOfMsgPublished": self.traffic.published}

    async def _on_text(self, text: str) -> None:
        try:
            wanted = read_producer_text(text)
        except BadText as error:
            self._connection.say(failure_text(error.code, str(error), error.context))
            return
        started_s = asyncio.get_running_loop().time()
        try:
            receipt = await self._submit(wanted)
        except MagnetarError as error:
            self._on_failed(wanted, error)
        else:
            receipt.add_done_callback(partial(self._on_receipt, wanted, started_s))

    async def _submit(self, wanted: ProducerText) -> Receipt:
        if self._keys:
            return await self._producer.submit_message(SealedMessage(wanted, self._keys, self._deliver_at(wanted)))
        after_ms = wanted.deliver_after_ms
        return await self._producer.submit(
            wanted.payload,
            wanted.properties,
            wanted.key,
            replication_clusters=wanted.replication_clusters,
            event_timestamp=wanted.event_time_ms,
            deliver_at=wanted.deliver_at_ms,
            deliver_after=None if after_ms is None else timedelta(milliseconds=after_ms),
        )

    def _deliver_at(self, wanted: ProducerText) -> int:
        if wanted.deliver_after_ms is not None:
            return self._client.core.clock.now_ms() + wanted.deliver_after_ms
        return wanted.deliver_at_ms or 0

    def _on_receipt(self, wanted: ProducerText, started_s: float, receipt: Receipt) -> None:
        error = receipt.exception()
        if isinstance(error, MagnetarError):
            self._on_failed(wanted, error)
            return
        latency_us = (asyncio.get_running_loop().time() - started_s) * 1e6
        for traffic in (self.traffic, self.recent):
            traffic.on_published(len(wanted.payload), latency_us)
        self._connection.say(receipt_text(receipt.result(), wanted.context))

    def _on_failed(self, wanted: ProducerText, error: MagnetarError) -> None:
        self.traffic.failed += 1
        self.recent.failed += 1
        self._connection.say(failure_text(Code.UNKNOWN, str(error), wanted.context))
        if isinstance(error, _FINAL):
            self._end_for(error)
