# SPDX-License-Identifier: Apache-2.0
"""`make compile`: builds the compiled twins of the run loops (native/_runs.pyx) into the package.

Needs a C compiler; without one it says so and leaves everything as it is, which works the same and slower.
Assembles.
"""

import shutil
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "native" / "_runs.pyx"
TARGET = ROOT / "src" / "magnetar" / "wire"


def main() -> int:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None and shutil.which("cc") is None:
        print(f"no C compiler ({compiler}): the plain loops are used; `apt-get install gcc` gives one", file=sys.stderr)
        return 1
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    extension = Extension(
        "magnetar.wire._runs",
        [str(SOURCE.relative_to(ROOT))],
        include_dirs=[str(SOURCE.parent)],
        extra_compile_args=["-O3"],
    )
    built = ROOT / "build" / "native"
    extensions = cythonize([extension], build_dir=str(built), quiet=True)  # type: ignore[no-untyped-call]
    command = build_ext(Distribution({"name": "magnetar", "ext_modules": extensions}))
    command.build_lib = str(built / "lib")
    command.build_temp = str(built)
    command.ensure_finalized()
    command.run()
    for old in TARGET.glob("_runs.*.so"):
        old.unlink()
    (output,) = command.get_outputs()
    shutil.copy2(output, TARGET)
    print(f"built {Path(output).name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
