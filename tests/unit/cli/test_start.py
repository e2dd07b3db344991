# SPDX-License-Identifier: Apache-2.0
"""What starts quickly: a command that asks a broker one thing, and a server until it serves its clients."""

import subprocess
import sys
from dataclasses import is_dataclass
from importlib import import_module

# Each costs more than the whole command should.
HEAVY = (
    "asyncio",
    "httpx",
    "fastapi",
    "google.protobuf",
    "rich.console",
    "yaml",
    "cryptography",
    "magnetar.client.client",
)


def test_admin_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from magnetar.cli.admin import run_admin\n"
        "code = run_admin(['--admin-url', 'http://127.0.0.1:9', 'topics', 'list', 'a/b'])\n"
        f"print(code, [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "3 []\n"


# What a standalone without authentication, doors and neighbours never needs, or only after its clients are served.
HEAVY_FOR_SERVERS = (
    "typer",
    "click",
    "rich",
    "fastapi",
    "pydantic",
    "httptools",
    "jwt",
    "cryptography",
    "bcrypt",
    "fastavro",
    "http.client",
    "magnetar.broker.ownership.cluster",
    "magnetar.bookie.server",
    "magnetar.client.options",
    "magnetar.metadata.remote",
)
SETTINGS = (
    "admin",
    "balance",
    "bookie",
    "bookie_server",
    "broker",
    "ledger",
    "managed_ledger",
    "metadata",
    "runtime",
    "security",
)


def test_a_standalone_imports_nothing_that_its_clients_would_wait_for() -> None:
    script = (
        "import sys\n"
        "from magnetar.cli.entry import main\n"
        "from magnetar.cli.role_commands import run_role\n"
        "import magnetar.cli.standalone\n"
        f"print([name for name in {HEAVY_FOR_SERVERS!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_settings_have_a_word_of_their_own() -> None:
    """A dataclass without a docstring makes one of its signature, which takes longer than the class itself."""
    for name in SETTINGS:
        module = import_module(f"magnetar.config.{name}")
        found = [each for each in vars(module).values() if isinstance(each, type) and is_dataclass(each)]
        assert found
        for each in found:
            assert not (each.__doc__ or f"{each.__name__}(").startswith(f"{each.__name__}("), each
