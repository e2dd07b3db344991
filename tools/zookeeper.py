# SPDX-License-Identifier: Apache-2.0
"""A real ZooKeeper server for tests: its published jars, fetched once by Maven into a cache, run by the system's Java.

    python -m tools.zookeeper fetch          prepare the jars (about 10 s, 12 MB)
    python -m tools.zookeeper run PORT DIR   serve on loopback in the foreground

Nothing of it is part of Magnetar; the metadata room's contract suite starts one server per run.
Carries.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "3.9.3"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy-dependencies"
POM = f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>magnetar</groupId><artifactId>zookeeper-for-tests</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>io.dropwizard.metrics</groupId><artifactId>metrics-core</artifactId><version>4.1.12.1</version>
    </dependency>
    <dependency>
      <groupId>org.xerial.snappy</groupId><artifactId>snappy-java</artifactId><version>1.1.10.5</version>
    </dependency>
  </dependencies>
</project>
"""


class Missing(Exception):
    """Something that only the system can give; the text says what."""


def jar_directory() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "magnetar" / f"zookeeper-{VERSION}"


def fetch() -> Path:
    """The directory with the jars; fetched when it is not there. Missing names what the machine lacks."""
    jars = jar_directory()
    if (jars / f"zookeeper-{VERSION}.jar").exists():
        return jars
    if shutil.which("java") is None:
        raise Missing("no Java: install a JRE 17 or newer")
    if shutil.which("mvn") is None:
        raise Missing("no Maven: install it, it fetches ZooKeeper's jars")
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "pom.xml").write_text(POM, encoding="utf-8")
        done = subprocess.run(
            ["mvn", "-q", "-B", PLUGIN, f"-DoutputDirectory={scratch}/jars"],
            cwd=scratch,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Missing(f"Maven could not fetch ZooKeeper {VERSION}: {done.stdout[-500:]}{done.stderr[-500:]}")
        jars.parent.mkdir(parents=True, exist_ok=True)
        staged = jars.with_name(f"{jars.name}.{os.getpid()}")
        shutil.move(f"{scratch}/jars", staged)
        try:
            staged.rename(jars)
        except OSError:  # another run was faster
            shutil.rmtree(staged)
    return jars


def tls_lines(port: int, key_store: Path, trust_store: Path) -> str:
    """Settings for a second port, where every client must show a certificate of the authority. Both files are PEM."""
    return (
        f"secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n"
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
        f"ssl.keyStore.location={key_store}\nssl.keyStore.type=PEM\n"
        f"ssl.trustStore.location={trust_store}\nssl.trustStore.type=PEM\nssl.clientAuth=need\n"
    )


def command(port: int, directory: Path, more: str = "") -> list[str]:
    """The command line of a server on loopback; short ticks, so that sessions can be short in tests."""
    if shutil.which("java") is None:
        raise Missing("no Java: install a JRE 17 or newer")
    jars = fetch()
    settings = directory / "zoo.cfg"
    settings.write_text(
        f"tickTime=200\ndataDir={directory}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        f"maxClientCnxns=0\nadmin.enableServer=false\n{more}",
        encoding="utf-8",
    )
    return [
        "java",
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Dzookeeper.forceSync=no",
        "-cp",
        f"{jars}/*",
        "org.apache.zookeeper.server.ZooKeeperServerMain",
        str(settings),
    ]


def main(arguments: list[str]) -> int:
    match arguments:
        case ["fetch"]:
            fetch()
            return 0
        case ["run", port, directory]:
            Path(directory).mkdir(parents=True, exist_ok=True)
            return subprocess.run(command(int(port), Path(directory)), check=False).returncode
    sys.stderr.write(__doc__ or "")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
