# SPDX-License-Identifier: Apache-2.0
"""`magnetar tokens`: what one verb makes, another takes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from magnetar.cli.tokens import app
from magnetar.errors import MagnetarError


def run(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(app, arguments, input=given)


def text(*arguments: str, given: str = "") -> str:
    result = run(*arguments, given=given)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output.strip()


def refused(*arguments: str) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, MagnetarError), (result.output, result.exception)
    return str(result.exception)


def test_a_secret_key_signs_and_checks(tmp_path: Path) -> None:
    key = str(tmp_path / "secret.key")
    text("create-secret-key", "--output", key)
    assert (Path(key).stat().st_mode & 0o777, Path(key).stat().st_size) == (0o600, 32)
    token = text("create", "-sk", key, "-s", "ada", "-e", "1y", "-hs", "kid=one")
    assert json.loads(text("validate", "-sk", key, token))["sub"] == "ada"
    assert json.loads(text("validate", "-sk", f"file://{key}", "--stdin", given=token + "\n"))["exp"] > 0
    assert json.loads(text("show", token).split("---")[0])["kid"] == "one"
    assert "is there already" in refused("create-secret-key", "--output", key)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_private_key_signs_and_its_public_key_checks(tmp_path: Path, algorithm: str) -> None:
    private, public, file = (str(tmp_path / name) for name in ("private.key", "public.key", "token"))
    pair = ("--output-private-key", private, "--output-public-key", public)
    text("create-key-pair", *pair, "-a", algorithm)
    assert Path(private).stat().st_mode & 0o777 == 0o600
    Path(file).write_text(text("create", "--private-key", private, "--subject", "ada"))
    assert json.loads(text("validate", "-pk", public, "-f", file)) == {"sub": "ada"}


def test_what_is_wrong_is_one_sentence(tmp_path: Path) -> None:
    key, other = str(tmp_path / "a"), str(tmp_path / "b")
    text("create-secret-key", "-o", key)
    text("create-secret-key", "-o", other)
    token = text("create", "-sk", key, "-s", "ada")
    assert "not valid" in refused("validate", "-sk", other, token)
    assert "expired" in refused("validate", "-sk", key, text("create", "-sk", key, "-s", "ada", "-e", "0s"))
    assert "one key" in refused("validate", token)
    assert "once" in refused("show")
    assert "no token" in refused("show", "nonsense")
    assert "cannot be used" in refused("create", "-sk", key, "-s", "ada", "-a", "RS256")
