# SPDX-License-Identifier: Apache-2.0
"""What a pipeline is: the words of its file, checked before anything runs.

Every complaint is one sentence that names the place. Never reads a file and never asks Spark.
Decides.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from magnetar.errors import BadSetting

_NAME: Final = re.compile(r"[A-Za-z][\w.-]{0,99}")
_FRAME_NAME: Final = re.compile(r"[A-Za-z_]\w{0,99}")
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?)")
_UNITS_S: Final = {"ms": 0.001, "mi": 60.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class Place(Enum):
    """What a source reads or a sink writes."""

    TOPIC = "topic"
    FILES = "files"
    JDBC = "jdbc"
    TABLE = "table"
    CONSOLE = "console"


@dataclass(frozen=True, slots=True)
class Watermark:
    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    place: Place
    is_stream: bool
    format: str
    # The path, or the URL of a database.
    address: str
    schema: str | None
    watermark: Watermark | None
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    sql: str | None
    # A function, or where it is found: file.py:name.
    python: Callable[..., Any] | str | None
    inputs: tuple[str, ...]
    into: str | None
    watermark: Watermark | None


@dataclass(frozen=True, slots=True)
class Sink:
    name: str
    source: str
    place: Place
    format: str
    address: str
    mode: str
    partition_by: tuple[str, ...]
    keys: tuple[str, ...]
    order_by: str | None
    deleted_when: str | None
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class Retries:
    times: int = 5
    first_s: float = 1.0
    most_s: float = 60.0

    def pause_s(self, failures: int) -> float:
        """How long to wait after so many failures in a row."""
        return min(self.most_s, self.first_s * 2.0 ** max(0, failures - 1))


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    name: str
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    cluster: dict[str, str] = field(default_factory=dict)
    checkpoint: str | None = None
    # None: micro-batches one after another; 0: what is there now, then the end; otherwise seconds between two.
    trigger_s: float | None = None
    dead_letter: str | None = None
    retries: Retries = field(default_factory=Retries)

    @property
    def is_stream(self) -> bool:
        return any(one.is_stream for one in self.sources)


class _Words:
    """A mapping of a file, taken apart word by word; what is left over was misspelt."""

    def __init__(self, where: str, value: object) -> None:
        if not isinstance(value, Mapping):
            raise BadSetting(f"{where} should be words with values, like `name: value`")
        self.where = where
        self._left = {str(name): one for name, one in value.items()}

    def take(self, name: str, default: Any = None) -> Any:
        return self._left.pop(name, default)

    def has(self, name: str) -> bool:
        return name in self._left

    def text(self, name: str) -> str | None:
        found = self._left.pop(name, None)
        if found is None:
            return None
        if not isinstance(found, (str, int, float)) or isinstance(found, bool):
            raise BadSetting(f"{self.where}: {name} should be text")
        return str(found)

    def needed(self, name: str) -> str:
        found = self.text(name)
        if not found:
            raise BadSetting(f"{self.where}: {name} is missing")
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        found = self._left.pop(name, None)
        if found is None:
            return ()
        if isinstance(found, str):
            return tuple(part.strip() for part in found.split(","))
        if isinstance(found, Sequence):
            return tuple(str(part) for part in found)
        raise BadSetting(f"{self.where}: {name} should be a name or a list of names")

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        found = self.text(name) or default
        if found not in allowed:
            raise BadSetting(f"{self.where}: {name} is {found!r}; it should be one of {', '.join(allowed)}")
        return found

    def options(self) -> dict[str, str]:
        """Everything that is left: options of Spark's reader or writer."""
        left, self._left = self._left, {}
        for name, value in left.items():
            if not isinstance(value, (str, int, float, bool)):
                raise BadSetting(f"{self.where}: {name} should be one value")
        return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in left.items()}

    def end(self) -> None:
        if self._left:
            raise BadSetting(f"{self.where}: there is no word {sorted(self._left)[0]!r} here")


def pipeline_spec(document: object, variables: Mapping[str, str] | None = None) -> PipelineSpec:
    """From what a file says; `variables` go before the file's own. Raises BadSetting."""
    if not isinstance(document, Mapping):
        raise BadSetting("a pipeline's file should say name, sources, steps and sinks")
    values = {str(name): str(value) for name, value in (document.get("variables") or {}).items()}
    unknown = sorted(set(variables or {}) - set(values))
    if unknown:
        raise BadSetting(f"the pipeline has no variable {unknown[0]}; it has {', '.join(sorted(values)) or 'none'}")
    values |= dict(variables or {})
    words = _Words("the pipeline", _filled({k: v for k, v in document.items() if k != "variables"}, values))
    name = words.needed("name")
    if not _NAME.fullmatch(name):
        raise BadSetting(f"the pipeline's name {name[:100]!r} should be letters, digits, '_', '-' and '.'")
    cluster = _Words("cluster", words.take("cluster", {})).options()
    made = PipelineSpec(
        name=name,
        sources=tuple(_source(str(one), value) for one, value in _mapping(words, "sources").items()),
        steps=tuple(_step(number, value) for number, value in enumerate(_list(words, "steps"), 1)),
        sinks=tuple(_sink(number, value) for number, value in enumerate(_list(words, "sinks"), 1)),
        cluster=cluster,
        checkpoint=words.text("checkpoint"),
        trigger_s=_trigger(words.take("trigger")),
        dead_letter=words.text("dead-letter"),
        retries=_retries(words.take("retries")),
    )
    words.end()
    _check(made)
    return made


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    """With variables in the places of `${name}`."""
    if isinstance(value, str):

        def one(match: re.Match[str]) -> str:
            if match[1] not in variables:
                raise BadSetting(f"${{{match[1]}}} is used and not among the variables")
            return variables[match[1]]

        return _VARIABLE.sub(one, value)
    if isinstance(value, Mapping):
        return {name: _filled(one, variables) for name, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, variables) for one in value]
    return value


def _mapping(words: _Words, name: str) -> Mapping[str, Any]:
    found = words.take(name) or {}
    if not isinstance(found, Mapping):
        raise BadSetting(f"{name} should be names, each with what it is")
    return found


def _list(words: _Words, name: str) -> list[Any]:
    found = words.take(name) or []
    if not isinstance(found, list):
        raise BadSetting(f"{name} should be a list, each item beginning with a dash")
    return found


def _source(name: str, value: object) -> Source:
    words = _Words(f"source {name}", value)
    options: dict[str, str] = {}
    address = ""
    if words.has("topic") or words.has("topics") or words.has("topicsPattern"):
        place, form, default = Place.TOPIC, "pulsar", "stream"
    elif (files := words.text("files")) is not None:
        place, form, default, address = Place.FILES, words.text("format") or "parquet", "batch", files
    elif (url := words.text("jdbc")) is not None:
        place, form, default, address = Place.JDBC, "jdbc", "batch", url
        options["dbtable"] = words.needed("table")
    else:
        raise BadSetting(f"source {name} should say topic, topics, topicsPattern, files or jdbc")
    read = words.choice("read", ("stream", "batch"), default)
    if place is Place.JDBC and read == "stream":
        raise BadSetting(f"source {name}: a database is read as a batch")
    schema, watermark = words.text("schema"), _watermark(words)
    return Source(name, place, read == "stream", form, address, schema, watermark, options | words.options())


def _watermark(words: _Words) -> Watermark | None:
    value = words.take("watermark")
    if value is None:
        return None
    said = _Words(f"{words.where}: watermark", value)
    made = Watermark(said.needed("column"), said.needed("delay"))
    said.end()
    return made


def _step(number: int, value: object) -> Step:
    words = _Words(f"step {number}", value)
    name = words.needed("name")
    words.where = f"step {name}"
    sql, python = words.text("sql"), words.take("python")
    if (sql is None) == (python is None):
        raise BadSetting(f"step {name} should say sql or python, one of them")
    if python is not None and not callable(python) and not isinstance(python, str):
        raise BadSetting(f"step {name}: python should be file.py:function")
    made = Step(name, sql, python, words.texts("from"), words.text("into"), _watermark(words))
    words.end()
    return made


def _sink(number: int, value: object) -> Sink:
    words = _Words(f"sink {number}", value)
    source = words.needed("from")
    name = words.text("name") or f"{source}-{number}"
    words.where = f"sink {name}"
    form, address, options = "", "", {}
    if (topic := words.text("topic")) is not None:
        place, form, options = Place.TOPIC, "pulsar", {"topic": topic}
    elif words.take("topics-by-row") is True:
        place, form = Place.TOPIC, "pulsar"
    elif (files := words.text("files")) is not None:
        place, form, address = Place.FILES, words.text("format") or "parquet", files
    elif (url := words.text("jdbc")) is not None:
        place, form, address = Place.JDBC, "jdbc", url
        options = {"dbtable": words.needed("table")}
    elif (table := words.text("table")) is not None:
        place, form, address = Place.TABLE, "parquet", table
    elif words.take("console") is True:
        place, form = Place.CONSOLE, "console"
    else:
        raise BadSetting(f"sink {name} should say topic, topics-by-row: true, files, jdbc, table or console: true")
    mode = words.choice("mode", ("append", "update", "complete"), "append")
    keys = words.texts("key")
    if place is Place.TABLE and not keys:
        raise BadSetting(f"sink {name}: a table needs key, which says which rows replace each other")
    partition_by = words.texts("partition-by")
    order_by, deleted = words.text("order-by"), words.text("deleted-when")
    if deleted is not None and not keys:
        raise BadSetting(f"sink {name}: deleted-when needs key")
    options |= words.options()
    return Sink(name, source, place, form, address, mode, partition_by, keys, order_by, deleted, options)


def _trigger(value: object) -> float | None:
    if value is None or value == "continuous":
        return None
    if value == "available-now":
        return 0.0
    if isinstance(value, Mapping) and set(value) == {"every"}:
        return seconds_of("trigger: every", str(value["every"]))
    raise BadSetting("trigger should be continuous, available-now, or every: with a time like 10s")


def seconds_of(where: str, text: str) -> float:
    match = _TIME.fullmatch(text.strip().lower())
    if match is None:
        raise BadSetting(f"{where} is {text!r}; it should be a time like 500ms, 10s or 5 minutes")
    unit = match[2]
    return float(match[1]) * (_UNITS_S["ms"] if unit.startswith(("ms", "milli")) else _UNITS_S[unit[0]])


def _retries(value: object) -> Retries:
    if value is None:
        return Retries()
    words = _Words("retries", value)
    times = words.text("times") or "5"
    if not times.isdigit():
        raise BadSetting(f"retries: times is {times!r}; it should be a number")
    first = seconds_of("retries: first", words.text("first") or "1s")
    most = seconds_of("retries: most", words.text("most") or "60s")
    words.end()
    return Retries(int(times), first, most)


def _check(spec: PipelineSpec) -> None:
    """Names are there before they are used, each once; what a stream needs is there."""
    known: dict[str, None] = {}
    for name in (*(one.name for one in spec.sources), *(one.name for one in spec.steps)):
        if not _FRAME_NAME.fullmatch(name):
            raise BadSetting(f"{name!r} should be letters, digits and '_', for SQL names it so")
        if name in known:
            raise BadSetting(f"the name {name} is given twice")
        known[name] = None
    if not spec.sources or not spec.sinks:
        raise BadSetting("a pipeline needs at least one source and one sink")
    before = {one.name: None for one in spec.sources}
    for step in spec.steps:
        for name in step.inputs:
            if name not in before:
                raise BadSetting(f"step {step.name} takes {name}, which no source or step before it is called")
        before[step.name] = None
    names: dict[str, None] = {}
    for sink in spec.sinks:
        if sink.source not in before:
            raise BadSetting(f"sink {sink.name} takes {sink.source}, which no source or step is called")
        if sink.name in names:
            raise BadSetting(f"the name {sink.name} is given to two sinks")
        names[sink.name] = None
    if spec.is_stream and not spec.checkpoint:
        raise BadSetting("a pipeline that streams needs checkpoint: a directory that remembers how far it is")
