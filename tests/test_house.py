# SPDX-License-Identifier: Apache-2.0
"""The house's own tools do what they promise: tags, records, the compatibility page, suites, walls, leak checks."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import test_tidy
from tests.conftest import run_without_leaks
from tests.warm_process import WarmProcess
from tools import sbom
from tools.feature_record import CATALOGUE, Outcome, Row, catalogue, recorded_outcomes
from tools.features import Measurement, measurements, page, remeasured, state_of
from tools.suites import CLOSING, SuiteResult, closing_table

HOUSE = Path(__file__).resolve().parent.parent
# A test file that runs what it runs where time is virtual.
VIRTUAL = "from tests.simulation.world.loop import SimLoop\ndef run(work):\n    SimLoop().run(work)\n"


def run_python(*arguments: str, cwd: Path = HOUSE, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def run_pytest(tmp_path: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A run of its own over one planted test file, with our conftest, recording into tmp_path."""
    (tmp_path / "test_planted.py").write_text(source, encoding="utf-8")
    fixed = ["-m", "pytest", "-c", str(HOUSE / "pyproject.toml"), "-p", "tests.conftest"]
    fixed += ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    placed = ["--rootdir", str(tmp_path), "--results", str(tmp_path), str(tmp_path / "test_planted.py")]
    return run_python(*fixed, *placed, *arguments)


# --- the catalogue and its tags -------------------------------------------------------------------


def test_catalogue_rows_are_unique_and_titled() -> None:
    rows = catalogue()
    assert CATALOGUE.read_text(encoding="utf-8").splitlines()[0] == "id\tcheck\ttitle"
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        assert re.fullmatch(r"F-[A-Z]+-\d\d|[DBC]-\d\d", row.id), row
        assert row.check in ("test", "bench"), row
        assert 0 < len(row.title) <= 90, row


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one-process", "xdist"])
def test_unknown_tag_fails_the_run(tmp_path: Path, workers: list[str]) -> None:
    source = "import pytest\n@pytest.mark.feature('F-PLAT-99')\ndef test_it(): pass\n"
    ended = run_pytest(tmp_path, source, *workers)
    assert ended.returncode != 0
    assert "'F-PLAT-99', which is no row of docs/catalogue.tsv" in ended.stdout
    assert "1 passed" not in ended.stdout


def test_outcomes_of_tagged_tests_are_recorded(tmp_path: Path) -> None:
    source = (
        "import pytest\n"
        "@pytest.mark.feature('F-PLAT-01', 'F-PLAT-02')\ndef test_good(): pass\n"
        "@pytest.mark.feature('F-PLAT-02')\ndef test_bad(): assert 0\n"
        "@pytest.mark.feature('F-PLAT-03')\ndef test_away(): pytest.skip('no part')\n"
        "@pytest.fixture\ndef leaky():\n    yield\n    assert 0\n"
        "@pytest.mark.feature('F-PLAT-04')\ndef test_torn_down_badly(leaky): pass\n"
        "def test_untagged(): pass\n"
    )
    assert run_pytest(tmp_path, source, "-n", "1").returncode == 1
    found = {outcome.test.split("::")[1]: outcome for outcome in recorded_outcomes(tmp_path)}
    assert {name: outcome.outcome for name, outcome in found.items()} == {
        "test_good": "passed",
        "test_bad": "failed",
        "test_away": "skipped",
        "test_torn_down_badly": "failed",
    }
    assert found["test_good"].features == ("F-PLAT-01", "F-PLAT-02")


def recorded(tmp_path: Path) -> dict[str, str]:
    return {outcome.test.split("::")[1]: outcome.outcome for outcome in recorded_outcomes(tmp_path)}


def test_a_run_of_a_part_updates_the_record_and_a_whole_one_forgets(tmp_path: Path) -> None:
    first = "import pytest\n@pytest.mark.feature('F-PLAT-01')\ndef test_first(): assert 0\n"
    second = "@pytest.mark.feature('F-PLAT-02')\ndef test_second(): pass\n"
    run_pytest(tmp_path, first + second)
    assert recorded(tmp_path) == {"test_first": "failed", "test_second": "passed"}
    run_pytest(tmp_path, first.replace("assert 0", "pass"), "-k", "test_first")
    assert recorded(tmp_path) == {"test_first": "passed", "test_second": "passed"}
    run_pytest(tmp_path, first.replace("assert 0", "pass"))
    assert recorded(tmp_path) == {"test_first": "passed"}


def test_a_short_run_takes_back_nothing_that_a_longer_one_proved(tmp_path: Path) -> None:
    source = "import pytest\n@pytest.mark.feature('F-PLAT-01')\ndef test_long(): {}\n"
    run_pytest(tmp_path, source.format("pass"), "--run-name", "long")
    run_pytest(tmp_path, source.format("pytest.skip('the longer run has it')"))
    both = recorded_outcomes(tmp_path)
    assert [outcome.outcome for outcome in both] == ["passed", "skipped"]
    assert state_of(both, None)[0] == "proven"
    run_pytest(tmp_path, source.format("assert 0"), "--run-name", "long")
    assert state_of(recorded_outcomes(tmp_path), None)[0] == "failing"


# --- the compatibility page -----------------------------------------------------------------------


def outcome(state: str, name: str = "tests/unit/test_x.py::test_y") -> Outcome:
    return Outcome(name, state, ("F-A-01",))


@pytest.mark.parametrize(
    ("outcomes", "measured", "state"),
    [
        ([], None, "not yet"),
        ([outcome("passed")], None, "proven"),
        ([outcome("passed"), outcome("failed", "tests/b.py::z")], None, "failing"),
        ([outcome("skipped")], None, "not yet"),
        ([outcome("skipped"), outcome("passed", "tests/b.py::z")], None, "proven"),
        ([], Measurement("3 ms", "2026-01-02"), "measured"),
        ([outcome("failed")], Measurement("3 ms", "2026-01-02"), "failing"),
    ],
)
def test_state_of_a_row(outcomes: list[Outcome], measured: Measurement | None, state: str) -> None:
    assert state_of(outcomes, measured)[0] == state


def test_page_has_a_line_per_row_and_counts() -> None:
    rows = [Row("F-A-01", "test", "one"), Row("F-A-02", "bench", "two"), Row("B-01", "test", "three")]
    text = page(rows, [outcome("passed")], {"F-A-02": Measurement("3 ms", "2026-01-02")})
    assert "| F-A-01 | one | proven: `unit/test_x.py::test_y` |" in text
    assert "| F-A-02 | two | measured: 3 ms, 2026-01-02 |" in text
    assert "| B-01 | three | not yet |" in text
    assert "| A | 2 | 1 | 1 | 0 | 0 | 0 |" in text
    assert "| all | 3 | 1 | 1 | 0 | 0 | 1 |" in text


def test_a_missed_aim_is_said_and_counted_whatever_tests_prove() -> None:
    rows = [Row("F-A-01", "bench", "one"), Row("F-A-02", "bench", "two")]
    missed = Measurement("3 ms (≤ 2 ms: missed)", "2026-01-02", missed=True)
    text = page(rows, [outcome("passed")], {"F-A-01": missed, "F-A-02": missed})
    said = "measured, aim missed: 3 ms (≤ 2 ms: missed), 2026-01-02"
    assert f"| F-A-01 | one | proven: `unit/test_x.py::test_y`; {said} |" in text
    assert f"| F-A-02 | two | {said} |" in text
    assert "| all | 2 | 0 | 0 | 2 | 0 | 0 |" in text
    assert remeasured(rows, text, {}) == text
    reached = Measurement("1 ms", "2026-01-03")
    assert remeasured(rows, text, {"F-A-01": reached}) == page(
        rows, [outcome("passed")], {"F-A-01": reached, "F-A-02": missed}
    )


def test_measured_values_alone_can_be_written_anew() -> None:
    rows = [Row(f"F-A-0{number}", "bench", "any") for number in range(1, 6)]
    old, new = Measurement("3 ms", "2026-01-02"), Measurement("2 ms", "2026-01-03")
    failed = Outcome("tests/b.py::z", "failed", ("F-A-05",))
    proven = Outcome("tests/unit/test_x.py::test_y", "passed", ("F-A-02", "F-A-03"))
    before = page(rows, [proven, failed], {"F-A-01": old, "F-A-03": old})
    assert remeasured(rows, before, {}) == before
    measured = {f"F-A-0{number}": new for number in (1, 3, 4, 5)}
    assert remeasured(rows, before, measured) == page(rows, [proven, failed], measured)
    with pytest.raises(ValueError, match="F-Z-01"):
        remeasured(rows, before, {"F-Z-01": new})


def test_page_refuses_unknown_rows() -> None:
    with pytest.raises(ValueError, match="F-A-01"):
        page([Row("F-B-01", "test", "other")], [outcome("passed")], {})


def results_in(directory: Path, name: str, *results: dict[str, object]) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(json.dumps(results), encoding="utf-8")


def answer(value: str, date: str, **more: object) -> dict[str, object]:
    return {"features": ["F-A-01"], "value": value, "date": date, **more}


def test_newest_measurement_counts(tmp_path: Path) -> None:
    results_in(tmp_path / "bench", "one.json", answer("new", "2026-02-01"), answer("old", "2026-01-01"))
    newest = {"F-A-01": Measurement("new", "2026-02-01")}
    assert measurements(tmp_path, tmp_path) == newest
    # What is over in a moment is no claim, however new; nor does it hide that an aim was missed.
    results_in(tmp_path / "bench", "two.json", answer("quick", "2026-03-01", quick=True))
    assert measurements(tmp_path, tmp_path) == newest
    results_in(tmp_path / "bench", "one.json")
    found = measurements(tmp_path, tmp_path)["F-A-01"]
    assert found.words == "measured: quick (quick), 2026-03-01"


def test_a_fresh_clone_has_the_measurements_that_are_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    results_in(kept, "one.json", answer("kept", "2026-02-01", missed=True))
    assert measurements(tmp_path, kept) == {"F-A-01": Measurement("kept", "2026-02-01", missed=True)}
    results_in(tmp_path / "bench", "one.json", answer("made here", "2026-01-01"))
    assert measurements(tmp_path, kept) == {"F-A-01": Measurement("made here", "2026-01-01")}


# --- suites and targets ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    ["=== 3 passed in 0.10s ===", "12 passed, 1 skipped in 3.06s", "=== 1 failed, 2 passed in 61.02s (0:01:01) ==="],
)
def test_closing_lines_are_recognised(line: str) -> None:
    assert CLOSING.match(line)


def test_closing_table_shows_shares_and_overruns() -> None:
    table = closing_table(
        [SuiteResult("check", "passed", 150.0, ("3 passed in 1s",)), SuiteResult("unit", "failed", 50.0, ())]
    )
    assert table[1].split() == ["check", "passed", "150.0", "75%", "120", "s", "OVER"]
    assert table[2].split() == ["unit", "failed", "50.0", "25%"]
    assert table[3] == "check: 3 passed in 1s"


def test_suites_at_once_all_end_and_one_failure_is_enough(tmp_path: Path) -> None:
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\necho "it is $2"\ntest "$2" != bad\n')
    make.chmod(0o755)
    ended = run_python("-m", "tools.suites", "good+bad+better", "last", MAKE=str(make))
    said = [line for line in ended.stdout.splitlines() if line.startswith(("it is", "FAILED"))]
    assert said == ["it is good", "it is bad", "it is better", "it is last", "FAILED: bad"]
    assert ended.returncode == 1


def test_every_public_target_has_a_sentence() -> None:
    text = (HOUSE / "Makefile").read_text(encoding="utf-8")
    named = {name for line in re.findall(r"^\.PHONY:(.*)$", text, re.M) for name in line.split()}
    told = set(re.findall(r"^([a-z-]+):.*## \S.*[.?]$", text, re.M))
    assert named == told


# --- processes that are forked warm -----------------------------------------------------------------


def test_a_forked_command_has_its_own_output_environment_and_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    version = WarmProcess(["--version"], log, dict(os.environ))
    assert version.wait(60) == 0
    assert log.read_text().startswith("magnetar ")
    wrong = WarmProcess(["bookkeeper", "listbookies"], log, {"PATH": os.environ["PATH"], "COLUMNS": "80"})
    assert wrong.wait(60) == 2
    assert "--metadata" in log.read_text()


def test_a_forked_server_is_killed_by_its_pid_and_dies_with_who_started_it(
    tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    words = ["metadata", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    killed = WarmProcess(words, tmp_path / "log", dict(os.environ))
    assert killed.poll() is None
    killed.kill()
    assert killed.wait(60) == -signal.SIGKILL
    program = (
        "import os, pathlib, sys\n"
        "from tests.warm_process import WarmProcess\n"
        "print(WarmProcess(sys.argv[2:], pathlib.Path(sys.argv[1]), dict(os.environ)).pid, flush=True)\n"
        "os._exit(0)\n"
    )
    pid = run_python("-c", program, str(tmp_path / "log"), *words).stdout.strip()
    eventually(lambda: not Path(f"/proc/{pid}").exists())


# --- walls ----------------------------------------------------------------------------------------


def lint_walls(directory: Path, imports: dict[str, list[str]]) -> subprocess.CompletedProcess[str]:
    """Check our contracts against a planted package: room → what it imports."""
    for room in {"broker", "bookie", "ledger", "managed_ledger", "client", "errors", *imports}:
        (directory / "magnetar" / room).mkdir(parents=True)
        source = "".join(f"import {name}\n" for name in imports.get(room, []))
        (directory / "magnetar" / room / "__init__.py").write_text(source, encoding="utf-8")
    (directory / "magnetar" / "__init__.py").touch()
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    arguments = ["--no-cache", "--config", str(HOUSE / "pyproject.toml")]
    return run_python("-c", code, *arguments, cwd=directory, PYTHONPATH=str(directory))


def test_walls_stop_what_they_must(tmp_path: Path) -> None:
    planted = {
        "bookie": ["magnetar.managed_ledger"],
        "ledger": ["magnetar.bookie"],
        "client": ["magnetar.bookie"],
        "admin": ["magnetar.console"],
        "console": [],
        "broker": ["pyspark"],
        "attic": [],
    }
    ended = lint_walls(tmp_path, planted)
    assert ended.returncode != 0
    for importer, names in planted.items():
        for name in names:
            assert f"magnetar.{importer} -> {name}" in ended.stdout
    assert "attic" in ended.stdout  # a room that no layer names


def test_walls_let_through_what_they_may(tmp_path: Path) -> None:
    allowed = {"spark": ["pyspark", "magnetar.ledger"], "broker": ["magnetar.ledger"], "cli": ["magnetar.bookie"]}
    ended = lint_walls(tmp_path, allowed)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import asyncio", ["asyncio"]),
        ("from time import monotonic", ["time.monotonic"]),
        ("from random import Random", []),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio", []),
        ("def late():\n    import os", ["os"]),
    ],
)
def test_tidy_sees_the_world_in_deciding_modules(tmp_path: Path, source: str, found: list[str]) -> None:
    (tmp_path / "planted.py").write_text(source, encoding="utf-8")
    assert test_tidy.world_imports(str(tmp_path / "planted.py")) == found


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("async def work():\n    await x()", [1, 2]),
        ("class Seam(ABC):\n    @abstractmethod\n    async def read(self): ...", []),
        ("def plain():\n    return 1", []),
    ],
)
def test_tidy_sees_waiting_in_deciding_modules(tmp_path: Path, source: str, lines: list[int]) -> None:
    (tmp_path / "planted.py").write_text(source, encoding="utf-8")
    assert test_tidy.waiting_lines(str(tmp_path / "planted.py")) == lines


def test_tidy_knows_tasks_whose_parent_waits(tmp_path: Path) -> None:
    source = "async def both():\n    async with asyncio.TaskGroup() as group:\n        group.create_task(x())\n"
    (tmp_path / "planted.py").write_text(source, encoding="utf-8")
    assert test_tidy.scoped_groups(str(tmp_path / "planted.py")) == {"group.create_task"}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("while not ready():\n    time.sleep(0.01)\ntime.sleep(1)\n", [3]),
        ("async def f():\n    while not ready():\n        await asyncio.sleep(0.01)\n", []),
        ("async def f():\n    await asyncio.sleep(0)\n    await asyncio.sleep(0.01)\n", [3]),
        ("async def f():\n    for _ in range(9):\n        await asyncio.sleep(LATE_S + 1)\n", [3]),
        ("async def model():\n    await asyncio.sleep(chance.random())\n", []),
        (f"{VIRTUAL}def test_it():\n    async def f():\n        await asyncio.sleep(60)\n    run(f())\n", []),
        (f"{VIRTUAL}def test_it():\n    async def f():\n        await asyncio.sleep(60)\n    asyncio.run(f())\n", [6]),
        (f"{VIRTUAL}async def helper():\n    await asyncio.sleep(60)\n", []),
    ],
)
def test_tidy_tells_polling_from_sleeping(tmp_path: Path, source: str, lines: list[int]) -> None:
    (tmp_path / "planted.py").write_text(source, encoding="utf-8")
    assert test_tidy.blind_sleeps(str(tmp_path / "planted.py")) == lines


@pytest.mark.parametrize(
    ("pattern", "call", "banned"),
    [
        ("*.create_task", "self._loop.create_task", True),
        ("time.*", "time.monotonic", True),
        ("time.*", "self.time.now", False),
        ("datetime.now", "datetime.datetime.now", True),
        ("open", "open", True),
        ("open", "self._disk.open", False),
    ],
)
def test_tidy_knows_banned_calls(pattern: str, call: str, banned: bool) -> None:
    assert test_tidy.matches(pattern, call) == banned


# --- loops ----------------------------------------------------------------------------------------


def test_loop_run_returns_the_result(loop_run: Callable[[Any], Any]) -> None:
    async def answer() -> int:
        await asyncio.sleep(0)
        return 42

    assert loop_run(answer()) == 42


def test_a_forgotten_task_fails_the_test() -> None:
    async def forget() -> None:
        asyncio.get_running_loop().create_task(asyncio.Event().wait(), name="forgotten")

    with pytest.raises(AssertionError, match="forgotten"):
        run_without_leaks(forget(), asyncio.new_event_loop)


def test_a_forgotten_thread_fails_the_test() -> None:
    ended = threading.Event()

    async def forget() -> None:
        threading.Thread(target=ended.wait, name="forgotten", daemon=True).start()

    try:
        with pytest.raises(AssertionError, match="threads left behind: forgotten"):
            run_without_leaks(forget(), asyncio.new_event_loop)
    finally:
        ended.set()


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_part_is_a_failure_in_ci_only(
    needs: Callable[[str, str], str],
    monkeypatch: pytest.MonkeyPatch,
    ci: str,
    outcome: type[BaseException],
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no-such-program is not on this machine: make one"):
        needs("no-such-program", "make one")
    assert Path(needs("sh", "")).exists()


def test_every_distribution_of_the_lock_is_in_the_bill_of_materials() -> None:
    lock = sbom.LOCK.read_text(encoding="utf-8")
    found = sbom.components(lock)
    assert {each["name"] for each in found} == {
        line.partition("==")[0].lower()
        for line in lock.splitlines()
        if "==" in line and not line.startswith((" ", "#"))
    }
    assert sum(len(each["hashes"]) for each in found) == lock.count("--hash=")
    assert len(found) > 30
    with pytest.raises(ValueError, match="no hash for plain"):
        sbom.components("plain==1.0\n")
    assert run_python("-m", "tools.sbom").stdout == json.dumps(sbom.document(), indent=2) + "\n"


def test_the_security_checklist_names_tests_that_exist() -> None:
    text = (HOUSE / "docs" / "security-checklist.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", text)
    assert len(named) > 70
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not (HOUSE / file).exists() or (test and f"def {test}(" not in (HOUSE / file).read_text(encoding="utf-8"))
    ]
    assert missing == []
