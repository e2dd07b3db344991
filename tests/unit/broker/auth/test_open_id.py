# SPDX-License-Identifier: Apache-2.0
"""Tokens of identity providers, lists of revoked tokens, several keys, and authenticators of the operator's own."""

import asyncio
import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from magnetar.broker.auth.authenticator import Credentials, Identity
from magnetar.broker.auth.issuer_keys import check_url
from magnetar.broker.auth.open_id import parse_keys
from magnetar.broker.auth.opening import open_authentication
from magnetar.broker.auth.revocation import RevokedTokens, parse_revoked
from magnetar.config.security import SecuritySettings
from magnetar.errors import BadSetting, CannotStart, NotAuthenticated
from magnetar.runtime.clock import SystemClock

ISSUER = "https://id.example"
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
NOW_S = 2_000_000_000


class StoppedClock(SystemClock):
    def now_ms(self) -> int:
        return NOW_S * 1000


class OwnAuthenticator:
    """What an operator may plug in."""

    method = "own"
    is_slow = False

    def __init__(self, settings: SecuritySettings) -> None:
        self.settings = settings

    def check(self, credentials: Credentials, now_ms: int) -> Identity:
        return Identity(credentials.data.decode())


def key_set() -> bytes:
    described = (
        ("r", jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True)),
        ("e", jwt.algorithms.ECAlgorithm.to_jwk(EC.public_key(), as_dict=True)),
    )
    keys = [{**key, "kid": kid, "use": "sig"} for kid, key in described]
    return json.dumps({"keys": [*keys, {"kty": "oct", "k": "AAAA", "kid": "s"}]}).encode()


def claims(**changes: Any) -> dict[str, Any]:
    good = {"iss": ISSUER, "aud": ["other", "pulsar"], "sub": "app", "exp": NOW_S + 60}
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def identified(settings: SecuritySettings, token: str, method: str = "token") -> Identity:
    async def identify() -> Identity:
        authentication = open_authentication(settings, StoppedClock())
        assert authentication is not None
        try:
            return await authentication.identify(method, Credentials(token.encode()))
        finally:
            await authentication.close()

    return asyncio.run(identify())


def settings(tmp_path: Path, **fields: Any) -> SecuritySettings:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set())
    return SecuritySettings(
        authentication_enabled=True,
        authentication_providers=("org.apache.pulsar.broker.authentication.oidc.AuthenticationProviderOpenID",),
        openid_issuers=(ISSUER,),
        openid_audiences=("pulsar",),
        openid_keys=(f"{ISSUER}={path}",),
        **fields,
    )


@pytest.mark.feature("B-20", "F-SEC-01")
@pytest.mark.parametrize(("kid", "algorithm", "key"), [("r", "RS256", RSA), ("e", "ES256", EC)])
def test_a_token_of_the_identity_provider_names_a_role(tmp_path: Path, kid: str, algorithm: str, key: Any) -> None:
    token = jwt.encode(claims(), key, algorithm=algorithm, headers={"kid": kid})
    assert identified(settings(tmp_path), token) == Identity("app", (NOW_S + 60) * 1000)


@pytest.mark.feature("B-20")
@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://other.example"},
        {"iss": None},
        {"aud": "other"},
        {"aud": None},
        {"exp": NOW_S - 1},
        {"exp": None},
        {"nbf": NOW_S + 10},
        {"sub": None},
    ],
)
def test_any_other_token_is_refused(tmp_path: Path, changes: Mapping[str, Any]) -> None:
    token = jwt.encode(claims(**changes), RSA, algorithm="RS256", headers={"kid": "r"})
    with pytest.raises(NotAuthenticated):
        identified(settings(tmp_path), token)


def test_a_key_is_chosen_by_its_id_and_its_own_algorithm(tmp_path: Path) -> None:
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    stranger = rsa.generate_private_key(65537, 2048)
    encoded = [
        jwt.encode(claims(), stranger, algorithm="RS256", headers={"kid": "r"}),
        jwt.encode(claims(), RSA, algorithm="RS256", headers={"kid": "unknown"}),
        jwt.encode(claims(), EC, algorithm="ES256", headers={"kid": "r"}),
        jwt.encode(claims(), "", algorithm="none", headers={"kid": "r"}),
        "x",
        "a.b.c",
        "",
    ]
    # As if the public key were a secret: by hand, because the library refuses to.
    head, body = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in ({"alg": "HS256", "kid": "r"}, claims())
    )
    mac = hashlib.sha256(public + head + body).digest()
    encoded.append((head + b"." + body + b"." + base64.urlsafe_b64encode(mac)).decode())
    for token in encoded:
        with pytest.raises(NotAuthenticated):
            identified(settings(tmp_path), token)


def test_keys_come_from_where_the_operator_said_only() -> None:
    assert check_url("https://id.example/keys")
    assert check_url("http://127.0.0.1:8000/keys")
    for url in ("http://id.example/keys", "ftp://id.example", "file:///etc/passwd", "gopher://x"):
        with pytest.raises(BadSetting):
            check_url(url)
    for content in (b"", b"{}", b'{"keys": []}', b'{"keys": 3}', b'{"keys": [{"kty": "RSA", "n": "!", "e": "!"}]}'):
        with pytest.raises(BadSetting):
            parse_keys(content)


@pytest.mark.feature("B-20")
def test_a_revoked_token_counts_no_more(tmp_path: Path) -> None:
    path = tmp_path / "revoked"
    token = jwt.encode(claims(jti="t1"), RSA, algorithm="RS256", headers={"kid": "r"})
    other = jwt.encode(claims(jti="t2", sub="second"), RSA, algorithm="RS256", headers={"kid": "r"})
    for line in ("jti:t1", "sub:app", f"sha256:{hashlib.sha256(token.encode()).hexdigest().upper()}"):
        path.write_text(f"# leaked\n\n{line}\n")
        chosen = settings(tmp_path, token_revoked_file=str(path))
        with pytest.raises(NotAuthenticated, match="revoked"):
            identified(chosen, token)
        assert identified(chosen, other).role == "second"


def test_a_list_that_cannot_be_read_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "revoked"
    path.write_text("jti:t1")
    revoked = RevokedTokens(str(path))
    path.write_text("what is this")
    revoked.reload()
    assert revoked.holds(("jti:t1",))
    path.unlink()
    revoked.reload()
    assert revoked.holds(("jti:t1",))
    path.write_text("jti:t2")
    revoked.reload()
    assert not revoked.holds(("jti:t1",))
    with pytest.raises(BadSetting, match="Line 2"):
        parse_revoked(b"jti:a\nJTI:b")
    with pytest.raises(CannotStart):
        RevokedTokens(str(tmp_path / "nowhere"))


@pytest.mark.feature("B-20")
def test_several_keys_count_while_keys_change(tmp_path: Path) -> None:
    old, new = b"o" * 32, b"n" * 32
    (tmp_path / "old").write_bytes(old)
    (tmp_path / "public").write_bytes(RSA.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    chosen = SecuritySettings(
        authentication_enabled=True,
        authentication_providers=("token",),
        token_secret_key=base64.b64encode(new).decode(),
        token_more_keys=(f"secret:{tmp_path / 'old'}", f"public:{tmp_path / 'public'}"),
    )
    for key, algorithm in ((old, "HS256"), (new, "HS256"), (RSA, "RS256")):
        assert identified(chosen, jwt.encode({"sub": "app"}, key, algorithm=algorithm)).role == "app"
    with pytest.raises(NotAuthenticated):
        identified(chosen, jwt.encode({"sub": "app"}, b"x" * 32, algorithm="HS256"))


def test_tokens_of_both_kinds_are_one_method(tmp_path: Path) -> None:
    secret = b"s" * 32
    chosen = settings(tmp_path, token_secret_key=base64.b64encode(secret).decode())
    chosen = SecuritySettings(
        **{
            **{name: getattr(chosen, name) for name in chosen.__slots__},
            "authentication_providers": ("token", "openid"),
        }
    )
    assert identified(chosen, jwt.encode({"sub": "ours"}, secret, algorithm="HS256")).role == "ours"
    theirs = jwt.encode(claims(), RSA, algorithm="RS256", headers={"kid": "r"})
    assert identified(chosen, theirs).role == "app"


@pytest.mark.feature("F-SEC-01")
def test_kerberos_and_athenz_are_for_plug_ins() -> None:
    for name, product in (("Sasl", "Kerberos"), ("Athenz", "Athenz")):
        provider = f"org.apache.pulsar.broker.authentication.AuthenticationProvider{name}"
        chosen = SecuritySettings(authentication_enabled=True, authentication_providers=(provider,))
        with pytest.raises(BadSetting, match=f"{product}.*package.module:Class"):
            open_authentication(chosen, SystemClock())
    own = f"{__name__}:{OwnAuthenticator.__name__}"
    chosen = SecuritySettings(authentication_enabled=True, authentication_providers=(own,))
    assert identified(chosen, "someone", "own") == Identity("someone")
    for wrong in ("no.such.module:Class", "json:loads", f"{__name__}:Missing"):
        with pytest.raises(CannotStart):
            open_authentication(
                SecuritySettings(authentication_enabled=True, authentication_providers=(wrong,)), SystemClock()
            )
