# SPDX-License-Identifier: Apache-2.0
"""CONNECT, PING and PONG: how a session begins and stays alive.

Carries.
"""

import magnetar
from magnetar.broker.session.authenticate import authenticate
from magnetar.broker.session.session import Session
from magnetar.errors import BadCommand
from magnetar.wire import commands
from magnetar.wire.hot import PONG
from magnetar.wire.proto import pulsar_api_pb2 as pb


def on_connect(session: Session, connect: pb.CommandConnect) -> None:
    if session.is_connecting:
        raise BadCommand("CONNECT came twice")
    session.is_connecting = True
    session.protocol_version = commands.agreed_version(connect.protocol_version)
    session.client_version = connect.client_version
    session.shows_broker_metadata = (
        session.broker.settings.expose_broker_metadata and connect.feature_flags.supports_broker_entry_metadata
    )
    if session.connection.principal is not None:
        session.principal = session.connection.principal
        _welcome(session)
    elif session.broker.guard.is_authenticating:
        session.start(authenticate(session, connect, lambda: _welcome(session)), "CONNECT")
    else:
        _welcome(session)


def _welcome(session: Session) -> None:
    session.is_connected = True
    features = pb.FeatureFlags(
        supports_topic_watchers=True, supports_get_partitioned_metadata_without_auto_creation=True
    )
    session.answer(
        pb.BaseCommand.CONNECTED,
        pb.CommandConnected(
            server_version=f"Magnetar {magnetar.__version__}",
            protocol_version=session.protocol_version,
            max_message_size=session.broker.settings.message_bytes_max,
            feature_flags=features,
        ),
    )


def on_ping(session: Session, ping: pb.CommandPing) -> None:
    session.connection.send(PONG)


def on_pong(session: Session, pong: pb.CommandPong) -> None:
    """The connection notes every byte it hears; there is nothing more to do."""
