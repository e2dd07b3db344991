# SPDX-License-Identifier: Apache-2.0
"""What a user says with `.option(…)`, checked once, before anything is connected.

Names are those of the JVM connector where it has them. Secrets are given by file or by the name of an environment
variable and are read where they are used, so that they reach no plan, no log and no error. Never asks a broker.
Decides.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, Literal, TypeVar

from magnetar.errors import BadMessageId, BadSetting
from magnetar.ids import EARLIEST, LATEST, MessageId
from magnetar.names import TopicName
from magnetar.spark.offsets import Offset, Place, offsets_from_json

EARLIEST_TEXT: Final = "earliest"
LATEST_TEXT: Final = "latest"
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|h)?")
_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE)
_SECRETS: Final = frozenset({"pulsar.admin.authparams", "token", "password"})
_METADATA_SCHEMES: Final = ("remote", "zk", "etcd")

E = TypeVar("E", bound=Enum)


class Metadata(Enum):
    NONE = "none"
    BASIC = "basic"
    ALL = "all"


class BadRows(Enum):
    FAIL = "fail"
    DROP = "drop"
    COLUMN = "column"


class Way(Enum):
    """How stored messages are read: from bookies where that is possible, always through brokers, or never."""

    AUTO = "auto"
    BROKER = "broker"
    BOOKIES = "bookies"


class Delivery(Enum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How to reach the cluster; hashable, so that a process keeps one client for each."""

    service_url: str
    metadata_url: str | None = None
    token_file: str | None = None
    token_environment: str | None = None
    tls_trust_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None
    tls_insecure: bool = False
    tls_validate_hostname: bool = True
    operation_timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Topics by name, or those of one namespace that match a pattern."""

    names: tuple[str, ...] = ()
    pattern: str | None = None


TopicBound = Literal["earliest", "latest"] | int | Offset
"""An end of a read of one topic: by word, by publish time in milliseconds, or by offset."""
Bound = Literal["earliest", "latest"] | int | Mapping[str, TopicBound]
"""The same for all topics, or for each."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    connection: ConnectionOptions
    topics: TopicChoice
    start: Bound = "latest"
    end: Bound = "latest"
    columns: tuple[str, ...] | None = None
    metadata: Metadata = Metadata.BASIC
    bad_rows: BadRows = BadRows.FAIL
    fail_on_data_loss: bool = True
    subscription: str | None = None
    messages_per_trigger_max: int | None = None
    bytes_per_trigger_max: int | None = None
    messages_per_trigger_min: int = 0
    trigger_delay_max_ms: int = 15 * 60_000
    tasks_wanted: int = 0
    task_messages_min: int = 50_000
    rows_per_batch_max: int = 10_000
    read_timeout_ms: int = 60_000
    schema_definition: str | None = None
    schema_type: str | None = None
    way: Way = Way.AUTO
    read_bytes_per_s_max: int | None = None
    # Whether a batch is told of its filters: off, because Spark 4.3 shares what one query pushed with the next.
    filter_push_down: bool = False
    # What is wanted; a batch may be told by its filters as well.
    partitions: frozenset[int] | None = None
    keys: frozenset[bytes] | None = None
    # The topic's archive, to be read with what is behind it.
    history: str | None = None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    connection: ConnectionOptions
    topic: str | None = None
    sink_id: str | None = None
    write_id: str | None = None
    delivery: Delivery = Delivery.EXACTLY_ONCE
    schema_type: str | None = None
    producer: Mapping[str, str] = field(default_factory=dict)


class _Given:
    """Options by lower-case name; remembers which were asked for, so that a misspelt one is named."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._left = {key.lower(): value for key, value in options.items()}
        self._asked: dict[str, str] = {}

    def take(self, *names: str, default: str | None = None) -> str | None:
        found = default
        for name in reversed(names):
            self._asked[name.lower()] = name
            found = self._left.pop(name.lower(), found)
        return found

    def has(self, name: str) -> bool:
        return name.lower() in self._left

    def flag(self, name: str, default: bool) -> bool:
        text = (self.take(name) or str(default)).lower()
        if text not in ("true", "false"):
            raise BadSetting(f"option {name} is {text!r}; it should be true or false")
        return text == "true"

    def number(self, name: str, least: int = 1) -> int | None:
        text = self.take(name)
        if text is None:
            return None
        if not text.strip().isdigit() or int(text) < least:
            raise BadSetting(f"option {name} is {text!r}; it should be a number from {least}")
        return int(text)

    def choice(self, name: str, kind: type[E], default: E) -> E:
        text = self.take(name)
        try:
            return default if text is None else kind(text.lower())
        except ValueError:
            allowed = ", ".join(str(one.value) for one in kind)
            raise BadSetting(f"option {name} is {text!r}; it should be one of {allowed}") from None

    def milliseconds(self, name: str, default: int) -> int:
        text = self.take(name)
        if text is None:
            return default
        match = _DURATION.fullmatch(text.strip().lower())
        if match is None:
            raise BadSetting(f"option {name} is {text!r}; it should be like 500ms, 30s or 15m")
        return int(match[1]) * _UNITS_MS[match[2] or "ms"]

    def size(self, name: str) -> int | None:
        text = self.take(name)
        if text is None:
            return None
        match = _SIZE.fullmatch(text.strip())
        if match is None or int(match[1]) < 1:
            raise BadSetting(f"option {name} is {text!r}; it should be a number of bytes, like 1048576, 64k or 10m")
        return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2].lower()]

    def numbers(self, name: str) -> frozenset[int] | None:
        text = self.take(name)
        if text is None:
            return None
        parts = [part.strip() for part in text.split(",")]
        if not all(part.isdigit() for part in parts):
            raise BadSetting(f"option {name} is {text!r}; it should be numbers with commas between, like 0,3")
        return frozenset(int(part) for part in parts)

    def keys(self, name: str) -> frozenset[bytes] | None:
        text = self.take(name)
        return None if text is None else frozenset(part.strip().encode() for part in text.split(","))

    def end(self) -> None:
        for name in sorted(self._left):
            if name in _SECRETS:
                raise BadSetting(
                    f"option {name} would show a secret in plans and logs: give tokenFile or tokenEnvironment instead"
                )
            if name != "path":
                near = difflib.get_close_matches(name, self._asked, 1)
                hint = f"; did you mean {self._asked[near[0]]}?" if near else ""
                raise BadSetting(f"there is no option {name!r} for this use of the format pulsar{hint}")


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Raises BadSetting, naming the option."""
    given = _Given(options)
    for first, second in (("startingTime", "startingOffsets"), ("endingTime", "endingOffsets")):
        if given.has(first) and given.has(second):
            raise BadSetting(f"give one of the options {first} and {second}, not both")
    topics = _topics(given)
    start_default, start = LATEST_TEXT if streaming else EARLIEST_TEXT, given.take("startingTime")
    end = given.take("endingTime")
    columns = given.take("columns")
    made = SourceOptions(
        connection=_connection(given),
        topics=topics,
        start=_time("startingTime", start)
        if start is not None
        else _bound("startingOffsets", given.take("startingOffsets", default=start_default)),
        end=_time("endingTime", end)
        if end is not None
        else _bound("endingOffsets", given.take("endingOffsets", default=LATEST_TEXT)),
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",") if name.strip()),
        metadata=given.choice("metadata", Metadata, Metadata.BASIC),
        bad_rows=given.choice("badRows", BadRows, BadRows.FAIL),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        subscription=given.take("subscription", "predefinedSubscription"),
        messages_per_trigger_max=given.number("maxMessagesPerTrigger"),
        bytes_per_trigger_max=given.size("maxBytesPerTrigger"),
        messages_per_trigger_min=given.number("minMessagesPerTrigger") or 0,
        trigger_delay_max_ms=given.milliseconds("maxTriggerDelay", 15 * 60_000),
        tasks_wanted=given.number("minPartitions") or 0,
        task_messages_min=given.number("messagesPerTaskMin") or 50_000,
        rows_per_batch_max=given.number("rowsPerArrowBatch") or 10_000,
        read_timeout_ms=given.milliseconds("readTimeout", 60_000),
        schema_definition=given.take("schemaDefinition"),
        schema_type=_schema_type(given),
        way=given.choice("read.via", Way, Way.AUTO),
        read_bytes_per_s_max=given.size("readBytesPerSecond"),
        filter_push_down=given.flag("filterPushDown", False),
        partitions=given.numbers("partitions"),
        keys=given.keys("keys"),
        history=given.take("history"),
    )
    given.take("admin.url")
    given.end()
    if made.way is Way.BOOKIES and made.connection.metadata_url is None:
        raise BadSetting("read.via=bookies needs the option metadata.url, which says where the ledgers are listed")
    if streaming and not isinstance(made.end, str):
        raise BadSetting("a stream has no end: endingOffsets and endingTime are for batch reads")
    return made


def sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Raises BadSetting, naming the option."""
    given = _Given(options)
    topic = given.take("topic")
    made = SinkOptions(
        connection=_connection(given),
        topic=None if topic is None else str(TopicName.parse(topic)),
        sink_id=_name("sinkId", given.take("sinkId")),
        write_id=_name("writeId", given.take("writeId")),
        delivery=given.choice("delivery", Delivery, Delivery.EXACTLY_ONCE),
        schema_type=given.take("schemaType"),
    )
    given.take("admin.url")
    given.take("checkpointLocation")
    given.take("queryName")
    given.end()
    if streaming and made.write_id is not None:
        raise BadSetting("writeId is for batch writes; a stream has sinkId")
    if not streaming and made.sink_id is not None:
        raise BadSetting("sinkId is for streams; a batch write has writeId")
    return made


def _schema_type(given: _Given) -> str | None:
    """Topics whose schemas differ have one thing in common: their payloads are bytes."""
    kind, differ = given.take("schemaType"), given.flag("allowDifferentTopicSchemas", False)
    return "bytes" if differ and kind is None else kind


def _name(option: str, text: str | None) -> str | None:
    if text is not None and not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", text):
        raise BadSetting(f"option {option} is {text[:100]!r}; it takes up to 100 letters, digits, '_', '-' and '.'")
    return text


def _connection(given: _Given) -> ConnectionOptions:
    url = given.take("service.url")
    if not url:
        raise BadSetting("option service.url is missing: it names the cluster, like pulsar://localhost:6650")
    token_file, token_environment = _token(given)
    return ConnectionOptions(
        service_url=url,
        metadata_url=_metadata_url(given.take("metadata.url")),
        token_file=token_file,
        token_environment=token_environment,
        tls_trust_file=given.take("pulsar.client.tlsTrustCertsFilePath", "tlsTrustCertsFilePath"),
        tls_certificate_file=given.take("pulsar.client.tlsCertificateFilePath", "tlsCertificateFilePath"),
        tls_key_file=given.take("pulsar.client.tlsKeyFilePath", "tlsKeyFilePath"),
        tls_insecure=given.flag("pulsar.client.tlsAllowInsecureConnection", False),
        tls_validate_hostname=given.flag("pulsar.client.tlsHostnameVerificationEnable", True),
        operation_timeout_ms=given.milliseconds("operationTimeout", 30_000),
    )


def _token(given: _Given) -> tuple[str | None, str | None]:
    """Where a token is found. The JVM connector's two options are understood, if they name a file or a variable."""
    file, variable = given.take("tokenFile"), given.take("tokenEnvironment")
    plugin, params = given.take("pulsar.client.authPluginClassName"), given.take("pulsar.client.authParams")
    if plugin is not None and plugin.rpartition(".")[2].lower() not in ("authenticationtoken", "token"):
        raise BadSetting("option pulsar.client.authPluginClassName: this source knows AuthenticationToken alone")
    if params is not None:
        kind, _, where = params.partition(":")
        if kind == "file" and where:
            file = file or where.removeprefix("//")
        elif kind == "env" and where:
            variable = variable or where
        else:
            raise BadSetting(
                "option pulsar.client.authParams would show a secret in plans and logs: give file:///path or env:NAME, "
                "or the option tokenFile or tokenEnvironment"
            )
    return file, variable


def _metadata_url(url: str | None) -> str | None:
    if url is not None and url.partition(":")[0] not in _METADATA_SCHEMES:
        raise BadSetting(f"option metadata.url is {url!r}; it should be like remote:HOST:PORT or zk:HOST:2181/CHROOT")
    return url


def _topics(given: _Given) -> TopicChoice:
    one, many, pattern = given.take("topic", "path"), given.take("topics"), given.take("topicsPattern")
    if sum(choice is not None for choice in (one, many, pattern)) != 1:
        raise BadSetting("give exactly one of the options topic, topics and topicsPattern")
    if pattern is not None:
        if not pattern.strip():
            raise BadSetting("option topicsPattern is empty: it is a regular expression like shop/sales/orders-.*")
        return TopicChoice(pattern=pattern)
    names = (one or many or "").split(",") if many is not None else [one or ""]
    return TopicChoice(tuple(dict.fromkeys(str(TopicName.parse(name.strip())) for name in names)))


def _bound(option: str, text: str | None) -> Bound:
    assert text is not None
    if text.lower() == EARLIEST_TEXT:
        return "earliest"
    if text.lower() == LATEST_TEXT:
        return "latest"
    try:
        written: Any = json.loads(text)
    except (ValueError, RecursionError):
        written = None
    if not isinstance(written, dict):
        raise BadSetting(f'option {option} should be earliest, latest or JSON like {{"topic": {{"index": 12}}}}')
    return {str(TopicName.parse(topic)): _topic_bound(option, topic, where) for topic, where in written.items()}


def _topic_bound(option: str, topic: str, where: object) -> TopicBound:
    if where == EARLIEST_TEXT:
        return "earliest"
    if where == LATEST_TEXT:
        return "latest"
    if isinstance(where, list):
        return _of_serialized_id(option, topic, where)
    return offsets_from_json({topic: where})[topic]


def _of_serialized_id(option: str, topic: str, written: list[object]) -> TopicBound:
    """As the JVM connector writes offsets: the bytes of a message id. That message is part of what is read."""
    try:
        found = MessageId.decode(bytes(int(str(one)) & 0xFF for one in written))
    except (ValueError, BadMessageId):
        raise BadSetting(f"offset of {topic}: these {len(written)} numbers are not the bytes of a message id") from None
    if found.position == EARLIEST:
        return "earliest"
    if found.position == LATEST:
        return "latest"
    starts = option == "startingOffsets"
    return Offset(None, Place(*found.position, max(0, found.batch_index)) if starts else Place.behind(found))


def _time(option: str, text: str) -> Bound:
    if not text.lstrip().startswith("{"):
        return moment_ms(option, text)
    try:
        written: dict[str, object] = json.loads(text)
    except (ValueError, RecursionError):
        raise BadSetting(f'option {option} should be a time or JSON like {{"topic": 1700000000000}}') from None
    # The JVM connector's words for the two ends.
    words: dict[object, TopicBound] = {-1: "earliest", -2: "latest"}
    return {
        str(TopicName.parse(topic)): words[when] if when in words else moment_ms(option, str(when))
        for topic, when in written.items()
    }


def moment_ms(name: str, text: str) -> int:
    """A time as people write it, or milliseconds since 1970. Raises BadSetting."""
    if text.strip().isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadSetting(
            f"option {name} is {text[:100]!r}; it should be milliseconds since 1970, or like 2026-11-16T06:00:00Z"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
