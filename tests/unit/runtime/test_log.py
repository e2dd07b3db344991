# SPDX-License-Identifier: Apache-2.0
"""Log lines: both forms, no secrets, no floods."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.config.runtime import RuntimeSettings
from magnetar.runtime.log import REDACTED, HumanLines, JsonLines, OwnerLog, RepeatFilter, redact, start_logging


def record(message: str, created: float = 0.0, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("magnetar.bookie.journal", logging.WARNING, __file__, 1, message, (), None)
    made.created = created
    made.__dict__.update(extra)
    return made


@pytest.fixture
def quiet_root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    logging.raiseExceptions = True


def test_json_lines_are_objects_with_fields() -> None:
    line = json.loads(JsonLines().format(record("sync took long", 1.5, bookie="b1", wait_ms=7, topic="a\nb")))
    assert line == {
        "time": "1970-01-01T00:00:01.500Z",
        "level": "warning",
        "logger": "magnetar.bookie.journal",
        "message": "sync took long",
        "bookie": "b1",
        "wait_ms": 7,
        "topic": "a\nb",
    }


def test_human_lines_stay_on_one_line() -> None:
    line = HumanLines().format(record("lost\nconnection", 1.5, peer="1.2.3.4\r\n5"))
    assert line == "1970-01-01T00:00:01.500Z WARNING bookie.journal: lost\\nconnection peer=1.2.3.4\\r\\n5"


def test_a_traceback_comes_along_without_its_secrets() -> None:
    try:
        raise ValueError("cannot log in with password=hunter2")
    except ValueError as error:
        made = record("failed")
        made.exc_info = (ValueError, error, error.__traceback__)
    for formatter in (JsonLines(), HumanLines()):
        line = formatter.format(made)
        assert "Traceback" in line
        assert "hunter2" not in line
        made.exc_text = None


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2",
        "tlsKeyStorePassword=hunter2",
        "managedLedgerPassword: hunter2",
        '{"password": "hunter2"}',
        "{'secret': 'hunter2 with blanks'}",
        "passwd = hunter2,next",
        "token=hunter2&x=1",
        "Authorization: Bearer hunter2",
        "Authorization: Basic hunter2==",
        "authParams=hunter2",
        "auth_data: hunter2",
        "brokerClientAuthenticationParameters=token:hunter2",
        "aws_secret_access_key=hunter2",
        "private-key=hunter2",
        "master_key=hunter2",
        "http://user:hunter2@host:8080/x",
        "connect with Bearer hunter2hunter2",
        "jwt eyJhbGciOiJIUzI1NiJ9.eyJhunter2.hunter2 rejected",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nhunter2",
    ],
)
def test_secrets_in_text_are_removed(text: str) -> None:
    """F154: whatever form a secret takes in an error or an address."""
    assert "hunter2" not in redact(text)
    assert REDACTED in redact(text)
    for formatter in (JsonLines(), HumanLines()):
        assert "hunter2" not in formatter.format(record(text))
        assert "hunter2" not in formatter.format(record("x", note=text))


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "tlsKeyStorePassword",
        "secret",
        "token",
        "authData",
        "auth_params",
        "api_key",
        "credentials",
        "Authorization",
    ],
)
def test_fields_with_secret_names_are_removed(name: str) -> None:
    for formatter in (JsonLines(), HumanLines()):
        line = formatter.format(record("x", 0.0, **{name: "hunter2"}))
        assert "hunter2" not in line
        assert REDACTED in line


@pytest.mark.parametrize(
    "text",
    [
        "topic persistent://public/default/t is loaded",
        "ledger=5 entry=6",
        "http://host:8080/admin",
        "3 tokens left",
        "producer passed",
        "the secret of success",
        "key_shared consumer joined",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text) == text
    assert text in HumanLines().format(record("x", note=text))


@pytest.mark.parametrize("name", ["tls_key_path", "token_audience", "secret_file", "password_path", "key", "topic"])
def test_ordinary_fields_stay(name: str) -> None:
    assert f"{name}=value1" in HumanLines().format(record("x", 0.0, **{name: "value1"}))


def test_repeats_are_counted_and_said() -> None:
    repeats = RepeatFilter(repeats_max=2, interval_s=10)
    first, second, third, fourth = (record("disk slow", created) for created in (0.0, 1.0, 2.0, 3.0))
    assert [repeats.filter(made) for made in (first, second, third, fourth)] == [True, True, False, False]
    assert "further_lines" in second.__dict__
    assert repeats.filter(record("other", 3.0))
    later = record("disk slow", 11.0)
    assert repeats.filter(later)
    assert later.__dict__["lines_held_back"] == 2
    assert repeats.filter(record("disk slow", 5.0)), "a clock set back starts anew"


def test_what_is_remembered_about_repeats_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.runtime.log.REPEATED_LINES_MAX", 3)
    repeats = RepeatFilter(repeats_max=1, interval_s=10)
    for number in range(10):
        assert repeats.filter(record(f"line {number}"))
    assert len(repeats._seen) == 3
    assert not repeats.filter(record("line 9"))
    assert repeats.filter(record("line 0"))


@pytest.mark.usefixtures("quiet_root")
@pytest.mark.parametrize(("log_format", "is_json"), [("json", True), ("human", False), ("auto", True)])
def test_the_whole_way(log_format: str, is_json: bool) -> None:
    stream = io.StringIO()
    start_logging(RuntimeSettings(log_format=log_format, log_level="info"), stream)
    log = OwnerLog(logging.getLogger("magnetar.broker.topic"), topic="t1")
    log.debug("not written")
    log.info("loaded in %d ms", 5, extra={"ledgers": 3})
    line = stream.getvalue()
    assert line.count("\n") == 1
    if is_json:
        assert json.loads(line)["topic"] == "t1"
        assert json.loads(line)["message"] == "loaded in 5 ms"
    assert "ledgers" in line


@pytest.mark.usefixtures("quiet_root")
def test_auto_is_human_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    start_logging(RuntimeSettings(), stream)
    logging.getLogger("magnetar.cli").info("hello")
    assert " INFO    cli: hello" in stream.getvalue()


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200), st.text(max_size=30))
def test_any_text_makes_a_line(message: str, field: str) -> None:
    """F154: no name, key or error makes a second line."""
    made = record("%s", note=field)
    made.args = (message,)
    line = JsonLines().format(made)
    assert len(line.splitlines()) == 1
    json.loads(line)
    line = HumanLines().format(made)
    assert len(line.splitlines()) == 1
    line.encode()


def test_a_long_line_is_cut_and_costs_little() -> None:
    line = HumanLines().format(record("a." * 200_000 + "password=hunter2"))
    assert len(line) < 20_000
    assert "hunter2" not in line


def test_a_terminal_is_not_given_orders() -> None:
    assert "\x1b" not in HumanLines().format(record("x", topic="\x1b[2J"))


def test_requests_of_an_http_library_are_not_logged_one_by_one() -> None:
    lines = io.StringIO()
    start_logging(RuntimeSettings(log_format="json", log_level="info"), lines)
    logging.getLogger("httpx").info("HTTP Request: POST …")
    logging.getLogger("httpx").warning("something is wrong")
    assert [json.loads(line)["message"] for line in lines.getvalue().splitlines()] == ["something is wrong"]
