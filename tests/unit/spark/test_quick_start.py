# SPDX-License-Identifier: Apache-2.0
"""Processes of a session take pyspark from where it is installed, and nothing else is different for them."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from magnetar.spark import quick_start
from magnetar.spark.quick_start.sitecustomize import without_archives

QUICK_START = str(Path(quick_start.__file__).parent)
HOME = Path(pyspark.__file__).parent
ARCHIVES = [str(path) for path in sorted((HOME / "python" / "lib").glob("*.zip"))]


def told(paths: list[str]) -> list[str]:
    program = "import pyspark, py4j, sys; print(pyspark.__file__, py4j.__file__, getattr(sys, 'hidden', ''))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True)
    return done.stdout.split()


@pytest.mark.feature("F-SPK-01")
def test_sparks_archives_give_way_to_the_installed_packages(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.hidden = 'loaded'\n")
    spark, java, hidden = told([*ARCHIVES, QUICK_START, str(tmp_path)])
    assert spark == pyspark.__file__
    assert ".zip" not in java
    assert hidden == "loaded", "somebody else's sitecustomize is loaded too"


def test_archives_of_another_installation_stay() -> None:
    assert len(ARCHIVES) == 2
    site = str(HOME.parent)
    assert without_archives(["a", *ARCHIVES, site]) == ["a", site]
    for paths in ([*ARCHIVES, "/elsewhere"], ["/opt/spark/python/lib/pyspark.zip", site], ["x.zip", site]):
        assert without_archives(paths) == paths
