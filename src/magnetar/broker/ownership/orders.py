# SPDX-License-Identifier: Apache-2.0
"""What one broker asks another to do with a bundle of its own: unload it, give it to a third, or split it.

An order is a record in the other's inbox, which ends with the sender's session. The other carries it out and deletes
it, or writes into it why not. Orders go through the metadata store and need no password between brokers.
Carries.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from magnetar.broker.ownership.bundles import Bundle, parse_bundle
from magnetar.broker.ownership.inbox import Inbox
from magnetar.errors import MagnetarError, MetadataError, NoRecord, ServiceNotReady
from magnetar.metadata.store import MetadataStore
from magnetar.names import decode_name, encode_name
from magnetar.runtime.tasks import Tasks

ORDERS_ROOT: Final = "/loadbalance/orders"
UNLOAD: Final = "unload"
SPLIT: Final = "split"

_log = logging.getLogger(__name__)


class Order(NamedTuple):
    bundle: Bundle
    action: str
    # Unload: who shall have it next; empty lets placement say.
    target: str = ""
    # Split.
    algorithm: str = ""
    positions: tuple[int, ...] = ()
    unload: bool = False

    def encode(self) -> bytes:
        return json.dumps(
            {
                "action": self.action,
                "target": self.target,
                "algorithm": self.algorithm,
                "positions": list(self.positions),
                "unload": self.unload,
            }
        ).encode()


class Orders:
    def __init__(
        self, store: MetadataStore, tasks: Tasks, carry_out: Callable[[Order], Awaitable[None]], timeout_ms: int
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._carry_out = carry_out
        self._timeout_s = timeout_ms / 1000
        self._inbox = Inbox(store, ORDERS_ROOT, tasks, self._on_record)
        self._running: dict[str, None] = {}

    def start(self, broker_id: str) -> None:
        self._inbox.start(broker_id)

    async def send(self, broker_id: str, order: Order) -> None:
        """Have another broker do it, and wait until it has. ServiceNotReady says why it has not."""
        path = f"{self._inbox.of(broker_id)}/{encode_name(str(order.bundle))}"
        changed = asyncio.Event()
        unwatch = self._store.watch(path, lambda change: changed.set())
        try:
            await self._store.put(path, order.encode(), ephemeral=True)
            async with asyncio.timeout(self._timeout_s):
                while (record := await self._store.get(path)) is not None:
                    error = _decoded(record.value).get("error")
                    if error:
                        raise ServiceNotReady(f"{broker_id} could not {order.action} {order.bundle}: {error}")
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            raise ServiceNotReady(f"{broker_id} did not {order.action} {order.bundle} in time") from None
        finally:
            unwatch()
            await self._forget(path)

    def close(self) -> None:
        self._inbox.close()

    def _on_record(self, name: str) -> None:
        if name not in self._running:
            self._tasks.start(self._serve(name), f"order {name}")
            self._running[name] = None

    async def _serve(self, name: str) -> None:
        path = f"{self._inbox.path}/{name}"
        try:
            record = await self._store.get(path)
            value = {} if record is None else _decoded(record.value)
            bundle = parse_bundle(decode_name(name))
            if record is None or bundle is None or "error" in value:
                return
            order = Order(
                bundle,
                str(value.get("action")),
                str(value.get("target") or ""),
                str(value.get("algorithm") or ""),
                tuple(int(each) for each in value.get("positions") or ()),
                bool(value.get("unload")),
            )
            try:
                await self._carry_out(order)
            except MagnetarError as error:
                await self._store.put(path, json.dumps({"error": str(error)}).encode(), expected_version=record.version)
                return
            await self._forget(path)
        except (MetadataError, ValueError, TypeError) as error:
            _log.warning("the order %s: %s", decode_name(name), error)
        finally:
            del self._running[name]

    async def _forget(self, path: str) -> None:
        try:
            await self._store.delete(path)
        except NoRecord:
            return
        except MetadataError as error:
            _log.info("an order goes with its sender's session: %s", error)


def _decoded(value: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(value or b"{}")
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}
