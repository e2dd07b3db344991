# SPDX-License-Identifier: Apache-2.0
"""The limit on how far ahead messages are scheduled."""

import pytest

from magnetar.broker.delayed.delay_limit import check_delay
from magnetar.errors import NotSupported
from magnetar.wire import message
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata


def payload_of(deliver_at_ms: int = 0) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    if deliver_at_ms:
        metadata.deliver_at_time = deliver_at_ms
    return b"".join(message.join(metadata.SerializeToString(), b"\x98\x01 in the payload means nothing"))


@pytest.mark.feature("B-16")
def test_only_what_is_scheduled_beyond_the_limit_is_refused() -> None:
    for deliver_at_ms in (0, 1, 1_000, 1_500):
        check_delay(payload_of(deliver_at_ms), 500, now_ms=1_000)
    with pytest.raises(NotSupported, match="Exceeds max allowed delivery delay of 500 milliseconds"):
        check_delay(payload_of(1_501), 500, now_ms=1_000)
    check_delay(b"\x0e", 500, now_ms=1_000)
