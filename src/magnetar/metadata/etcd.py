# SPDX-License-Identifier: Apache-2.0
"""Metadata on etcd: keys are records, their versions are versions, a lease is the session.

Written for etcd 3.4 and newer. Every write is one transaction that compares what was read, so that parents, versions
and owners hold at the moment of writing. One watch of the whole tree serves all listeners and goes on where it ended;
only when etcd has forgotten what happened meanwhile is each prefix told as changed.
Carries.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import (
    BadPath,
    BadVersion,
    CannotStart,
    DamagedRecord,
    HasChildren,
    MetadataError,
    NoRecord,
    OutcomeUnknown,
    SessionLost,
    ValueTooLarge,
)
from magnetar.metadata import etcd_format as form
from magnetar.metadata.etcd_access import etcd_access
from magnetar.metadata.etcd_client import EtcdClient, parse_servers
from magnetar.metadata.etcd_format import Held, Keys
from magnetar.metadata.etcd_lease import EtcdLease
from magnetar.metadata.loop_watches import loop_watches
from magnetar.metadata.paths import ROOT, check_path, lineage, parent_of
from magnetar.metadata.pending import PendingRequests
from magnetar.metadata.store import MUST_NOT_EXIST, Change, MetadataStore, Record, SessionEvent, Stored
from magnetar.runtime.clock import WallClock
from magnetar.runtime.tasks import Tasks

CHILDREN_PAGE: Final = 1_000
SEQUENCE_DIGITS: Final = 10
_ROOT_RECORD: Final = Record(b"", 0, False, 0, 0)

_log = logging.getLogger(__name__)


class EtcdStore(MetadataStore):
    """Open with `await EtcdStore.open(servers, clock)`, where servers is `http://host:2379,host:2379/chroot`."""

    def __init__(self, servers: str, clock: WallClock, settings: MetadataSettings) -> None:
        hosts, chroot = parse_servers(servers)
        self._settings = settings
        self._clock = clock
        self._keys = Keys(chroot)
        self._client = EtcdClient(hosts, settings.operation_timeout_ms, etcd_access(settings, hosts))
        self._lease = EtcdLease(self._client, settings, self._on_session)
        self._watches = loop_watches(settings)
        self._tasks = Tasks("etcd store", self._on_crash)
        self._watching = False
        self._revision = 0
        self._pending = PendingRequests("etcd", settings)
        self._closed = False

    @classmethod
    async def open(cls, servers: str, clock: WallClock, settings: MetadataSettings | None = None) -> "EtcdStore":
        """Connect and begin a session. CannotStart when no server answers."""
        store = cls(servers, clock, settings or MetadataSettings())
        try:
            await store._lease.grant()
            await store._transact([], [])
        except MetadataError as error:
            await store.close()
            raise CannotStart(f"etcd at {servers} does not let us in: {error}") from error
        except BaseException:
            await store.close()
            raise
        store._tasks.start(store._lease.keep(), "keep the lease")
        return store

    async def get(self, path: str) -> Record | None:
        check_path(path, self._settings.path_bytes_max)
        (held,) = await self._read(path)
        if held is None:
            return _ROOT_RECORD if path == ROOT else None
        return held.record

    async def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None = None,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Stored:
        check_path(path, self._settings.path_bytes_max)
        if len(value) > self._settings.value_bytes_max:
            raise ValueTooLarge(
                f"record {path} has {len(value)} bytes, more than the {self._settings.value_bytes_max} of a record"
            )
        if sequential:
            assert expected_version in (None, MUST_NOT_EXIST), "a sequential record is always new"
            return await self._put_numbered(path, value, ephemeral)
        while True:
            held, *above = await self._read(*lineage(path)[:-1])
            self._check_put(path, held, expected_version, ephemeral)
            stored = await self._write(path, value, held, above, ephemeral, [])
            if stored is not None:
                return stored

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        check_path(path, self._settings.path_bytes_max)
        if path == ROOT:
            raise BadPath("the root of the metadata tree cannot be deleted")
        key = self._keys.record(path)
        while True:
            (held,) = await self._read(path)
            if held is None:
                raise NoRecord(f"there is no record at {path}")
            if expected_version is not None and held.record.version != expected_version:
                raise BadVersion(f"{path} has another version than {expected_version}")
            alone = form.is_empty(*self._keys.below(path))
            removals = [form.remove(key), form.remove(self._keys.counter(path))]
            answer = await self._transact([form.is_unchanged(key, held), alone], removals, [form.read(key)])
            if answer.get("succeeded"):
                return
            now = form.first_of(answer, 0, path)
            if now is not None and now.changed == held.changed:
                raise HasChildren(f"{path} has children")

    async def children(self, path: str) -> list[str]:
        """Page by page; what lies deeper is stepped over, so that a large tree costs what its level costs."""
        check_path(path, self._settings.path_bytes_max)
        start, end = self._keys.below(path)
        prefix = "/" if path == ROOT else f"{path}/"
        names: dict[str, None] = {}
        revision = 0
        while True:
            body = {"key": start, "range_end": end, "limit": str(CHILDREN_PAGE), "keys_only": True}
            if revision:
                body["revision"] = str(revision)
            answer = await self._call("kv/range", body, writes=False)
            revision = revision or form.revision_of(answer)
            paths = [self._keys.path(found["key"]) for found in answer.get("kvs", ())]
            for found in paths:
                name = found[len(prefix) :].partition("/")[0]
                if name:
                    names[name] = None
            if not answer.get("more"):
                return sorted(names)
            last = paths[-1]
            name, deeper, _ = last[len(prefix) :].partition("/")
            start = self._keys.after(prefix + name) if deeper else self._keys.next(last)

    def watch(self, prefix: str, listener: Callable[[Change], None]) -> Callable[[], None]:
        end = self._watches.add(prefix, listener)
        if not self._watching and not self._closed:
            self._watching = True
            self._tasks.start(self._follow(self._revision + 1), "follow changes")
        return end

    def watch_session(self, listener: Callable[[SessionEvent], None]) -> Callable[[], None]:
        return self._watches.add_session(listener)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._watches.clear()
        await self._tasks.close()
        await self._lease.revoke()
        await self._client.close()

    # --- writing ------------------------------------------------------------------------------------

    def _check_put(self, path: str, held: Held | None, expected_version: int | None, ephemeral: bool) -> None:
        if expected_version == MUST_NOT_EXIST:
            if held is not None:
                raise BadVersion(f"{path} exists already")
            return
        if held is None:
            if expected_version is not None and not (path == ROOT and expected_version == 0):
                raise BadVersion(f"{path} does not exist; version {expected_version} of it was expected")
            return
        if ephemeral and held.lease != self._lease.number:
            whose = "is persistent" if held.lease == 0 else "belongs to another session"
            raise BadVersion(f"{path} exists and {whose}: it cannot become an ephemeral record of this session")
        if expected_version is not None and held.record.version != expected_version:
            raise BadVersion(f"{path} has another version than {expected_version}")

    async def _write(
        self,
        path: str,
        value: bytes,
        held: Held | None,
        above: list[Held | None],
        ephemeral: bool,
        also: list[tuple[dict[str, Any], dict[str, Any]]],
    ) -> Stored | None:
        """One transaction, with the parents that are missing; None when something changed since it was read."""
        now_ms = self._clock.now_ms()
        key = self._keys.record(path)
        created_ms = held.record.created_ms if held is not None else now_ms
        body = form.encode_value(value, created_ms, max(created_ms, now_ms))
        lease = self._lease.number if ephemeral else 0
        compares = [form.is_unchanged(key, held)]
        writes = [form.write(key, body, lease=lease, keeps_lease=held is not None and held.lease != 0)]
        for parent, found in zip(lineage(path)[1:-1], above, strict=True):
            parent_key = self._keys.record(parent)
            if found is not None:
                if found.lease:
                    raise BadPath(f"{path} cannot exist: a record above it is ephemeral and takes no children")
                compares += form.takes_children(parent_key)
                break
            compares.append(form.is_unchanged(parent_key, None))
            writes.append(form.write(parent_key, form.encode_value(b"", now_ms, now_ms)))
        for compare, write in also:
            compares.append(compare)
            writes.append(write)
        answer = await self._transact(compares, writes)
        if not answer.get("succeeded"):
            return None
        return Stored(path, held.record.version + 1 if held is not None else 0)

    async def _put_numbered(self, path: str, value: bytes, ephemeral: bool) -> Stored:
        """The number is taken in the same transaction that makes the record: none is given twice."""
        parent = parent_of(path)
        counter = self._keys.counter(parent)
        while True:
            above = await self._read(*lineage(path)[1:-1])
            found = (await self._transact([], [form.read(counter)]))["responses"][0]["response_range"].get("kvs", ())
            last = form.decode_held(found[0], f"the counter of {parent}") if found else None
            number = int(last.record.value) + 1 if last is not None else 0
            taken = form.write(counter, form.encode_value(str(number).encode(), 0, 0))
            name = f"{path}{number:0{SEQUENCE_DIGITS}d}"
            stored = await self._write(name, value, None, above, ephemeral, [(form.is_unchanged(counter, last), taken)])
            if stored is not None:
                return stored
            if await self.exists(name):
                await self._skip(counter, last, number)

    async def _skip(self, counter: str, last: Held | None, number: int) -> None:
        """Somebody made a record of this very name by hand: its number is passed over."""
        taken = form.write(counter, form.encode_value(str(number).encode(), 0, 0))
        await self._transact([form.is_unchanged(counter, last)], [taken])

    # --- watching -------------------------------------------------------------------------------------

    async def _follow(self, revision: int) -> None:
        """Tell of every change from a revision on, over as many connections as it takes."""
        start, end = self._keys.below(ROOT)
        delay_s = self._settings.reconnect_delay_min_ms / 1000
        while True:
            body = {"create_request": {"key": start, "range_end": end, "start_revision": str(revision)}}
            try:
                async with contextlib.aclosing(self._client.events(body)) as answers:
                    async for answer in answers:
                        delay_s = self._settings.reconnect_delay_min_ms / 1000
                        if int(answer.get("compact_revision", 0)):
                            revision = await self._begin_again(int(answer["compact_revision"]))
                            break
                        events = answer.get("events", ())
                        for event in events:
                            self._watches.on_changes(form.changes_of(event, self._keys))
                        if events:
                            revision = max(revision, int(events[-1]["kv"]["mod_revision"]) + 1)
            except (MetadataError, DamagedRecord) as error:
                _log.info("the watch on etcd is begun again: %s", error)
                self._lease.doubt()
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, self._settings.reconnect_delay_max_ms / 1000)

    async def _begin_again(self, compacted: int) -> int:
        """etcd has forgotten changes that we had not heard of: everything may have changed."""
        answer = await self._transact([], [])
        self._watches.on_gap()
        return max(compacted, form.revision_of(answer)) + 1

    def _on_session(self, event: SessionEvent) -> None:
        if not self._closed:
            self._watches.on_session(event)

    def _on_crash(self, name: str, error: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler({"message": f"{name} failed", "exception": error})

    # --- leaves -------------------------------------------------------------------------------------

    async def _read(self, *paths: str) -> list[Held | None]:
        answer = await self._transact([], [form.read(self._keys.record(path)) for path in paths])
        return [form.first_of(answer, number, path) for number, path in enumerate(paths)]

    async def _transact(
        self, compares: list[dict[str, Any]], success: list[dict[str, Any]], failure: list[dict[str, Any]] | None = None
    ) -> Any:
        body = {"compare": compares, "success": success, "failure": failure or []}
        return await self._call("kv/txn", body, writes=any("request_range" not in each for each in success))

    async def _call(self, path: str, body: dict[str, Any], *, writes: bool) -> Any:
        self._check()
        size = sum(len(each["request_put"]["value"]) for each in body.get("success", ()) if "request_put" in each)
        try:
            with self._pending.one_more(size):
                answer = await self._client.call(path, body, writes=writes)
        except OutcomeUnknown:
            self._lease.doubt()
            raise
        except MetadataError as error:
            self._lease.doubt()
            if "lease not found" in str(error):
                raise SessionLost("the etcd session has ended, a new one is being made") from error
            raise
        if not self._watching:
            self._revision = max(self._revision, form.revision_of(answer))
        return answer

    def _check(self) -> None:
        if self._closed:
            raise SessionLost("this metadata store was closed")
        if self._lease.is_lost:
            raise SessionLost("the etcd session has ended, a new one is being made")
