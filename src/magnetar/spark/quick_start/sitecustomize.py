# SPDX-License-Identifier: Apache-2.0
"""pyspark from where it is installed, compiled, instead of from the archive of sources that Spark puts before it.

Each Python process that Spark starts would compile that archive again, which is most of what its start costs. Both are
one installation, or nothing is changed. A `sitecustomize` of somebody else that this one hides is loaded behind it.
Decides.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path


def without_archives(paths: list[str]) -> list[str]:
    """The same places to import from, without Spark's archives of packages that are installed beside them."""
    return [path for path in paths if not _is_installed_too(Path(path), paths)]


def _is_installed_too(archive: Path, paths: list[str]) -> bool:
    if archive.suffix != ".zip" or archive.parts[-4:-1] != ("pyspark", "python", "lib"):
        return False
    site = archive.parents[3]
    package = "pyspark" if archive.name == "pyspark.zip" else archive.name.partition("-")[0]
    return str(site) in paths and (site / package / "__init__.py").is_file()


def _load_hidden() -> None:
    here = str(Path(__file__).parent)
    found = PathFinder.find_spec("sitecustomize", [path for path in sys.path if path != here])
    if found is not None and found.loader is not None:
        found.loader.exec_module(module_from_spec(found))


if __name__ == "sitecustomize":
    sys.path[:] = without_archives(sys.path)
    _load_hidden()
