# SPDX-License-Identifier: Apache-2.0
"""The entry filters that an operator gave this broker: loaded once, by name, from installed Python classes.

`broker.entry_filter_classes` says which class is which name; a policy only chooses among these names, so that no
client ever names code. A class is made without arguments and answers as EntryFilter does; it is called on the loop
for every entry, and must not wait. One that raises puts the entry off: nothing is lost, nothing leaks.
Carries.
"""

import logging
from collections.abc import Iterable, Mapping
from importlib import import_module

from magnetar.broker.dispatch.hooks import EntryFilter, Verdict
from magnetar.config.broker import BrokerSettings
from magnetar.errors import BadSetting, CannotStart
from magnetar.ids import Position
from magnetar.managed_ledger.entry import Entry
from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata

# After so many errors of one filter only every so-many-th is logged.
_ERRORS_LOGGED = 10
_LOGGED_EVERY = 10_000

_log = logging.getLogger(__name__)


class EntryFilters:
    __slots__ = ("_loaded",)

    def __init__(self, loaded: Mapping[str, EntryFilter] | None = None) -> None:
        self._loaded = {name: SafeFilter(name, each) for name, each in (loaded or {}).items()}

    @staticmethod
    def load(classes: Iterable[str]) -> "EntryFilters":
        """From `name=package.module:Class`. CannotStart says which one is wrong, and why."""
        loaded: dict[str, EntryFilter] = {}
        for described in classes:
            name, equals, path = described.partition("=")
            name = name.strip()
            if not equals or not name or name in loaded:
                raise CannotStart(
                    f"broker.entry_filter_classes: {described!r} is not NAME=package.module:Class, each name once"
                )
            loaded[name] = _made(name, path.strip())
        return EntryFilters(loaded)

    def check(self, names: Iterable[str]) -> None:
        """BadSetting for a name that no class was given for."""
        for name in names:
            if name not in self._loaded:
                raise BadSetting(f"There is no entry filter {name!r} on this broker; see broker.entry_filter_classes")

    def chosen(self, names: Iterable[str]) -> tuple[EntryFilter, ...]:
        """The filters of these names, in this order. One that is not here is left out, as upstream does, and logged."""
        found = []
        for name in names:
            if name in self._loaded:
                found.append(self._loaded[name])
            else:
                _log.error(
                    "a policy names the entry filter %r, which this broker does not have: it filters nothing", name
                )
        return tuple(found)


class SafeFilter:
    """An operator's filter, whose errors are its own."""

    __slots__ = ("_filter", "errors", "name")

    def __init__(self, name: str, filter_: EntryFilter) -> None:
        self.name = name
        self._filter = filter_
        self.errors = 0

    def verdict(
        self, entry: Entry, position: Position, metadata: MessageMetadata, properties: Mapping[str, str]
    ) -> Verdict:
        try:
            said = self._filter.verdict(entry, position, metadata, properties)
        except Exception as error:
            return self._refuse(position, f"raised {error!r}")
        if isinstance(said, Verdict):
            return said
        return self._refuse(position, f"answered {said!r}")

    def _refuse(self, position: Position, what: str) -> Verdict:
        self.errors += 1
        if self.errors <= _ERRORS_LOGGED or self.errors % _LOGGED_EVERY == 0:
            _log.error("entry filter %s %s at %s; the entry is put off", self.name, what, position)
        return Verdict.RESCHEDULE


def entry_filters(settings: BrokerSettings) -> EntryFilters:
    """The filters of a broker. CannotStart when one of them, or a name that must hold, is not to be had."""
    filters = EntryFilters.load(settings.entry_filter_classes)
    try:
        filters.check(settings.entry_filter_names)
    except BadSetting as error:
        raise CannotStart(f"entryFilterNames: {error}") from error
    return filters


def _made(name: str, path: str) -> EntryFilter:
    module, _, class_name = path.partition(":")
    try:
        made: EntryFilter = getattr(import_module(module), class_name)()
    except Exception as error:
        raise CannotStart(
            f"broker.entry_filter_classes: the filter {name!r} ({path}) cannot be made: {error!r}"
        ) from error
    if not callable(getattr(made, "verdict", None)):
        raise CannotStart(f"broker.entry_filter_classes: the filter {name!r} ({path}) has no method verdict")
    return made
