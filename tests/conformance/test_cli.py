# SPDX-License-Identifier: Apache-2.0
"""The `magnetar` command against real brokers: what people type, what they read, what scripts see."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from magnetar.cli import exits
from magnetar.cli.admin import run_admin
from magnetar.cli.apply import run_apply
from magnetar.cli.client_tool import run_client
from magnetar.cli.context_command import run_contexts
from magnetar.cli.doctor import run_doctor
from magnetar.cli.explain import run_explain
from magnetar.cli.lookalike import run_aliases
from magnetar.cli.perf import run_perf
from magnetar.cli.top import run_top
from tests.conformance.guarded import GuardedStandalone, token
from tests.processes import StandaloneProcess, free_port

Typed = Callable[..., "subprocess.CompletedProcess[str]"]


def run_words(words: Sequence[str]) -> int:
    """What `magnetar` does with words, in this process: a process of their own for each would take most of the time."""
    run = {
        "admin": run_admin,
        "client": run_client,
        "perf": run_perf,
        "explain": run_explain,
        "top": run_top,
        "doctor": run_doctor,
        "apply": run_apply,
        "contexts": run_contexts,
        "aliases": run_aliases,
    }[words[0]]
    return run(words[1:])


def typed_to(standalone: StandaloneProcess, home: Path) -> Typed:
    environment = {
        "MAGNETAR_ADMIN_URL": standalone.web_url,
        "MAGNETAR_SERVICE_URL": standalone.service_url,
        "MAGNETAR_CONTEXTS": str(home / "contexts.json"),
        "PULSAR_CLIENT_CONF": "",
    }

    def typed(*words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        out, error = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(error):
            for name, text in {**environment, **more}.items():
                patch.setenv(name, text)
            patch.setattr("sys.stdin", io.StringIO())
            code = run_words(words)
        return subprocess.CompletedProcess(list(words), code, out.getvalue(), error.getvalue())

    return typed


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    """A command quiets the library's log lines, for its process ends with it; this one goes on."""
    logger = logging.getLogger("magnetar")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("cli")) as process:
        yield process


@pytest.fixture(scope="module")
def typed(standalone: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> Typed:
    return typed_to(standalone, tmp_path_factory.mktemp("home"))


@pytest.mark.feature("F-ADM-07")
@pytest.mark.feature("F-DEP-08")
def test_what_is_produced_is_consumed(typed: Typed) -> None:
    numbers = [f"message-{number}" for number in range(10)]
    assert typed("admin", "topics", "create", "talk").returncode == 0
    assert typed("admin", "topics", "create-subscription", "talk", "-s", "s").returncode == 0
    sent = typed("client", "produce", "talk", "-m", ",".join(numbers), "-k", "key", "-p", "a=b")
    assert (sent.returncode, sent.stdout) == (0, "10 messages successfully produced\n")
    taken = typed("client", "consume", "talk", "-s", "s", "-n", "10")
    assert taken.returncode == 0
    lines = [line for line in taken.stdout.splitlines() if not line.startswith("-----")]
    assert lines == [f"key:[key], properties:[a=b], content:{text}" for text in numbers]
    # What was consumed is acknowledged; a reader sees it still, and a view its last value.
    stats = json.loads(typed("admin", "topics", "stats", "talk").stdout)
    assert stats["subscriptions"]["s"]["msgBacklog"] == 0
    read = typed("client", "read", "talk", "-m", "earliest", "-n", "10", "--json").stdout.splitlines()
    assert [json.loads(line)["content"] for line in read] == numbers
    assert typed("client", "view", "talk").stdout == "key\tmessage-9\n"


@pytest.mark.feature("F-ADM-08")
@pytest.mark.feature("F-DEP-08")
def test_load_comes_at_the_rate_that_was_asked_for(typed: Typed) -> None:
    made = typed("perf", "produce", "load", "-r", "200", "-n", "2", "-s", "100", "-time", "4", "--json")
    assert made.returncode == 0, made.stderr
    result = json.loads(made.stdout)
    assert result["messagesPerSecond"] == pytest.approx(200, rel=0.05)
    latency = result["latencyMs"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]
    shown = typed("perf", "read", "load", "-n", "500")
    assert (shown.returncode, "Aggregated: read 500 messages" in shown.stdout) == (0, True)
    taken = typed("perf", "consume", "load", "-sp", "Earliest", "-m", "500", "--json")
    assert json.loads(taken.stdout)["messages"] == 500


@pytest.mark.feature("F-DEP-08")
def test_the_smoke_tests_of_an_installation(typed: Typed) -> None:
    for words in ("clusters list", "brokers list standalone", "bookies list-bookies", "topics list public/default"):
        assert typed("admin", *words.split()).returncode == 0, words
    assert typed("admin", "brokers", "healthcheck").stdout == "ok\n"
    listed = typed("admin", "tenants", "list")
    assert {"public", "pulsar"} <= set(listed.stdout.splitlines())
    assert json.loads(typed("admin", "tenants", "list", "--json").stdout) == listed.stdout.splitlines()


@pytest.mark.feature("F-ADM-10")
def test_contexts_choose_the_cluster(typed: Typed, tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path / "other") as other:
        home = {"MAGNETAR_CONTEXTS": str(tmp_path / "contexts.json"), "MAGNETAR_ADMIN_URL": ""}
        here = typed("admin", "brokers", "list", "standalone").stdout
        first = here.strip()
        assert typed("contexts", "set", "here", "--admin-url", f"http://{first}", **home).returncode == 0
        client_conf = tmp_path / "client.conf"
        client_conf.write_text(f"webServiceUrl={other.web_url}/\nbrokerServiceUrl={other.service_url}/\nauthPlugin=\n")
        assert typed("contexts", "set", "there", "--config", str(client_conf), **home).returncode == 0
        command = ("admin", "brokers", "list", "standalone")
        assert typed(*command, **home).stdout == here
        assert typed("contexts", "use", "there", **home).returncode == 0
        assert typed(*command, **home).stdout == f"127.0.0.1:{other.http_port}\n"
        assert typed(*command, "--context", "here", **home).stdout == here
        assert typed("contexts", "list", **home).stdout == "  here\n* there\n"
        assert typed(*command, MAGNETAR_ADMIN_URL="", PULSAR_CLIENT_CONF=str(client_conf)).stdout.endswith(
            f":{other.http_port}\n"
        )
    assert (tmp_path / "contexts.json").stat().st_mode & 0o777 == 0o600


FILE = """
tenants:
  acme: {adminRoles: [ops]}
namespaces:
  acme/app:
    bundles: 8
    policies:
      messageTTL: 30
      retention: {retentionTimeInMinutes: 60, retentionSizeInMB: 100}
      backlogQuota: {destination_storage: {limitSize: 1000000, policy: producer_exception}}
    permissions: {writer: [produce]}
topics:
  acme/app/orders: {partitions: 3, policies: {messageTTL: 60}, subscriptions: [billing]}
  acme/app/plain:
"""


def test_a_file_is_applied_once(typed: Typed, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(FILE)
    dry = typed("apply", "-f", str(file), "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "+ namespace acme/app messageTTL: 30\n" in dry.stdout
    assert "acme" not in typed("admin", "tenants", "list").stdout
    assert typed("apply", "-f", str(file)).stdout == f"{dry.stdout}10 changes were made.\n"
    assert typed("apply", "-f", str(file)).stdout == "Nothing differs.\n"
    assert typed("admin", "namespaces", "get-message-ttl", "acme/app").stdout == "30\n"
    # What the file does not name stays, unless it is asked to go and somebody says yes.
    assert typed("admin", "topics", "create", "acme/app/extra").returncode == 0
    assert typed("apply", "-f", str(file)).stdout == "Nothing differs.\n"
    assert typed("apply", "-f", str(file), "--prune").returncode == exits.WRONG_USE
    assert typed("apply", "-f", str(file), "--prune", "--yes").stdout.startswith(
        "- topic persistent://acme/app/extra\n"
    )
    file.write_text(FILE.replace("messageTTL: 30", "messageTTL: 31"))
    assert "~ namespace acme/app messageTTL: 30 -> 31\n" in typed("apply", "-f", str(file)).stdout
    file.write_text(FILE.replace("messageTTL: 30", "messageTLT: 30"))
    wrong = typed("apply", "-f", str(file))
    assert (wrong.returncode, "messageTLT" in wrong.stderr) == (exits.WRONG_USE, True)


def test_explain_top_and_doctor_look_at_a_waiting_subscription(typed: Typed) -> None:
    assert typed("admin", "topics", "create", "slow").returncode == 0
    assert typed("admin", "topics", "create-subscription", "slow", "-s", "nobody").returncode == 0
    assert typed("client", "produce", "slow", "-m", "a", "-db").returncode == 0
    told = typed("explain", "slow")
    assert told.stdout.startswith("persistent://public/default/slow nobody: No consumer is connected; 1 entries wait")
    assert json.loads(typed("explain", "slow", "nobody", "--json").stdout)[0]["reason"] == "no-consumer"
    rows = {row["topic"]: row for row in json.loads(typed("top", "--json").stdout)}
    row = rows["persistent://public/default/slow"]
    assert (row["backlog"], row["consumers"]) == (1, 0)
    assert row["oldest_unacked_age_s"] >= 0
    assert "public/default/slow" in typed("top", "slow", "--once").stdout
    found = json.loads(typed("doctor", "--json").stdout)
    assert any(each["health"] == "warning" and "no consumer" in each["what"] for each in found)
    down = typed("doctor", "--admin-url", f"http://127.0.0.1:{free_port()}")
    assert (down.returncode, "broken" in down.stdout) == (exits.REFUSED, True)


def test_look_alikes_are_installed_where_nothing_else_is(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "pulsar-perf").write_text("somebody's own\n")
    assert typed("aliases", "install", "--dir", str(tmp_path)).returncode == exits.REFUSED
    assert not (tmp_path / "pulsar-admin").exists()
    assert typed("aliases", "install", "--dir", str(tmp_path), "--force").returncode == 0
    here = typed("admin", "tenants", "list")
    admin = tmp_path / "pulsar-admin"
    url = typed("admin", "brokers", "list", "standalone").stdout.strip()
    command = [str(admin), "--admin-url", f"http://{url}", "tenants", "list"]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == here.stdout
    assert len(typed("aliases", "remove", "--dir", str(tmp_path)).stdout.splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ("admin topics stats nothing", exits.NOT_FOUND, "Topic persistent://public/default/nothing not found"),
        (
            "admin topics stats nothing --presice",
            exits.WRONG_USE,
            "there is no flag --presice; --help shows those there are",
        ),
        ("admin topics stats -gbp x", exits.WRONG_USE, "there is no flag -gbp; did you mean -gpb?"),
        ("admin topics stast x", exits.WRONG_USE, "topics has no verb 'stast'; did you mean stats?"),
        ("admin topics stats", exits.WRONG_USE, "stats needs TOPIC"),
        ("admin tenants create public", exits.REFUSED, "Tenant already exist"),
        ("admin functions list", exits.WRONG_USE, "functions of Apache Pulsar is not there"),
        ("client produce x", exits.WRONG_USE, "produce needs --messages or --files"),
        ("client consume x", exits.WRONG_USE, "consume needs --subscription-name or -s TEXT"),
        ("perf produce", exits.WRONG_USE, "give the topic, or several"),
        ("apply -f /nowhere.yaml", exits.WRONG_USE, "/nowhere.yaml cannot be read"),
        ("contexts use nothing", exits.WRONG_USE, "There is no context nothing"),
        *(
            (f"{words} --nonsense", exits.WRONG_USE, "there is no flag --nonsense; ")
            for words in ("explain x", "top", "doctor", "apply", "perf produce x", "client read x", "aliases install")
        ),
    ],
)
def test_what_goes_wrong_is_one_sentence(typed: Typed, words: str, code: int, sentence: str) -> None:
    answer = typed(*words.split())
    assert (answer.returncode, answer.stdout) == (code, "")
    assert answer.stderr.startswith(f"magnetar: {sentence}")
    assert answer.stderr.count("\n") == 1


def test_nobody_answers(typed: Typed, tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "cluster.yaml"
    file.write_text(FILE)
    dead = {"MAGNETAR_ADMIN_URL": f"http://127.0.0.1:{port}", "MAGNETAR_SERVICE_URL": f"pulsar://127.0.0.1:{port}"}
    for words in (
        f"admin --admin-url http://127.0.0.1:{port} tenants list",
        f"client --url pulsar://127.0.0.1:{port} produce x -m y",
        "client consume x -s s -n 1",
        "client view x",
        "perf produce x -time 1",
        "perf read x",
        "explain x",
        "top --once",
        f"apply -f {file}",
    ):
        answer = typed(*words.split(), **dead)
        assert (answer.returncode, answer.stderr.count("\n")) == (exits.UNREACHABLE, 1), answer.stderr
        assert answer.stderr.startswith("magnetar: No answer from ")


def test_a_process_of_its_own_says_the_same(standalone: StandaloneProcess) -> None:
    command = [sys.executable, "-m", "magnetar.cli.entry", "admin", "--admin-url", standalone.web_url]
    listed = subprocess.run([*command, "tenants", "list"], capture_output=True, text=True, timeout=60, check=True)
    assert {"public", "pulsar"} <= set(listed.stdout.splitlines())
    failed = subprocess.run(
        [*command, "topics", "stats", "no"], capture_output=True, text=True, timeout=60, check=False
    )
    assert failed.returncode == exits.NOT_FOUND
    assert failed.stderr == "magnetar: Topic persistent://public/default/no not found\n"


def test_who_may_not_is_told_so(tmp_path: Path) -> None:
    with GuardedStandalone(tmp_path) as guarded:
        guarded.furnish()
        typed = typed_to(guarded, tmp_path)
        stranger = ("--auth-plugin", "token", "--auth-params", f"token:{token('stranger')}")
        for words in (("admin", "tenants", "list"), ("client", "produce", "private/auth/t", "-m", "x")):
            refused = typed(*words, *stranger)
            assert (refused.returncode, refused.stderr.count("\n")) == (exits.NOT_PERMITTED, 1), refused.stderr
        (tmp_path / "admin.token").write_text(token("admin"))
        admin = ("--auth-plugin", "token", "--auth-params", f"file://{tmp_path / 'admin.token'}")
        assert "private" in typed("admin", "tenants", "list", *admin).stdout.splitlines()
        # The same over TLS: a certificate that is not trusted is no answer, a trusted one is.
        there = ("--admin-url", guarded.web_url_tls)
        assert typed("admin", "tenants", "list", *admin, *there).returncode == exits.UNREACHABLE
        trusted = ("--tls-trust-cert-path", str(guarded.authority.file), "--tls-enable-hostname-verification")
        assert "private" in typed("admin", "tenants", "list", *admin, *there, *trusted).stdout.splitlines()
        sent = typed(
            "client", "--url", guarded.service_url_tls, "produce", "private/auth/t", "-m", "x", *admin, *trusted
        )
        assert sent.returncode == 0, sent.stderr
