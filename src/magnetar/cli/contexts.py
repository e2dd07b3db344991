# SPDX-License-Identifier: Apache-2.0
"""Contexts: the clusters that somebody works with, by name, and which of them is meant when none is named.

One JSON file of its owner, $XDG_CONFIG_HOME/magnetar/contexts.json or what MAGNETAR_CONTEXTS names; nobody else can
read it, for it may hold tokens. Replaced whole, so that it is never half written.
Carries.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from magnetar.errors import BadSetting

FILE_BYTES_MAX: Final = 1 << 20


@dataclass(slots=True)
class Contexts:
    path: Path
    current: str | None = None
    # The settings of each, by the names of client.conf.
    by_name: dict[str, dict[str, str]] = field(default_factory=dict)

    def named(self, name: str) -> Mapping[str, str]:
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "there are none yet"
            raise BadSetting(f"There is no context {name}; {known}")
        return self.by_name[name]

    def save(self) -> None:
        content = {"current": self.current, "contexts": self.by_name}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")
            partial.touch(mode=0o600, exist_ok=True)
            partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            partial.replace(self.path)
        except OSError as error:
            raise BadSetting(f"The contexts in {self.path} cannot be written: {error.strerror}") from error


def contexts_path(environment: Mapping[str, str]) -> Path:
    if environment.get("MAGNETAR_CONTEXTS"):
        return Path(environment["MAGNETAR_CONTEXTS"])
    home = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".config"
    return Path(home) / "magnetar" / "contexts.json"


def load_contexts(environment: Mapping[str, str]) -> Contexts:
    path = contexts_path(environment)
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise BadSetting(f"The contexts in {path} are larger than {FILE_BYTES_MAX} bytes")
        loaded: Any = json.loads(path.read_text(encoding="utf-8"))
        by_name = {
            str(name): {str(key): str(value) for key, value in each.items()}
            for name, each in loaded["contexts"].items()
        }
        current = loaded.get("current")
    except FileNotFoundError:
        return Contexts(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadSetting(f"The contexts in {path} cannot be read: {error}") from error
    return Contexts(path, current if current in by_name else None, by_name)
