# SPDX-License-Identifier: Apache-2.0
"""A process that has everything imported and forks `magnetar` commands on demand: a start costs no second imports.

`python -m tests.warm_start FD` takes orders from a Unix socket, each with a socket of its own. What is forked is an
ordinary process with the environment, directory, output and arguments of its order. Beside it a nanny waits, tells its
pid and how it ended, and kills it when nobody listens any more. Never holds a lock, a loop or a thread while it forks.
Carries.
"""

import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from importlib import import_module
from typing import Any, Final

ORDER_BYTES_MAX: Final = 1 << 20
NUMBER: Final = struct.Struct("!i")
ROLES: Final = ("entry", "main", "standalone", "broker", "bookie", "metadata", "proxy", "websocket", "autorecovery")


def serve(orders: socket.socket) -> dict[str, Any] | None:
    """Fork until nobody orders any more; returns an order in the process that was forked for it, and None here."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nannies end by themselves and are not waited for
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, ORDER_BYTES_MAX, 1)
        if not order:
            return None
        with socket.socket(fileno=descriptors[0]) as listener:
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                orders.close()
                return _hatch(json.loads(order), listener)


def _hatch(order: dict[str, Any], listener: socket.socket) -> dict[str, Any]:
    """In the nanny: fork once more and stay beside it. Returns in the new process alone."""
    pid = os.fork()
    if pid == 0:
        return order
    watched = os.pidfd_open(pid)
    listener.sendall(NUMBER.pack(pid))
    ready, _, _ = select.select([watched, listener.fileno()], [], [])
    if watched not in ready:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if watched in ready:
        listener.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def become(order: dict[str, Any]) -> None:
    """Take over all that a process gets from whoever starts it, and run the command to its end."""
    output = os.open(order["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    os.close(output)
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    sys.path[:0] = [place for place in order["environment"].get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.argv = ["magnetar", *order["arguments"]]
    import_module("magnetar.cli.entry").main()


def main() -> None:
    orders = socket.socket(fileno=int(sys.argv[1]))
    for role in ROLES:
        import_module(f"magnetar.cli.{role}")
    import_module("magnetar.metadata.zookeeper")
    gc.freeze()
    order = serve(orders)
    if order is not None:
        become(order)


if __name__ == "__main__":
    main()
