# SPDX-License-Identifier: Apache-2.0
"""Averages over a short and a long time of what passes through a bundle, and of brokers, as the leader stores them.

Pulsar's BundleData and TimeAverageBrokerData: an average moves by a share of each new look, the smaller the more looks
there were.
Decides.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from magnetar.broker.ownership.load_data import BundleLoad

BUNDLE_DATA_ROOT: Final = "/loadbalance/bundle-data"
BROKER_AVERAGES_ROOT: Final = "/loadbalance/broker-time-average"
SHORT_SAMPLES: Final = 10
LONG_SAMPLES: Final = 1000


class TimeAverage(NamedTuple):
    samples_max: int
    samples: int = 0
    load: BundleLoad = BundleLoad()

    def after(self, look: BundleLoad) -> "TimeAverage":
        samples = min(self.samples + 1, self.samples_max)
        old = (samples - 1) / samples
        before = self.load
        load = BundleLoad(
            old * before.messages_in + look.messages_in / samples,
            old * before.messages_out + look.messages_out / samples,
            old * before.bytes_in + look.bytes_in / samples,
            old * before.bytes_out + look.bytes_out / samples,
            look.topics,
            look.producers,
            look.consumers,
        )
        return TimeAverage(self.samples_max, samples, load)


class BundleAverages(NamedTuple):
    short: TimeAverage = TimeAverage(SHORT_SAMPLES)
    long: TimeAverage = TimeAverage(LONG_SAMPLES)

    def after(self, look: BundleLoad) -> "BundleAverages":
        return BundleAverages(self.short.after(look), self.long.after(look))


def encode_bundle(averages: BundleAverages) -> bytes:
    return json.dumps(
        {
            "shortTermData": _encoded(averages.short),
            "longTermData": _encoded(averages.long),
            "topics": averages.short.load.topics,
        }
    ).encode()


def encode_broker(bundles: Iterable[BundleAverages]) -> bytes:
    """The sums of a broker's bundles."""
    short, long = BundleLoad(), BundleLoad()
    for each in bundles:
        short, long = short + each.short.load, long + each.long.load
    record = {}
    for name, load in (("shortTerm", short), ("longTerm", long)):
        record[f"{name}MsgThroughputIn"] = load.bytes_in
        record[f"{name}MsgThroughputOut"] = load.bytes_out
        record[f"{name}MsgRateIn"] = load.messages_in
        record[f"{name}MsgRateOut"] = load.messages_out
    return json.dumps(record).encode()


def _encoded(average: TimeAverage) -> dict[str, Any]:
    return {
        "maxSamples": average.samples_max,
        "numSamples": average.samples,
        "msgThroughputIn": average.load.bytes_in,
        "msgThroughputOut": average.load.bytes_out,
        "msgRateIn": average.load.messages_in,
        "msgRateOut": average.load.messages_out,
    }
