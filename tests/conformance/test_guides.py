# SPDX-License-Identifier: Apache-2.0
"""What README and guides tell a newcomer to type works as it stands there; only the address is another."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from magnetar.cli.main import app
from tests.conformance.test_cli import typed_to
from tests.processes import StandaloneProcess

HOUSE = Path(__file__).resolve().parents[2]
GUIDES = HOUSE / "docs" / "guides"
# Commands of the guide that end only when somebody says so, or that take a minute.
ENDLESS = ("client consume orders -s billing -p Earliest -n 0", "top")


def blocks(page: Path, language: str, under: str = "") -> list[str]:
    """The fenced blocks of a language, all of them or those under one heading."""
    text = page.read_text(encoding="utf-8")
    if under:
        text = re.split(r"^## ", text.split(f"\n## {under}\n")[1], maxsplit=1, flags=re.M)[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def commands(under: str) -> list[list[str]]:
    lines = "".join(blocks(GUIDES / "command-line.md", "sh", under)).splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [each[1:] for each in words if each and " ".join(each[1:]) not in ENDLESS]


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("guided")) as process:
        yield process


def run_program(text: str, standalone: StandaloneProcess, tmp_path: Path) -> str:
    program = tmp_path / "program.py"
    told = re.sub(r"pulsar://(127\.0\.0\.1|localhost):6650", standalone.service_url, text)
    assert told != text, "the program names the address of a standalone"
    program.write_text(told)
    ended = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_tour_of_the_readme(standalone: StandaloneProcess, tmp_path: Path) -> None:
    (tour,) = blocks(HOUSE / "README.md", "python")
    said = run_program(tour, standalone, tmp_path).splitlines()
    told = [line for line in said if line.startswith(("stored as", "received"))]
    assert [line.startswith("stored as") for line in told] == [True] * 3 + [False] * 3
    assert told[3:] == [f"received hello {number}" for number in range(3)]


def test_the_first_program_of_the_clients_guide(standalone: StandaloneProcess, tmp_path: Path) -> None:
    first = blocks(GUIDES / "python-client.md", "python")[0]
    assert run_program(first, standalone, tmp_path) == "b'one order'\n"


def test_the_guide_to_http_and_websocket(standalone: StandaloneProcess, tmp_path: Path) -> None:
    guide, address = GUIDES / "websocket.md", standalone.web_url.removeprefix("http://")
    (posted,) = blocks(guide, "sh")
    ended = subprocess.run(
        ["sh", "-e", "-c", posted.replace("localhost:8080", address)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (answer,) = blocks(guide, "json")
    told = re.sub(r'"messageId":"\d+:', '"messageId":"3:', ended.stdout)
    assert told == answer.strip()
    (session,) = blocks(guide, "python")
    program = tmp_path / "session.py"
    program.write_text(session.replace("localhost:8080", address))
    ended = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "ok\nb'hello'\n"


def test_the_command_lines_of_the_guide(standalone: StandaloneProcess, tmp_path: Path) -> None:
    typed = typed_to(standalone, tmp_path)
    asked = [words for under in ("Administration", "Messages") for words in commands(under)]
    looked = [words for words in commands("Looking") if words[0] != "doctor"]
    assert len(asked) >= 8
    assert looked
    # Readers of the guide have ten messages; its producer sends two.
    earlier = ["client", "produce", "orders", "-m", ",".join(f"earlier-{number}" for number in range(8))]
    consumed = ["client", "consume", "orders", "-s", "billing", "-p", "Earliest", "-n", "1"]
    for words in [earlier, *asked, consumed, *looked]:
        ended = typed(*words)
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
    (cluster,) = blocks(GUIDES / "command-line.md", "yaml")
    described = tmp_path / "cluster.yaml"
    described.write_text(cluster)
    for _ in range(2):
        ended = typed("apply", "-f", str(described))
        assert ended.returncode == 0, (ended.stdout, ended.stderr)
    assert "nothing" in ended.stdout.lower()


def test_tokens_in_five_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines, settings = blocks(GUIDES / "security.md", "", "Tokens in five lines")
    for line in lines.splitlines():
        if line.startswith("magnetar tokens "):
            words, _, file = line.removeprefix("magnetar ").partition(" > ")
            ended = CliRunner().invoke(app, shlex.split(words))
            assert ended.exit_code == 0, (line, ended.output)
            if file:
                (tmp_path / file).write_text(ended.stdout)
    assert "/etc/magnetar/secret.key" in settings
    (tmp_path / "secure.conf").write_text(settings.replace("/etc/magnetar/secret.key", str(tmp_path / "secret.key")))
    with (
        StandaloneProcess(tmp_path, "--config", "secure.conf") as guarded,
        httpx.Client(base_url=guarded.web_url, timeout=30) as web,
    ):

        def status(**headers: str) -> int:
            return web.get("/admin/v2/tenants", headers=headers).status_code

        assert status(Authorization=f"Bearer {(tmp_path / 'admin.token').read_text().strip()}") == 200
        assert status(Authorization=f"Bearer {(tmp_path / 'app.token').read_text().strip()}") == 403
        assert status() == 401
