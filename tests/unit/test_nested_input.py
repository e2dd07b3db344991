# SPDX-License-Identifier: Apache-2.0
"""Text that nests without end: whoever reads JSON, YAML or protobuf's text from outside expects it.

Python's readers end it with a RecursionError, which is no ValueError.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from magnetar.bookie.http_routes import Asked
from magnetar.cli import cluster_plan, contexts, http, worker_plan
from magnetar.client.authentication import parse_parameters
from magnetar.client.http_lookup import _checked
from magnetar.client.oauth2 import _json, _key_file
from magnetar.errors import MagnetarError
from magnetar.ledger.auditor_election import decode_vote
from magnetar.ledger.bookie_places import decode_places
from magnetar.ledger.placement import AFFINITY_KEY, ANYWHERE, affinity_of
from magnetar.ledger.repair_list import decode_mark
from magnetar.metadata.etcd_access import _read as read_etcd_access
from magnetar.metadata.etcd_client import _read as read_etcd_answer
from magnetar.metadata.etcd_format import error_text
from magnetar.proxy.brokers import _announced
from magnetar.wire.bookkeeper import cookie

SOURCE = Path(__file__).resolve().parents[2] / "src" / "magnetar"
DEEP = b"[" * 50_000
_ANSWER = httpx.Response(200, content=DEEP, request=httpx.Request("GET", "http://h/p"))
_READERS = {("json", "loads"), ("json", "load"), ("yaml", "safe_load"), ("text_format", "Parse")}
_WORDS = (*(".".join(reader) for reader in _READERS), ".json()")
_CATCHING = {"RecursionError", "Exception", "BaseException"}

# Where no error is expected, and why that is right.
UNGUARDED = {
    "admin/at_owner.py:value": "another broker's answer to an admin request, which an error ends with a 500",
    "admin/text_values.py:_json": "called by _checked, which expects it",
    "admin/transactions.py:_elsewhere": "another broker's answer to an admin request, which an error ends with a 500",
    "broker/schemas/schema.py:_part": "called by key_and_value, which expects it",
    "cli/fsck_bookies.py:_held": "a bookie's own answer to a command that an error ends",
    "cli/fsck_bookies.py:_read_all": "a bookie's own answer to a command that an error ends",
    "client/schema_avro.py:__init__": "parsed before by `parsed`, which expects it",
    "ledger/auditor_election.py:decode_vote": "its message has no field that nests, and unknown ones are refused",
    "ledger/repair_list.py:decode_mark": "its message has no field that nests, and unknown ones are refused",
    "spark/archive/archiver.py:_step": "what Spark has just written",
    "spark/pipelines/delta_table.py:_write": "what Spark has just written",
    "spark/values.py:read": "called by ValueColumns.read, which expects everything",
    "wire/bookkeeper/ledger_metadata.py:_decode_text": "its message nests two levels, and unknown fields are refused",
}


def _reads(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The reads outside of a `try` that expects a RecursionError: their function and line."""

    def walk(node: ast.AST, function: str, is_guarded: bool) -> Iterator[tuple[str, int]]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function, is_guarded = node.name, False
        if isinstance(node, ast.Try):
            names = {
                each.id if isinstance(each, ast.Name) else getattr(each, "attr", "")
                for handler in node.handlers
                for each in (ast.walk(handler.type) if handler.type is not None else ())
            }
            rest: list[ast.AST] = [*node.handlers, *node.orelse, *node.finalbody]
            for statement in node.body:
                yield from walk(statement, function, is_guarded or bool(names & _CATCHING))
            for part in rest:
                yield from walk(part, function, is_guarded)
            return
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not is_guarded:
            owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            is_answer = node.func.attr == "json" and not node.args and owner in ("answer", "response")
            if (owner, node.func.attr) in _READERS or is_answer:
                yield function, node.lineno
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function, is_guarded)

    yield from walk(tree, "", False)


def test_whoever_reads_nested_text_expects_it_to_nest_too_deeply() -> None:
    unguarded: dict[str, int] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not any(word in text for word in _WORDS):
            continue
        for function, line in _reads(ast.parse(text)):
            unguarded[f"{path.relative_to(SOURCE)}:{function}"] = line
    assert {place: line for place, line in unguarded.items() if place not in UNGUARDED} == {}
    assert set(UNGUARDED) <= set(unguarded), "a reason for a place that there is no more"


def test_a_read_without_a_guard_is_seen() -> None:
    def places(text: str) -> list[str]:
        return [function for function, _ in _reads(ast.parse(text))]

    assert places("def f():\n try:\n  json.loads(x)\n except ValueError:\n  pass") == ["f"]
    assert places("def f():\n try:\n  json.loads(x)\n except (ValueError, RecursionError):\n  pass") == []
    assert places("async def f():\n return answer.json()") == ["f"]


@pytest.mark.parametrize(
    "read",
    [
        lambda: cookie.decode(b"4\n" + b"a<" * 20_000),
        lambda: cluster_plan.decode(DEEP.decode(), "a file"),
        lambda: worker_plan.decode_charge(DEEP.decode()),
        lambda: parse_parameters('{"a":' + DEEP.decode()),
        lambda: _checked(_ANSWER),
        lambda: _json(_ANSWER),
        lambda: _json(httpx.Response(200, content=b"\xff", request=_ANSWER.request)),
        lambda: _key_file("data:," + DEEP.decode()),
        lambda: decode_vote(DEEP, "a vote"),
        lambda: decode_mark(1, DEEP, 1),
        lambda: read_etcd_answer(DEEP, "a range"),
    ],
)
def test_text_that_nests_too_deeply_is_refused(read: Callable[[], object]) -> None:
    with pytest.raises(MagnetarError):
        read()


def test_a_body_for_a_bookie_that_nests_too_deeply_is_the_askers_fault() -> None:
    with pytest.raises(ValueError, match="nests"):
        Asked({}, DEEP).document()
    with pytest.raises(ValueError, match="nests"):
        decode_places(DEEP)


def test_what_may_be_unreadable_is_left_out_when_it_nests_too_deeply() -> None:
    assert affinity_of({AFFINITY_KEY: DEEP}) == ANYWHERE
    assert _announced("a:1", DEEP) == []
    assert error_text(DEEP).startswith("[[[")
    assert worker_plan.decode_ports(DEEP) == []
    assert http._value("application/json", DEEP) == DEEP.decode()


def test_a_file_that_nests_too_deeply_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "deep"
    file.write_bytes(DEEP[:5_000])
    monkeypatch.setattr(contexts, "contexts_path", lambda environment: file)
    with pytest.raises(MagnetarError, match="deep"):
        contexts.load_contexts({})
    with pytest.raises(MagnetarError, match="deep"):
        read_etcd_access(str(file))
