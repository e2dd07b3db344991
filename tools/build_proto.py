# SPDX-License-Identifier: Apache-2.0
"""Generates src/magnetar/wire/proto from proto/: Python modules and their type stubs. Called by `make proto`.

The .proto files are given the virtual directory magnetar/wire/proto, so that what protoc writes imports from there
and needs no repair. The output is committed; tests/unit/wire/test_proto.py proves that it is up to date.
Carries.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

PACKAGE = Path("magnetar/wire/proto")
ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "proto"
TARGET = ROOT / "src" / PACKAGE
LICENCE = "# SPDX-License-Identifier: Apache-2.0\n"


def generate(source: Path, output: Path) -> None:
    """Run protoc on every file of source; modules and stubs land in output/magnetar/wire/proto."""
    from grpc_tools import protoc

    names = [str(PACKAGE / path.name) for path in sorted(source.glob("*.proto"))]
    plugin = Path(sys.executable).with_name("protoc-gen-mypy")
    arguments = ["protoc", f"--proto_path={PACKAGE}={source}", f"--plugin=protoc-gen-mypy={plugin}"]
    arguments += [f"--python_out={output}", f"--mypy_out=quiet:{output}", *names]
    if protoc.main(arguments) != 0:
        raise SystemExit("build_proto: protoc failed, see above")
    for path in generated(output / PACKAGE):
        text = path.read_text()
        path.write_text(LICENCE + text.replace("\n\n\n\n", "\n\n\n"))


def generated(directory: Path) -> Iterator[Path]:
    yield from sorted(path for path in directory.iterdir() if path.name.endswith(("_pb2.py", "_pb2.pyi")))


def differences(fresh: Path, committed: Path) -> list[str]:
    """Names of generated files that are missing, left over, or not what protoc would write now."""
    new = {path.name: path.read_text() for path in generated(fresh)}
    old = {path.name: path.read_text() for path in generated(committed)}
    return sorted(name for name in new.keys() | old.keys() if new.get(name) != old.get(name))


def stale() -> list[str]:
    """Compare the committed files with a fresh run, without writing to the tree."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(SOURCE, Path(scratch))
        return differences(Path(scratch) / PACKAGE, TARGET)


def build() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        generate(SOURCE, Path(scratch))
        fresh = Path(scratch) / PACKAGE
        for path in generated(TARGET):
            if not (fresh / path.name).exists():
                path.unlink()
        for path in generated(fresh):
            shutil.copyfile(path, TARGET / path.name)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Generate the modules of magnetar.wire.proto from proto/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the committed files are stale")
    if parser.parse_args(arguments).check:
        names = stale()
        if names:
            sys.stderr.write(f"build_proto: not up to date, run `make proto`: {', '.join(names)}\n")
        return 1 if names else 0
    build()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
