# SPDX-License-Identifier: Apache-2.0
"""Every verb of `magnetar admin` against a real broker: data/admin-commands.tsv is typed line by line.

A line is a command and, where it does not end with 0, the exit code that it ends with and words of its sentence. Code 6
is what brokers do not serve.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from magnetar.blocking import Client
from magnetar.cli.admin import run_admin
from magnetar.cli.verbs.table import nouns, verbs_of_noun
from tests.processes import StandaloneProcess

COMMANDS = Path(__file__).parent / "data" / "admin-commands.tsv"
SCHEMA = {"type": "STRING", "schema": "", "properties": {}}
SETTINGS = {
    "transactionCoordinatorEnabled": "true",
    "forceDeleteNamespaceAllowed": "true",
    "forceDeleteTenantAllowed": "true",
}
# Typed on its own: it ends the broker.
APART = {"brokers shutdown"}


class Typed(NamedTuple):
    words: str
    code: int
    says: str


def lines() -> list[Typed]:
    rows = [line.split("\t") for line in COMMANDS.read_text().splitlines() if line and not line.startswith("#")]
    return [Typed(row[0], int(row[1]) if len(row) > 1 else 0, row[2] if len(row) > 2 else "") for row in rows]


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("cli-admin"), environment=SETTINGS) as process:
        yield process


def test_every_verb_is_typed() -> None:
    typed = {" ".join(each.words.split()[:2]) for each in lines()}
    there = {f"{noun} {verb}" for noun in nouns() for verb in verbs_of_noun(noun)}
    assert there - typed == APART
    assert typed <= there


@pytest.mark.timeout(300)
@pytest.mark.feature("F-ADM-01")
@pytest.mark.feature("F-ADM-02")
@pytest.mark.feature("F-ADM-03")
@pytest.mark.feature("F-ADM-04")
@pytest.mark.feature("F-ADM-05")
@pytest.mark.feature("F-ADM-06")
def test_every_verb_does_what_it_says(
    standalone: StandaloneProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MAGNETAR_ADMIN_URL", standalone.web_url)
    monkeypatch.setenv("MAGNETAR_CONTEXTS", str(tmp_path / "contexts.json"))
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    names = {"{schema}": str(schema), "{broker}": f"127.0.0.1:{standalone.http_port}"}
    wrong: list[str] = []
    for each in lines():
        if "{ledger}" in each.words and "{ledger}" not in names:
            names |= dict(zip(("{ledger}", "{entry}"), published(standalone), strict=True))
        words = each.words
        for name, value in names.items():
            words = words.replace(name, value)
        code = run_admin(words.split(" "))
        out, error = capsys.readouterr()
        if code != each.code or each.says not in error:
            wrong.append(f"{words} => {code} {error.strip()}")
        # One sentence for a failure, none for success.
        assert error.count("\n") == (1 if code else 0), (words, error)
        if words.split()[1].startswith("get-") and code == 0:
            wrong += compared(words, out)
        if words.split()[1].startswith(READING) and code == 0:
            wrong += not_json(words, run_admin([*words.split(" "), "--json"]), capsys.readouterr().out)
    assert not wrong, "\n".join(wrong)


def test_a_broker_is_asked_to_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with StandaloneProcess(tmp_path / "going") as going:
        monkeypatch.setenv("MAGNETAR_ADMIN_URL", going.web_url)
        assert run_admin(["brokers", "shutdown"]) == 0
        assert capsys.readouterr().err == ""
        assert going.wait() == 0


def test_force_deletes_what_is_in_use(
    standalone: StandaloneProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGNETAR_ADMIN_URL", standalone.web_url)

    def typed(words: str) -> tuple[int, str, str]:
        code = run_admin(words.split())
        return (code, *capsys.readouterr())

    for words in (
        "tenants create doomed -c standalone",
        "namespaces create doomed/one",
        "namespaces create doomed/two",
        "topics create-partitioned-topic doomed/one/parts -p 2",
        "topics create-partitioned-topic doomed/two/parts -p 2",
    ):
        assert typed(words)[0] == 0, words
    client = Client(standalone.service_url)
    try:
        for namespace in ("doomed/one", "doomed/two"):
            client.create_producer(f"persistent://{namespace}/parts").send(b"x")
            client.subscribe(f"non-persistent://{namespace}/fleeting", "s")
        assert "Cannot delete non empty namespace" in typed("namespaces delete doomed/one")[2]
        assert "active namespaces" in typed("tenants delete doomed")[2]
        # A client that is still there would make its topic again: it meets a namespace that is gone.
        assert typed("namespaces delete doomed/one -f") == (0, "", "")
        assert typed("namespaces list doomed")[1] == "doomed/two\n"
        assert typed("tenants delete doomed -f") == (0, "", "")
    finally:
        client.close()
    assert "doomed" not in typed("tenants list")[1]
    assert typed("topics list doomed/one")[0] != 0


def published(standalone: StandaloneProcess) -> tuple[str, str]:
    """Where a message lies in the topic that the commands use."""
    client = Client(standalone.service_url)
    try:
        message_id = client.create_producer("persistent://acme/app/orders").send(b"hello")
    finally:
        client.close()
    return str(message_id.ledger_id), str(message_id.entry_id)


# Verbs that only look: typed once more for scripts.
READING = (
    "get",
    "list",
    "stats",
    "internal",
    "info",
    "partitioned-",
    "subscriptions",
    "permissions",
    "policies",
    "lookup",
)


def not_json(words: str, code: int, out: str) -> list[str]:
    """With --json there is one JSON value, also where people are shown lines, a word, or nothing."""
    try:
        json.loads(out)
    except ValueError:
        return [f"{words} --json shows {out[:80]!r}"]
    return [] if code == 0 else [f"{words} --json => {code}"]


# What a policy reads as after the set verb of the same file.
READS = {
    "namespaces get-message-ttl acme/app": 90,
    "namespaces get-retention acme/app": {"retentionTimeInMinutes": 180, "retentionSizeInMB": 10},
    "namespaces get-deduplication acme/app": False,
    "namespaces get-max-producers-per-topic acme/app": 5,
    "namespaces get-compaction-threshold acme/app": 5 << 20,
    "namespaces get-clusters acme/app": "standalone\n",
    "namespaces get-anti-affinity-group acme/app": "spread\n",
    "namespaces get-property acme/app -k k": "v\n",
    "topicPolicies get-max-message-size acme/app/orders": 5,
}


def compared(words: str, out: str) -> list[str]:
    expected = READS.get(words)
    if expected is None:
        return []
    found = out if isinstance(expected, str) or not out else json.loads(out)
    return [] if found == expected else [f"{words} shows {found}"]
