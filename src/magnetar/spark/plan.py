# SPDX-License-Identifier: Apache-2.0
"""How much a micro-batch reads, and into how many tasks a read is cut.

Limits are exact: a share of the limit goes to each topic partition by its backlog, the remainders to the largest, and
nothing is given to those that have none. Never asks a broker.
Decides.
"""

from collections.abc import Mapping
from typing import Final

TASKS_MAX: Final = 10_000


def shares(backlogs: Mapping[str, int], limit: int) -> dict[str, int]:
    """What each may read so that all together read `limit` at most, and exactly that if so much is there."""
    total = sum(backlogs.values())
    if total <= limit:
        return dict(backlogs)
    found = {topic: backlog * limit // total for topic, backlog in backlogs.items()}
    left = limit - sum(found.values())
    # By what was cut off, and by name, so that the same question has the same answer.
    by_remainder = sorted(backlogs, key=lambda topic: (-(backlogs[topic] * limit % total), topic))
    for topic in by_remainder[:left]:
        found[topic] += 1
    return found


def cuts(first: int, end: int, tasks: int, messages_min: int) -> list[int]:
    """Message numbers at which first..end is cut into at most `tasks` parts of about equal size, none too small."""
    messages = end - first
    parts = max(1, min(tasks, messages // max(1, messages_min), TASKS_MAX))
    return [first + messages * part // parts for part in range(1, parts)]


def tasks_of(backlogs: Mapping[str, int], wanted: int) -> dict[str, int]:
    """How many tasks each topic partition is cut into, one at least; `wanted` in total where that is possible."""
    total = sum(backlogs.values())
    if total == 0:
        return dict.fromkeys(backlogs, 1)
    return {topic: max(1, round(wanted * backlog / total)) for topic, backlog in backlogs.items()}
