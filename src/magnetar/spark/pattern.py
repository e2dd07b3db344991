# SPDX-License-Identifier: Apache-2.0
"""`topicsPattern`: a namespace by name, and a regular expression for the topics in it.

Decides.
"""

import re
from typing import Final

from magnetar.errors import BadSetting

PATTERN_CHARACTERS_MAX: Final = 1_000
_KEPT: Final = re.compile(r"__.*|spark-sink-.*-(?:staging|log)|spark-writes-staging")
_FRONT: Final = re.compile(r"(?:persistent://)?([\w=.-]+)/([\w=.-]+)/(.+)")


def pattern_parts(pattern: str) -> tuple[str, re.Pattern[str]]:
    """`tenant/namespace` and an expression over full topic names. Without a namespace: public/default."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise BadSetting(f"option topicsPattern has {len(pattern)} characters; {PATTERN_CHARACTERS_MAX} are allowed")
    match = _FRONT.fullmatch(pattern)
    namespace, local = (f"{match[1]}/{match[2]}", match[3]) if match else ("public/default", pattern)
    try:
        return namespace, re.compile(f"persistent://{re.escape(namespace)}/(?:{local})")
    except re.error as error:
        raise BadSetting(f"option topicsPattern {pattern!r} is no regular expression: {error}") from None


def is_data(topic: str) -> bool:
    """Whether a pattern may find this topic: not what brokers keep for themselves, nor what sinks stage and log."""
    return _KEPT.fullmatch(topic.rpartition("/")[2]) is None
