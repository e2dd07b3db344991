# SPDX-License-Identifier: Apache-2.0
"""`make compile`: builds the compiled twins of the hottest loops (native/*.pyx) into the package.

Needs a C compiler; without one it says so and leaves everything as it is, which works the same and slower.
Assembles.
"""

import shutil
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "native"
MODULES = ("magnetar.wire._runs", "magnetar.runtime._groups", "magnetar.spark._rows")


def main() -> int:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None and shutil.which("cc") is None:
        print(f"no C compiler ({compiler}): the plain loops are used; `apt-get install gcc` gives one", file=sys.stderr)
        return 1
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    made = [
        Extension(
            module,
            [f"{NATIVE.name}/{module.rpartition('.')[2]}.pyx"],
            include_dirs=[str(NATIVE)],
            extra_compile_args=["-O3"],
        )
        for module in MODULES
    ]
    built = ROOT / "build" / "native"
    extensions = cythonize(made, build_dir=str(built), quiet=True)  # type: ignore[no-untyped-call]
    command = build_ext(Distribution({"name": "magnetar", "ext_modules": extensions}))
    command.build_lib = str(built / "lib")
    command.build_temp = str(built)
    command.ensure_finalized()
    command.run()
    for output in command.get_outputs():
        module = next(each for each in MODULES if Path(output).name.startswith(each.rpartition(".")[2] + "."))
        target = ROOT.joinpath("src", *module.split(".")[:-1])
        for old in target.glob(f"{module.rpartition('.')[2]}.*.so"):
            old.unlink()
        shutil.copy2(output, target)
        print(f"built {Path(output).name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
