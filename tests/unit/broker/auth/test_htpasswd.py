# SPDX-License-Identifier: Apache-2.0
"""Hashes that Apache's htpasswd and OpenSSL made are ours too."""

import bcrypt
import pytest

from magnetar.broker.auth.htpasswd import apr1, is_password, parse_users, verify
from magnetar.errors import BadSetting


@pytest.mark.parametrize(
    ("password", "hashed"),
    [
        ("123456", "$apr1$FG4AO6aX$KGYPuMoLUou3i6vUkPUUf."),
        ("myPassword", "$apr1$qHDFfhPC$nITSVHgYbDAK1Y0acGRnY0"),
        ("password", "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="),
    ],
)
def test_known_hashes(password: str, hashed: str) -> None:
    assert verify(hashed, password)
    assert not verify(hashed, password + "x")
    assert not verify(hashed, "")


def test_bcrypt_in_its_three_spellings_and_beyond_its_length() -> None:
    long = "p" * 100
    hashed = bcrypt.hashpw(long.encode()[:72], bcrypt.gensalt(4)).decode()
    for spelling in ("$2a$", "$2b$", "$2y$"):
        assert verify(spelling + hashed[4:], long)
        assert not verify(spelling + hashed[4:], "other")
    assert not verify("$2b$broken", "x")


@pytest.mark.parametrize("password", ["", "a", "exactly-16-bytes", "ünïcödé", "x" * 300])
def test_apr1_of_any_length_proves_itself_only(password: str) -> None:
    hashed = apr1(password, "saltsalt")
    assert verify(hashed, password)
    assert not verify(hashed, password + "\0")


def test_an_unknown_user_has_no_password() -> None:
    users = parse_users(f"# people\n\nada:{apr1('secret', 'salt')}\n")
    assert is_password(users, "ada", "secret")
    assert not is_password(users, "eve", "secret")
    assert not is_password(users, "ada", "wrong")


@pytest.mark.parametrize("text", ["", "# nobody\n", "ada\n", ":$apr1$x$y\n", "ada:plain-canary\n", "ada:$1$x$y\n"])
def test_what_cannot_be_used_is_named_by_its_line_only(text: str) -> None:
    with pytest.raises(BadSetting) as refused:
        parse_users(text)
    assert "canary" not in str(refused.value)
