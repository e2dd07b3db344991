# SPDX-License-Identifier: Apache-2.0
"""Running the asynchronous commands: a loop, a client made from flags, and failures as exit codes.

Assembles.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from magnetar.cli import exits
from magnetar.cli.access import Access
from magnetar.client.client import Client
from magnetar.client.service_url import ServiceUrl
from magnetar.errors import (
    ConnectionLost,
    NotAuthenticated,
    NotAuthorized,
    TimedOut,
    TopicNotFound,
)

CONNECT_TIMEOUT_S: Final = 10.0


def run_with_client(access: Access, main: Callable[[Client], Coroutine[Any, Any, int]], **settings: Any) -> int:
    """Run a command with a client that is closed afterwards. Errors of the cluster become Failures."""

    # What goes wrong is one sentence of the command; the library's own log lines would only be beside it.
    logging.getLogger("magnetar").setLevel(logging.CRITICAL)

    async def whole() -> int:
        await _check_reachable(access.service_url)
        authentication = access.authentication()
        async with Client(access.service_url, authentication, **{**access.client_settings(), **settings}) as client:
            return await main(client)

    try:
        return run_loop(whole())
    except (ConnectionLost, TimedOut) as error:
        raise exits.Failure(f"No answer from {access.service_url}: {error}; check --url", exits.UNREACHABLE) from None
    except (NotAuthenticated, NotAuthorized) as error:
        raise exits.Failure(str(error), exits.NOT_PERMITTED) from None
    except TopicNotFound as error:
        raise exits.Failure(str(error), exits.NOT_FOUND) from None


async def _check_reachable(service_url: str) -> None:
    """Whether anybody listens there. The client itself would try again for half a minute, for it may outlive a broker
    that restarts; a person who mistyped a port should not wait for that.
    """
    reasons = []
    for address in ServiceUrl.parse(service_url).addresses:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
            return
        except TimeoutError:
            reasons.append(f"nothing within {CONNECT_TIMEOUT_S:g} s")
        except OSError as error:
            reasons.append(error.strerror or str(error))
    text = f"No answer from {service_url}: {', '.join(reasons)}; check --url and that a broker runs there"
    raise exits.Failure(text, exits.UNREACHABLE)


def run_loop(main: Coroutine[Any, Any, int]) -> int:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
