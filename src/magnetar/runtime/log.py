# SPDX-License-Identifier: Apache-2.0
"""Log lines with fields: for people on a terminal, as JSON elsewhere. Never a secret, never a flood.

Owns the form of lines, the removal of credentials and the counting of repeats; stdlib logging carries the records. A
module logs through `logging.getLogger(__name__)` and gives fields with `extra={…}`; an owner that logs often takes an
`OwnerLog`, which adds its fields to every line. Never decides what is worth a line.
Carries.
"""

import json
import logging
import re
import sys
from collections import OrderedDict
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from magnetar.config.runtime import RuntimeSettings

# The request that the running task works for; every line that it logs names it.
REQUEST: Final[ContextVar[str]] = ContextVar("request", default="")
# Its lines are each of their own worth: none is held back as a repeat.
AUDIT_LOGGER: Final = "magnetar.audit"
REDACTED: Final = "<redacted>"
# Kinds of lines whose repeats are counted at one time; the one seen longest ago is forgotten first.
REPEATED_LINES_MAX: Final = 1_000
LINE_CHARACTERS_MAX: Final = 16_384

_CREDENTIAL_WORDS: Final = (
    r"pass(?:word|wd|phrase)?|secret|token|credential|authorization|auth[_-]?(?:data|params|parameters)|"
    r"private[_-]?key|access[_-]?key|api[_-]?key|master[_-]?key|jaas|cookie[_-]?value"
)
_CREDENTIAL_NAME = re.compile(rf"(?:^|[^a-z])(?:{_CREDENTIAL_WORDS})|(?:{_CREDENTIAL_WORDS})s?$", re.IGNORECASE)
_PLACE_NAME = re.compile(
    r"(?:path|file|class|plugin|provider|type|claim|audience|bytes|count|max|id)s?$", re.IGNORECASE
)
_CREDENTIAL_TEXT = re.compile(
    r"(?P<name>[\"']?\b[\w.\-]{0,64}(?:" + _CREDENTIAL_WORDS + r")[\"']?\s*[=:]\s*)"
    r"(?P<value>\"[^\"]*\"|'[^']*'|(?:(?:Bearer|Basic)\s+)?[^\s,;&\"'})\]]+)"
    r"|(?P<scheme>\b(?:Bearer|Basic)\s+)[A-Za-z0-9+/=._~\-]{8,}"
    r"|\beyJ[A-Za-z0-9_\-]{5,}\.[A-Za-z0-9_\-]{5,}(?:\.[A-Za-z0-9_\-]*)?"
    r"|(?P<user>://[^\s/:@]*:)[^\s/@]+(?=@)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.IGNORECASE | re.DOTALL,
)
# Also what a terminal would obey, and what could not be written as UTF-8.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_STANDARD_FIELDS: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def redact(text: str) -> str:
    """The text without passwords, tokens and keys that can be recognised in it."""
    return _CREDENTIAL_TEXT.sub(_without_credential, text)


def _without_credential(match: re.Match[str]) -> str:
    if match["name"] is not None:
        return f"{match['name']}{REDACTED}"
    return f"{match['scheme'] or match['user'] or ''}{REDACTED}"


def is_credential(name: str) -> bool:
    return _CREDENTIAL_NAME.search(name) is not None and _PLACE_NAME.search(name) is None


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What `extra` gave, without secrets and in a form that both kinds of lines can write."""
    fields: dict[str, Any] = {}
    for name, value in record.__dict__.items():
        if name in _STANDARD_FIELDS:
            continue
        if is_credential(name):
            fields[name] = REDACTED
        elif isinstance(value, bool | int | float) or value is None:
            fields[name] = value
        else:
            fields[name] = redact(str(value)[:LINE_CHARACTERS_MAX])
    request = REQUEST.get()
    if request:
        fields.setdefault("request", request)
    return fields


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JsonLines(logging.Formatter):
    """One object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()[:LINE_CHARACTERS_MAX]),
        }
        line |= {name: value for name, value in _fields(record).items() if name not in line}
        if record.exc_info:
            line["error"] = redact(self.formatException(record.exc_info)[-LINE_CHARACTERS_MAX:])
        return json.dumps(line)


class HumanLines(logging.Formatter):
    """Time, level, who, what, fields; a traceback below."""

    def format(self, record: logging.LogRecord) -> str:
        who = record.name.removeprefix("magnetar.")
        message = redact(record.getMessage()[:LINE_CHARACTERS_MAX])
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname:<7} {who}: {message}{fields}"
        # One record is one line, whatever a peer put into a name.
        line = _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), line)
        if record.exc_info:
            line = f"{line}\n{redact(self.formatException(record.exc_info)[-LINE_CHARACTERS_MAX:])}"
        return line


class _Repeats:
    __slots__ = ("since", "suppressed", "written")

    def __init__(self, since: float) -> None:
        self.since = since
        self.written = 0
        self.suppressed = 0


class RepeatFilter(logging.Filter):
    """Lets a number of equal lines pass in one interval; the first of the next says how many were held back.

    Lines are equal when logger, level and the text before formatting are.
    """

    def __init__(self, repeats_max: int, interval_s: float) -> None:
        super().__init__()
        self._repeats_max = repeats_max
        self._interval_s = interval_s
        self._seen: OrderedDict[tuple[str, int, str], _Repeats] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == AUDIT_LOGGER:
            return True
        key = (record.name, record.levelno, str(record.msg))
        repeats = self._seen.get(key)
        if repeats is None:
            repeats = self._seen[key] = _Repeats(record.created)
            if len(self._seen) > REPEATED_LINES_MAX:
                self._seen.popitem(last=False)
        else:
            self._seen.move_to_end(key)
        # A wall clock that was set back starts a new interval too.
        if not 0 <= record.created - repeats.since < self._interval_s:
            if repeats.suppressed:
                record.__dict__["lines_held_back"] = repeats.suppressed
            repeats.since, repeats.written, repeats.suppressed = record.created, 0, 0
        if repeats.written >= self._repeats_max:
            repeats.suppressed += 1
            return False
        repeats.written += 1
        if repeats.written == self._repeats_max:
            record.__dict__["further_lines"] = "held back and counted"
        return True


class OwnerLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose every line carries its owner's fields, such as topic or bookie."""

    def __init__(self, logger: logging.Logger, **fields: object) -> None:
        super().__init__(logger, fields)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        given: Mapping[str, object] = kwargs.get("extra") or {}
        kwargs["extra"] = {**(self.extra or {}), **given}
        return msg, kwargs


def start_logging(settings: RuntimeSettings, stream: TextIO = sys.stderr) -> logging.Handler:
    """Send all lines of the process to the stream, in place of whatever was set up before."""
    human = settings.log_format == "human" or (settings.log_format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(HumanLines() if human else JsonLines())
    handler.addFilter(RepeatFilter(settings.log_repeats_max, settings.log_repeat_interval_ms / 1000))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(settings.log_level.upper())
    # It has a line for every request; etcd alone is asked many times a second.
    logging.getLogger("httpx").setLevel(max(root.level, logging.WARNING))
    logging.captureWarnings(True)
    # What we log is for the operator; a broken pipe to him must not print a traceback for every line.
    logging.raiseExceptions = False
    return handler
