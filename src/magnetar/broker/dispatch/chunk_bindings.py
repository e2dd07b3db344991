# SPDX-License-Identifier: Apache-2.0
"""Which consumer gets the rest of a chunked message: the parts of one message are of use only together.

Bounded: beyond `messages_max` half-sent messages the oldest is forgotten, and its rest goes to anyone.
Decides.
"""

from magnetar.broker.consumer import Consumer


class ChunkBindings:
    __slots__ = ("_consumers", "_messages_max")

    def __init__(self, messages_max: int = 10_000) -> None:
        self._messages_max = messages_max
        self._consumers: dict[str, Consumer] = {}

    def __len__(self) -> int:
        return len(self._consumers)

    def consumer(self, uuid: str) -> Consumer | None:
        return self._consumers.get(uuid)

    def on_given(self, uuid: str, is_last: bool, consumer: Consumer) -> None:
        if is_last:
            self._consumers.pop(uuid, None)
            return
        self._consumers[uuid] = consumer
        if len(self._consumers) > self._messages_max:
            del self._consumers[next(iter(self._consumers))]

    def forget(self, consumer: Consumer) -> None:
        """The consumer left: all parts of its messages go to someone else, from the first on."""
        self._consumers = {uuid: bound for uuid, bound in self._consumers.items() if bound is not consumer}

    def clear(self) -> None:
        self._consumers.clear()
