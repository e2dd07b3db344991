# SPDX-License-Identifier: Apache-2.0
"""What one broker asks another to do with a bundle of its own: unload it, give it to a third, or split it.

An order is a record in the other's inbox, which ends with the sender's session. The other carries it out and deletes
it, or writes into it why not. Orders go through the metadata store and need no password between brokers. About one
bundle there is one order at a time: who comes second is refused, and nobody touches a record that is not its own.
Carries.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from magnetar.broker.ownership.bundles import Bundle, parse_bundle
from magnetar.broker.ownership.inbox import Inbox
from magnetar.errors import BadSetting, BadVersion, BundleBusy, MagnetarError, MetadataError, NoRecord, ServiceNotReady
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore, SessionEvent
from magnetar.names import decode_name, encode_name
from magnetar.runtime.tasks import Tasks

ORDERS_ROOT: Final = "/loadbalance/orders"
UNLOAD: Final = "unload"
SPLIT: Final = "split"
_PARTICIPLES: Final = {UNLOAD: "unloaded", SPLIT: "split"}
_BAD_SETTING: Final = "bad setting"

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

    def encode(self, sender: str) -> bytes:
        return json.dumps(
            {
                "sender": sender,
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
        self._sent = 0

    def start(self, broker_id: str) -> None:
        self._inbox.start(broker_id)

    async def send(self, broker_id: str, order: Order) -> None:
        """Have another broker do it, and wait until it has.

        BundleBusy while it does something else with the bundle, BadSetting when that cannot be done with it,
        ServiceNotReady for any other reason.
        """
        path = f"{self._inbox.of(broker_id)}/{encode_name(str(order.bundle))}"
        self._sent += 1
        sender = f"{self._inbox.path}#{self._sent}"
        changed = asyncio.Event()
        lost: list[SessionEvent] = []

        def on_session(event: SessionEvent) -> None:
            if event is SessionEvent.LOST:
                lost.append(event)
                changed.set()

        unwatch = self._store.watch(path, lambda change: changed.set()), self._store.watch_session(on_session)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._put(path, order, sender)
                while not lost and (value := await self._own(path, sender)) is not None:
                    _raise_refusal(value, f"{broker_id} could not {order.action} {order.bundle}")
                    await changed.wait()
                    changed.clear()
            if lost:
                raise ServiceNotReady(f"Whether {broker_id} did {order.action} {order.bundle} is not known")
        except TimeoutError:
            raise ServiceNotReady(f"{broker_id} did not {order.action} {order.bundle} in time") from None
        finally:
            for each in unwatch:
                each()
            await self._forget(path, sender)

    async def _put(self, path: str, order: Order, sender: str) -> None:
        try:
            await self._store.put(path, order.encode(sender), ephemeral=True, expected_version=MUST_NOT_EXIST)
        except BadVersion:
            record = await self._store.get(path)
            action = str(_decoded(b"" if record is None else record.value).get("action") or order.action)
            raise busy(order, action) from None

    async def _own(self, path: str, sender: str) -> dict[str, Any] | None:
        """What the record of this order says; None when there is none any more."""
        record = await self._store.get(path)
        if record is None:
            return None
        value = _decoded(record.value)
        # Older brokers write a refusal without its sender.
        return value if value.get("sender", sender) == sender else None

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
                refusal = json.dumps({**value, **_refusal(error)}).encode()
                await self._store.put(path, refusal, expected_version=record.version)
                return
            await self._forget(path, value.get("sender"))
        except (MetadataError, ValueError, TypeError) as error:
            _log.warning("the order %s: %s", decode_name(name), error)
        finally:
            del self._running[name]

    async def _forget(self, path: str, sender: Any) -> None:
        """Delete the record of one order, and of no other."""
        try:
            record = await self._store.get(path)
            if record is not None and _decoded(record.value).get("sender") == sender:
                await self._store.delete(path, expected_version=record.version)
        except (NoRecord, BadVersion):
            return
        except MetadataError as error:
            _log.info("an order goes with its sender's session: %s", error)


def busy(order: Order, action: str) -> BundleBusy:
    """The refusal of an order while another is carried out."""
    under_way, wanted = (_PARTICIPLES.get(each, each) for each in (action, order.action))
    return BundleBusy(
        f"{order.bundle} is being {under_way} and cannot be {wanted} now; try again when that has ended", action
    )


def _refusal(error: MagnetarError) -> dict[str, str]:
    if isinstance(error, BundleBusy):
        return {"error": str(error), "busy": error.action}
    return {"error": str(error), **({"kind": _BAD_SETTING} if isinstance(error, BadSetting) else {})}


def _raise_refusal(value: dict[str, Any], what: str) -> None:
    error = value.get("error")
    if not error:
        return
    if "busy" in value:
        raise BundleBusy(str(error), str(value["busy"]))
    if value.get("kind") == _BAD_SETTING:
        raise BadSetting(str(error))
    raise ServiceNotReady(f"{what}: {error}")


def _decoded(value: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(value or b"{}")
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}
