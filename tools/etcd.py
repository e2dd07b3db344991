# SPDX-License-Identifier: Apache-2.0
"""A real etcd server for tests: the one of the system (Debian's package etcd-server), run on loopback.

    python -m tools.etcd install             install it, where apt is there and may be used
    python -m tools.etcd run PORT DIR        serve on loopback in the foreground

Nothing of it is part of Magnetar; the metadata room's contract suite starts one server per run.
Carries.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools import apt
from tools.zookeeper import Missing

PACKAGE = "etcd-server"


def install() -> None:
    """Missing says why it cannot be."""
    if shutil.which("etcd") is not None:
        return
    if not apt.may_install():
        raise Missing(f"no etcd: install the package {PACKAGE}, or put etcd 3.4 or newer on the PATH")
    trouble = apt.install(PACKAGE, lambda: shutil.which("etcd") is not None)
    if trouble:
        raise Missing(f"{PACKAGE} could not be installed: {trouble}")


def tls_flags(certificate: str, key: str, trust: str) -> list[str]:
    """Every client must show a certificate of the authority; with these the server is https."""
    return [f"--cert-file={certificate}", f"--key-file={key}", f"--trusted-ca-file={trust}", "--client-cert-auth"]


def command(port: int, peer_port: int, directory: Path, tls: Sequence[str] = ()) -> list[str]:
    """The command line of a server on loopback that forgets with its directory."""
    install()
    client, peer = f"http{'s' if tls else ''}://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return [
        "etcd",
        "--name=test",
        f"--data-dir={directory}/data",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=test={peer}",
        "--log-level=error",
        *tls,
    ]


def main(arguments: list[str]) -> int:
    match arguments:
        case ["install"]:
            install()
            return 0
        case ["run", port, directory]:
            Path(directory).mkdir(parents=True, exist_ok=True)
            return subprocess.run(command(int(port), int(port) + 1, Path(directory)), check=False).returncode
    sys.stderr.write(__doc__ or "")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
