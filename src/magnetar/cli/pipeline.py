# SPDX-License-Identifier: Apache-2.0
"""`magnetar pipeline`: check, explain, run, submit, list, status, stop; and archive.

Carries.
"""

import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from magnetar.cli import exits
from magnetar.cli.access import access_of
from magnetar.cli.exits import Failure
from magnetar.cli.http import HttpApi
from magnetar.cli.output import show
from magnetar.cli.own_command import JSON, run_own
from magnetar.cli.pipeline_file import finder_beside, load_pipeline
from magnetar.cli.pipeline_runs import PipelineDirectory, all_states
from magnetar.cli.spark_access import SPARK_FLAGS, check_spark, source_connection, spark_session
from magnetar.cli.words import Command, Flag, Kind, flag
from magnetar.errors import MagnetarError

if TYPE_CHECKING:
    from magnetar.spark.pipelines.frames import FrameBuilder
    from magnetar.spark.pipelines.spec import PipelineSpec

_TIMEOUT_S: Final = 30
_SAY_INTERVAL_MS: Final = 2_000
_FILE_FLAGS: Final = (
    flag("--set", Kind.REPEATED, "A variable of the file, name=value; may be repeated.", default=[]),
    flag("--jars", Kind.TEXT, "JDBC drivers and other jars for Spark, with commas between."),
    *SPARK_FLAGS,
)
_RUN_FLAGS: Final = (
    flag("--now", Kind.SWITCH, "Read what is there now and end, whatever the file's trigger is."),
    *_FILE_FLAGS,
)
_ARCHIVE_FLAGS: Final = (
    flag("--to", Kind.TEXT, "The archive's directory.", required=True),
    flag("--open", Kind.SWITCH, "Also the ledger that is still written: everything up to now."),
    flag("--subscription", Kind.TEXT, "A subscription that holds messages until they are archived."),
    flag("--step-messages", Kind.NUMBER, "Messages of one step at most.", default=5_000_000),
    flag(
        "--format",
        Kind.TEXT,
        "Plain Parquet, or a table in Delta's format as well.",
        default="parquet",
        choices="parquet delta",
    ),
    flag(
        "--bad-rows", Kind.TEXT, "What to do with what its schema does not fit.", default="fail", choices="fail column"
    ),
    JSON,
    *SPARK_FLAGS,
)


class _Verb:
    def __init__(self, command: Command, body: Callable[[dict[str, Any]], int], flags: tuple[Flag, ...]) -> None:
        self.command = command
        self.body = body
        self.flags = flags


def run_pipeline(words: Sequence[str]) -> int:
    verbs = verbs_of_pipeline()
    if not words or words[0] in ("--help", "-h"):
        lines = [f"  {name:<8} {verb.command.help}" for name, verb in verbs.items()]
        sys.stdout.write("magnetar pipeline VERB …\n\n" + "\n".join(lines) + "\n")
        return exits.OK if words else exits.WRONG_USE
    verb = verbs.get(words[0])
    if verb is None:
        sys.stderr.write(f"magnetar: pipeline has no verb {words[0]!r}; it has {', '.join(verbs)}\n")
        return exits.WRONG_USE
    body = verb.body
    if words[0] == "submit":
        body = lambda given: _submit(given, words[1:])  # noqa: E731
    return run_own(verb.command, words[1:], body, more=verb.flags, program="magnetar pipeline")


def verbs_of_pipeline() -> dict[str, _Verb]:
    def verb(name: str, help: str, arguments: tuple[str, ...], body: Any, flags: tuple[Flag, ...]) -> _Verb:
        own = tuple(each for each in flags if each not in SPARK_FLAGS)
        return _Verb(Command(name, help, arguments, own), body, SPARK_FLAGS if len(own) < len(flags) else ())

    named = (
        verb("check", "Say whether a pipeline's file is right, without reading a row.", ("file",), _check, _FILE_FLAGS),
        verb("explain", "Show what a pipeline would do: frames, columns, plans.", ("file",), _explain, _FILE_FLAGS),
        verb("run", "Run a pipeline here, until it ends or is interrupted.", ("file",), _run, _RUN_FLAGS),
        verb("submit", "Run a pipeline in the background.", ("file",), _run, _RUN_FLAGS),
        verb("list", "Show the pipelines that have run on this machine.", (), _list, (JSON,)),
        verb("status", "Show how far a pipeline is: rows, lag of each partition.", ("name",), _status, (JSON,)),
        verb("stop", "End a pipeline that runs on this machine; the next run goes on.", ("name",), _stop, ()),
        verb(
            "archive", "Write a topic's closed ledgers as Parquet, exactly once.", ("topic",), _archive, _ARCHIVE_FLAGS
        ),
    )
    return {each.command.name: each for each in named}


def _variables(given: dict[str, Any]) -> dict[str, str]:
    found = {}
    for pair in given["set"]:
        name, separator, value = pair.partition("=")
        if not separator:
            raise Failure(f"--set {pair!r} should be name=value", exits.WRONG_USE)
        found[name] = value
    return found


def _loaded(given: dict[str, Any]) -> "PipelineSpec":
    check_spark()
    return load_pipeline(given["file"], _variables(given))


def _session(spec_name: str, given: dict[str, Any]) -> Any:
    jars = {"spark_jars": given["jars"]} if given.get("jars") else {}
    return spark_session(spec_name, given, **jars)


def _builder(session: Any, spec: "PipelineSpec", given: dict[str, Any]) -> "FrameBuilder":
    from magnetar.spark.pipelines.frames import FrameBuilder

    return FrameBuilder(session, spec, source_connection(given), finder_beside(given["file"]))


def _check(given: dict[str, Any]) -> int:
    spec = _loaded(given)
    session = _session(spec.name, given)
    try:
        _builder(session, spec, given).build()
    finally:
        session.stop()
    kind = "stream" if spec.is_stream else "batch"
    counts = f"{len(spec.sources)} sources, {len(spec.steps)} steps, {len(spec.sinks)} sinks"
    sys.stdout.write(f"{spec.name} is right: a {kind} of {counts}\n")
    return exits.OK


def _explain(given: dict[str, Any]) -> int:
    spec = _loaded(given)
    session = _session(spec.name, given)
    try:
        frames = _builder(session, spec, given).build()
        for name, frame in frames.by_name.items():
            kind = "stream" if frame.isStreaming else "batch"
            columns = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in frame.schema.fields)
            sys.stdout.write(f"{name} ({kind}): {columns}\n")
        for sink in spec.sinks:
            where = sink.options.get("topic") or sink.options.get("dbtable") or sink.address or sink.place.value
            sys.stdout.write(f"\n{sink.source} → {sink.place.value} {where} ({sink.mode})\n")
            # Spark takes what a statement over a stream gives for a batch, until something is selected from it.
            frames.by_name[sink.source].select("*").explain()
        return exits.OK
    finally:
        session.stop()


def _run(given: dict[str, Any]) -> int:
    spec = _loaded(given)
    directory = PipelineDirectory(spec.name)
    directory.check_free()
    directory.keep({"state": "starting", "queries": []})
    try:
        session = _session(spec.name, given)
        try:
            return _watched(session, spec, given, directory)
        finally:
            session.stop()
    except MagnetarError as error:
        directory.keep({"state": "failed", "error": str(error), "queries": []})
        raise


def _watched(session: Any, spec: "PipelineSpec", given: dict[str, Any], directory: PipelineDirectory) -> int:
    from magnetar.spark.pipelines.run import PipelineRun

    asked_to_stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked_to_stop.append(number))
    signal.signal(signal.SIGINT, lambda number, _: asked_to_stop.append(number))
    run = PipelineRun(session, spec, _builder(session, spec, given), only_now=given["now"])
    if session.sparkContext.uiWebUrl:
        sys.stderr.write(f"Spark UI: {session.sparkContext.uiWebUrl}\n")
    api = HttpApi(access_of(given), _TIMEOUT_S)
    said_ms = 0
    run.start()
    while not run.is_done and not asked_to_stop:
        states = run.turn()
        if api.now_ms() - said_ms > _SAY_INTERVAL_MS:
            said_ms = api.now_ms()
            directory.keep({"state": "running", "queries": [one.to_json() for one in states]})
            sys.stderr.writelines(f"{one.line()}\n" for one in states)
    if not run.is_done:
        run.stop()
    for one in run.states:
        sys.stderr.write(f"{one.line()}\n")
    run.check()
    state = "stopped" if asked_to_stop else "ended"
    directory.keep({"state": state, "queries": [one.to_json() for one in run.states]})
    return exits.OK


def _submit(given: dict[str, Any], words: Sequence[str]) -> int:
    spec = _loaded(given)
    directory = PipelineDirectory(spec.name)
    directory.check_free()
    pid = directory.submit(words)
    sys.stdout.write(
        f"{spec.name} runs as process {pid}; `magnetar pipeline status {spec.name}`, log {directory.log}\n"
    )
    return exits.OK


def _list(given: dict[str, Any]) -> int:
    states = all_states()
    if given["json"]:
        show(states, as_json=True)
        return exits.OK
    for one in states:
        rows = sum(query["rows"] for query in one["queries"])
        sys.stdout.write(f"{one['name']}  {one['state']}  process {one['pid']}  {rows} rows\n")
    return exits.OK


def _status(given: dict[str, Any]) -> int:
    directory = PipelineDirectory(given["name"])
    state = directory.state()
    if given["json"]:
        show(state, as_json=True)
        return exits.OK
    error = f": {state['error']}" if state.get("error") else ""
    sys.stdout.write(f"{state['name']}  {state['state']}  process {state['pid']}{error}\n")
    for query in state["queries"]:
        sys.stdout.write(f"  {query['name']}: {query['state']}, batch {query['batch']}, {query['rows']} rows, ")
        sys.stdout.write(f"{query['rows_per_s']:.0f} rows/s{': ' + query['error'] if query['error'] else ''}\n")
        for topic, lag in sorted(query["lag"].items()):
            age = "" if lag["seconds"] is None else f", {lag['seconds']:.0f} s"
            sys.stdout.write(f"    {topic}: lag {lag['messages']} messages{age}\n")
    return exits.OK


def _stop(given: dict[str, Any]) -> int:
    api = HttpApi(access_of({}), _TIMEOUT_S)
    PipelineDirectory(given["name"]).stop(api)
    sys.stdout.write(f"{given['name']} is stopped\n")
    return exits.OK


def _archive(given: dict[str, Any]) -> int:
    from magnetar.cli.closed_ledgers import closed_ledgers

    check_spark()
    session = spark_session("magnetar pipeline archive", given)
    api = HttpApi(access_of(given), _TIMEOUT_S)
    try:
        from magnetar.spark.archive.archiver import Archiver
        from magnetar.spark.sentences import failed
        from magnetar.spark.sql.topics import Topics

        connection = source_connection(given)
        options = {**connection, "topic": given["topic"], "badRows": given["bad_rows"]}
        archiver = Archiver(
            session,
            options,
            given["to"],
            ledgers_of=lambda topic: closed_ledgers(api, topic),
            subscription=given["subscription"],
            step_messages_max=given["step_messages"],
            is_delta=given["format"] == "delta",
        )
        Topics(connection).check(archiver.topic)
        rows = 0
        try:
            for record in archiver.run(includes_open=given["open"]):
                rows += record.rows
                if not given["json"]:
                    sys.stderr.write(f"step {record.sequence}: {record.rows} rows in {len(record.files)} files\n")
        except Exception as error:
            raise failed(error) from None
        show(
            {"topic": archiver.topic, "rows": rows} if given["json"] else f"{rows} rows archived", as_json=given["json"]
        )
        return exits.OK
    finally:
        api.close()
        session.stop()
