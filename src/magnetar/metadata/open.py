# SPDX-License-Identifier: Apache-2.0
"""From a metadata URL to a store.

`memory:` · `embedded:DIR` · `remote:host:port` · `zk:host:2181,host:2181/chroot` · `etcd:http://host:2379`.
Assembles.
"""

from magnetar.config.metadata import MetadataSettings
from magnetar.errors import BadSetting
from magnetar.metadata.embedded import EmbeddedStore
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.metadata.remote import RemoteStore
from magnetar.metadata.store import MetadataStore
from magnetar.runtime.clock import WallClock
from magnetar.runtime.disk import Disk

EXAMPLES = "memory:, embedded:DIR, remote:HOST:PORT, zk:HOST:2181/CHROOT, etcd:http://HOST:2379"


async def open_store(url: str, *, disk: Disk, clock: WallClock, settings: MetadataSettings) -> MetadataStore:
    """Open the store that a URL names. BadSetting says what is wrong with the URL, the store why it cannot open."""
    scheme, separator, rest = url.partition(":")
    match scheme if separator else "":
        case "memory":
            return MemoryStore(MemoryTree(clock, settings))
        case "embedded":
            if not rest:
                raise BadSetting(f"metadata URL {url!r} names no directory: write embedded:DIR")
            return await EmbeddedStore.open(disk, rest, clock=clock, settings=settings)
        case "remote":
            host, separator, port = rest.rpartition(":")
            if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
                raise BadSetting(f"metadata URL {url!r} names no server: write remote:HOST:PORT")
            return await RemoteStore.open(host.strip("[]"), int(port), settings)
        case "zk":
            if not rest:
                raise BadSetting(
                    f"metadata URL {url!r} names no server: write zk:HOST:2181/CHROOT, etcd:http://HOST:2379"
                )
            # Imported here: kazoo costs every start a tenth of a second, and most have no ZooKeeper.
            from magnetar.metadata.zookeeper import ZooKeeperStore

            return await ZooKeeperStore.open(rest, settings)
        case "etcd":
            # Imported here: an HTTP client costs every start, and most have no etcd.
            from magnetar.metadata.etcd import EtcdStore

            return await EtcdStore.open(rest, clock, settings)
        case "oxia" | "rocksdb":
            raise BadSetting(f"metadata URL {url!r}: {scheme} is not supported by this version; use one of {EXAMPLES}")
        case _:
            raise BadSetting(f"metadata URL {url!r} has no known scheme; use one of {EXAMPLES}")
