# SPDX-License-Identifier: Apache-2.0
"""Which bundles should leave which brokers: strategies under Pulsar's names, and what none of them may do.

A strategy answers with moves, each with its reason. It never empties a broker of its only bundle, never takes a bundle
that was moved lately, and never moves one whose going would only make another broker the most loaded: that would come
back with the next look. Strategies that remember earlier looks hold that memory here.
Decides.
"""

from collections.abc import Callable, Collection, Mapping
from statistics import fmean, pstdev
from typing import Final, NamedTuple

from magnetar.broker.ownership.load_data import BrokerLoad, BundleLoad
from magnetar.broker.ownership.placement import weights_of
from magnetar.config.balance import BalanceSettings

# What is moved beyond the excess, so that a broker does not stand at its limit again at once.
MARGIN_PERCENT: Final = 5.0
# A taker must be so much lighter after a move than the giver was before it; less is the noise of what is measured.
GAIN_PERCENT: Final = 5.0
# TransferShedder: how far the brokers' uses may spread, in percent.
SPREAD_PERCENT: Final = 12.5


class Move(NamedTuple):
    bundle: str
    source: str
    # Empty: wherever placement puts it, among the takers.
    target: str
    reason: str
    # The brokers that would not be the most loaded of the two after it.
    takers: tuple[str, ...] = ()


class ShedderMemory:
    """What earlier looks have left: a smoothed use of each broker, and how often two brokers lay far apart."""

    __slots__ = ("high_hits", "low_hits", "usage")

    def __init__(self) -> None:
        self.usage: dict[str, float] = {}
        self.low_hits: dict[tuple[str, str], int] = {}
        self.high_hits: dict[tuple[str, str], int] = {}

    def look(self, brokers: Mapping[str, BrokerLoad], settings: BalanceSettings) -> dict[str, float]:
        """The use of each broker in percent, where earlier looks weigh as much as the settings say."""
        share = settings.history_share
        fresh = _uses(brokers, settings)
        self.usage = {
            broker: share * self.usage[broker] + (1 - share) * now if broker in self.usage else now
            for broker, now in fresh.items()
        }
        return dict(self.usage)


class View(NamedTuple):
    """One look at the cluster: the brokers, their uses, and the bundles that may be moved."""

    brokers: Mapping[str, BrokerLoad]
    usage: Mapping[str, float]
    fixed: Collection[str]
    settings: BalanceSettings

    def movable(self, broker: str) -> list[tuple[str, BundleLoad]]:
        """The bundles of a broker that may leave, the heaviest first; none when it has only one."""
        bundles = self.brokers[broker].bundles
        if len(bundles) < 2:
            return []
        free = [(name, load) for name, load in bundles.items() if name not in self.fixed]
        return sorted(free, key=lambda item: (-item[1].bytes, -item[1].messages, item[0]))


def find_moves(
    brokers: Mapping[str, BrokerLoad],
    settings: BalanceSettings,
    memory: ShedderMemory,
    *,
    fixed: Collection[str] = (),
    moves_max: int = 1_000,
) -> list[Move]:
    """What should move now, the most urgent first."""
    usage = memory.look(brokers, settings)
    if len(brokers) < 2:
        return []
    view = View(brokers, usage, frozenset(fixed), settings)
    moves = _STRATEGIES[settings.shedding](view, memory)
    return moves[:moves_max]


def _uses(brokers: Mapping[str, BrokerLoad], settings: BalanceSettings) -> dict[str, float]:
    if settings.usage_formula == "highest":
        weights = weights_of(settings)
        return {broker: load.weighted_usage(weights) for broker, load in brokers.items()}
    shares = (
        settings.usage_sum_cpu_weight,
        settings.usage_sum_bytes_weight,
        settings.usage_sum_messages_weight,
    )
    bytes_max = max((load.total.bytes for load in brokers.values()), default=0.0)
    messages_max = max((load.total.messages for load in brokers.values()), default=0.0)
    return {broker: load.summed_usage(shares, bytes_max, messages_max) for broker, load in brokers.items()}


# --- strategies ---------------------------------------------------------------------------------


def _overload(view: View, memory: ShedderMemory) -> list[Move]:
    """Who uses more than the limit now gives away the excess, and a margin."""
    moves: list[Move] = []
    limit, weights = view.settings.overloaded_percent, weights_of(view.settings)
    for broker, load in sorted(view.brokers.items()):
        usage = load.weighted_usage(weights)
        if usage > limit:
            share = (usage - limit + MARGIN_PERCENT) / 100
            moves += _heaviest(view, broker, share * load.total.bytes, f"it uses {usage:.0f} % of {limit} %")
    return moves


def _threshold(view: View, memory: ShedderMemory) -> list[Move]:
    """Who is further above the average than the threshold gives away what is beyond it, and a margin."""
    settings, average = view.settings, fmean(view.usage.values())
    moves: list[Move] = []
    for broker, usage in sorted(view.usage.items(), key=lambda item: (-item[1], item[0])):
        if usage <= average + settings.threshold_percent:
            continue
        share = (usage - average - settings.threshold_percent + MARGIN_PERCENT) / 100
        amount = share * view.brokers[broker].total.bytes
        if amount >= settings.move_bytes_min:
            moves += _heaviest(view, broker, amount, f"it uses {usage:.0f} %, the average is {average:.0f} %")
    if not moves and settings.lower_boundary:
        moves = _fill_idle(view, average)
    return moves


def _fill_idle(view: View, average: float) -> list[Move]:
    """A broker far below the average gets a part of what the busiest has, though that one is within its limit."""
    idle = min(view.usage, key=lambda broker: (view.usage[broker], broker))
    busiest = max(view.usage, key=lambda broker: (view.brokers[broker].total.bytes, broker))
    if view.usage[idle] >= average - view.settings.threshold_percent or idle == busiest:
        return []
    amount = (view.brokers[busiest].total.bytes - view.brokers[idle].total.bytes) / 2
    reason = f"{idle} uses {view.usage[idle]:.0f} %, the average is {average:.0f} %"
    return [move._replace(target=idle) for move in _heaviest(view, busiest, amount, reason, at_most=True)]


def _uniform(view: View, memory: ShedderMemory) -> list[Move]:
    """The broker with the most messages, or bytes, gives to others when it has far more than the one with the least."""
    settings = view.settings
    for measure, noun, is_far, worth in (
        (_messages, "messages a second", _rate_differs(settings), float(settings.uniform_move_messages_min)),
        (_bytes, "bytes a second", _throughput_differs(settings), float(settings.uniform_move_bytes_min)),
    ):
        ranked = sorted(view.brokers, key=lambda broker: (measure(view.brokers[broker].total), broker))
        least, most = ranked[0], ranked[-1]
        low, high = measure(view.brokers[least].total), measure(view.brokers[most].total)
        amount = (high - low) * settings.uniform_move_share_max
        if is_far(low, high) and amount >= worth:
            reason = f"it has {high:.0f} {noun}, {least} has {low:.0f}"
            moves = _heaviest(view, most, amount, reason, measure=measure)
            if moves:
                return moves
    return []


def _average(view: View, memory: ShedderMemory) -> list[Move]:
    """The most used gives half of the difference to the least used, once they were apart for several looks."""
    settings = view.settings
    ranked = sorted(view.usage, key=lambda broker: (view.usage[broker], broker))
    pairs = list(zip(ranked, reversed(ranked), strict=True))[: len(ranked) // 2]
    moves: list[Move] = []
    for pair in pairs:
        low, high = pair
        apart = view.usage[high] - view.usage[low]
        memory.low_hits[pair] = memory.low_hits.get(pair, 0) + 1 if apart >= settings.average_low_percent else 0
        memory.high_hits[pair] = memory.high_hits.get(pair, 0) + 1 if apart >= settings.average_high_percent else 0
        if memory.low_hits[pair] >= settings.average_low_hits or memory.high_hits[pair] >= settings.average_high_hits:
            amount = (view.brokers[high].total.bytes - view.brokers[low].total.bytes) / 2
            reason = f"it uses {view.usage[high]:.0f} %, {low} uses {view.usage[low]:.0f} %"
            moves += [move._replace(target=low) for move in _heaviest(view, high, amount, reason, at_most=True)]
            memory.low_hits[pair] = memory.high_hits[pair] = 0
    present = set(pairs)
    for hits in (memory.low_hits, memory.high_hits):
        for gone in [pair for pair in hits if pair not in present]:
            del hits[gone]
    return moves


def _transfer(view: View, memory: ShedderMemory) -> list[Move]:
    """While the uses spread too far, the most used gives to the least used, which is told to take it."""
    usage = dict(view.usage)
    moves: list[Move] = []
    taken: dict[str, None] = {}
    for _ in view.brokers:
        if pstdev(usage.values()) <= SPREAD_PERCENT:
            break
        low = min(usage, key=lambda broker: (usage[broker], broker))
        high = max(usage, key=lambda broker: (usage[broker], broker))
        total = view.brokers[high].total.bytes
        share = (usage[high] - usage[low]) / 2 / usage[high]
        reason = f"it uses {usage[high]:.0f} %, {low} uses {usage[low]:.0f} %"
        found = [
            move for move in _heaviest(view, high, share * total, reason, at_most=True) if move.bundle not in taken
        ]
        if not found:
            break
        moved = sum(view.brokers[high].bundles[move.bundle].bytes for move in found) / total * usage[high]
        usage[high], usage[low] = usage[high] - moved, usage[low] + moved
        taken.update(dict.fromkeys(move.bundle for move in found))
        moves += [move._replace(target=low) for move in found]
    return moves


_STRATEGIES: Final[Mapping[str, Callable[[View, ShedderMemory], list[Move]]]] = {
    "OverloadShedder": _overload,
    "ThresholdShedder": _threshold,
    "UniformLoadShedder": _uniform,
    "AvgShedder": _average,
    "TransferShedder": _transfer,
}


# --- choosing bundles ---------------------------------------------------------------------------


def _heaviest(
    view: View,
    broker: str,
    amount: float,
    reason: str,
    *,
    measure: Callable[[BundleLoad], float] | None = None,
    at_most: bool = False,
) -> list[Move]:
    """The heaviest bundles of a broker until the amount is reached, or within it; one stays in any case."""
    measure = measure or _bytes
    free = view.movable(broker)
    own = measure(view.brokers[broker].total)
    # How much lighter than worth it each of the others is, as if it had taken all that left so far.
    worth = own * (1 - GAIN_PERCENT / 100)
    rooms = {other: worth - measure(load.total) for other, load in view.brokers.items() if other != broker}
    moves: list[Move] = []
    left = amount
    # One stays.
    for name, load in free[: len(view.brokers[broker].bundles) - 1]:
        weight = measure(load)
        if left <= 0 or weight <= 0:
            break
        # A bundle as heavy as the difference between two brokers would only make the other the heavier one.
        takers = tuple(other for other, room in rooms.items() if weight < room)
        if not takers or (at_most and weight > left):
            continue
        moves.append(Move(name, broker, "", reason, takers))
        left -= weight
        rooms = {other: room - 2 * weight for other, room in rooms.items()}
    return moves


def _bytes(load: BundleLoad) -> float:
    return load.bytes


def _messages(load: BundleLoad) -> float:
    return load.messages


def _rate_differs(settings: BalanceSettings) -> Callable[[float, float], bool]:
    return lambda low, high: (high - low) * 100 / max(low, 1.0) > settings.uniform_rate_percent > 0


def _throughput_differs(settings: BalanceSettings) -> Callable[[float, float], bool]:
    return lambda low, high: high / max(low, 1.0) > settings.uniform_throughput_factor > 0
