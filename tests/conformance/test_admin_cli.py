# SPDX-License-Identifier: Apache-2.0
"""`magnetar admin` against a real broker: what people type, what they read, what scripts see."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from magnetar.cli.admin import VERBS, AdminRequest, WrongUse, request_of
from tests.processes import StandaloneProcess, free_port

Typed = Callable[..., "subprocess.CompletedProcess[str]"]


def typed_to(url: str) -> Typed:
    def typed(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "magnetar.cli.main", "admin", "--admin-url", url, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return typed


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typed]:
    with StandaloneProcess(tmp_path_factory.mktemp("admin")) as standalone:
        yield typed_to(standalone.web_url)


@pytest.mark.feature("F-ADM-05")
def test_a_topic_from_its_tenant_to_its_end(typed: Typed) -> None:
    info = json.dumps({"allowedClusters": ["standalone"]})
    assert typed("tenants", "create", "acme", info).returncode == 0
    assert typed("namespaces", "create", "acme/app").returncode == 0
    assert typed("namespaces", "set-policy", "acme/app", "messageTTL", "30").returncode == 0
    assert typed("namespaces", "get-policy", "acme/app", "messageTTL").stdout == "30\n"
    assert typed("topics", "create-partitioned-topic", "acme/app/t", "2").returncode == 0
    assert len(json.loads(typed("topics", "list", "acme/app").stdout)) == 2
    assert typed("topics", "delete-partitioned-topic", "acme/app/t", "--force").returncode == 0


def test_a_refusal_is_one_sentence(typed: Typed) -> None:
    answer = typed("topics", "stats", "nothing")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == "magnetar: Topic persistent://public/default/nothing not found\n"


def test_an_unreachable_broker_is_said() -> None:
    answer = typed_to(f"http://127.0.0.1:{free_port()}")("tenants", "list")
    assert answer.returncode == 3
    assert "--admin-url" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    "words",
    [(), ("nouns",), ("topics",), ("topics", "fly"), ("topics", "stats"), ("topics", "stats", "t", "more")],
)
def test_wrong_words_are_told_what_they_should_be(words: tuple[str, ...]) -> None:
    with pytest.raises(WrongUse):
        request_of(words)


def test_names_are_encoded_on_their_way() -> None:
    asked = request_of(["topics", "create-subscription", "a b?", "x/../y", "earliest"])
    path = "/admin/v2/persistent/public/default/a+b%3F/subscription/x%2F..%2Fy"
    assert asked == AdminRequest("PUT", path, b'"earliest"')


@pytest.mark.parametrize("noun", VERBS)
def test_every_verb_is_a_request(noun: str) -> None:
    samples = {"topic": "t", "namespace": "a/b"}
    for name, verb in VERBS[noun].items():
        needed = [part.partition("}")[0] for part in verb.path.split("{")[1:]]
        words = [noun, name, *(samples.get(each, "1") for each in needed), *(["{}"] if verb.body else [])]
        assert "{" not in request_of(words).path
