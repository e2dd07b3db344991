# SPDX-License-Identifier: Apache-2.0
"""A command that asks a broker one thing starts quickly: nothing heavy is imported on its way."""

import subprocess
import sys

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
