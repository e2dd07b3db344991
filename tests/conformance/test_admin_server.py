# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of a real standalone: health, metrics, look-up, and clients that do not behave."""

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pulsar
import pytest

from tests.processes import StandaloneProcess, free_port


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    settings = {"MAGNETAR_ADMIN_HEAD_TIMEOUT_MS": "300"}
    with StandaloneProcess(tmp_path_factory.mktemp("admin"), environment=settings) as running:
        yield running


@pytest.fixture
def http(standalone: StandaloneProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=standalone.web_url, timeout=30) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "text"),
    [("/status.html", "OK"), ("/admin/v2/brokers/ready", "ok"), ("/admin/v2/brokers/health?topicVersion=V2", "ok")],
)
def test_it_is_ready_when_the_ready_file_says_so(http: httpx.Client, path: str, text: str) -> None:
    answer = http.get(path)
    assert (answer.status_code, answer.text) == (200, text)


def test_official_clients_look_topics_up_over_http(standalone: StandaloneProcess) -> None:
    client = pulsar.Client(standalone.web_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    assert client.create_producer("over-http").send(b"hello")
    client.close()


def test_metrics_name_topics_as_pulsar_does(standalone: StandaloneProcess, http: httpx.Client) -> None:
    client = pulsar.Client(standalone.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe("counted", "s")
    client.create_producer("counted").send(b"hello")
    labels = 'cluster="standalone",namespace="public/default",topic="persistent://public/default/counted"'
    text = http.get("/metrics").text
    assert f"pulsar_in_messages_total{{{labels}}} 1\n" in text
    assert f'pulsar_subscription_back_log{{{labels},subscription="s"}} 1\n' in text
    consumer.close()
    client.close()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/lookup/v2/topic/persistent/public/missing/t", 404),
        ("/lookup/v2/topic/persistent/public/default/..%2F..%2Fetc", 412),
        ("/lookup/v2/topic/persistent/public/default/%00", 412),
        ("/lookup/v2/topic/persistent/public/default/%ff", 412),
        ("/nowhere", 404),
    ],
)
def test_a_refusal_has_a_reason_and_no_traceback(http: httpx.Client, path: str, status: int) -> None:
    answer = http.get(path)
    assert answer.status_code == status
    assert answer.json()["reason"]
    assert "Traceback" not in answer.text


def test_a_client_that_never_sends_its_request_is_cut_off(standalone: StandaloneProcess) -> None:
    """F141: a request that is never whole."""
    with socket.create_connection(("127.0.0.1", standalone.http_port), timeout=30) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        try:
            answer = slow.recv(100)
        except ConnectionResetError:
            answer = b""
        assert answer == b""
    assert httpx.get(f"{standalone.web_url}/status.html").status_code == 200


def test_a_body_that_is_too_large_is_refused(http: httpx.Client) -> None:
    assert http.post("/admin/v2/tenants/t", content=b"x" * 2_000_000).status_code == 413


def test_a_taken_http_port_is_said_with_its_flag(tmp_path: Path) -> None:
    standalone = StandaloneProcess(tmp_path)
    standalone.http_port = free_port()
    with socket.create_server(("127.0.0.1", standalone.http_port)):
        with pytest.raises(AssertionError, match="--http-port"):
            standalone.start()
        assert standalone.wait() == 2
