# SPDX-License-Identifier: Apache-2.0
"""Every command of pulsar-admin has its counterpart: the same words and flags, and the same requests for them."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from magnetar.cli import client_commands, perf_commands
from magnetar.cli.admin import answer_of, run_admin
from magnetar.cli.values import WrongUse
from magnetar.cli.verbs.table import NOT_SERVED, nouns, verbs_of_noun
from magnetar.cli.verbs.verb import AdminAnswer, AdminRequest

DATA = Path(__file__).parent / "data"


def table(name: str) -> list[list[str]]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


FLAGS = [row for row in table("pulsar-admin-flags.tsv") if not row[0].startswith("pulsar-")]
# Commands that only make sense in Java.
NOT_HERE = {"schemas extract"}
# Flags that are required here and not there, where a request without them could not mean anything.
STRICTER = {("transactions scale-transactionCoordinators", "replicas")}
# Required there, and here only one of two.
LOOSER = {("persistent expire-messages", "expireTime")}


@pytest.mark.parametrize("noun", sorted({row[0].split()[0] for row in FLAGS}))
def test_a_noun_has_the_verbs_and_flags_of_pulsar_admin(noun: str) -> None:
    for row in FLAGS:
        if row[0].split()[0] == noun and row[0] not in NOT_HERE:
            check_flags(row[0], int(row[1]), row[2].split())


def check_flags(words: str, count: int, flags: list[str]) -> None:
    noun, verb_name = words.split()
    command = verbs_of_noun(noun)[verb_name].command
    assert len(command.arguments) == count, words
    ours = {name: each for each in command.flags for name in each.names}
    for text in flags:
        names, takes_value, required = text.rstrip("=").rstrip("!").split("|"), text.endswith("="), "!" in text
        found = {ours[name].key for name in names if name in ours}
        assert len(found) == 1, f"{names} should be one flag"
        assert all(name in ours for name in names), f"{names} should all be there"
        one = ours[names[0]]
        assert takes_value is not one.kind.is_switch, names
        assert required == one.is_required or (words, one.key) in STRICTER | LOOSER, names


def test_nothing_of_pulsar_admin_is_left_out() -> None:
    assert {row[0].split()[0] for row in FLAGS} >= set(nouns())
    with pytest.raises(WrongUse, match="not there"):
        verbs_of_noun(NOT_SERVED[0])


class Recorder:
    """Answers as the server did that pulsar-admin's requests were recorded with."""

    def __init__(self) -> None:
        self.asked: list[AdminRequest] = []

    def ask(self, request: AdminRequest) -> AdminAnswer:
        self.asked.append(request)
        path = urlsplit(request.path).path
        if path.endswith("/partitions"):
            return AdminAnswer({"partitions": 0})
        if path.endswith(("/topics", "subscriptions", "/clusters", "/tenants", "/t/n", "/partitioned")):
            return AdminAnswer(["persistent://t/n/x"])
        return AdminAnswer({"adminRoles": [], "allowedClusters": [], "ledgers": []})

    def confirm(self, question: str) -> bool:
        return True

    def now_ms(self) -> int:
        return 0

    def pause(self, seconds: float) -> None:
        raise AssertionError("nothing to wait for")


# pulsar-admin 4.0.8 is recorded doing something else here, and ours is meant: what differs and why.
DIFFERENT = {
    "topics create-shadow-topic": "names are the same",
    "brokers version": "the record holds the request of the command before it",
    "clusters list": "asks for the settings of the broker only with --current",
    "clusters delete": "the recording ends at a namespace that cannot be one",
    "tenants update": "the recording ends at an answer without members",
    "namespaces get-anti-affinity-namespaces": "a path of the first version there",
    "namespaces create": "there with all members of the record, empty",
    "brokers namespaces": "the name of the broker is encoded",
    "topics partitioned-lookup": "the recording says that there are no partitions",
    "topics set-backlog-quota": "without a limit it would mean nothing",
    "topicPolicies set-dispatcher-pause-on-ack-state-persistent": "there with the flags of the command before it",
    "topicPolicies get-dispatcher-pause-on-ack-state-persistent": "as above",
    "topicPolicies set-replication-clusters": "as above",
    "topicPolicies remove-dispatcher-pause-on-ack-state-persistent": "as above",
    "topicPolicies get-replication-clusters": "as above",
    "topicPolicies remove-replication-clusters": "as above",
}
# Members and parameters that are there only to say what holds without them.
IMPLIED: dict[str, Any] = {
    "batchSize": 0,
    "excluded": False,
    "deleteSchema": "true",
    "excludePublishers": "false",
    "excludeConsumers": "false",
    "createLocalTopicOnly": "false",
    "empty": False,
    "isGlobal": "false",
    "applied": "false",
    "showServerMarker": "false",
    "transactionIsolationLevel": "READ_COMMITTED",
    "force": "false",
    "messageTTL": "0",
    "metadata": "false",
    "includeSystemTopic": "false",
    "brokerClientTlsTrustStoreType": "JKS",
    "brokerClientTlsKeyStoreType": "JKS",
    "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
    "brokerClientTlsEnabled": False,
    "tlsAllowInsecureConnection": False,
    "brokerClientTlsEnabledWithKeyStore": False,
}
OFFLOAD_ONLY_THERE = (
    "offloadersDirectory",
    "managedLedgerOffloadMaxThreads",
    "managedLedgerOffloadReadThreads",
    "gcsDriver",
    "fileSystemDriver",
    "managedLedgerOffloadPrefetchRounds",
    "managedLedgerExtraConfigurations",
    "s3Driver",
    "gcsManagedLedgerOffloadMaxBlockSizeInBytes",
    "gcsManagedLedgerOffloadReadBufferSizeInBytes",
)


def plain(content: Any) -> Any:
    if isinstance(content, dict):
        kept = {key: value for key, value in content.items() if key not in OFFLOAD_ONLY_THERE}
        return {key: plain(value) for key, value in kept.items() if IMPLIED.get(key, content) != value}
    return content


def recorded(text: str) -> tuple[Any, ...]:
    method, path, *body = text.split(" ", 2)
    return method, *of_url(path), body_of(body[0] if body else "")


def of_url(url: str) -> tuple[Any, ...]:
    parts = urlsplit(url)
    return unquote(parts.path), {key: value for key, value in parse_qsl(parts.query) if IMPLIED.get(key) != value}


def body_of(text: str) -> Any:
    try:
        return plain(json.loads(text)) if text else None
    except ValueError:
        return text


REQUESTS = table("pulsar-admin-requests.tsv")


@pytest.mark.parametrize("noun", sorted({row[0].split()[0] for row in REQUESTS}))
def test_what_is_typed_is_the_request_that_pulsar_admin_sends(noun: str) -> None:
    for row in REQUESTS:
        words = row[0].split(" ")
        if words[0] == noun and " ".join(words[:2]) not in DIFFERENT:
            check_requests(words, [recorded(text) for text in row[1:]])


def check_requests(words: list[str], expected: list[tuple[Any, ...]]) -> None:
    verb = verbs_of_noun(words[0])[words[1]]
    api = Recorder()
    answer_of(verb, api, verb.command.read(words[2:]))
    ours = [(each.method, *of_url(each.path), body_of((each.body or b"").decode())) for each in api.asked]
    assert ours[: len(expected)] == expected, " ".join(words)


@pytest.mark.parametrize("tool", ["client", "perf"])
def test_client_and_perf_take_the_flags_of_pulsars_tools(tool: str) -> None:
    commands, common = {
        "client": (client_commands.COMMANDS, client_commands.COMMON),
        "perf": (perf_commands.COMMANDS, perf_commands.COMMON),
    }[tool]
    rows = [row for row in table("pulsar-admin-flags.tsv") if row[0].startswith(f"pulsar-{tool} ")]
    assert {row[0].split()[1] for row in rows} == {*commands} - {"view"}
    for words, _, flags in rows:
        ours = {name: each for each in (*commands[words.split()[1]].flags, *common) for name in each.names}
        for text in flags.split():
            for name in text.rstrip("=").rstrip("!").split("|"):
                assert name in ours, f"{words} {name}"
                assert ours[name].kind.is_switch is not text.endswith("="), f"{words} {name}"


@pytest.mark.feature("F-LB-03")
def test_the_balancer_is_asked_and_told_without_a_noun(capsys: pytest.CaptureFixture[str]) -> None:
    verb, asked = verbs_of_noun("brokers")["balance"], Recorder()
    for words in (["--explain"], []):
        answer_of(verb, asked, verb.command.read(words))
    assert [(each.method, each.path) for each in asked.asked] == [
        ("GET", "/admin/v2/brokers/balance"),
        ("POST", "/admin/v2/brokers/balance"),
    ]
    assert run_admin(["balance", "--help"]) == 0
    assert "--explain" in capsys.readouterr().out
