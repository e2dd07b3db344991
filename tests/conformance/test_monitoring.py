# SPDX-License-Identifier: Apache-2.0
"""What operators see: statistics that move, metrics under Pulsar's names at every level, the audit log."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pulsar
import pytest
import yaml

from tests.processes import StandaloneProcess

TOPIC = "persistent://public/default/watched"
PATH = "/admin/v2/persistent/public/default/watched"
DEPLOY = Path(__file__).parents[2] / "deploy"
NAMES = Path(__file__).parent / "data" / "pulsar_metrics.tsv"
SETTINGS = {
    "statsUpdateFrequencyInSecs": "1",
    "admin.ages_interval_s": "1",
    "admin.metrics_kept_ms": "1",
    "exposeConsumerLevelMetricsInPrometheus": "true",
    "exposeProducerLevelMetricsInPrometheus": "true",
}
Eventually = Callable[[Callable[[], bool]], None]
FIRST = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
SECOND = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("watched"), environment=SETTINGS) as process:
        yield process


@pytest.fixture(scope="module")
def http(standalone: StandaloneProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=standalone.web_url, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def client(standalone: StandaloneProcess) -> Iterator[pulsar.Client]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(standalone.service_url, logger=quiet)
    yield client
    client.close()


def value(text: str, name: str, *labels: str) -> float:
    """The first sample of a family that has these labels."""
    for line in text.splitlines():
        if line.startswith(name + "{") and all(label in line for label in labels):
            return float(line.rpartition(" ")[2])
    raise AssertionError(f"{name} with {labels} is not there")


@pytest.mark.feature("F-TUN-03")
def test_the_process_says_how_many_threads_it_has(http: httpx.Client) -> None:
    samples = re.findall(r"^magnetar_threads (\d+)", http.get("/metrics").text, re.MULTILINE)
    assert len(samples) == 1
    assert int(samples[0]) >= 1


@pytest.mark.feature("F-MET-01")
def test_rates_and_times_of_a_topic_are_measured(
    http: httpx.Client, client: pulsar.Client, eventually: Eventually
) -> None:
    consumer = client.subscribe(TOPIC, "reads", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(TOPIC, batching_enabled=False)

    def move() -> Any:
        for _ in range(20):
            producer.send(b"x" * 100)
            consumer.acknowledge(consumer.receive(10_000))
        return http.get(f"{PATH}/stats").json()

    def is_measured() -> bool:
        stats: Any = move()
        subscription = stats["subscriptions"]["reads"]
        rates = (
            stats["msgRateIn"],
            stats["msgThroughputIn"],
            stats["publishers"][0]["msgRateIn"],
            subscription["msgRateOut"],
            subscription["messageAckRate"],
            subscription["consumers"][0]["msgThroughputOut"],
            subscription["consumers"][0]["messageAckRate"],
        )
        return all(rate > 0 for rate in rates)

    eventually(is_measured)
    stats: Any = move()
    subscription = stats["subscriptions"]["reads"]
    reader = subscription["consumers"][0]
    # A client acknowledges when it likes, also after it was given more.
    started = stats["subscriptions"]["reads"]["lastConsumedFlowTimestamp"]
    for name in ("lastConsumedTimestamp", "lastAckedTimestamp"):
        assert abs(reader[name] - started) < 60_000
        assert subscription[name] == reader[name]
    assert subscription["lastMarkDeleteAdvancedTimestamp"] == subscription["lastAckedTimestamp"]
    assert subscription["bytesOutCounter"] == stats["bytesInCounter"] > 100
    assert stats["averageMsgSize"] > 100


@pytest.mark.feature("F-PROD-23")
def test_messages_in_chunks_have_a_rate_of_their_own(
    http: httpx.Client, client: pulsar.Client, eventually: Eventually
) -> None:
    topic, path = TOPIC + "-chunks", PATH + "-chunks"
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic, chunking_enabled=True)
    producer.send(b"small")
    assert http.get(f"{path}/stats").json()["msgChunkPublished"] is False

    def is_measured() -> bool:
        producer.send(b"x" * 6 * 1024 * 1024)
        consumer.acknowledge(consumer.receive(20_000))
        stats: Any = http.get(f"{path}/stats").json()
        subscription = stats["subscriptions"]["s"]
        shown = (stats["publishers"][0], subscription, subscription["consumers"][0])
        return bool(stats["msgChunkPublished"]) and all(each["chunkedMessageRate"] > 0 for each in shown)

    eventually(is_measured)


@pytest.mark.feature("F-MET-01", "F-MET-02")
def test_holes_and_the_oldest_message_are_shown(
    http: httpx.Client, client: pulsar.Client, eventually: Eventually
) -> None:
    topic, path = TOPIC + "-holes", PATH + "-holes"
    consumer = client.subscribe(topic, "holes", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=False)
    for _ in range(6):
        producer.send(b"x")
    received = [consumer.receive(10_000) for _ in range(6)]
    for index in (1, 2, 4):
        consumer.acknowledge(received[index])

    def ranges() -> str:
        cursor = http.get(f"{path}/internalStats").json()["cursors"]["holes"]
        return str(cursor["individuallyDeletedMessages"])

    eventually(lambda: ranges().count("(") == 2)
    ledger = ranges().partition(":")[0][2:]
    assert ranges() == f"[({ledger}:0..{ledger}:2],({ledger}:3..{ledger}:4]]"
    stats = http.get(f"{path}/stats").json()
    assert stats["subscriptions"]["holes"]["nonContiguousDeletedMessagesRanges"] == 2
    assert stats["oldestBacklogMessageAgeSeconds"] >= 0
    assert stats["oldestBacklogMessageSubscriptionName"] == "holes"

    def is_known() -> bool:
        text = http.get("/metrics").text
        name = "magnetar_subscription_oldest_unacked_age_seconds"
        return value(text, name, 'subscription="holes"') > 0

    eventually(is_known)


@pytest.mark.feature("F-MET-03")
def test_the_brokers_families_move_under_load(
    http: httpx.Client, client: pulsar.Client, eventually: Eventually
) -> None:
    topic = TOPIC + "-loaded"
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)

    def moves() -> bool:
        for _ in range(20):
            producer.send(b"x" * 1000)
            consumer.acknowledge(consumer.receive(10_000))
        text = http.get("/metrics").text
        where = f'topic="{topic}"'
        figures = (
            value(text, "pulsar_rate_in", where),
            value(text, "pulsar_throughput_in", where),
            value(text, "pulsar_rate_out", where),
            value(text, "pulsar_ml_cache_hits_rate"),
            value(text, "pulsar_broker_rate_in"),
            value(text, "pulsar_lb_cpu_usage", 'metric="loadBalancing"'),
            value(text, "pulsar_lb_memory_usage"),
        )
        return all(figure > 0 for figure in figures)

    eventually(moves)
    text = http.get("/metrics").text
    where = f'topic="{topic}"'
    stored = value(text, "pulsar_in_messages_total", where)
    assert value(text, "pulsar_storage_write_latency_count", where) == stored
    assert value(text, "magnetar_publish_latency_seconds_count") >= stored
    assert value(text, "pulsar_consumer_available_permits", where) > 0
    assert value(text, "pulsar_producer_msg_rate_in", where) >= 0
    for family in ("magnetar_loop_lag_seconds_count", "magnetar_resident_bytes", "magnetar_gc_pause_seconds_count"):
        assert family in text
    assert value(text, "bookie_journal_JOURNAL_SYNC_count", 'success="true"') > 0
    assert value(text, "magnetar_memory_bytes", 'owner="entry_cache"') > 0


@pytest.mark.feature("F-MET-12")
def test_the_metadata_store_is_measured_by_operation(http: httpx.Client) -> None:
    name = "pulsar_metadata_store_ops_latency_ms_count"
    store = 'name="metadata-store"'
    before = http.get("/metrics").text
    assert http.put("/admin/v2/namespaces/public/measured").status_code == 204
    after = http.get("/metrics").text
    for kind in ("get", "put"):
        labels = (store, f'type="{kind}"', 'status="success"')
        assert value(after, name, *labels) > value(before, name, *labels)
    written = "pulsar_metadata_store_put_bytes"
    assert value(after, written, store) > value(before, written, store)


@pytest.mark.feature("F-MET-14")
def test_a_spike_is_in_the_next_scrape(http: httpx.Client, client: pulsar.Client) -> None:
    """A gauge is asked when it is scraped; nothing averages it away."""
    topic = TOPIC + "-spike"
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    for _ in range(50):
        producer.send(b"x")
    where = f'topic="{topic}"'
    assert value(http.get("/metrics").text, "pulsar_subscription_back_log", where) == 50
    consumer.unsubscribe()
    assert value(http.get("/metrics").text, "pulsar_msg_backlog", where) == 0


def test_what_is_asked_beside_messages_is_counted(http: httpx.Client, client: pulsar.Client) -> None:
    topic = "persistent://public/default/counted-requests"

    def numbers() -> dict[str, float]:
        text = http.get("/metrics").text
        names = ("pulsar_broker_lookup_count", "pulsar_broker_lookup_answers", "pulsar_topic_load_times_count")
        return {name: value(text, name) for name in names}

    before = numbers()
    schema = pulsar.schema.AvroSchema(None, schema_definition=FIRST)
    client.create_producer(topic, schema=schema).close()
    after = numbers()
    assert {name: after[name] - before[name] for name in after} == dict.fromkeys(after, 1)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=pulsar.schema.AvroSchema(None, schema_definition=SECOND))
    text = http.get("/metrics").text
    of_namespace = 'namespace="public/default"'
    assert value(text, "pulsar_schema_put_ops_latency_count", of_namespace) >= 1
    assert value(text, "pulsar_schema_put_ops_failed", of_namespace) >= 1
    assert value(text, "pulsar_schema_incompatible", of_namespace) >= 1
    assert value(text, "pulsar_schema_compatible", of_namespace) >= 1
    assert value(text, "pulsar_topic_load_time_mean_ms") > 0
    assert value(text, "pulsar_broker_lookup_pending_requests") == 0


def test_names_of_pulsar_that_apply_are_exported(http: httpx.Client) -> None:
    """The list was taken from Apache Pulsar 4.0.8's own /metrics."""
    rows = [line.split("\t") for line in NAMES.read_text(encoding="utf-8").splitlines()[1:]]
    text = http.get("/metrics").text
    families = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    exported = {name for name, state in rows if state == "exported"}
    assert len(exported) > 80
    assert not exported - families
    # Nothing is said to be missing that is there.
    assert not {name for name, state in rows if state != "exported"} & families
    # Every family stands together, once.
    kinds = re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)
    assert len(kinds) == len(set(kinds))


def test_many_topics_are_shown_by_namespace(tmp_path: Path) -> None:
    settings = {"admin.metrics_topics_max": "1", "admin.metrics_kept_ms": "1"}
    with StandaloneProcess(tmp_path, environment=settings) as standalone:
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar.Client(standalone.service_url, logger=quiet)
        try:
            first = client.create_producer(TOPIC + "-1")
            assert 'topic="' in httpx.get(f"{standalone.web_url}/metrics", timeout=30).text
            second = client.create_producer(TOPIC + "-2")
            for producer in (first, second):
                producer.send(b"x")
            text = httpx.get(f"{standalone.web_url}/metrics", timeout=30).text
            assert 'topic="' not in text
            assert value(text, "pulsar_in_messages_total", 'namespace="public/default"') == 2
            assert value(text, "pulsar_topics_count", 'namespace="public/default"') == 2
        finally:
            client.close()


def test_what_is_too_large_to_keep_is_streamed(tmp_path: Path) -> None:
    settings = {"admin.metrics_kept_bytes_max": "1000", "admin.metrics_kept_ms": "60000"}
    with StandaloneProcess(tmp_path, environment=settings) as standalone, httpx.Client(timeout=30) as client:
        answer = client.get(f"{standalone.web_url}/metrics")
        assert answer.headers["transfer-encoding"] == "chunked"
        families = re.findall(r"^# TYPE (\S+) ", answer.text, re.MULTILINE)
        assert families[-1].startswith("magnetar_subscription")
        assert len(families) == len(set(families))


def test_changes_are_audited_with_before_and_after(standalone: StandaloneProcess, http: httpx.Client) -> None:
    path = "/admin/v2/namespaces/public/default/messageTTL"
    assert http.post(path, json=77, headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert http.post(path, json=78).headers["x-request-id"].startswith("http-")
    secret = "canary-of-a-cluster"
    record = {"serviceUrl": "http://127.0.0.1:1", "brokerClientAuthenticationParameters": f"token:{secret}"}
    assert http.put("/admin/v2/clusters/elsewhere", json=record).is_success
    assert http.get("/admin/v2/clusters/elsewhere").status_code == 200
    log = standalone.log_path.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in log.splitlines() if "magnetar.audit" in line]
    first, second, cluster = (json.loads(line) for line in lines[-3:])
    assert first["request"] == "mine-1"
    assert first["message"] == f"POST {path}"
    assert (first["status"], first["role"]) == (204, "nobody")
    assert "message_ttl_in_seconds" in first["changes"]
    assert first["changes"].endswith("-> 77")
    assert "77 -> 78" in second["changes"]
    assert "made" in cluster["changes"]
    assert "elsewhere" in cluster["changes"]
    assert secret not in log


@pytest.mark.feature("B-01")
def test_a_policy_holds_when_it_is_answered(http: httpx.Client, client: pulsar.Client) -> None:
    topic, path = TOPIC + "-limited", PATH + "-limited"
    producer = client.create_producer(topic)
    assert http.post(f"{path}/maxProducers", json=1).status_code == 204
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic)
    assert http.delete(f"{path}/maxProducers").status_code == 204
    client.create_producer(topic).close()
    assert http.post(f"{path}/deduplicationEnabled", json=True).status_code == 204
    assert http.get(f"{path}/stats").json()["deduplicationStatus"] == "Enabled"
    assert http.post(f"{path}/maxConsumers", json=1).status_code == 204
    client.subscribe(topic, "one")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "two")
    producer.close()


@pytest.mark.feature("F-MET-13")
def test_every_panel_and_rule_asks_for_what_is_exported(http: httpx.Client) -> None:
    """A standalone exports what brokers and bookies do."""
    families = set(re.findall(r"^# TYPE (\S+) ", http.get("/metrics").text, re.MULTILINE))
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text(encoding="utf-8"))
    asked = {rule["expr"] for group in rules["groups"] for rule in group["rules"]}
    made = {rule["record"] for group in rules["groups"] for rule in group["rules"] if "record" in rule}
    boards = sorted((DEPLOY / "grafana").glob("*.json"))
    assert len(boards) == 3
    for path in boards:
        board = json.loads(path.read_text(encoding="utf-8"))
        assert board["panels"]
        assert {"uid", "title", "schemaVersion", "templating"} <= set(board)
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
        assert len(places) == len(set(places)), f"panels of {path.name} lie on one another"
        asked |= {target["expr"] for panel in board["panels"] for target in panel["targets"]}
        variables = [each["query"]["query"] for each in board["templating"]["list"] if each["type"] == "query"]
        asked |= set(variables)
    for expression in asked:
        for name in re.findall(r"\b(?:pulsar|magnetar|bookie|bookkeeper)[\w:]*_[\w:]*", expression):
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            assert name in families or family in families or name in made, f"{name} in {expression}"


class Collector(BaseHTTPRequestHandler):
    """Takes what an OpenTelemetry collector would."""

    taken: ClassVar[list[tuple[str, dict[str, Any]]]] = []

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        self.taken.append((self.path, json.loads(content)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *_: object) -> None:
        """Not to the tests' output."""


@pytest.mark.feature("B-21")
def test_a_collector_of_opentelemetry_is_told_what_a_scrape_says(tmp_path: Path, eventually: Eventually) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        settings = {**SETTINGS, "admin.otlp_endpoint": endpoint, "admin.otlp_interval_s": "1"}
        with StandaloneProcess(tmp_path, environment=settings) as watched:
            client = pulsar.Client(watched.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
            try:
                consumer = client.subscribe(TOPIC, "s")
                trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=b"}
                client.create_producer(TOPIC).send(b"x", properties=trace)
                # The context of a trace passes as it is.
                assert consumer.receive(10_000).properties() == trace
                eventually(lambda: 1.0 in _told("pulsar_in_messages_total", "sum"))
            finally:
                client.close()
            assert _told("magnetar_loop_lag_seconds", "histogram")
            assert {path for path, _ in Collector.taken} == {"/v1/metrics"}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _told(name: str, kind: str) -> list[float | None]:
    return [
        point.get("asDouble")
        for _, content in Collector.taken
        for metric in content["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
        if metric["name"] == name
        for point in metric[kind]["dataPoints"]
    ]
