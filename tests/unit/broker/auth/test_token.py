# SPDX-License-Identifier: Apache-2.0
"""Tokens: keys of every kind, and every forgery we know of."""

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt
import pytest

from magnetar.broker.auth.authenticator import Credentials, Identity
from magnetar.broker.auth.token import TokenAuthenticator
from magnetar.broker.auth.token_key import TokenKey, private_key, public_key, secret_key
from magnetar.broker.auth.token_making import ALGORITHMS_OF_PAIRS, new_key_pair, new_token, seconds_of, unproven
from magnetar.errors import BadSetting, NotAuthenticated

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
SECRET = bytes(range(64))
KEY = secret_key(SECRET)


def signed(claims: dict[str, Any], **options: Any) -> bytes:
    return jwt.encode(claims, SECRET, **{"algorithm": "HS256", **options}).encode()


def check(token: bytes, **options: Any) -> Identity:
    return TokenAuthenticator([KEY], **options).check(Credentials(token), NOW_MS)


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_secret_key_proves_a_role(algorithm: str) -> None:
    assert check(signed({"sub": "ada"}, algorithm=algorithm)) == Identity("ada", None)


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS_OF_PAIRS if name != "RS512"])
def test_a_key_pair_proves_a_role(algorithm: str) -> None:
    pair = new_key_pair(algorithm)
    token = new_token(private_key(pair.private), "ada", algorithm=algorithm, headers={"kid": "../../x"})
    authenticator = TokenAuthenticator([KEY, public_key(pair.public)])
    assert authenticator.check(Credentials(token.encode()), NOW_MS).role == "ada"
    with pytest.raises(NotAuthenticated):
        check(token.encode())
    with pytest.raises(BadSetting):
        new_token(private_key(pair.private), "ada", algorithm="HS256")


def test_a_public_key_is_never_a_secret() -> None:
    pair = new_key_pair("RS256")
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=")
    body = base64.urlsafe_b64encode(b'{"sub":"admin"}').rstrip(b"=")
    signature = base64.urlsafe_b64encode(hmac.digest(pair.public, header + b"." + body, hashlib.sha256)).rstrip(b"=")
    with pytest.raises(NotAuthenticated):
        TokenAuthenticator([public_key(pair.public)]).check(
            Credentials(header + b"." + body + b"." + signature), NOW_MS
        )


def unsigned(algorithm: str) -> bytes:
    parts = (json.dumps(part).encode() for part in ({"alg": algorithm}, {"sub": "admin"}))
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts) + b"."


@pytest.mark.parametrize(
    "token",
    [
        *(unsigned(name) for name in ("none", "None", "NONE", "HS256", "")),
        signed({"sub": "a"})[:-4],
        jwt.encode({"sub": "a"}, b"y" * 32, algorithm="HS256").encode(),
        signed({"sub": "a", "exp": NOW_S}),
        signed({"sub": "a", "exp": "later"}),
        signed({"sub": "a", "exp": True}),
        signed({"sub": "a", "exp": 1e300}),
        signed({"sub": "a", "nbf": NOW_S + 1}),
        signed({"sub": ""}),
        signed({"sub": 5}),
        signed({"sub": []}),
        signed({}),
        b"",
        b"..",
        b"\xff\xfe",
        b"[" * 5000,
        b"a" * 20_000,
    ],
    ids=str,
)
def test_forgeries_are_refused_and_never_quoted(token: bytes) -> None:
    with pytest.raises(NotAuthenticated) as refused:
        check(token)
    assert len(token) < 8 or token.decode(errors="replace") not in str(refused.value)


def test_times_are_those_of_the_clock_and_clocks_may_differ() -> None:
    assert check(signed({"sub": "a", "exp": NOW_S + 5, "nbf": NOW_S})) == Identity("a", NOW_MS + 5000)
    late = signed({"sub": "a", "exp": NOW_S - 2, "nbf": NOW_S + 2})
    assert check(late, skew_ms=3000) == Identity("a", NOW_MS + 1000)


def test_the_role_may_be_in_another_claim() -> None:
    assert check(signed({"who": ["ada", "eve"]}), role_claim="who").role == "ada"


def test_the_audience_must_be_ours_where_one_is_asked_for() -> None:
    ours = {"audience_claim": "aud", "audience": "us"}
    assert check(signed({"sub": "a", "aud": ["them", "us"]}), **ours).role == "a"
    assert check(signed({"sub": "a", "aud": "anyone"})).role == "a"
    for claims in ({"aud": "them"}, {}, {"aud": ["them"]}):
        with pytest.raises(NotAuthenticated):
            check(signed({"sub": "a", **claims}), **ours)


@pytest.mark.parametrize(
    ("load", "content"),
    [
        (secret_key, b"short"),
        (secret_key, b"-----BEGIN PUBLIC KEY-----" + b"x" * 50),
        (public_key, b"nonsense"),
        (public_key, SECRET),
        (private_key, b"-----BEGIN nonsense"),
    ],
)
def test_keys_that_cannot_be_used_stop_the_start(load: Any, content: bytes) -> None:
    with pytest.raises(BadSetting):
        load(content)


def test_a_key_is_never_printed() -> None:
    assert repr(KEY) == "TokenKey(HS256/HS384/HS512)"
    assert "secret" not in repr(Credentials(b"secret"))
    assert isinstance(KEY, TokenKey)


@pytest.mark.parametrize(("text", "seconds"), [("10", 10), ("5s", 5), ("2m", 120), ("1h", 3600), ("1y", 31_536_000)])
def test_durations(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "-1d", "1.5h", "d", "9999999999s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(BadSetting):
        seconds_of(text)


def test_a_token_can_be_looked_at_without_its_key() -> None:
    header, claims = unproven(new_token(KEY, "ada", expires_s=5))
    assert (header["alg"], claims) == ("HS256", {"sub": "ada", "exp": 5})
    with pytest.raises(BadSetting):
        unproven("no.token")
