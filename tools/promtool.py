# SPDX-License-Identifier: Apache-2.0
"""Prometheus's own checker: the one of the system, or that of Debian's package, taken out of it once into a cache.

    python -m tools.promtool path                      where it is; fetched if it is not there
    python -m tools.promtool run check rules FILE      run it

Nothing is installed, so no Prometheus is started; nothing of it is part of Magnetar.
Carries.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tools import apt
from tools.zookeeper import Missing

PACKAGE = "prometheus"
MEMBER = "./usr/bin/promtool"


def cached() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "magnetar" / "promtool"


def find() -> str:
    """Its path: what PROMTOOL names, then the PATH, then the cache. Missing says why there is none."""
    named = os.environ.get("PROMTOOL") or shutil.which("promtool")
    return named or str(fetch())


def fetch() -> Path:
    target = cached()
    if target.exists():
        return target
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise Missing(f"no promtool, and no {program} to fetch it with: put it on the PATH, or name it by PROMTOOL")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        package = _download(Path(scratch))
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as unpacking:
            with tarfile.open(fileobj=unpacking.stdout, mode="r|") as archive:
                found = next((each for each in archive if each.name == MEMBER), None)
                source = archive.extractfile(found) if found is not None else None
                if source is None:
                    raise Missing(f"the package {PACKAGE} has no {MEMBER}")
                made = Path(scratch) / "promtool"
                with made.open("wb") as out:
                    shutil.copyfileobj(source, out)
            unpacking.kill()
        made.chmod(0o755)
        made.rename(target)
    return target


def _download(directory: Path) -> Path:
    """The package as a file. The lists of packages are only renewed where they do not name it."""
    line = ["apt-get", "download", "-qq", PACKAGE]
    done = subprocess.run(line, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode and apt.may_install():
        apt.renew_lists()
        done = subprocess.run(line, cwd=directory, capture_output=True, text=True, check=False)
    found = next(directory.glob("*.deb"), None)
    if found is None:
        raise Missing(f"no promtool, and apt could not fetch the package {PACKAGE}: {done.stderr.strip()[-300:]}")
    return found


def main(arguments: list[str]) -> int:
    match arguments:
        case ["path"]:
            print(find())
            return 0
        case ["run", *words]:
            return subprocess.run([find(), *words], check=False).returncode
    sys.stderr.write(__doc__ or "")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
