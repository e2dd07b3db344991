# SPDX-License-Identifier: Apache-2.0
"""Builds the container file with buildah and runs what it built, as root and without a container engine's daemon.

The base image is the one that the file names where it can be pulled; elsewhere one of that name is made of Debian's
packages, for the Python that Debian has. Steps and the built image run in a chroot on the machine's network, with
volumes that only they see.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.deploy.checks import DEPLOY

CONTAINER_FILE = DEPLOY / "container" / "Containerfile"
NEEDED = ("buildah", "debootstrap", "apt-get", "unshare")
BASE = "docker.io/library/python:{version}-slim"
# What a step that installs packages needs of the machine: whom to trust, and where packages are.
SHARED_FILES = ("/etc/ssl/certs", "/etc/pip.conf")


class Image:
    """Everything that buildah keeps is below one directory."""

    def __init__(self, directory: Path) -> None:
        self._root = directory / "storage"
        self._run_root = directory / "run"
        self._container = ""

    def build(self) -> None:
        """The image, from this checkout."""
        version = self._base()
        shared = [word for path in SHARED_FILES if Path(path).exists() for word in ("--volume", f"{path}:{path}:ro")]
        words = ["build", "--isolation", "chroot", "--pull-never", "--build-arg", f"PYTHON={version}", *shared]
        ignored = CONTAINER_FILE.with_name("Containerfile.dockerignore")
        words += ["--ignorefile", str(ignored), "--file", str(CONTAINER_FILE), "--tag", "magnetar"]
        self._buildah(*words, str(DEPLOY.parent))
        self._container = self._buildah("from", "--pull-never", "magnetar").strip()

    @property
    def configuration(self) -> dict[str, Any]:
        """What the image says of itself: user, entry point, command, volumes, ports."""
        found: dict[str, Any] = json.loads(self._buildah("inspect", "--type", "image", "magnetar"))["OCIv1"]["config"]
        return found

    def start(
        self, words: list[str], environment: Mapping[str, str], volumes: Mapping[Path, str], log: Path
    ) -> subprocess.Popen[bytes]:
        """Run the entry point with these words, as the user that the image names; the process is the entry point's."""
        described = self.configuration
        root = Path(self._buildah("mount", self._container).strip())
        mounts = {Path("/dev"): "/dev", Path("/proc"): "/proc", Path("/etc/hosts"): "/etc/hosts", **volumes}
        (root / "etc/hosts").touch()
        script = [f"mount --rbind {path} {root}{inside}" for path, inside in mounts.items()]
        script += [f'exec chroot --userspec={described["User"]} {root} "$@"']
        variables = [*described["Env"], *(f"{name}={value}" for name, value in environment.items())]
        inside = ["/usr/bin/env", "--ignore-environment", f"--chdir={described['WorkingDir']}", *variables]
        line = ["unshare", "--mount", "sh", "-ec", "\n".join(script), "sh", *inside, *described["Entrypoint"], *words]
        with log.open("wb") as target:
            return subprocess.Popen(line, stdout=target, stderr=target)

    # --- private --------------------------------------------------------------------------------

    def _base(self) -> str:
        """The version of Python of the base image that is there."""
        wanted = next(
            line.partition("=")[2] for line in CONTAINER_FILE.read_text().splitlines() if line.startswith("ARG PYTHON=")
        )
        pulled = subprocess.run(self._line("pull", BASE.format(version=wanted)), capture_output=True, check=False)
        if pulled.returncode == 0:
            return wanted
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        base = self._buildah("from", "scratch").strip()
        self._buildah("add", base, str(_debian_with_python()), "/")
        self._buildah("config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", base)
        self._buildah("commit", "--rm", base, BASE.format(version=version))
        return version

    def _line(self, *words: str) -> list[str]:
        return ["buildah", "--root", str(self._root), "--runroot", str(self._run_root), "--storage-driver=vfs", *words]

    def _buildah(self, *words: str) -> str:
        done = subprocess.run(self._line(*words), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"buildah {words[0]}: {(done.stdout + done.stderr)[-3000:]}"
        return done.stdout


def _debian_with_python() -> Path:
    """An archive of a small Debian with Python, made once and kept in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magnetar"
    target = cache / "debian-python.tar"
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        root, made = Path(scratch) / "root", Path(scratch) / target.name
        listed = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"]
        mirror, release, *_ = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
        packages = "python3,python3-venv,ca-certificates"
        line = ["debootstrap", "--variant=minbase", f"--include={packages}", release, str(root), mirror]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"debootstrap: {(done.stdout + done.stderr)[-2000:]}"
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        # Debian's own mark that a package manager looks after this Python; the official image has none.
        for mark in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            mark.unlink()
        subprocess.run(["tar", "--directory", str(root), "--create", "--file", str(made), "."], check=True)
        made.rename(target)
    return target
