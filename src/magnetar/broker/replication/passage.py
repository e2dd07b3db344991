# SPDX-License-Identifier: Apache-2.0
"""Which messages of a topic go to another cluster, and what they say there.

A message goes if it was sent in this cluster, if its sender did not choose others for it, and if it does not mark the
end of a transaction. Over there it has the producer name, sequence id, times, key, properties and payload that it has
here; it also says where it comes from, so that it goes no further. It belongs to no transaction: only what is committed
is sent.
Decides.
"""

from typing import Final

from magnetar.wire import message
from magnetar.wire.message import Buffer
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata
from magnetar.wire.proto.pulsar_markers_pb2 import TXN_ABORT, TXN_COMMIT, TXN_COMMITTING

_ENDS: Final = (TXN_COMMITTING, TXN_COMMIT, TXN_ABORT)


def goes_to(metadata: MessageMetadata, cluster: str) -> bool:
    if metadata.HasField("replicated_from"):
        return False
    if metadata.replicate_to and cluster not in metadata.replicate_to:
        return False
    return not (metadata.HasField("marker_type") and metadata.marker_type in _ENDS)


def is_expired(metadata: MessageMetadata, ttl_s: int, now_ms: int) -> bool:
    """Whether its time to live was over before it could be sent; 0: it lives for ever."""
    return ttl_s > 0 and now_ms > metadata.publish_time + ttl_s * 1000


def departing(
    metadata: MessageMetadata, payload: Buffer, origin: str, schema_version: bytes = b""
) -> tuple[bytes, Buffer]:
    """The body of the SEND that takes a message there, in two parts; the payload is as it was stored."""
    there = MessageMetadata()
    there.CopyFrom(metadata)
    there.replicated_from = origin
    there.ClearField("txnid_most_bits")
    there.ClearField("txnid_least_bits")
    if schema_version:
        there.schema_version = schema_version
    return message.join(there.SerializeToString(), payload)
