# SPDX-License-Identifier: Apache-2.0
"""Both ports under random and broken bytes from clients that nobody knows: the process keeps its memory, its time and
its other clients. FUZZ_SECONDS=600 makes it long.
"""

import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from magnetar.wire.proto import pulsar_api_pb2 as pb
from tests.cluster import Cluster
from tests.conformance.guarded import GuardedStandalone, token

SECONDS = float(os.environ.get("FUZZ_SECONDS", "2"))
QUICK = {"admin.head_timeout_ms": "2000"}
GROWTH_BYTES_MAX = 96 * 1024 * 1024
ANSWER_S_MAX = 20.0


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedStandalone]:
    with GuardedStandalone(tmp_path_factory.mktemp("fuzzed"), anonymousUserRole="", **QUICK) as running:
        yield running


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def command_frame(chance: random.Random) -> bytes:
    """A real command with some of its bytes changed, or a length that promises too much."""
    command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
    command.connect.client_version = "x" * chance.choice((1, 10, 5000))
    command.connect.auth_method_name = chance.choice(("token", "basic", "none", "tls", ""))
    command.connect.auth_data = chance.randbytes(chance.choice((0, 10, 20_000)))
    body = bytearray(command.SerializeToString())
    for _ in range(chance.choice((0, 1, 5))):
        body[chance.randrange(len(body))] = chance.randrange(256)
    lengths = (len(body), 0, 1, 2**31 - 1, 2**32 - 1, chance.randrange(2**32))
    size = chance.choice(lengths)
    total = chance.choice((size + 4, 2**32 - 1, chance.randrange(2**32), 5 * 1024 * 1024)) % 2**32
    return struct.pack(">II", total, size % 2**32) + bytes(body)


def http_request(chance: random.Random) -> bytes:
    method = chance.choice((b"GET", b"POST", b"PUT", b"BREW", chance.randbytes(8)))
    path = chance.choice((b"/metrics", b"/admin/v2/" + b"a/" * 500, b"/%00%ff..%2f..", b"*", b"/" + b"x" * 70_000))
    headers = chance.choice(
        (
            b"Authorization: Bearer " + chance.randbytes(40).hex().encode(),
            b"Authorization: Basic !!!",
            b"Content-Length: 99999999999",
            b"Content-Length: -1",
            b"Transfer-Encoding: chunked\r\n\r\nffffffff",
            b"x: " + b"y" * 100_000,
            b"\x00: \x00",
            b"X-Request-Id: \x1b[31mred",
        )
    )
    return method + b" " + path + b" HTTP/1.1\r\nHost: h\r\n" + headers + b"\r\n\r\n" + chance.randbytes(100)


def strike(port: int, content: bytes, chance: random.Random) -> None:
    """Send in pieces, read a little, go away politely or not."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S_MAX) as door:
        try:
            cut = chance.randrange(len(content) + 1)
            door.sendall(content[:cut])
            door.sendall(content[cut:])
            door.settimeout(0.01)
            door.recv(65_536)
        except OSError:
            return
        if chance.random() < 0.3:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_nobody_known_harms_the_doors(standalone: GuardedStandalone) -> None:
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    headers = {"Authorization": f"Bearer {token('admin')}"}
    before = resident_bytes(standalone.pid)
    until = time.monotonic() + SECONDS
    strikes = 0
    while time.monotonic() < until or strikes < 100:
        for port in (standalone.port, standalone.http_port, standalone.tls_port, standalone.https_port):
            kinds = (command_frame, http_request, lambda chance: chance.randbytes(chance.choice((1, 100, 65_536))))
            strike(port, chance.choice(kinds)(chance), chance)
            strikes += 1
    answer = httpx.get(f"{standalone.web_url}/admin/v2/tenants", headers=headers, timeout=ANSWER_S_MAX)
    assert answer.status_code == 200, f"seed {seed}, {strikes} strikes: {answer.text}"
    grown = resident_bytes(standalone.pid) - before
    assert grown < GROWTH_BYTES_MAX, f"seed {seed}: {grown} bytes more after {strikes} strikes"
    log = standalone.log_path.read_text(encoding="utf-8", errors="replace")
    assert "Traceback" not in log, f"seed {seed}"
    assert "\x1b" not in log


def test_a_token_in_a_url_is_not_read(standalone: GuardedStandalone) -> None:
    """URLs stand in logs of proxies and in histories of browsers."""
    right = token("admin")
    for name in ("token", "access_token", "Authorization", "authorization"):
        answer = httpx.get(f"{standalone.web_url}/admin/v2/tenants", params={name: f"Bearer {right}"}, timeout=30)
        assert answer.status_code == 401, name
        answer = httpx.get(f"{standalone.web_url}/admin/v2/tenants", params={name: right}, timeout=30)
        assert answer.status_code == 401, name
    assert right not in standalone.log_path.read_text(encoding="utf-8", errors="replace")


def test_nobody_known_harms_a_bookie(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary-of-the-shared-secret")
    settings = {"bookie_server.secret_file": str(secret)}
    with Cluster(tmp_path, bookies=1, broker=False, environment=settings) as cluster:
        bookie = cluster.bookies[0]
        pid = bookie.said["pid"]
        seed = random.SystemRandom().randrange(2**32)
        chance = random.Random(seed)
        before = resident_bytes(pid)
        until = time.monotonic() + SECONDS / 2
        strikes = 0
        while time.monotonic() < until or strikes < 60:
            for port in (bookie.told_port, int(bookie.web_url.rpartition(":")[2])):
                kinds = (bookie_frame, http_request, lambda chance: chance.randbytes(chance.choice((1, 100, 65_536))))
                strike(port, chance.choice(kinds)(chance), chance)
                strikes += 1
        assert httpx.get(f"{bookie.web_url}/metrics", timeout=ANSWER_S_MAX).status_code == 200, f"seed {seed}"
        grown = resident_bytes(pid) - before
        assert grown < GROWTH_BYTES_MAX, f"seed {seed}: {grown} bytes more after {strikes} strikes"
        log = bookie.log_path.read_text(encoding="utf-8", errors="replace")
        assert "Traceback" not in log, f"seed {seed}: {log[-2000:]}"
        assert "canary" not in log


def bookie_frame(chance: random.Random) -> bytes:
    """A request of either version, with lengths and bytes that lie."""
    body = bytearray(struct.pack(">BBh", 2, chance.randrange(8), chance.randrange(4)) + chance.randbytes(60))
    for _ in range(chance.choice((0, 3))):
        body[chance.randrange(len(body))] = chance.randrange(256)
    size = chance.choice((len(body), 0, 3, 2**31 - 1, 2**32 - 1, chance.randrange(2**32)))
    return struct.pack(">I", size) + bytes(body)


def test_who_says_nothing_is_cut_off_and_counts_against_nobody(standalone: GuardedStandalone) -> None:
    idle = [socket.create_connection(("127.0.0.1", standalone.http_port), timeout=30) for _ in range(50)]
    try:
        for door in idle:
            door.sendall(b"GET /metrics HTTP/1.1\r\nHost: h\r\nx: ")
        assert httpx.get(f"{standalone.web_url}/metrics", timeout=ANSWER_S_MAX).status_code == 200
        # The head never ends: the server does.
        assert idle[0].recv(1) == b""
    finally:
        for door in idle:
            door.close()
