# SPDX-License-Identifier: Apache-2.0
"""`magnetar tokens`: keys and tokens, with the verbs and flags of Pulsar's `tokens` command.

A key file is readable by its owner only, and never overwritten.
Assembles.
"""

import base64
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from magnetar.broker.auth.authenticator import Credentials
from magnetar.broker.auth.opening import read_source
from magnetar.broker.auth.token import TokenAuthenticator
from magnetar.broker.auth.token_key import TokenKey, private_key, public_key, secret_key
from magnetar.broker.auth.token_making import SECRET_BYTES, new_key_pair, new_token, seconds_of, unproven
from magnetar.errors import BadSetting
from magnetar.runtime.clock import SystemClock
from magnetar.runtime.secret_bytes import secret_bytes

app = typer.Typer(
    name="tokens",
    help="Keys and tokens that clients prove their role with.",
    no_args_is_help=True,
    add_completion=False,
)

_KEY = "a path, file:///path or data:;base64,…"
SecretKey = Annotated[str | None, typer.Option("--secret-key", "-sk", help=f"Secret key: {_KEY}")]
PrivateKey = Annotated[str | None, typer.Option("--private-key", "-pk", help=f"Private key: {_KEY}")]
PublicKey = Annotated[str | None, typer.Option("--public-key", "-pk", help=f"Public key: {_KEY}")]
Algorithm = Annotated[str | None, typer.Option("--signature-algorithm", "-a", help="HS256 … ES512.")]
Token = Annotated[str | None, typer.Argument(help="The token.")]
Stdin = Annotated[bool, typer.Option("--stdin", "-i", help="Read the token from standard input.")]
TokenFile = Annotated[str | None, typer.Option("--token-file", "-f", help="Read the token from a file.")]


@app.command("create-secret-key")
def create_secret_key(
    output: Annotated[str | None, typer.Option("--output", "-o", help="Write it to a file.")] = None,
    as_base64: Annotated[bool, typer.Option("--base64", "-b", help="As base64 text.")] = False,
    algorithm: Annotated[str, typer.Option("--signature-algorithm", "-a", help="HS256, HS384, HS512.")] = "HS256",
) -> None:
    """Make a key that both signs and checks."""
    if algorithm not in SECRET_BYTES:
        raise BadSetting(f"There are no secret keys for {algorithm}; there are {', '.join(SECRET_BYTES)}")
    key = secret_bytes(SECRET_BYTES[algorithm])
    if as_base64:
        key = base64.b64encode(key)
    if output is None:
        sys.stdout.buffer.write(key)
    else:
        _write_secret(output, key)


@app.command("create-key-pair")
def create_key_pair(
    private: Annotated[str, typer.Option("--output-private-key", help="File of the private key, which signs.")],
    public: Annotated[str, typer.Option("--output-public-key", help="File of the public key, which checks.")],
    algorithm: Annotated[str, typer.Option("--signature-algorithm", "-a", help="RS256 … ES512.")] = "RS256",
) -> None:
    """Make a pair of keys: one signs, the other checks."""
    pair = new_key_pair(algorithm)
    _write_secret(private, pair.private)
    _write_secret(public, pair.public, mode=0o644)


@app.command()
def create(
    subject: Annotated[str, typer.Option("--subject", "-s", help="The role.")],
    secret: SecretKey = None,
    private: PrivateKey = None,
    expiry: Annotated[str | None, typer.Option("--expiry-time", "-e", help="Valid for: 30m, 12h, 7d, 1y.")] = None,
    algorithm: Algorithm = None,
    headers: Annotated[list[str] | None, typer.Option("--headers", "-hs", help="key=value; may be repeated.")] = None,
) -> None:
    """Make a token for a role."""
    key = _one_key(secret, private, is_private=True)
    expires_s = SystemClock().now_ms() // 1000 + seconds_of(expiry) if expiry is not None else None
    pairs = dict(_pair(text) for text in headers or ())
    typer.echo(new_token(key, subject, algorithm=algorithm or "", expires_s=expires_s, headers=pairs))


@app.command()
def show(token: Token = None, stdin: Stdin = False, file: TokenFile = None) -> None:
    """Show what a token says, without checking who signed it."""
    header, claims = unproven(_token(token, stdin, file))
    typer.echo(json.dumps(header))
    typer.echo("---")
    typer.echo(json.dumps(claims))


@app.command()
def validate(
    token: Token = None,
    stdin: Stdin = False,
    file: TokenFile = None,
    secret: SecretKey = None,
    public: PublicKey = None,
    algorithm: Algorithm = None,
) -> None:
    """Check a token as a broker would; exit code 0 when it is valid."""
    key = _one_key(secret, public, is_private=False)
    if algorithm is not None and algorithm not in key.algorithms:
        raise BadSetting(f"{algorithm} cannot be used with this key; {', '.join(key.algorithms)} can")
    allowed = TokenKey(key.key, (algorithm,)) if algorithm is not None else key
    authenticator = TokenAuthenticator([allowed])
    data = _token(token, stdin, file).encode()
    authenticator.check(Credentials(data), SystemClock().now_ms())
    typer.echo(json.dumps(authenticator.claims(data)))


def _one_key(secret: str | None, other: str | None, *, is_private: bool) -> TokenKey:
    if (secret is None) == (other is None):
        raise BadSetting(f"Give one key: --secret-key, or --{'private' if is_private else 'public'}-key")
    if secret is not None:
        return secret_key(read_source(secret, "--secret-key"))
    assert other is not None
    load = private_key if is_private else public_key
    return load(read_source(other, "--private-key" if is_private else "--public-key"))


def _token(token: str | None, stdin: bool, file: str | None) -> str:
    if (token is not None) + stdin + (file is not None) != 1:
        raise BadSetting("Give the token once: as an argument, with --stdin or with --token-file")
    if stdin:
        return sys.stdin.read().strip()
    if file is not None:
        return read_source(f"file:{file}", "--token-file").decode(errors="replace").strip()
    assert token is not None
    return token.removeprefix("token:").strip()


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BadSetting("--headers takes key=value")
    return name, value


def _write_secret(path: str, content: bytes, mode: int = 0o600) -> None:
    file = Path(path)
    try:
        file.touch(mode=mode, exist_ok=False)
        file.write_bytes(content)
    except FileExistsError:
        raise BadSetting(f"{path} is there already; a key is never overwritten") from None
    except OSError as error:
        raise BadSetting(f"{path} cannot be written: {error.strerror}") from error
