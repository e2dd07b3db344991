# SPDX-License-Identifier: Apache-2.0
"""The markers by which clusters tell one another how far subscriptions are, as Apache Pulsar writes them.

They lie in the topic between its messages and go to other clusters as those do; no consumer sees one.
Decides.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from google.protobuf.message import DecodeError, Message

from magnetar.broker.deduplication import signed
from magnetar.errors import BadFrame
from magnetar.ids import Position
from magnetar.wire import message
from magnetar.wire.proto import pulsar_markers_pb2 as pb
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata
from magnetar.wire.required import missing

PRODUCER_NAME: Final = "pulsar.marker"

Marker: TypeAlias = (
    pb.ReplicatedSubscriptionsSnapshotRequest
    | pb.ReplicatedSubscriptionsSnapshotResponse
    | pb.ReplicatedSubscriptionsSnapshot
    | pb.ReplicatedSubscriptionsUpdate
)

_TYPES: Final[dict[int, type[Message]]] = {
    pb.REPLICATED_SUBSCRIPTION_SNAPSHOT_REQUEST: pb.ReplicatedSubscriptionsSnapshotRequest,
    pb.REPLICATED_SUBSCRIPTION_SNAPSHOT_RESPONSE: pb.ReplicatedSubscriptionsSnapshotResponse,
    pb.REPLICATED_SUBSCRIPTION_SNAPSHOT: pb.ReplicatedSubscriptionsSnapshot,
    pb.REPLICATED_SUBSCRIPTION_UPDATE: pb.ReplicatedSubscriptionsUpdate,
}
_UINT64: Final = 2**64
_NUMBERS: Final = {kind: number for number, kind in _TYPES.items()}


def request(snapshot_id: str, cluster: str, now_ms: int) -> bytes:
    """Every other cluster is asked for its place."""
    asked = pb.ReplicatedSubscriptionsSnapshotRequest(snapshot_id=snapshot_id, source_cluster=cluster)
    return _encoded(asked, now_ms)


def response(snapshot_id: str, cluster: str, place: Position, now_ms: int, *, asker: str) -> bytes:
    """This cluster's place, for the one that asked alone."""
    answer = pb.ReplicatedSubscriptionsSnapshotResponse(snapshot_id=snapshot_id)
    _write(answer.cluster, cluster, place)
    return _encoded(answer, now_ms, only_for=asker)


def snapshot(snapshot_id: str, cluster: str, here: Position, there: Mapping[str, Position], now_ms: int) -> bytes:
    """Places of all clusters that belong together; for this cluster alone."""
    taken = pb.ReplicatedSubscriptionsSnapshot(snapshot_id=snapshot_id)
    taken.local_message_id.ledger_id = here.ledger_id % _UINT64
    taken.local_message_id.entry_id = here.entry_id % _UINT64
    for name, place in there.items():
        _write(taken.clusters.add(), name, place)
    return _encoded(taken, now_ms, only_for=cluster)


def update(subscription: str, there: Mapping[str, Position], now_ms: int) -> bytes:
    """A subscription has come so far: these are the places of the other clusters."""
    moved = pb.ReplicatedSubscriptionsUpdate(subscription_name=subscription)
    for name, place in there.items():
        _write(moved.clusters.add(), name, place)
    return _encoded(moved, now_ms)


def read(metadata: MessageMetadata, payload: bytes) -> Message | None:
    """The marker of an entry; None for one of another kind. BadFrame when it cannot be read."""
    kind = _TYPES.get(metadata.marker_type)
    if kind is None:
        return None
    marker = kind()
    try:
        marker.ParseFromString(payload)
    except DecodeError as error:
        raise BadFrame(f"A marker of type {metadata.marker_type} cannot be parsed.") from error
    lacking = missing(marker)
    if lacking:
        raise BadFrame(f"A marker of type {metadata.marker_type} lacks {lacking}.")
    return marker


def place_in(clusters: Iterable[pb.ClusterMessageId], cluster: str) -> Position | None:
    """What a marker says of one cluster; None: nothing."""
    for each in clusters:
        if each.cluster == cluster:
            return Position(signed(each.message_id.ledger_id), signed(each.message_id.entry_id))
    return None


def _write(target: pb.ClusterMessageId, cluster: str, place: Position) -> None:
    target.cluster = cluster
    target.message_id.ledger_id, target.message_id.entry_id = place.ledger_id % _UINT64, place.entry_id % _UINT64


def _encoded(marker: Marker, now_ms: int, *, only_for: str = "") -> bytes:
    metadata = MessageMetadata(
        producer_name=PRODUCER_NAME, sequence_id=0, publish_time=now_ms, marker_type=_NUMBERS[type(marker)]
    )
    if only_for:
        metadata.replicate_to.append(only_for)
    return b"".join(message.join(metadata.SerializeToString(), marker.SerializeToString()))
