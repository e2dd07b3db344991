# SPDX-License-Identifier: Apache-2.0
"""Processes that meet a metadata store that is not theirs, or not one: refused in one sentence, nothing overwritten."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from magnetar.cli.metadata_transfer import opened
from magnetar.metadata.transfer import walk
from tests.cluster import RoleProcess
from tests.processes import free_port

ONE_COPY = {f"managedLedgerDefault{name}": "1" for name in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = str(free_port())
    server = RoleProcess("metadata", tmp_path_factory.mktemp("metadata"), "metadata", "serve", "--port", port)
    server.start()
    yield f"remote:127.0.0.1:{port}"
    server.kill()


def role(verb: str, directory: Path, metadata: str, *words: str, **environment: str) -> RoleProcess:
    ports = ["--port", str(free_port()), "--http-port", str(free_port())]
    line = [verb, "--metadata", metadata, *ports, *words]
    return RoleProcess(verb, directory, *line, environment={**ONE_COPY, **environment})


def persistent(url: str) -> dict[str, tuple[bytes, int]]:
    async def read() -> dict[str, tuple[bytes, int]]:
        async with opened(url) as store:
            found = [(path, record) async for path, record in walk(store)]
            return {path: (record.value, record.version) for path, record in found if not record.ephemeral}

    return asyncio.run(read())


def put(url: str, path: str, value: bytes) -> None:
    async def write() -> None:
        async with opened(url) as store:
            await store.put(path, value)

    asyncio.run(write())


def refused(process: RoleProcess, sentence: str) -> None:
    process.launch()
    assert process.wait() != 0
    said = process.log_tail()
    assert sentence in said, said
    assert "Traceback" not in said


@pytest.mark.feature("F-DEP-07")
def test_a_bookie_keeps_its_identity_at_another_address_and_no_other_clusters(metadata: str, tmp_path: Path) -> None:
    bookie = role("bookie", tmp_path / "bookie", metadata, "--bookie-id", "shelf-1")
    bookie.start()
    broker = role("broker", tmp_path / "broker", metadata, clusterName="east")
    try:
        url = broker.start()["serviceUrl"]
        client = pulsar.Client(url, logger=QUIET)
        client.create_producer("kept").send(b"before the move")
        client.close()
        assert bookie.stop() == 0
        moved = role("bookie", tmp_path / "bookie", metadata, "--bookie-id", "shelf-1")
        moved.start()
        client = pulsar.Client(url, logger=QUIET)
        reader = client.create_reader("kept", pulsar.MessageId.earliest)
        assert reader.read_next(timeout_millis=30_000).data() == b"before the move"
        client.close()
        _check_refusals(metadata, tmp_path, moved)
    finally:
        for process in (broker, bookie):
            if process.is_running:
                process.kill()


def _check_refusals(metadata: str, directory: Path, bookie: RoleProcess) -> None:
    before = persistent(metadata)
    west = role("broker", directory / "west", metadata, clusterName="west")
    refused(west, "This metadata store belongs to cluster 'east', and clusterName is 'west'")
    assert persistent(metadata) == before
    # The storage of another cluster: the bookie's own cookie names the one that it belongs to.
    assert bookie.stop() == 0
    put(metadata, "/ledgers/INSTANCEID", b"00000000-0000-4000-8000-000000000000")
    before = persistent(metadata)
    refused(bookie, "instance")
    assert persistent(metadata) == before
    for value, sentence in (
        (b"\xff\x00 garbage", "cannot be read"),
        (b'{"version": 2, "name": "east"}', "was written by a newer Magnetar"),
    ):
        put(metadata, "/magnetar/cluster", value)
        before = persistent(metadata)
        refused(role("broker", directory / f"b{len(value)}", metadata, clusterName="east"), sentence)
        assert persistent(metadata) == before


def test_something_that_is_no_metadata_server_is_said_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(100)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        url = f"remote:127.0.0.1:{listener.getsockname()[1]}"
        short = {"metadataStoreOperationTimeoutSeconds": "3"}
        refused(role("broker", tmp_path / "broker", url, **short), "metadata")
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
