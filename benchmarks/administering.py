# SPDX-License-Identifier: Apache-2.0
"""The admin port and the admin shell: topics created one at a time and sixteen at once, one command on the shell."""

import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks import topics
from benchmarks.figures import Figure, Scale
from benchmarks.servers import Server

AT_ONCE = 16


def _create(web_url: str, names: list[str]) -> None:
    admin = topics.Admin(web_url)
    for name in names:
        admin.call("PUT", topics.path_of(name))
    admin.close()


def create_topics(server: Server, scale: Scale) -> list[Figure]:
    count = scale.of(100, 1_000, 1_000)
    names = [topics.fresh("rest") for _ in range(count)]
    began = time.perf_counter()
    _create(server.web_url, names)
    alone_s = time.perf_counter() - began
    names = [topics.fresh("rest") for _ in range(count)]
    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda share: _create(server.web_url, share), [names[i::AT_ONCE] for i in range(AT_ONCE)]))
    together_s = time.perf_counter() - began
    aim = "0.5× → 0.2×"
    return [
        Figure(f"create {count:,} topics over REST, one at a time", alone_s, "s", "less", aim),
        Figure(f"create {count:,} topics over REST, {AT_ONCE} at once", together_s, "s", "less", aim),
    ]


def shell_command(server: Server, scale: Scale) -> list[Figure]:
    command = server.admin("namespaces", "list", "public")
    taken = []
    for _ in range(scale.of(2, 5, 10)):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        taken.append(time.perf_counter() - began)
    settings = "namespaces list public"
    return [Figure("one admin command on the shell", statistics.median(taken), "s", "less", "0.2× → 0.1×", settings)]
