# SPDX-License-Identifier: Apache-2.0
"""What is installed without extras is whole: every room but Spark's imports without the libraries of an extra."""

import subprocess
import sys

import pytest

_PROGRAM = """
import importlib, pkgutil, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "pandas", "pyarrow", "numpy", "matplotlib", "pytest"}:
            raise ModuleNotFoundError(f"{name} is not part of the core", name=name)

sys.meta_path.insert(0, Missing())
import magnetar
seen = 0
for found in pkgutil.walk_packages(magnetar.__path__, "magnetar."):
    if not found.name.startswith(("magnetar.spark", "magnetar.testing", "magnetar.cli.sql", "magnetar.cli.pipeline")):
        importlib.import_module(found.name)
        seen += 1
print(seen)
"""


@pytest.mark.feature("F-DEP-14")
def test_the_core_needs_no_extra() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 300
