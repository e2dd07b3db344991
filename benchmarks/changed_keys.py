# SPDX-License-Identifier: Apache-2.0
"""What a row's settings say of configuration keys that were changed: their values, and which of them have no effect."""

from pathlib import Path

from magnetar.config.load import NoticeLevel, SettingsFile, load_settings


def words(config: dict[str, str], role: str, directory: Path | None = None) -> str:
    """Without where things lie: paths begin at the directory."""
    if not config:
        return "defaults"
    shown = {key: value.replace(f"{directory}/", "") for key, value in config.items()}
    unused = [key for key, value in config.items() if not has_effect(key, value, role)]
    beside = f"; {' and '.join(unused)} {'is' if len(unused) == 1 else 'are'} accepted and without effect"
    return f"{shown}{beside if unused else ''}"


def has_effect(key: str, value: str, role: str) -> bool:
    """Not of a key that is upstream's and that nothing here looks at: a start says so."""
    loaded = load_settings([SettingsFile("changed.conf", f"{key}={value}\n")], role=role)
    return not any(notice.level is NoticeLevel.INFO and key in notice.text for notice in loaded.notices)
