# SPDX-License-Identifier: Apache-2.0
"""Helm for checks of the chart: the one that HELM names, the command of the system, or else one that Go builds.

    python -m tools.helm lint CHART [VALUES_FILE …]
    python -m tools.helm template CHART [key=value …]

What Go builds is kept in the user's cache, by version.
Carries.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.zookeeper import Missing

MODULE: Final = "helm.sh/helm/v3/cmd/helm"
VERSION: Final = "v3.18.6"
RELEASE: Final = "test"
NAMESPACE: Final = "space"


class HelmFailed(Exception):
    """What Helm said."""


def lint(chart: Path, files: Sequence[Path] = ()) -> str:
    """Warnings are failures."""
    return _run("lint", "--strict", str(chart), *_files(files))


def template(chart: Path, values: Mapping[str, str] | None = None, files: Sequence[Path] = ()) -> str:
    """All manifests of a release, with these values over those of the files, and those over the chart's own."""
    words = [word for key, value in (values or {}).items() for word in ("--set", f"{key}={value}")]
    return _run("template", RELEASE, str(chart), "--namespace", NAMESPACE, *_files(files), *words)


def command() -> str:
    """Where Helm is. Missing says what would bring it."""
    named = os.environ.get("HELM") or shutil.which("helm")
    if named:
        return named
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    target = Path(cache) / "magnetar" / f"helm-{VERSION}" / "helm"
    if not target.exists():
        _build(target)
    return str(target)


def _build(target: Path) -> None:
    if shutil.which("go") is None:
        raise Missing("no Helm, and no Go to build it: install one of them, or name a Helm by HELM=PATH")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        environment = {**os.environ, "GOBIN": scratch, "CGO_ENABLED": "0"}
        line = ["go", "install", f"{MODULE}@{VERSION}"]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(f"Go could not build Helm: {done.stderr[-500:]}")
        (Path(scratch) / "helm").rename(target)


def _files(files: Sequence[Path]) -> list[str]:
    return [word for file in files for word in ("--values", str(file))]


def _run(*words: str) -> str:
    done = subprocess.run([command(), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise HelmFailed(done.stdout + done.stderr)
    return done.stdout


def main(arguments: list[str]) -> int:
    match arguments:
        case ["lint", chart, *files]:
            print(lint(Path(chart), [Path(file) for file in files]))
            return 0
        case ["template", chart, *values]:
            print(template(Path(chart), dict(value.split("=", 1) for value in values)))
            return 0
    sys.stderr.write(__doc__ or "")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
