# SPDX-License-Identifier: Apache-2.0
"""The markers of replicated subscriptions: what is written is read, and bytes of no sense are refused."""

import pytest

from magnetar.broker.replication import markers
from magnetar.broker.replication.passage import goes_to
from magnetar.errors import BadFrame
from magnetar.ids import Position
from magnetar.wire import message
from magnetar.wire.proto import pulsar_markers_pb2 as pb
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata

pytestmark = pytest.mark.feature("F-RSUB-02", "F-RSUB-04")


def _read(body: bytes) -> tuple[MessageMetadata, object]:
    metadata, payload = message.split(body)
    return metadata, markers.read(metadata, bytes(payload))


def test_questions_and_updates_go_to_all_answers_to_the_asker_snapshots_to_nobody() -> None:
    place = Position(4, 2)
    asked, request = _read(markers.request("s", "east", 1))
    assert isinstance(request, pb.ReplicatedSubscriptionsSnapshotRequest)
    assert (request.snapshot_id, request.source_cluster, asked.marker_type) == ("s", "east", 10)
    assert goes_to(asked, "west")
    assert goes_to(asked, "north")
    answered, response = _read(markers.response("s", "west", place, 1, asker="east"))
    assert isinstance(response, pb.ReplicatedSubscriptionsSnapshotResponse)
    assert markers.place_in([response.cluster], "west") == place
    assert goes_to(answered, "east")
    assert not goes_to(answered, "north")
    taken, snapshot = _read(markers.snapshot("s", "east", Position(1, 1), {"west": place}, 1))
    assert isinstance(snapshot, pb.ReplicatedSubscriptionsSnapshot)
    assert markers.place_in(snapshot.clusters, "west") == place
    assert not goes_to(taken, "west")
    told, update = _read(markers.update("sub", {"west": Position(4, -1)}, 1))
    assert isinstance(update, pb.ReplicatedSubscriptionsUpdate)
    assert (update.subscription_name, markers.place_in(update.clusters, "west")) == ("sub", Position(4, -1))
    assert markers.place_in(update.clusters, "north") is None
    assert goes_to(told, "west")


def test_other_markers_are_none_of_ours_and_broken_ones_are_refused() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, marker_type=pb.TXN_COMMIT)
    assert markers.read(metadata, b"") is None
    metadata.marker_type = pb.REPLICATED_SUBSCRIPTION_UPDATE
    with pytest.raises(BadFrame, match="subscription_name"):
        markers.read(metadata, b"")
    with pytest.raises(BadFrame):
        markers.read(metadata, b"\xff\xff")
