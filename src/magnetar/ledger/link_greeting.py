# SPDX-License-Identifier: Apache-2.0
"""What a link says to a bookie before anything else: that it wants TLS, and a proof that it may ask.

Owns the order: TLS first, so that nobody listens, then the proof. A bookie that refuses either, or proves nothing
itself, is not spoken to.
Carries.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from magnetar.config.ledger import ChannelSettings
from magnetar.errors import BadCommand, BookieUnavailable
from magnetar.runtime.client_tls import client_context
from magnetar.runtime.secret_bytes import secret_bytes
from magnetar.runtime.small_file import read_small_file
from magnetar.wire.bookkeeper import v2, v3
from magnetar.wire.bookkeeper.shared_secret import PLUGIN, ClientSide, Nonce
from magnetar.wire.proto import bookkeeper_pb2 as bk

_SECRET_BYTES_MAX: Final = 4096

Ask = Callable[[bytes], Awaitable[bytes]]
"""Send a packet and wait for the next one."""


class Greeting(NamedTuple):
    """Nothing of both: the link speaks at once."""

    secret: bytes = b""
    tls: ssl.SSLContext | None = None
    nonce: Nonce = secret_bytes

    @property
    def is_needed(self) -> bool:
        return bool(self.secret) or self.tls is not None


PLAIN: Final = Greeting()


def greeting_of(settings: ChannelSettings) -> Greeting:
    """What the settings ask for. CannotStart or BadSetting where a file cannot be used."""
    secret = read_small_file(settings.secret_file, _SECRET_BYTES_MAX).strip() if settings.secret_file else b""
    tls = None
    if settings.tls_trust_file:
        tls = client_context(
            settings.tls_trust_file,
            settings.tls_certificate_file,
            settings.tls_key_file,
            hostname_verified=settings.tls_hostname_verified,
        )
    return Greeting(secret, tls)


async def ask_for_tls(bookie: str, ask: Ask) -> None:
    request = v3.request(bk.START_TLS, 0)
    request.startTLSRequest.SetInParent()
    response = v3.decode_response(await ask(v3.encode(request)))
    if response.status != bk.EOK:
        raise BookieUnavailable(f"{bookie} does not speak TLS.")


async def prove(bookie: str, greeting: Greeting, ask: Ask, *, version_three: bool) -> None:
    """Prove the secret, and have the bookie prove it. BookieUnavailable when either does not work out."""
    side = ClientSide(greeting.secret, greeting.nonce)
    payload: bytes | None = side.first()
    while payload is not None:
        message = bk.AuthMessage(authPluginName=PLUGIN, payload=payload)
        try:
            answer = _answered(await ask(_encoded(message, version_three)), version_three)
        except BadCommand as error:
            raise BookieUnavailable(f"{bookie} refuses our secret, or has none: {error}") from error
        payload = side.on_answer(answer.authPluginName, answer.payload)
    if not side.is_admitted:
        raise BookieUnavailable(f"{bookie} does not prove that it knows our secret, or has refused it.")


def _encoded(message: bk.AuthMessage, version_three: bool) -> bytes:
    if not version_three:
        return v2.encode_auth(message)
    request = v3.request(bk.AUTH, 0)
    request.authRequest.CopyFrom(message)
    return v3.encode(request)


def _answered(packet: bytes, version_three: bool) -> bk.AuthMessage:
    if not version_three:
        response = v2.decode_response(packet)
        if not isinstance(response, v2.AuthResponse):
            raise BadCommand(f"it answers {type(response).__name__}")
        return response.message
    answer = v3.decode_response(packet)
    if answer.status != bk.EOK:
        raise BadCommand(f"it answers {bk.StatusCode.Name(answer.status)}")
    return answer.authResponse


async def encrypted(
    transport: asyncio.Transport, protocol: asyncio.Protocol, context: ssl.SSLContext, host: str
) -> asyncio.Transport:
    """The same connection over TLS. OSError when the handshake fails."""
    name = host if context.check_hostname else ""
    made = await asyncio.get_running_loop().start_tls(transport, protocol, context, server_hostname=name)
    assert made is not None
    return made
