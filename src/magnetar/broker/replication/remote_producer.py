# SPDX-License-Identifier: Apache-2.0
"""One attachment to a topic of another cluster, as its producer of what comes from here.

It lasts until the first thing that goes wrong: a lost connection, a refusal, a receipt out of order. Then it says why,
once, and whoever sends makes another and begins behind what has arrived. Never sends anything twice by itself.
Carries.
"""

from collections.abc import Callable

from magnetar.client.connection import Connection
from magnetar.client.core import Core
from magnetar.errors import ConnectionLost, MagnetarError
from magnetar.names import TopicName
from magnetar.wire import frame
from magnetar.wire.commands import Type
from magnetar.wire.error_codes import error_of_server_error
from magnetar.wire.message import Buffer
from magnetar.wire.proto import pulsar_api_pb2 as pb


class RemoteProducer:
    def __init__(
        self,
        core: Core,
        topic: TopicName,
        name: str,
        *,
        on_receipt: Callable[[int], None],
        on_changed: Callable[[], None],
    ) -> None:
        """`on_changed`: it can take more, or it has ended."""
        self.topic = topic
        self.name = name
        # Why it is of no more use; None while it is.
        self.error: MagnetarError | None = None
        self.connected_ms = 0
        self._core = core
        self._on_receipt = on_receipt
        self._on_changed = on_changed
        self._producer_id = next(core.producer_ids)
        self._connection: Connection | None = None
        self._next_sequence_id = 0

    # --- opening and closing ----------------------------------------------------------------------

    async def attach(self) -> None:
        """Raises what keeps it from the topic: no such topic and none may be made, no right, no connection."""
        core = self._core
        schema = await core.lookup.schema(self.topic)
        connection = await core.pool.connect(await core.lookup.locate(self.topic))
        self.connected_ms = core.clock.now_ms()
        request = pb.CommandProducer(
            topic=str(self.topic),
            producer_id=self._producer_id,
            producer_name=self.name,
            # Of two owners of a topic the later one has the name: the earlier has lost its log already.
            epoch=self.connected_ms,
            user_provided_producer_name=False,
        )
        if schema is not None and (brought := schema[0].to_wire()) is not None:
            # Over there producers without a schema may be refused; this one is there already, so nothing is added.
            request.schema.CopyFrom(brought)
        connection.producers[self._producer_id] = self
        self._connection = connection
        try:
            await connection.request(Type.PRODUCER, request)
        except BaseException:
            self.close()
            raise
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Leave the broker over there; nothing is waited for."""
        connection, self._connection = self._connection, None
        self.error = self.error or ConnectionLost(f"{self.topic}: the replicator {self.name} has left")
        if connection is not None and connection.producers.pop(self._producer_id, None) is not None:
            connection.tell(Type.CLOSE_PRODUCER, pb.CommandCloseProducer(producer_id=self._producer_id))

    # --- sending ----------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether the connection takes more at this moment."""
        return self.error is None and self._connection is not None and self._connection.is_writable

    @property
    def broker(self) -> str:
        return "" if self._connection is None else self._connection.name

    def send(self, body: tuple[bytes, Buffer], messages: int, *, is_chunk: bool, is_marker: bool) -> int:
        """Returns the number under which its receipt will come."""
        assert self._connection is not None, "a producer that has ended sends nothing"
        sequence_id = self._next_sequence_id
        self._next_sequence_id += 1
        command = pb.BaseCommand(type=pb.BaseCommand.SEND)
        command.send.producer_id = self._producer_id
        command.send.sequence_id = sequence_id
        if messages > 1:
            command.send.num_messages = messages
        if is_chunk:
            command.send.is_chunk = True
        if is_marker:
            command.send.marker = True
        front, payload = body
        header = frame.header(command.SerializeToString(), len(front) + len(payload))
        self._connection.send(header + front, payload)
        return sequence_id

    async def adopt_schema(self, schema: pb.Schema) -> bytes:
        """Make a schema one of the topic's over there; returns its version there."""
        assert self._connection is not None, "a producer that has ended asks nothing"
        request = pb.CommandGetOrCreateSchema(topic=str(self.topic), schema=schema)
        answer: pb.CommandGetOrCreateSchemaResponse = await self._connection.request(Type.GET_OR_CREATE_SCHEMA, request)
        if answer.HasField("error_code"):
            raise error_of_server_error(answer.error_code, f"{self.topic}: {answer.error_message}")
        return answer.schema_version

    # --- what the connection tells ----------------------------------------------------------------

    def on_receipt(self, receipt: pb.CommandSendReceipt) -> None:
        try:
            self._on_receipt(receipt.sequence_id)
        except MagnetarError as error:
            self._end(error)

    def on_send_error(self, error: pb.CommandSendError) -> None:
        self._end(error_of_server_error(error.error, f"{self.topic}: {error.message}"))

    def on_closed_by_broker(self, connection: Connection, assigned_url: str) -> None:
        self._end(ConnectionLost(f"{self.topic}: the broker {connection.name} closed the replicator"))

    def on_connection_lost(self, connection: Connection, error: MagnetarError) -> None:
        self._end(error)

    def on_writable(self) -> None:
        self._on_changed()

    def _end(self, error: MagnetarError) -> None:
        if self.error is None:
            self.error = error
            self._on_changed()
