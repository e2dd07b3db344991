# SPDX-License-Identifier: Apache-2.0
"""Batches that expand to far more than they say, on a topic that the broker compacts: it must look into them."""

import zlib
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import zstandard

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.conformance.raw import RawClient as Reader
from tests.conformance.raw_client import RawClient, Type, body
from tests.conftest import Eventually
from tests.processes import StandaloneProcess

MEBIBYTE: Final = 1 << 20
EXPANDED_BYTES: Final = 512 * MEBIBYTE
# What the broker may take for one batch, and for itself meanwhile.
GROWN_BYTES_MAX: Final = 64 * MEBIBYTE


def bomb(kind: str) -> bytes:
    """Half a gigabyte of zeros in half a megabyte or less."""
    packer = zlib.compressobj(1) if kind == "ZLIB" else zstandard.ZstdCompressor(level=1).compressobj()
    zeros = bytes(MEBIBYTE)
    return b"".join([*(packer.compress(zeros) for _ in range(EXPANDED_BYTES // MEBIBYTE)), packer.flush()])


def peak_bytes(standalone: StandaloneProcess) -> int:
    lines = Path(f"/proc/{standalone.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


@pytest.mark.parametrize("said", [1024, EXPANDED_BYTES])
@pytest.mark.parametrize("kind", ["ZLIB", "ZSTD"])
def test_a_compactor_expands_no_more_than_was_said_and_than_it_may(
    standalone: StandaloneProcess, topic: str, eventually: Eventually, kind: str, said: int
) -> None:
    """F133: before and after the bomb there are messages, whose last values the compacted topic has."""
    path = f"{standalone.web_url}/admin/v2/{topic.replace('://', '/')}/compaction"
    with RawClient(standalone.port) as client:
        client.open_producer(topic)
        fields: dict[str, Any] = {"compression": pb.CompressionType.Value(kind), "uncompressed_size": said}
        bodies = [
            body(sequence_id=0, payload=b"old", partition_key="k"),
            body(sequence_id=1, payload=bomb(kind), partition_key="k", num_messages_in_batch=1, **fields),
            body(sequence_id=2, payload=b"new", partition_key="k"),
        ]
        for number, data in enumerate(bodies):
            client.send(sequence_id=number, data=data)
            assert client.expect(Type.SEND_RECEIPT).send_receipt.sequence_id == number
        before = peak_bytes(standalone)
        httpx.put(path, timeout=30).raise_for_status()
        eventually(lambda: httpx.get(path, timeout=30).json()["status"] not in ("NOT_RUN", "RUNNING"))
        assert httpx.get(path, timeout=30).json()["status"] == "SUCCESS"
        assert peak_bytes(standalone) < before + GROWN_BYTES_MAX
        assert not client.is_closed_by_broker()
        assert compacted(standalone, topic) == [len(bodies[1]), len(bodies[2])], "what cannot be read is kept"


def compacted(standalone: StandaloneProcess, topic: str) -> list[int]:
    """The sizes of the entries that a reader of the compacted topic gets, as they were sent."""
    with Reader(standalone.port) as client:
        client.subscribe(topic, "view", initialPosition=pb.CommandSubscribe.Earliest, read_compacted=True)
        client.flow(10)
        return [len(client.expect_message()[1]) for _ in range(2)]
