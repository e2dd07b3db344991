# SPDX-License-Identifier: Apache-2.0
"""The rules of STYLE.md that a machine can check: sizes, door plates, banned calls, names, layers, tracked files.

Reads source text only; imports nothing of the package. The lists of exceptions may only shrink.
Decides.
"""

import ast
import gc
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parent.parent
PACKAGE = HOUSE / "src" / "magnetar"
GENERATED = "src/magnetar/wire/proto/"

FILE_LINES_MAX = 500
# A suite of one noun may be longer than the noun.
TEST_FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 60
# path (or path::function) → its present size. May only shrink; a new one needs a decision note.
SIZE_RATCHET: dict[str, int] = {}

PLATES = ("Decides.", "Carries.", "Assembles.")
WORLD_MODULES = frozenset({"asyncio", "socket", "threading", "time", "random", "os", "subprocess"})
# Random and the clock are passed in; a deciding module may still name the type of what it is given.
PASSED_IN = frozenset({("random", "Random")})

# call → the only places (path prefixes under src/magnetar) where it may be written
RUNTIME = ("runtime/",)
EDGES = ("runtime/", "cli/", "testing")
BANNED_CALLS: dict[str, tuple[str, ...]] = {
    "asyncio.wait_for": (),
    "asyncio.create_task": ("runtime/tasks.py",),
    "asyncio.ensure_future": ("runtime/tasks.py",),
    "*.create_task": ("runtime/tasks.py",),
    "*.run_in_executor": RUNTIME,
    "asyncio.to_thread": RUNTIME,
    "time.*": RUNTIME,
    "random.*": RUNTIME,
    "Random": RUNTIME,
    "SystemRandom": RUNTIME,
    "secrets.*": RUNTIME,
    "os.urandom": RUNTIME,
    "uuid.uuid1": RUNTIME,
    "uuid.uuid4": RUNTIME,
    "uuid4": RUNTIME,
    "datetime.now": RUNTIME,
    "open": EDGES,
    "os.open": RUNTIME,
    "*.read_text": EDGES,
    "*.write_text": EDGES,
    "*.read_bytes": EDGES,
    "*.write_bytes": EDGES,
    "threading.*": RUNTIME,
}

BANNED_SUFFIXES = ("Manager", "Impl", "Util", "Utils", "Helper", "Helpers", "Base")
BANNED_PREFIXES = ("get_", "handle_", "process_", "do_")
BANNED_FILES = frozenset({"util", "utils", "helper", "helpers", "manager", "base", "impl", "common", "misc"})
# Names that another library calls: asyncio transports, FastAPI and logging hooks.
# asyncio's, and those of the official client that ours shares.
NAMES_OF_OTHERS = frozenset(
    {
        "get_extra_info",
        "get_last_message_id",
        "get_protocol",
        "get_topic_partitions",
        "get_write_buffer_limits",
        "get_write_buffer_size",
        "handle_websocket_upgrade",
    }
)

MACHINE_PATHS = re.compile(r"(?:^|[^\w.~$}-])/(?:work|farm|root|opt/wheels)/")
# Where loops come from whose time is not the machine's.
_VIRTUAL = ("tests.simulation.world.loop", "tests.simulation.world.world", "tests.unit.broker.virtual_time")
REGISTRIES = re.compile(
    r"https?://[^\s\"')]*(?:pypi\.|pythonhosted|npmjs|maven|debian\.org)|--(?:extra-)?index-url", re.I
)


@cache
def tracked() -> tuple[str, ...]:
    """What git keeps; without git (an unpacked archive) the question does not arise, and these checks are skipped."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=HOUSE, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git work tree")
    return tuple(sorted(path for path in listed.stdout.split("\0") if path and (HOUSE / path).is_file()))


def modules(*roots: str) -> list[str]:
    """Python files under the roots, generated ones left out, new ones that git does not know yet included."""
    found = [path for root in roots for path in (HOUSE / root).rglob("*.py")]
    names = sorted(path.relative_to(HOUSE).as_posix() for path in found)
    return [name for name in names if not name.startswith(GENERATED)]


@cache
def tree_of(path: str) -> ast.Module:
    tree = ast.parse((HOUSE / path).read_text(encoding="utf-8"), filename=path)
    gc.freeze()  # a million nodes that stay: the collector need not look at them again and again
    return tree


@cache
def nodes_of(path: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(path)))


def plate_of(path: str) -> str:
    words = (ast.get_docstring(tree_of(path)) or "").split()
    return words[-1] if words else ""


def under_package(path: str) -> str:
    return path.removeprefix("src/magnetar/")


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node except what stands under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from runtime_nodes(node)


def world_imports(path: str) -> list[str]:
    found = []
    for node in runtime_nodes(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in WORLD_MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in WORLD_MODULES:
            module = node.module or ""
            found += [f"{module}.{alias.name}" for alias in node.names if (module, alias.name) not in PASSED_IN]
    return found


def waiting_lines(path: str) -> list[int]:
    """Where a module waits. A coroutine without a body does not: an interface only says what others carry."""
    lines = []
    for node in nodes_of(path):
        if isinstance(node, ast.AsyncFunctionDef):
            if not all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in node.body):
                lines.append(node.lineno)
        elif isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith)):
            lines.append(node.lineno)
    return lines


def dotted(node: ast.expr) -> str:
    """`a.b.c` as it is written; whatever is no name stands as a question mark."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


@cache
def called_names(path: str) -> tuple[tuple[int, str], ...]:
    """Every call by its dotted name; `random.x` where random is not imported is a stream that was passed in."""
    nodes = nodes_of(path)
    imported = {alias.asname or alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    calls = [(node.lineno, dotted(node.func)) for node in nodes if isinstance(node, ast.Call)]
    return tuple((line, name) for line, name in calls if not name.startswith("random.") or "random" in imported)


def matches(pattern: str, call: str) -> bool:
    if pattern.startswith("*."):
        return "." in call and call.rsplit(".", 1)[1] == pattern[2:]
    if pattern.endswith(".*"):
        return call.startswith(pattern[:-1])
    return call == pattern or ("." in pattern and call.endswith("." + pattern))


def test_files_and_functions_are_short() -> None:
    problems = []
    for path in modules("src", "tests", "tools", "benchmarks"):
        lines = len((HOUSE / path).read_text(encoding="utf-8").splitlines())
        limit = TEST_FILE_LINES_MAX if path.startswith("tests/") else FILE_LINES_MAX
        if lines > SIZE_RATCHET.get(path, limit):
            problems.append(f"{path} has {lines} lines; the limit is {limit}")
        for node in nodes_of(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno is not None:
                lines = node.end_lineno - node.lineno + 1
                if lines > SIZE_RATCHET.get(f"{path}::{node.name}", FUNCTION_LINES_MAX):
                    problems.append(
                        f"{path}:{node.lineno} {node.name} has {lines} lines; the limit is {FUNCTION_LINES_MAX}"
                    )
    assert not problems, "\n".join(problems)


def test_every_module_has_a_door_plate() -> None:
    rooms = [path for path in modules("src") if not path.endswith("__init__.py")]
    missing = [path for path in rooms if plate_of(path) not in PLATES]
    assert not missing, f"docstring must end with one of {' '.join(PLATES)}: " + ", ".join(missing)


def test_deciding_modules_only_decide() -> None:
    problems = []
    for path in modules("src"):
        if plate_of(path) != "Decides.":
            continue
        problems += [f"{path} decides, but imports {name}" for name in world_imports(path)]
        problems += [f"{path}:{line} decides, but waits" for line in waiting_lines(path)]
    assert not problems, "\n".join(problems)


def test_packages_hold_a_docstring_only() -> None:
    """`__init__` says what lives there; the package itself may resolve its public names lazily."""
    problems = []
    for path in modules("src"):
        if not path.endswith("__init__.py"):
            continue
        if not ast.get_docstring(tree_of(path)):
            problems.append(f"{path} has no docstring")
        public = path in {
            f"src/magnetar/{room}__init__.py" for room in ("", "client/", "spark/", "testing/", "blocking/")
        }
        if not public and len(tree_of(path).body) > 1:
            problems.append(f"{path} holds more than its docstring")
    assert not problems, "\n".join(problems)


def scoped_groups(path: str) -> set[str]:
    """Calls that start a task whose parent waits for it: `async with asyncio.TaskGroup() as group`."""
    found = set()
    for node in nodes_of(path):
        for item in node.items if isinstance(node, ast.AsyncWith) else ():
            if ast.unparse(item.context_expr) == "asyncio.TaskGroup()" and item.optional_vars is not None:
                found.add(ast.unparse(item.optional_vars) + ".create_task")
    return found


def test_the_world_is_reached_through_runtime_only() -> None:
    problems = []
    for path in modules("src"):
        scoped = scoped_groups(path)
        for line, call in called_names(path):
            if call in scoped:
                continue
            for pattern, places in BANNED_CALLS.items():
                if matches(pattern, call) and not under_package(path).startswith(places):
                    problems.append(f"{path}:{line} calls {call}; it belongs to {', '.join(places) or 'nobody'}")
    assert not problems, "\n".join(problems)


def blind_sleeps(path: str) -> list[int]:
    """Sleeps that wait for no condition: those outside a `while`, which asks again.

    A loop with a time of its own (tests/simulation, or what a test runs on its loop) may let that time pass. What is
    drawn, or told by a call, is the pace of a modelled world and not a wait.
    """
    polling = {line for node in nodes_of(path) if isinstance(node, ast.While) for line in _lines(node)}
    lines = [line for line, call in called_names(path) if call == "time.sleep"]
    if not path.startswith("tests/simulation/"):
        virtual = _virtual_clocks(path)
        for statement in tree_of(path).body:
            is_test = isinstance(statement, ast.FunctionDef) and statement.name.startswith("test_")
            if not (virtual & _names_in(statement) if is_test else virtual):
                awaits = [node for node in ast.walk(statement) if isinstance(node, ast.Await)]
                lines += [node.lineno for node in awaits if _lets_time_pass(node)]
    return [line for line in sorted(lines) if line not in polling]


def _lets_time_pass(node: ast.Await) -> bool:
    """`await asyncio.sleep(…)` for a time that is a number, a name, or reckoned from such."""
    if not (isinstance(node.value, ast.Call) and dotted(node.value.func) == "asyncio.sleep"):
        return False
    (wait,) = node.value.args
    is_drawn = any(isinstance(part, ast.Call) for part in ast.walk(wait))
    return not is_drawn and not (isinstance(wait, ast.Constant) and wait.value == 0)


def _virtual_clocks(path: str) -> set[str]:
    """What a file runs coroutines on where time is virtual: names from the simulation, and functions made of them."""
    found: set[str] = set()
    for node in tree_of(path).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_VIRTUAL):
            found |= {alias.asname or alias.name for alias in node.names}
    for node in tree_of(path).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("test_") and found & _names_in(node):
            found.add(node.name)
    return found


def _names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _lines(node: ast.While) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def test_tests_wait_for_conditions() -> None:
    problems = []
    for path in modules("tests"):
        problems += [f"{path}:{line} sleeps without a condition" for line in blind_sleeps(path)]
        problems += [f"{path}:{line} calls {call}" for line, call in called_names(path) if call == "asyncio.wait_for"]
    assert not problems, "\n".join(problems)


def test_names_are_the_domains() -> None:
    problems = []
    for path in modules("src"):
        if Path(path).stem in BANNED_FILES:
            problems.append(f"{path} names nothing that the domain knows")
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef) and node.name.endswith(BANNED_SUFFIXES):
                problems.append(f"{path}:{node.lineno} class {node.name}")
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                name = node.name.lstrip("_")
                if name.startswith(BANNED_PREFIXES) and name not in NAMES_OF_OTHERS:
                    problems.append(f"{path}:{node.lineno} def {node.name}")
    assert not problems, "\n".join(problems)


def test_every_file_names_its_licence() -> None:
    first = "# SPDX-License-Identifier: Apache-2.0"
    sources = modules("src", "tests", "tools", "benchmarks")
    missing = [path for path in sources if not (HOUSE / path).read_text(encoding="utf-8").startswith(first)]
    assert not missing, "first line must be the SPDX line: " + ", ".join(missing)


def test_architecture_draws_the_layers_that_are_checked() -> None:
    text = (HOUSE / "ARCHITECTURE.md").read_text(encoding="utf-8")
    drawing = text.split("## Layers", 1)[1].split("```", 2)[1]
    drawn = [re.split(r"\s{2,}", line)[0].split(" | ") for line in drawing.strip().splitlines()]
    settings = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(c for c in settings["tool"]["importlinter"]["contracts"] if c["id"] == "layers")
    checked = [[room.strip("() ") for room in layer.split("|")] for layer in contract["layers"]]
    assert drawn == checked


def test_every_room_is_in_the_layers() -> None:
    settings = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(c for c in settings["tool"]["importlinter"]["contracts"] if c["id"] == "layers")
    known = {room.strip("() ") for layer in contract["layers"] for room in layer.split("|")}
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__", "__main__"} <= known


def test_decision_notes_are_numbered() -> None:
    notes = sorted(path.name for path in (HOUSE / "docs" / "decisions").glob("*.md"))
    numbers = [name[:4] for name in notes]
    assert all(re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", name) for name in notes), notes
    assert len(numbers) == len(set(numbers)), f"two notes share a number: {notes}"


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, REGISTRIES], ids=["machine-path", "registry-host"])
def test_nothing_of_a_machine_is_committed(pattern: re.Pattern[str]) -> None:
    found = []
    for path in tracked():
        if path == "tests/test_tidy.py":  # the patterns themselves
            continue
        try:
            text = (HOUSE / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a golden binary file
        found += [
            f"{path}:{n}: {line.strip()[:100]}" for n, line in enumerate(text.splitlines(), 1) if pattern.search(line)
        ]
    assert not found, "\n".join(found)


def test_back_pressure_page_names_real_settings_and_tests() -> None:
    fields: dict[str, set[str]] = {}
    for path in modules("src/magnetar/config"):
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                named = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
                fields[node.name] = {target.id for target in named if isinstance(target, ast.Name)}
    text = (HOUSE / "docs" / "backpressure.md").read_text(encoding="utf-8")
    settings = re.findall(r"`(\w+Settings)\.(\w+)`", text)
    assert settings
    assert not [f"{owner}.{field}" for owner, field in settings if field not in fields.get(owner, set())]
    tests = re.findall(r"`(tests/[\w/]+\.py)(?:::\w+)?` \|$", text, re.M)
    assert not [path for path in tests if not (HOUSE / path).exists()]


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for path in tracked():
        if path.endswith(".md"):
            targets = re.findall(r"\]\(([^)#\s]+)", (HOUSE / path).read_text(encoding="utf-8"))
            inside = [target for target in targets if "://" not in target]
            broken += [f"{path} → {target}" for target in inside if not ((HOUSE / path).parent / target).exists()]
    assert not broken, "\n".join(broken)
