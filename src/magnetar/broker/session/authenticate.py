# SPDX-License-Identifier: Apache-2.0
"""CONNECT's credentials and AUTH_RESPONSE: who a session is, and that it still is when its credentials run out.

A session's role never changes. Credentials that ran out are asked for anew, once; whoever cannot renew them, or comes
back as someone else, is let go.
Carries.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from magnetar.broker.auth.authenticator import Credentials, Identity
from magnetar.broker.session.session import Session
from magnetar.errors import BadCommand, MagnetarError, NotAuthenticated, ServiceNotReady
from magnetar.wire import commands
from magnetar.wire.commands import Since
from magnetar.wire.error_codes import codes_of
from magnetar.wire.proto import pulsar_api_pb2 as pb

REFRESH: Final = b"PulsarAuthRefresh"
_LEGACY_METHODS: Final = {pb.AuthMethodYcaV1: "ycav1", pb.AuthMethodAthens: "athens"}

_log = logging.getLogger(__name__)


async def authenticate(session: Session, connect: pb.CommandConnect, welcome: Callable[[], None]) -> None:
    """Find out who connects, then let them in; an ERROR and the end of the connection otherwise."""
    method = connect.auth_method_name or _LEGACY_METHODS.get(connect.auth_method, "none")
    try:
        identity = await _identify(session, method, connect.auth_data)
        principal = session.broker.guard.principal(identity.role, connect.original_principal)
        if connect.original_principal and session.broker.guard.settings.original_credentials_checked:
            await _check_original(session, connect)
    except MagnetarError as error:
        refuse(session, error)
        return
    session.principal = principal
    welcome()
    if identity.expires_ms is not None or identity.marks:
        can_refresh = connect.feature_flags.supports_auth_refresh and (session.protocol_version >= Since.AUTH_CHALLENGE)
        await _watch_credentials(session, method, connect.auth_data, identity, can_refresh)


def on_auth_response(session: Session, response: pb.CommandAuthResponse) -> None:
    renewal = session.renewal
    if renewal is None or renewal.done():
        raise BadCommand("AUTH_RESPONSE came without a challenge")
    renewal.set_result(response.response.auth_data)


def refuse(session: Session, error: MagnetarError) -> None:
    _log.warning("refusing %s: %s", session.connection.peer, error)
    session.connection.send(commands.error(commands.REQUEST_ID_NONE, codes_of(error).server_error, str(error)))
    session.connection.close()


async def _identify(session: Session, method: str, data: bytes) -> Identity:
    credentials = Credentials(data, session.connection.certificate, session.host)
    return await session.broker.guard.identify(method, credentials)


async def _check_original(session: Session, connect: pb.CommandConnect) -> None:
    """Whom a proxy speaks for has sent credentials along; they must prove the role that the proxy names."""
    credentials = Credentials(connect.original_auth_data.encode(), None)
    original = await session.broker.guard.identify(connect.original_auth_method or "none", credentials)
    if original.role != connect.original_principal:
        raise NotAuthenticated("The credentials that the proxy sent along are those of another role")


async def _watch_credentials(session: Session, method: str, data: bytes, identity: Identity, can_refresh: bool) -> None:
    """Until they run out, and cannot be renewed, or are revoked. In steps, because the wall clock may be set."""
    broker = session.broker
    step_s = broker.guard.settings.refresh_check_s
    while identity.expires_ms is not None or identity.marks:
        left_s = step_s if identity.expires_ms is None else (identity.expires_ms - broker.clock.now_ms()) / 1000
        if left_s > 0:
            await asyncio.sleep(min(left_s, step_s))
            is_over = identity.expires_ms is not None and identity.expires_ms <= broker.clock.now_ms()
            if not is_over and identity.marks and not await _still_is(session, method, data, identity):
                refuse(session, NotAuthenticated("The credentials were revoked"))
                return
            continue
        try:
            identity, data = await _renewed(session, method, identity, can_refresh)
        except MagnetarError as error:
            refuse(session, error)
            return


async def _still_is(session: Session, method: str, data: bytes, identity: Identity) -> bool:
    return await session.broker.guard.still_is(method, Credentials(data, session.connection.certificate), identity.role)


async def _renewed(session: Session, method: str, identity: Identity, can_refresh: bool) -> tuple[Identity, bytes]:
    if not can_refresh:
        raise NotAuthenticated("The credentials have expired, and this client cannot renew them: connect again")
    renewal: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    session.renewal = renewal
    challenge = pb.CommandAuthChallenge(protocol_version=session.protocol_version)
    challenge.challenge.auth_method_name = method
    challenge.challenge.auth_data = REFRESH
    session.answer(pb.BaseCommand.AUTH_CHALLENGE, challenge)
    try:
        async with asyncio.timeout(session.broker.guard.settings.refresh_check_s):
            data = await renewal
    except TimeoutError:
        raise NotAuthenticated("The credentials have expired and were not renewed in time") from None
    following = await _identify(session, method, data)
    if following.role != identity.role:
        raise ServiceNotReady("The renewed credentials are those of another role: connect again")
    return following, data
