# SPDX-License-Identifier: Apache-2.0
"""From texts to settings: defaults, then files, then environment, then flags; the later wins.

Files come as text, the environment and the flags as mappings. A bad value stops here with a BadSetting that names key,
value, place and what is allowed. A key that upstream knows and Magnetar does not use, or that nobody knows, becomes a
notice for the log; it never stops a start. Never reads a file, never prints.
Decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final, NamedTuple

from magnetar.config.admin import AdminSettings
from magnetar.config.balance import BalanceSettings
from magnetar.config.bookie import BookieSettings
from magnetar.config.bookie_server import BookieServerSettings
from magnetar.config.broker import BrokerSettings
from magnetar.config.key import ROLES, STANDALONE, Key
from magnetar.config.keys import CAUTIONS, KEYS, ORDERS, OWNERS, PLAIN_PORTS, ROLE_DEFAULTS, ROLE_LIMITS
from magnetar.config.known_keys import KNOWN_KEYS, KNOWN_PREFIXES, RENAMED, SPELT_OTHERWISE
from magnetar.config.ledger import ChannelSettings, LedgerSettings, PlacementSettings, RepairSettings
from magnetar.config.managed_ledger import ManagedLedgerSettings
from magnetar.config.metadata import MetadataSettings
from magnetar.config.properties import FILE_CHARACTERS_MAX, parse_properties
from magnetar.config.proxy import ProxySettings
from magnetar.config.runtime import RuntimeSettings
from magnetar.config.security import SecuritySettings
from magnetar.config.values import KEEP_DEFAULT
from magnetar.config.websocket import WebSocketSettings
from magnetar.errors import BadSetting

OUR_PREFIX: Final = "MAGNETAR_"
PULSAR_PREFIX: Final = "PULSAR_PREFIX_"
NAMES_SHOWN_MAX: Final = 20
VALUE_SHOWN_MAX: Final = 200


class SettingsFile(NamedTuple):
    """A file's name, for messages, and its text."""

    name: str
    text: str


class NoticeLevel(Enum):
    INFO = "info"
    WARNING = "warning"


class Notice(NamedTuple):
    level: NoticeLevel
    text: str


@dataclass(frozen=True, slots=True)
class Settings:
    """All owners' settings. The assembler hands each owner its own part and nothing else."""

    broker: BrokerSettings
    security: SecuritySettings
    proxy: ProxySettings
    admin: AdminSettings
    websocket: WebSocketSettings
    balance: BalanceSettings
    managed_ledger: ManagedLedgerSettings
    ledger: LedgerSettings
    placement: PlacementSettings
    channel: ChannelSettings
    repair: RepairSettings
    bookie: BookieSettings
    bookie_server: BookieServerSettings
    metadata: MetadataSettings
    runtime: RuntimeSettings
    notices: tuple[Notice, ...] = ()


class _Given(NamedTuple):
    """A value that someone wrote, and where."""

    text: str
    where: str


# One layer of precedence: key → what was given.
_Layer = dict[str, _Given]


def load_settings(
    files: Sequence[SettingsFile] = (),
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    *,
    role: str = STANDALONE,
) -> Settings:
    """The settings of one process. Flags are keyed by flag (`--port`) or by key (`brokerServicePort`)."""
    assert role in ROLES, role
    notices: list[Notice] = []
    layers = [{name: _Given(text, f"role {role}") for name, text in ROLE_DEFAULTS.get(role, {}).items()}]
    layers += [_file_layer(file, notices) for file in files]
    layers += _environment_layers(environ or {}, notices)
    layers.append(_flag_layer(flags or {}, notices))

    values: dict[str, dict[str, Any]] = {owner: {} for owner in OWNERS}
    origins: dict[tuple[str, str], str] = {}
    for layer in layers:
        _apply(layer, role, values, origins, notices)
    _close_plain_ports(layers, values)
    _fit_to_role(role, values, origins, notices)
    owners = {owner: settings(**values[owner]) for owner, settings in OWNERS.items()}
    _check_orders(owners, origins)
    return Settings(**owners, notices=tuple(notices))


# --- layers -----------------------------------------------------------------------------------


def _file_layer(file: SettingsFile, notices: list[Notice]) -> _Layer:
    if len(file.text) > FILE_CHARACTERS_MAX:
        raise BadSetting(f"{file.name} is larger than {FILE_CHARACTERS_MAX} characters: it is no configuration file")
    layer: _Layer = {}
    unused: list[str] = []
    for key, value, line in parse_properties(file.text):
        where = f"{file.name}, line {line}"
        if not key:
            raise BadSetting(f"{where}: {_shown(value)} is no setting: allowed is key=value")
        key = _present_name(key, where, notices)
        if key in _ROWS:
            layer[key] = _Given(value, where)
        elif _is_known(key):
            if value:
                unused.append(key)
        else:
            notices.append(_unknown(key, where))
    _note_unused(unused, file.name, notices)
    return layer


def _environment_layers(environ: Mapping[str, str], notices: list[Notice]) -> list[_Layer]:
    """Plain upstream keys (as Pulsar's images take them), then PULSAR_PREFIX_…, then MAGNETAR_…; the later wins."""
    plain: _Layer = {}
    prefixed: _Layer = {}
    ours: _Layer = {}
    unused: list[str] = []
    for variable, value in sorted(environ.items()):
        where = f"environment variable {variable}"
        if variable.startswith(OUR_PREFIX):
            layer, key = ours, _BY_FOLDED.get(_folded(variable.removeprefix(OUR_PREFIX)), "")
            name = variable.removeprefix(OUR_PREFIX)
        elif variable.startswith(PULSAR_PREFIX):
            layer, key = prefixed, _present_name(variable.removeprefix(PULSAR_PREFIX), where, notices)
            name = key
        elif variable in _ROWS:
            layer, key, name = plain, variable, variable
        else:
            continue
        if key in _ROWS:
            layer[key] = _Given(value.strip(), where)
        elif _is_known(name):
            unused.append(variable)
        else:
            notices.append(_unknown(name, where))
    _note_unused(unused, "the environment", notices)
    return [plain, prefixed, ours]


def _flag_layer(flags: Mapping[str, str], notices: list[Notice]) -> _Layer:
    layer: _Layer = {}
    unused: list[str] = []
    for name, value in flags.items():
        key = _present_name(_BY_FLAG.get(name, name), f"flag {name}", notices)
        if key in _ROWS:
            layer[key] = _Given(value, f"flag {name}")
        elif _is_known(key):
            unused.append(name)
        else:
            raise BadSetting(f"{name} is no setting{_nearest(name)}")
    _note_unused(unused, "flags", notices)
    return layer


# --- values -----------------------------------------------------------------------------------


def _apply(
    layer: _Layer,
    role: str,
    values: dict[str, dict[str, Any]],
    origins: dict[tuple[str, str], str],
    notices: list[Notice],
) -> None:
    for row in KEYS:
        given = layer.get(row.name)
        # An empty value stands in every shipped file where Pulsar would use its default; so do we.
        if given is None or not given.text or (row.roles and role not in row.roles):
            continue
        try:
            value = row.value.parse(given.text)
        except ValueError:
            raise BadSetting(_refusal(row, given)) from None
        if value is KEEP_DEFAULT:
            continue
        values[row.owner][row.field] = value
        shown = "…" if row.secret else given.text
        origins[row.owner, row.field] = f"{row.name}={shown} ({given.where})"
        caution = CAUTIONS.get((row.name, value)) if isinstance(value, bool) else None
        if caution is not None:
            notices.append(Notice(NoticeLevel.WARNING, f"{origins[row.owner, row.field]}: {caution}"))


def _close_plain_ports(layers: Sequence[_Layer], values: dict[str, dict[str, Any]]) -> None:
    """Upstream closes a plain port by leaving its key empty; so do we, where there is one with TLS."""
    for key, field, tls_field in PLAIN_PORTS:
        given = [layer[key].text for layer in layers if key in layer]
        if given and not given[-1] and values["security"].get(tls_field, -1) >= 0:
            values["broker"][field] = -1


def _refusal(row: Key, given: _Given) -> str:
    shown = "the given value" if row.secret else _shown(given.text)
    return f"{row.name}: {shown} cannot be used ({given.where}): allowed is {row.value.allowed}"


def _fit_to_role(
    role: str, values: dict[str, dict[str, Any]], origins: dict[tuple[str, str], str], notices: list[Notice]
) -> None:
    for (owner, field), most in ROLE_LIMITS.get(role, {}).items():
        if values[owner].get(field, most) > most:
            text = f"{origins[owner, field]} is taken as {most}: a {role} has no more"
            notices.append(Notice(NoticeLevel.WARNING, text))
            values[owner][field] = most


def _check_orders(owners: Mapping[str, object], origins: Mapping[tuple[str, str], str]) -> None:
    for order in ORDERS:
        smaller = getattr(owners[order.owner], order.field)
        larger = getattr(owners[order.larger_owner], order.larger_field)
        if smaller > larger:
            texts = [
                origins.get((owner, field), f"{owner}.{field}={value} (default)")
                for owner, field, value in (
                    (order.owner, order.field, smaller),
                    (order.larger_owner, order.larger_field, larger),
                )
            ]
            raise BadSetting(f"{texts[0]} must not be larger than {texts[1]}")


# --- names ------------------------------------------------------------------------------------


def _folded(name: str) -> str:
    """BROKER_SERVICE_PORT and brokerServicePort are one name, as are LEDGER_READ_TIMEOUT_MS and its dotted form."""
    return name.replace("_", "").replace(".", "").lower()


_ROWS: Final = frozenset(row.name for row in KEYS)
_LOCKS: Final = frozenset(row.name for row in KEYS if row.owner == "security")
# How alike two names are that differ by a slip.
_MISSPELT: Final = 0.85
_BY_FOLDED: Final = {_folded(row.name): row.name for row in KEYS}
_BY_FLAG: Final = {row.flag: row.name for row in KEYS if row.flag}
_KNOWN_FOLDED: Final = frozenset(_folded(key) for key in KNOWN_KEYS)


def _is_known(name: str) -> bool:
    return name in KNOWN_KEYS or name.startswith(KNOWN_PREFIXES) or _folded(name) in _KNOWN_FOLDED


def _present_name(name: str, where: str, notices: list[Notice]) -> str:
    """The name that a key has now; whoever uses its old one is told."""
    name = SPELT_OTHERWISE.get(name, name)
    present = RENAMED.get(name, name)
    if present != name:
        notices.append(Notice(NoticeLevel.WARNING, f"{name} ({where}) is called {present} now, and taken as that"))
    return present


def _nearest_key(name: str, likeness: float) -> str:
    by_folded = {_folded(key): key for key in sorted(_ROWS | KNOWN_KEYS)}
    matches = get_close_matches(_folded(name[:100]), by_folded, n=1, cutoff=likeness)
    return by_folded[matches[0]] if matches else ""


def _nearest(name: str) -> str:
    near = _nearest_key(name, 0.6)
    return f"; the nearest known one is {near}" if near else ""


def _unknown(name: str, where: str) -> Notice:
    """BadSetting for what looks like the key of a lock: a door that was meant to be locked must not stand open."""
    meant = _nearest_key(name, _MISSPELT)
    if meant in _LOCKS:
        raise BadSetting(f"{_shown(name)} ({where}) is unknown and looks like {meant}: write that, or remove the line")
    return Notice(NoticeLevel.WARNING, f"{_shown(name)} ({where}) is unknown and ignored{_nearest(name)}")


def _note_unused(names: list[str], where: str, notices: list[Notice]) -> None:
    if not names:
        return
    shown = ", ".join(names[:NAMES_SHOWN_MAX])
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    keys = "1 key is" if len(names) == 1 else f"{len(names)} keys are"
    text = f"{where}: {keys} known to Pulsar, not used by Magnetar yet: {shown}{more}"
    notices.append(Notice(NoticeLevel.INFO, text))


def _shown(text: str) -> str:
    return repr(text) if len(text) <= VALUE_SHOWN_MAX else f"{text[:VALUE_SHOWN_MAX]!r}…"
