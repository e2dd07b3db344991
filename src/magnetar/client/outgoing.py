# SPDX-License-Identifier: Apache-2.0
"""A message on its way out, and its metadata as bytes.

The three fields that every message has are written by hand, the optional ones by protobuf, and only if there are any:
the order of fields makes the two parts one valid message. Tests hold the result equal to the generated code's.
Decides.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Final

from magnetar.client.receipt import Receipt
from magnetar.wire.proto import pulsar_api_pb2 as pb
from magnetar.wire.varint import encode as varint

LOCAL_CLUSTER_ONLY: Final = "__local__"
"""The cluster name that keeps a message from being replicated."""


class OutgoingMessage:
    """What the user gave for one message. `partition_key` is as it travels: base64 text if it was bytes.

    `packed` says that the payload is a batch already, of so many messages; 0, as for most, that it is one message.
    """

    __slots__ = (
        "deliver_at_ms",
        "event_time_ms",
        "is_key_encoded",
        "is_null",
        "ordering_key",
        "packed",
        "partition_key",
        "payload",
        "properties",
        "receipt",
        "replicate_to",
        "schema_version",
        "sequence_id",
        "transaction",
    )

    def __init__(
        self,
        payload: bytes,
        properties: Mapping[str, str] | None = None,
        partition_key: str | bytes | None = None,
        ordering_key: bytes | None = None,
        sequence_id: int | None = None,
        replicate_to: Sequence[str] = (),
        event_time_ms: int = 0,
        deliver_at_ms: int = 0,
        is_null: bool = False,
        schema_version: bytes = b"",
        transaction: tuple[int, int] | None = None,
        packed: int = 0,
    ) -> None:
        self.payload = payload
        self.properties = properties
        self.is_key_encoded = isinstance(partition_key, bytes)
        self.partition_key = (
            base64.b64encode(partition_key).decode() if isinstance(partition_key, bytes) else partition_key
        )
        self.ordering_key = ordering_key
        self.sequence_id = -1 if sequence_id is None else sequence_id
        self.replicate_to = replicate_to
        self.event_time_ms = event_time_ms
        self.deliver_at_ms = deliver_at_ms
        self.is_null = is_null
        self.schema_version = schema_version
        self.transaction = transaction
        self.packed = packed
        self.receipt: Receipt | None = None

    @property
    def is_plain(self) -> bool:
        """Nothing but a payload, as most are."""
        return not (
            self.properties
            or self.partition_key is not None
            or self.ordering_key
            or self.event_time_ms
            or self.is_null
            or self.packed
        )

    @property
    def highest_sequence_id(self) -> int:
        """Of the last message in it."""
        return self.sequence_id + self.packed - 1 if self.packed else self.sequence_id

    @property
    def group(self) -> tuple[bytes, tuple[int, int] | None, Sequence[str]]:
        """Messages of one batch share these, because an entry has them once."""
        return (self.schema_version, self.transaction, self.replicate_to)

    @property
    def order_key(self) -> bytes | None:
        """By what key-based batching and key-shared subscriptions keep messages together."""
        if self.ordering_key is not None:
            return self.ordering_key
        if self.partition_key is None:
            return None
        return base64.b64decode(self.partition_key) if self.is_key_encoded else self.partition_key.encode()

    def fill(self, metadata: pb.MessageMetadata) -> None:
        """Write what belongs to this message alone into the metadata of its entry."""
        for key, value in (self.properties or {}).items():
            metadata.properties.add(key=key, value=value)
        if self.partition_key is not None:
            metadata.partition_key = self.partition_key
            if self.is_key_encoded:
                metadata.partition_key_b64_encoded = True
        if self.ordering_key is not None:
            metadata.ordering_key = self.ordering_key
        if self.event_time_ms:
            metadata.event_time = self.event_time_ms
        if self.deliver_at_ms:
            metadata.deliver_at_time = self.deliver_at_ms
        if self.is_null:
            metadata.null_value = True
        if self.packed:
            metadata.num_messages_in_batch = self.packed
            metadata.highest_sequence_id = self.highest_sequence_id

    def fill_group(self, metadata: pb.MessageMetadata) -> None:
        """Write what all messages of the entry share."""
        metadata.replicate_to.extend(self.replicate_to)
        if self.schema_version:
            metadata.schema_version = self.schema_version
        if self.transaction is not None:
            metadata.txnid_most_bits, metadata.txnid_least_bits = self.transaction

    def single_metadata(self) -> bytes:
        """Its own small metadata inside a batch."""
        if self.is_plain:
            return b"\x18" + varint(len(self.payload)) + b"\x40" + varint(self.sequence_id)
        single = pb.SingleMessageMetadata(payload_size=len(self.payload), sequence_id=self.sequence_id)
        for key, value in (self.properties or {}).items():
            single.properties.add(key=key, value=value)
        if self.partition_key is not None:
            single.partition_key = self.partition_key
            if self.is_key_encoded:
                single.partition_key_b64_encoded = True
        if self.ordering_key is not None:
            single.ordering_key = self.ordering_key
        if self.event_time_ms:
            single.event_time = self.event_time_ms
        if self.is_null:
            single.null_value = True
        return single.SerializeToString()


class MetadataEncoder:
    """The metadata of one producer's entries."""

    __slots__ = ("_name", "_time", "_time_ms")

    def __init__(self, producer_name: str) -> None:
        name = producer_name.encode()
        self._name = b"\x0a" + varint(len(name)) + name + b"\x10"
        self._time_ms = -1
        self._time = b""

    def encode(self, sequence_id: int, publish_time_ms: int, optional: pb.MessageMetadata | None) -> bytes:
        """`optional` has everything but producer name, sequence id and publish time; None if there is nothing."""
        if publish_time_ms != self._time_ms:
            self._time_ms = publish_time_ms
            self._time = b"\x18" + varint(publish_time_ms)
        required = self._name + varint(sequence_id) + self._time
        return required if optional is None else required + optional.SerializePartialToString()
