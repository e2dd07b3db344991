# SPDX-License-Identifier: Apache-2.0
"""`magnetar sql`: one statement, or a shell with a history, or a server for others who speak Spark Connect.

Carries.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar.cli import exits
from magnetar.cli.access import access_of
from magnetar.cli.exits import Failure
from magnetar.cli.http import HttpApi
from magnetar.cli.own_command import run_own
from magnetar.cli.spark_access import SPARK_FLAGS, source_connection, spark_session
from magnetar.cli.words import Command, Kind, flag
from magnetar.errors import MagnetarError

if TYPE_CHECKING:
    from magnetar.spark.sql.topic_sql import TopicSql

HISTORY_LINES_MAX: Final = 10_000
_REQUEST_TIMEOUT_S: Final = 30
COMMAND: Final = Command(
    "sql",
    "Ask topics with SQL: every topic is a table. Without a statement: a shell.",
    ("statement?",),
    (
        flag("--output -o", Kind.TEXT, "The form of the result.", default="table", choices="table csv json parquet"),
        flag("--to", Kind.TEXT, "A file for the result; a directory for parquet."),
        flag("--namespace -n", Kind.TEXT, "Where short names are looked for [public/default]; what is served [all]."),
        flag("--explain", Kind.SWITCH, "Say what would be read, and do not."),
        flag("--progress", Kind.SWITCH, "Show Spark's progress on stderr.", default=None),
        flag("--serve", Kind.SWITCH, "Serve Spark Connect on loopback until it is interrupted."),
        flag("--port", Kind.NUMBER, "Where to serve it; 0 picks a free one.", default=15002),
        flag("--ready-file", Kind.TEXT, "Written with the addresses, as JSON, once it serves."),
    ),
)


def run_sql(words: Sequence[str]) -> int:
    return run_own(COMMAND, words, _sql, more=SPARK_FLAGS)


def _sql(given: dict[str, Any]) -> int:
    if given["output"] == "parquet" and not given["to"] and not given["serve"]:
        raise Failure("--output parquet needs --to DIRECTORY", exits.WRONG_USE)
    connection = source_connection(given)
    wants_progress = given["progress"] or (given["progress"] is None and sys.stderr.isatty())
    more = {"spark_ui_showConsoleProgress": "true"} if wants_progress else {}
    if given["serve"]:
        return _serve(given, connection)
    session = spark_session("magnetar sql", given, **more)
    try:
        from magnetar.spark.sql.table_names import DEFAULT_NAMESPACE
        from magnetar.spark.sql.topic_sql import TopicSql

        shell = _Shell(TopicSql(session, connection, given["namespace"] or DEFAULT_NAMESPACE), given)
        if given["statement"] is not None:
            shell.run(given["statement"])
            return exits.OK
        if session.sparkContext.uiWebUrl and sys.stdin.isatty():
            sys.stderr.write(f"Spark UI: {session.sparkContext.uiWebUrl}\n")
        return shell.converse()
    finally:
        session.stop()


class _Shell:
    """Statements one after another; all share a session, its views and the current namespace."""

    def __init__(self, sql: "TopicSql", given: dict[str, Any]) -> None:
        self._sql = sql
        self._given = given

    def run(self, statement: str) -> None:
        from magnetar.spark.sql.statements import asked

        text = statement.strip().rstrip(";")
        told = asked(text)
        if told is not None:
            self._show(*self._about(told))
        elif self._given["explain"]:
            self._explain(text)
        elif self._given["output"] == "parquet":
            self._sql.frame(text, may_narrow=False).write.mode("error").parquet(self._given["to"])
        else:
            self._show(*self._sql.rows(text))

    def _show(self, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        from magnetar.spark.sql import results

        if not names:
            return
        forms = {"csv": results.csv_text, "json": results.json_text}
        pieces = forms.get(self._given["output"], results.table_text)(names, rows)
        with _opened(self._given["to"]) as out:
            out.writelines(pieces)

    def _about(self, told: Any) -> tuple[list[str], list[tuple[Any, ...]]]:
        from magnetar.spark.sql.statements import About
        from magnetar.spark.sql.table_names import HIDDEN, namespace_of, topic_of

        sql = self._sql
        match told.about:
            case About.NAMESPACES:
                return ["namespace"], [(one,) for one in _namespaces(self._given)]
            case About.TOPICS:
                namespace = namespace_of("/".join(told.names), sql.namespace) if told.names else sql.namespace
                return ["topic"], [(one.rpartition("/")[2],) for one in sql.topics.listed(namespace)]
            case About.USE:
                sql.namespace = namespace_of("/".join(told.names), sql.namespace)
                return [], []
        columns = sql.columns_of(topic_of(told.names, sql.namespace))
        shown = [(one.name, one.dataType.simpleString()) for one in columns.fields]
        return ["column", "type"], [*shown, *((name, f"as {text}") for name, text in HIDDEN.items())]

    def _explain(self, text: str) -> None:
        from magnetar.spark import explain

        self._sql.frame(text)
        for table in self._sql.tables:
            asked_for = {name: table.options.get(name, "all") for name in ("columns", "keys")}
            sys.stdout.write(f"{table.topic}: {json.dumps(asked_for)}\n")
            sys.stdout.writelines(f"  {line}\n" for line in explain(table.options).splitlines())

    def converse(self) -> int:
        """Until end of input; a statement that fails is told and does not end it."""
        from magnetar.spark.sql.statements import complete

        waiting = ""
        with _history():
            while (line := _line("magnetar> " if not waiting.strip() else "       -> ")) is not None:
                if not waiting.strip() and line.strip().rstrip(";").lower() in ("exit", "quit", "\\q"):
                    break
                statements, waiting = complete(waiting + line + "\n")
                for statement in statements:
                    try:
                        self.run(statement)
                    except MagnetarError as error:
                        sys.stderr.write(f"magnetar: {error}\n")
        return exits.OK


def _line(prompt: str) -> str | None:
    try:
        return input(prompt if sys.stdin.isatty() else "")
    except EOFError:
        return None


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Lines of earlier shells, by the arrow keys; only on a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    import readline

    path = state_directory() / "sql_history"
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(HISTORY_LINES_MAX)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.write_history_file(path)
            path.chmod(0o600)


def state_directory() -> Path:
    """Where commands keep what they remember: $XDG_STATE_HOME/magnetar."""
    home = os.environ.get("XDG_STATE_HOME") or Path(os.environ.get("HOME", "~")).expanduser() / ".local" / "state"
    return Path(home) / "magnetar"


@contextlib.contextmanager
def _opened(path: str | None) -> Iterator[Any]:
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror}") from None


def _namespaces(given: dict[str, Any]) -> list[str]:
    api = HttpApi(access_of(given), _REQUEST_TIMEOUT_S)
    try:
        tenants = sorted(api.get("/admin/v2/tenants"))
        return [one for tenant in tenants for one in sorted(api.get(f"/admin/v2/namespaces/{tenant}"))]
    finally:
        api.close()


def _served_namespaces(given: dict[str, Any]) -> list[str]:
    return [given["namespace"]] if given["namespace"] else _namespaces(given)


def _serve(given: dict[str, Any], connection: dict[str, str]) -> int:
    from magnetar.cli.spark_access import check_spark

    check_spark()
    from magnetar.spark.sql.served import ServedTopics, server_settings

    settings = server_settings(given["port"])
    session = spark_session("magnetar sql", given, **settings)
    try:
        served = ServedTopics(session, connection)
        _offer(served, given, session, settings["spark_connect_grpc_binding_port"])
        while True:
            api = HttpApi(access_of(given), _REQUEST_TIMEOUT_S)
            api.pause(10)
            api.close()
            with contextlib.suppress(MagnetarError):
                served.refresh(_served_namespaces(given))
    finally:
        session.stop()


def _offer(served: Any, given: dict[str, Any], session: Any, port: str) -> None:
    """Say where, once every topic is a table."""
    try:
        served.refresh(_served_namespaces(given))
    except MagnetarError as error:
        sys.stderr.write(f"magnetar: topics are not tables yet: {error}\n")
    addresses = {"connect": f"sc://127.0.0.1:{port}", "ui": session.sparkContext.uiWebUrl, "tables": served.views}
    sys.stdout.write(f"Spark Connect: {addresses['connect']}\nSpark UI: {addresses['ui']}\n")
    sys.stdout.write(f"{len(served.views)} topics are tables: select * from global_temp.`tenant/namespace/topic`\n")
    sys.stdout.flush()
    if given["ready_file"]:
        partial = Path(given["ready_file"] + ".partial")
        partial.write_text(json.dumps(addresses), encoding="utf-8")
        partial.replace(given["ready_file"])
