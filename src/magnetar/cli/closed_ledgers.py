# SPDX-License-Identifier: Apache-2.0
"""Which ledgers of a topic get no more entries, as a broker tells it over HTTP.

Carries.
"""

from typing import TYPE_CHECKING

from magnetar.cli.http import HttpApi
from magnetar.cli.verbs.verb import TOPIC, request

if TYPE_CHECKING:
    from magnetar.spark.closed_ledger import ClosedLedger


def closed_ledgers(api: HttpApi, topic: str) -> "list[ClosedLedger]":
    """All but the last, which is the one that is written."""
    from magnetar.spark.closed_ledger import ClosedLedger

    told = api.ask(request("GET", TOPIC + "/internalStats", {"topic": topic})).value
    return [ClosedLedger(int(one["ledgerId"]), int(one["entries"])) for one in told["ledgers"][:-1]]
