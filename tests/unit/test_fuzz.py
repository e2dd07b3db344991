# SPDX-License-Identifier: Apache-2.0
"""Every decoder reads or refuses hostile bytes, in bounded memory and time; more of them with `make fuzz`."""

import ast
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from random import Random, SystemRandom
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

import pytest

from magnetar.errors import BadFrame, MagnetarError
from magnetar.ids import MessageId
from magnetar.wire import batch, commands, hot
from magnetar.wire.message_row import MessageRow
from tests.fuzz import by_hand, run, twins
from tests.fuzz.mutation import BYTES_MAX, hostile, smaller
from tests.fuzz.planted import spin
from tests.fuzz.run import failure
from tests.fuzz.target import Refusal, Target, answer_of
from tests.fuzz.targets import TARGETS

INPUTS = 40
FUZZ_SECONDS = float(os.environ.get("FUZZ_SECONDS", "15"))
SOURCE = Path(hot.__file__).resolve().parents[1]

# What a decoder is called here; the second kind is one if it is given bytes.
_DECODER: Final = re.compile(
    r"(decoded?|parsed?|deserialize|from_json|from_bytes|decompress|unpack|lay_out|keys_of|affinity_of)(_|$)"
)
_READER: Final = re.compile(
    r"(read|split|spans|cut|feed|load|is_intact|check_intact|count_intact|records_in|error_text)(_|$)"
)
_NAMES: Final = re.compile(r"def (\w+)\(")
_BYTES: Final = ("bytes", "memoryview", "Buffer")

# Decoders without a target, and why: a folder, a file, or one of them.
EXCEPTIONS: Final = {
    "admin/names_asked.py": "decode_name and the names, which have targets, with HTTP's refusal",
    "client/chunks.py:cut": "cuts what this client sends",
    "client/schema.py:BytesSchema": "gives what it gets",
    "client/schema.py:Schema": "the interface",
    "client/schema_auto.py:Auto": "by the topic's schema, whose payloads are targets",
    "client/schema_avro.py:AvroSchema.decode_message": "read_avro, a target, by the writer's schema",
    "client/schema_key_value.py:KeyValueSchema.decode_message": "with a separate key, whose schema is a target",
    "config/values.py": "the operator's own settings",
    "metadata/etcd_client.py:parse_servers": "the operator's own settings",
    "metadata/zookeeper_client.py:_WatchRequest": "reads nothing",
    "spark/batch_layout.py:lay_out": "the compiled one, a target of its own",
    "spark/protobuf_types.py:ProtobufReader": "protobuf's own parser, by descriptors that are a target",
    "spark/sql/": "Spark's own trees",
    "spark/values.py": "read_avro, JSON and protobuf, with every error refused",
    "wire/cutter.py:Cutter": "the base of two cutters that are targets",
}


class _Decoders(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: list[str] = []
        self._inside: list[str] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside.append(node.name)
        self.generic_visit(node)
        self._inside.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        arguments = [each for each in node.args.args if each.arg not in ("self", "cls")]
        given = ast.unparse(arguments[0].annotation) if arguments and arguments[0].annotation else ""
        takes_bytes = any(word in given for word in _BYTES)
        if arguments and (_DECODER.match(node.name) or (takes_bytes and _READER.match(node.name))):
            self.found.append(".".join((*self._inside, node.name)))


@cache
def _decoders() -> tuple[str, ...]:
    found: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.parent.name != "proto" and any(map(_may_decode, _NAMES.findall(text))):
            visitor = _Decoders()
            visitor.visit(ast.parse(text))
            found += [f"{path.relative_to(SOURCE).as_posix()}:{name}" for name in visitor.found]
    return tuple(found)


def _may_decode(name: str) -> bool:
    return bool(_DECODER.match(name) or _READER.match(name))


def _asked(targets: Sequence[Target]) -> set[str]:
    """What of the package the targets' good inputs run through."""
    asked: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            asked.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for target in targets:
            for data in target.good:
                with contextlib.suppress(MagnetarError):
                    target.decode(data)
    finally:
        sys.setprofile(before)
    own = (code for code in asked if Path(code.co_filename).is_relative_to(SOURCE))
    return {f"{Path(code.co_filename).relative_to(SOURCE).as_posix()}:{code.co_qualname}" for code in own}


@pytest.mark.skipif(
    find_spec("pyspark") is None and os.environ.get("CI") != "true",
    reason="the data source's decoders need pyspark: `make setup-all` installs it",
)
def test_every_decoder_has_a_target_or_a_reason() -> None:
    decoders, asked = _decoders(), _asked(TARGETS)
    without = [name for name in decoders if name not in asked]
    assert [name for name in without if not name.startswith(tuple(EXCEPTIONS))] == []
    unused = [name for name in EXCEPTIONS if not any(each.startswith(name) for each in without)]
    assert unused == [], "a reason for what has a target, or is gone"
    assert len(decoders) > 100


def test_a_decoder_without_a_target_is_seen() -> None:
    assert {"wire/bookkeeper/cookie.py:decode", "wire/bookkeeper/registry.py:decode_listing"} <= {*_decoders()}
    some = [target for target in TARGETS if target.name == "cookie"]
    assert "wire/bookkeeper/cookie.py:decode" in _asked(some)
    assert "wire/bookkeeper/registry.py:decode_listing" not in _asked(some)


# --- what is compiled -----------------------------------------------------------------------------


def row_twins() -> ModuleType:
    from tests.fuzz import row_twins as found

    return found


@pytest.fixture
def compiled_twins() -> ModuleType:
    if twins.RUNS is None or twins.ROWS is None:
        sentence = "the compiled loops are not built and not fuzzed: `make compile` builds them"
        if os.environ.get("CI") == "true":
            pytest.fail(sentence)
        pytest.skip(sentence)
    return twins.RUNS


def test_every_compiled_loop_that_reads_is_fuzzed(compiled_twins: ModuleType) -> None:
    """Also with MAGNETAR_PURE, as here in CI: the twins are asked for by name."""
    asked = {target.name for target in TARGETS if target.name.startswith("compiled ")}
    assert len(asked) == len(twins.TWINS) >= 8
    text = "".join(Path(each.__file__ or "").read_text() for each in (twins, by_hand, row_twins()))
    for module in (twins.RUNS, twins.ROWS):
        loops = [name for name, each in vars(module).items() if callable(each) and not name.startswith("_")]
        unknown = [name for name in loops if f".{name}(" not in text and f".{name}," not in text]
        assert set(unknown) <= twins.OF_OUR_OWN, unknown
    assert len(loops) > 2


def test_a_compiled_loop_that_answers_otherwise_is_found(
    compiled_twins: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong:
        def __getattr__(self, name: str) -> object:
            return getattr(compiled_twins, name)

        def count_intact(self, *arguments: object) -> int:
            return int(compiled_twins.count_intact(*arguments)) + 1

    monkeypatch.setattr(twins, "RUNS", Wrong())
    failing = [target.name for target in twins.TWINS if any(failure(target, data) for data in target.good)]
    assert failing == ["compiled adds", "compiled intact entries"]


# --- what is read by hand -------------------------------------------------------------------------


def _target(name: str) -> Target:
    (found,) = (target for target in TARGETS if target.name == name)
    return found


@pytest.mark.parametrize(
    ("target", "owner", "name", "wrong"),
    [
        ("SEND by hand", hot, "decode_send", lambda data: (3, 301, 5, 304)),
        ("SEND by hand", hot, "decode_send", lambda data: None),
        ("ACK by hand", hot, "decode_ack_plainly", lambda data: (9, None, [(99, 99)])),
        ("ACK by hand", hot, "decode_ack_plainly", lambda data: None),
        ("MESSAGE by hand", MessageRow, "entry_id", lambda row, data: 99),
        ("batch", batch, "spans", lambda data, count: [(0, 1, 2, False)] * count),
        ("message id", MessageId, "decode", lambda data: MessageId(1, 2)),
    ],
)
def test_a_wrong_hand_decoder_is_found(
    monkeypatch: pytest.MonkeyPatch, target: str, owner: Any, name: str, wrong: Callable[..., Any]
) -> None:
    chosen = _target(target)
    assert not any(failure(chosen, data) for data in chosen.good)
    if name == "decode_ack_plainly":
        # All of them wrong in the same way.
        monkeypatch.setattr(hot, "decode_ack", wrong)
        monkeypatch.setattr(by_hand, "RUNS", None)
    monkeypatch.setattr(owner, name, wrong)
    assert any("AssertionError" in failure(chosen, data) for data in chosen.good)


@pytest.mark.parametrize("name", ["SEND by hand", "ACK by hand", "MESSAGE by hand"])
def test_what_is_read_by_hand_and_refused_by_protobuf_is_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A refusal is no failure, but this one is."""

    def refuses(data: bytes, sender: commands.Sender) -> None:
        raise BadFrame("no")

    monkeypatch.setattr(commands, "parse", refuses)
    assert all("refuses" in failure(_target(name), data) for data in _target(name).good)


# --- the run itself -------------------------------------------------------------------------------


def test_every_decoder_reads_or_refuses_hostile_bytes() -> None:
    command = [sys.executable, "-m", "tests.fuzz.run", "--inputs", str(INPUTS), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{INPUTS * len(TARGETS):,} inputs" in done.stdout


@pytest.mark.timeout(FUZZ_SECONDS + 300)
def test_every_decoder_reads_or_refuses_fresh_hostile_bytes_for_a_set_time() -> None:
    """Other bytes in every run, for FUZZ_SECONDS; FUZZ_SEED=n asks the same again, in the same order."""
    seed = int(os.environ.get("FUZZ_SEED") or SystemRandom().randrange(2**32))
    sys.stdout.write(f"FUZZ_SEED={seed}\n")
    command = [sys.executable, "-m", "tests.fuzz.run", "--minutes", str(FUZZ_SECONDS / 60), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FUZZ_SECONDS + 240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(TARGETS)} decoders, seed {seed}" in done.stdout
    each = re.search(r"at least ([\d,]+) of each", done.stdout)
    assert each is not None
    assert int(each.group(1).replace(",", "")) >= run.INPUTS_BETWEEN_LOOKS, "not every decoder was asked"


def test_names_of_targets_are_their_own() -> None:
    assert len({target.name for target in TARGETS}) == len(TARGETS)


def test_every_target_has_an_input_that_is_read() -> None:
    """Where all are refused at the first byte, nothing behind it is looked at."""

    def is_read(target: Target, data: bytes) -> bool:
        return not isinstance(answer_of(lambda: target.decode(data)), Refusal)

    unread = [each.name for each in TARGETS if not any(is_read(each, data) for data in each.good)]
    # It says what was refused.
    assert unread == ["refusal of a look-up"]


def test_a_refusal_is_no_failure_and_anything_else_is() -> None:
    def refuses(data: bytes) -> None:
        raise BadFrame("no")

    def breaks(data: bytes) -> None:
        raise KeyError(data)

    assert failure(Target("a", refuses, (b"",)), b"x") == ""
    assert failure(Target("a", breaks, (b"",)), b"x").startswith("KeyError")


def test_a_decoder_that_takes_too_long_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "INPUT_SECONDS_MAX", 0.05)
    assert "more than 0.05 s" in failure(Target("a", spin, (b"",)), b"x")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("spins", "more than 0.1 s of the processor"),
        ("hangs", "did not come back within 1 s"),
        ("crashes", "by signal 11"),
        ("believes", "MemoryError"),
    ],
)
def test_what_hangs_crashes_or_takes_memory_is_a_failure_that_can_be_replayed(
    tmp_path: Path, name: str, sentence: str
) -> None:
    command = [sys.executable, "-m", "tests.fuzz.planted", name, str(tmp_path)]
    done = subprocess.run([*command, "--inputs", "20", "--seed", "1"], capture_output=True, text=True, check=False)
    assert (done.returncode, sentence in done.stdout) == (1, True), done.stdout + done.stderr
    (kept,) = tmp_path.iterdir()
    again = subprocess.run([*command, "--replay", str(kept)], capture_output=True, text=True, check=False)
    assert (again.returncode, sentence in again.stdout) == (1, True), again.stdout + again.stderr


def test_replaying_what_no_target_is_called_says_so(tmp_path: Path) -> None:
    kept = tmp_path / "no-such-target.abc"
    kept.write_bytes(b"x")
    with pytest.raises(SystemExit, match=r"no target is called 'no-such-target'.*cookie"):
        run.main(["--replay", str(kept)])


@pytest.mark.parametrize("seed", range(20))
def test_hostile_bytes_are_bounded_and_repeatable(seed: int) -> None:
    good = (b"abc" * 100, b"")
    first, again = Random(seed), Random(seed)
    made = [hostile(good, first) for _ in range(20)]
    assert made == [hostile(good, again) for _ in range(20)]
    assert max(map(len, made)) <= BYTES_MAX


def test_a_failing_input_is_made_small() -> None:
    assert smaller(b"a" * 500 + b"!" + b"b" * 300, lambda data: b"!" in data) == b"!"
