# SPDX-License-Identifier: Apache-2.0
"""What no code of ours does: run text as code, load objects from bytes, start a shell, or believe any certificate."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "magnetar"
FORBIDDEN_MODULES = frozenset({"pickle", "cPickle", "dill", "marshal", "shelve", "telnetlib"})
FORBIDDEN_CALLS = frozenset({"eval", "exec", "os.system", "os.popen", "yaml.load", "tempfile.mktemp"})
# A client's user may say that any certificate will do, or any name; nobody else.
BELIEVES_ANYBODY = {"client/tls.py": {"CERT_NONE", "check_hostname"}}


def named(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{named(node.value)}.{node.attr}"
    return ""


def findings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names if each.name in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in FORBIDDEN_MODULES:
            yield node.lineno, node.module
        elif isinstance(node, ast.Call):
            if named(node.func) in FORBIDDEN_CALLS:
                yield node.lineno, named(node.func)
            for keyword in node.keywords:
                is_set = isinstance(keyword.value, ast.Constant)
                if keyword.arg == "shell" and is_set and keyword.value.value is True:  # type: ignore[attr-defined]
                    yield node.lineno, "shell=True"
                if keyword.arg in ("verify", "check_hostname") and is_set and keyword.value.value is False:  # type: ignore[attr-defined]
                    yield node.lineno, keyword.arg
        elif isinstance(node, ast.Attribute) and node.attr == "CERT_NONE":
            yield node.lineno, "CERT_NONE"
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is False:
            names = [each.attr for each in node.targets if isinstance(each, ast.Attribute)]
            yield from ((node.lineno, name) for name in names if name == "check_hostname")


def test_nothing_forbidden_is_called() -> None:
    """F153: nowhere is text run, or an object made of what bytes say it is."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        allowed = BELIEVES_ANYBODY.get(place, set())
        for line, what in findings(ast.parse(path.read_text(encoding="utf-8"))):
            if what not in allowed:
                found.append(f"{place}:{line} {what}")
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "eval(text)",
        "subprocess.run(text, shell=True)",
        "yaml.load(text)",
        "context.verify_mode = ssl.CERT_NONE",
        "context.check_hostname = False",
        "httpx.Client(verify=False)",
    ],
)
def test_each_of_them_would_be_found(text: str) -> None:
    assert list(findings(ast.parse(text)))
