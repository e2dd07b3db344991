# SPDX-License-Identifier: Apache-2.0
"""Ports under random and broken bytes, from clients that nobody knows and from some that are logged in: the process
keeps its memory, its time and its other clients. FUZZ_SECONDS=600 makes it long, FUZZ_SEED=n strikes as before.
"""

import contextlib
import os
import random
import re
import socket
import ssl
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pulsar
import pytest

from magnetar.wire import commands
from magnetar.wire.frame import FrameCutter
from magnetar.wire.proto import pulsar_api_pb2 as pb
from magnetar.wire.runs import Frame
from tests.cluster import Cluster
from tests.conformance.guarded import GuardedStandalone, token
from tests.conformance.test_proxy import ProxyProcess, guarded_proxy, running
from tests.fuzz import strikes
from tests.processes import free_port

SECONDS = float(os.environ.get("FUZZ_SECONDS", "2"))
# Topics are those that there are, so that what grows is not what was asked for.
QUICK = {"admin.head_timeout_ms": "2000", "allowAutoTopicCreation": "false", "transactionCoordinatorEnabled": "true"}
GROWTH_BYTES_MAX = 96 * 1024 * 1024
ANSWER_S_MAX = 20.0
FAILED = b"HTTP/1.1 500"


@pytest.fixture
def seed() -> int:
    """Said on standard output, which pytest shows for a test that fails."""
    found = int(os.environ.get("FUZZ_SEED") or random.SystemRandom().randrange(2**32))
    sys.stdout.write(f"FUZZ_SEED={found}\n")
    return found


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedStandalone]:
    super_users = "localhost,superUser,admin,proxy"
    directory = tmp_path_factory.mktemp("fuzzed")
    with GuardedStandalone(directory, anonymousUserRole="", superUserRoles=super_users, **QUICK) as process:
        yield process


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


def called(port: int, context: ssl.SSLContext | None = None) -> socket.socket:
    """A connection, over TLS where there is a context."""
    door = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S_MAX)
    if context is None:
        return door
    try:
        return context.wrap_socket(door, server_hostname="localhost")
    except BaseException:
        door.close()
        raise


def strike(port: int, content: bytes, chance: random.Random, context: ssl.SSLContext | None = None) -> bytes:
    """Send in pieces, read a little, go away politely or not; what was answered at once."""
    with called(port, context) as door:
        try:
            cut = chance.randrange(len(content) + 1)
            door.sendall(content[:cut])
            door.sendall(content[cut:])
            door.settimeout(0.01)
            answer = door.recv(65_536)
        except OSError:
            return b""
        if chance.random() < 0.3:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return answer


def test_nobody_known_harms_the_doors(standalone: GuardedStandalone, seed: int) -> None:
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


class Healthy:
    """A client on a topic of its own; calling it proves that it is still served."""

    def __init__(self, service_url: str, topic: str) -> None:
        self._client = pulsar.Client(
            service_url,
            authentication=pulsar.AuthenticationToken(token("admin")),
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
            operation_timeout_seconds=int(ANSWER_S_MAX),
        )
        self._producer = self._client.create_producer(topic)
        self._consumer = self._client.subscribe(topic, "s")
        self._count = 0

    def __call__(self) -> None:
        self._count += 1
        self._producer.send(str(self._count).encode())
        found = self._consumer.receive(timeout_millis=int(ANSWER_S_MAX * 1000))
        assert found.data() == str(self._count).encode()
        self._consumer.acknowledge(found)

    def close(self) -> None:
        self._client.close()


@pytest.fixture(scope="module")
def topics(standalone: GuardedStandalone) -> None:
    with standalone.admin() as admin:
        for path, body in (
            ("/tenants/public", {"adminRoles": ["admin"], "allowedClusters": ["standalone"]}),
            ("/namespaces/public/default", None),
            ("/namespaces/public/struck", None),
            ("/persistent/public/default/healthy", None),
            ("/persistent/public/default/healthy-behind", None),
            ("/persistent/public/default/newcomer", None),
            ("/persistent/public/default/struck", None),
            ("/persistent/public/struck/t", None),
        ):
            assert admin.put(path, json=body).status_code in (204, 409), path


@pytest.fixture(scope="module")
def healthy(standalone: GuardedStandalone, topics: None) -> Iterator[Healthy]:
    client = Healthy(standalone.service_url, "persistent://public/default/healthy")
    yield client
    client.close()


def converse(
    port: int, chance: random.Random, target: bytes | None = None, context: ssl.SSLContext | None = None
) -> None:
    """Log in, open a producer and a consumer, and only then go wrong. `target` is the broker behind a proxy."""
    with called(port, context) as door:
        door.sendall(strikes.connect(token("admin"), target))
        said = first_command(door)
        assert said.type == commands.Type.CONNECTED, said
        go_wrong(door, chance)


def first_command(door: socket.socket) -> pb.BaseCommand:
    cutter = FrameCutter(1 << 20)
    answers: list[Frame] = []
    while not answers:
        piece = door.recv(65_536)
        assert piece, "a client that says what it should is cut off"
        answers = cutter.feed(piece)
    return commands.parse(answers[0][0], commands.Sender.BROKER)


def go_wrong(door: socket.socket, chance: random.Random) -> None:
    try:
        door.sendall(strikes.opening("persistent://public/default/struck"))
        for _ in range(chance.choice((1, 3))):
            door.sendall(strikes.conversation("persistent://public/default/struck", chance))
            door.settimeout(0.005)
            with contextlib.suppress(TimeoutError):
                while door.recv(65_536):
                    pass
            door.settimeout(ANSWER_S_MAX)
    except OSError:
        return
    if chance.random() < 0.3:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_nobody_logged_in_harms_the_others(standalone: GuardedStandalone, healthy: Healthy, seed: int) -> None:
    """Commands and bodies from a super user, so that nothing is refused before it is read."""
    chance = random.Random(seed)
    healthy()
    before = resident_bytes(standalone.pid)
    until = time.monotonic() + SECONDS
    rounds = 0
    while time.monotonic() < until or rounds < 5:
        for _ in range(10):
            converse(standalone.port, chance)
            for kind in (strikes.admin_request, strikes.unfinished_request, strikes.passed_request):
                answer = strike(standalone.http_port, kind(token("admin"), chance), chance)
                assert not answer.startswith(FAILED), answer
        healthy()
        rounds += 1
    grown = resident_bytes(standalone.pid) - before
    assert grown < GROWTH_BYTES_MAX, f"{grown} bytes more after {rounds} rounds"
    log = standalone.log_path.read_text(encoding="utf-8", errors="replace")
    assert "Traceback" not in log, log[log.index("Traceback") - 2000 :][:6000]
    assert '"status": 500' not in log


def test_nobody_known_harms_a_bookie_or_its_metadata(tmp_path: Path, seed: int) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary-of-the-shared-secret")
    settings = {"bookie_server.secret_file": str(secret)}
    with Cluster(tmp_path, bookies=1, broker=False, environment=settings) as cluster:
        bookie, metadata = cluster.bookies[0], cluster.metadata
        assert metadata is not None
        chance = random.Random(seed)
        struck = (bookie, metadata)
        before = [resident_bytes(role.pid) for role in struck]
        until = time.monotonic() + SECONDS / 2
        rounds = 0
        doors = (
            (bookie.told_port, strikes.bookie_frame),
            (int(bookie.web_url.rpartition(":")[2]), http_request),
            (int(bookie.web_url.rpartition(":")[2]), strikes.bookie_request),
            (metadata.told_port, strikes.metadata_frames),
        )
        while time.monotonic() < until or rounds < 20:
            for port, kind in doors:
                content = kind(chance) if chance.random() < 0.8 else chance.randbytes(chance.choice((1, 100, 65_536)))
                strike(port, content, chance)
            rounds += 1
        assert httpx.get(f"{bookie.web_url}/metrics", timeout=ANSWER_S_MAX).status_code == 200
        for role, resident in zip(struck, before, strict=True):
            grown = resident_bytes(role.pid) - resident
            assert grown < GROWTH_BYTES_MAX, f"{role.name}: {grown} bytes more after {rounds} rounds"
            log = role.log_path.read_text(encoding="utf-8", errors="replace")
            assert "Traceback" not in log, f"{role.name}: {log[-4000:]}"
            assert "canary" not in log


def test_a_body_that_nests_too_deeply_is_answered(tmp_path: Path) -> None:
    with Cluster(tmp_path, bookies=1, broker=False) as cluster:
        bookie = cluster.bookies[0]
        for path in ("/api/v1/bookie/state/readonly", "/api/v1/autorecovery/decommission"):
            answer = httpx.put(f"{bookie.web_url}{path}", content=strikes.DEEP, timeout=ANSWER_S_MAX)
            assert answer.status_code == 400, path
        assert "Traceback" not in bookie.log_path.read_text(encoding="utf-8", errors="replace")


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


# --- proxies --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stranger() -> Iterator[socket.socket]:
    """Takes connections where the proxy may lead to, and is no broker."""
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        listener.settimeout(ANSWER_S_MAX)
        yield listener


def address_of(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(scope="module")
def proxy(
    standalone: GuardedStandalone, stranger: socket.socket, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProxyProcess]:
    certificate, key = standalone.authority.sign("localhost", "proxy")
    process = guarded_proxy(
        tmp_path_factory.mktemp("proxy"),
        standalone,
        webSocketServiceEnabled="true",
        servicePortTls=str(free_port()),
        webServicePortTls=str(free_port()),
        tlsCertificateFilePath=certificate,
        tlsKeyFilePath=key,
        tlsTrustCertsFilePath=str(standalone.authority.file),
        # Whatever is asked for, it stays here: a host that has an address of another machine, ports with somebody known
        # behind them and one with nobody.
        brokerProxyAllowedHostNames="127.0.0.1,192.0.2.1,::1",
        brokerProxyAllowedIPAddresses="127.0.0.0/8",
        # Nobody is let wait for so long: whoever is, shows.
        brokerProxyConnectTimeoutMs=str(int(ANSWER_S_MAX * 3000)),
        **{"admin.head_timeout_ms": "2000", "security.login_pause_max_ms": "1"},
    )
    ports = (standalone.port, standalone.http_port, process.port, stranger.getsockname()[1], 1)
    process.configure(brokerProxyAllowedTargetPorts=",".join(map(str, ports)))
    with running(process):
        yield process


@pytest.fixture(scope="module")
def healthy_behind(proxy: ProxyProcess, topics: None) -> Iterator[Healthy]:
    client = Healthy(proxy.service_url, "persistent://public/default/healthy-behind")
    yield client
    client.close()


def doors_of(proxy: ProxyProcess) -> dict[str, int]:
    """Ports by the names of their URLs."""
    return {name: int(url.rpartition(":")[2]) for name, url in proxy.said.items() if name.endswith(("Url", "UrlTls"))}


class Unharmed:
    """What must be true of a proxy and the broker behind it, however they were struck since this was made."""

    def __init__(self, proxy: ProxyProcess, standalone: GuardedStandalone) -> None:
        self._struck: tuple[ProxyProcess | GuardedStandalone, ...] = (proxy, standalone)
        self._before = [resident_bytes(each.pid) for each in self._struck]

    def check(self, said: str) -> None:
        for each, before in zip(self._struck, self._before, strict=True):
            name = type(each).__name__
            grown = resident_bytes(each.pid) - before
            assert grown < GROWTH_BYTES_MAX, f"{name}: {grown} bytes more after {said}"
            log = each.log_path.read_text(encoding="utf-8", errors="replace")
            assert "Traceback" not in log, f"{name}: " + log[max(0, log.index("Traceback") - 2000) :][:6000]
            failed = re.search(r'.*status"?[=:] ?500.*', log)
            assert failed is None, f"{name}: {failed and failed[0]}"
            for secret in ("canary", token("admin"), token("admin").rpartition(".")[2], token("proxy"), "\x1b"):
                assert secret not in log, f"{name}: {secret!r} is in its log"


def test_nobody_known_harms_a_proxy(
    standalone: GuardedStandalone, proxy: ProxyProcess, healthy_behind: Healthy, seed: int
) -> None:
    """Some over TLS, some with what is no TLS; and some who name a broker without saying who they are."""
    chance = random.Random(seed)
    context = ssl.create_default_context(cafile=str(standalone.authority.file))
    healthy_behind()
    unharmed = Unharmed(proxy, standalone)
    kinds = (
        command_frame,
        http_request,
        lambda chance: strikes.connect("no.token.here", strikes.stray_target(chance)),
        lambda chance: strikes.connect("no.token.here", f"127.0.0.1:{standalone.port}".encode()),
        lambda chance: strikes.passed_request("no.token.here", chance),
        lambda chance: strikes.web_socket("no.token.here", chance),
        lambda chance: chance.randbytes(chance.choice((1, 100, 65_536))),
    )
    until = time.monotonic() + SECONDS
    rounds = 0
    while time.monotonic() < until or rounds < 5:
        for name, port in list(doors_of(proxy).items()) * 10:
            over_tls = name.endswith("Tls") and chance.random() < 0.5
            answer = strike(port, chance.choice(kinds)(chance), chance, context if over_tls else None)
            assert not answer.startswith(FAILED), answer
        healthy_behind()
        rounds += 1
    unharmed.check(f"{rounds} rounds")


def be_led_astray(port: int, target: bytes, chance: random.Random, context: ssl.SSLContext | None) -> None:
    """To a broker that there is not: the client is told so, and not kept waiting."""
    with called(port, context) as door:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            door.sendall(strikes.connect(token("admin"), target))
            door.recv(65_536)
        go_wrong(door, chance)


def be_led_to_a_stranger(
    port: int, stranger: socket.socket, chance: random.Random, context: ssl.SSLContext | None
) -> None:
    """To somebody who takes the proxy's connection and is no broker."""
    with called(port, context) as door:
        door.sendall(strikes.connect(token("admin"), address_of(stranger).encode()))
        connection, _ = stranger.accept()
        with connection:
            connection.settimeout(ANSWER_S_MAX)
            assert connection.recv(65_536), "a proxy that says nothing"
            with contextlib.suppress(OSError):
                connection.sendall(strikes.broker_answers(chance))
            if chance.random() < 0.3:
                go_wrong(door, chance)
        # Whatever the stranger said, it has left.
        door.settimeout(ANSWER_S_MAX)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while door.recv(65_536):
                pass


def test_nobody_logged_in_harms_a_proxy(
    standalone: GuardedStandalone, proxy: ProxyProcess, stranger: socket.socket, healthy_behind: Healthy, seed: int
) -> None:
    """Whom it leads to the broker, whom it answers itself, and who wants to be led elsewhere."""
    chance = random.Random(seed)
    context = ssl.create_default_context(cafile=str(standalone.authority.file))
    healthy_behind()
    unharmed = Unharmed(proxy, standalone)
    doors = doors_of(proxy)
    ways = ((doors["serviceUrl"], None), (doors["serviceUrlTls"], context))
    web = ((doors["webServiceUrl"], None), (doors["webServiceUrlTls"], context))
    broker = f"127.0.0.1:{standalone.port}".encode()
    # The last is the proxy itself.
    brokers = (broker, b"pulsar://" + broker + b"/", f"127.0.0.1:{proxy.port}".encode())
    nowhere = (*strikes.NOWHERE, strikes.WITH_A_PASSWORD, f"127.0.0.1:{standalone.http_port}".encode())
    until = time.monotonic() + SECONDS
    rounds = 0
    while time.monotonic() < until or rounds < 5:
        for _ in range(5):
            port, secured = chance.choice(ways)
            converse(port, chance, None, secured)
            converse(port, chance, chance.choice(brokers), secured)
            be_led_astray(port, chance.choice(nowhere), chance, secured)
            be_led_astray(port, strikes.stray_target(chance), chance, secured)
            be_led_to_a_stranger(port, stranger, chance, secured)
            kinds = (strikes.admin_request, strikes.unfinished_request, strikes.passed_request, strikes.web_socket)
            for kind in kinds:
                http_port, secured = chance.choice(web)
                answer = strike(http_port, kind(token("admin"), chance), chance, secured)
                assert not answer.startswith(FAILED), answer
        healthy_behind()
        rounds += 1
    # Who comes now is led there, too.
    newcomer = Healthy(proxy.service_url, "persistent://public/default/newcomer")
    newcomer()
    newcomer.close()
    unharmed.check(f"{rounds} rounds")
