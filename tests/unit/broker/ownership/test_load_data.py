# SPDX-License-Identifier: Apache-2.0
"""Reports of load: written as Pulsar's LocalBrokerData, read with distrust; meters that survive pauses."""

import json

import pytest

from magnetar.broker.ownership.averages import BundleAverages, encode_broker, encode_bundle
from magnetar.broker.ownership.bundles import FULL, Bundle
from magnetar.broker.ownership.load_data import BrokerLoad, BundleLoad, ResourceUsage, decode_load, encode_load
from magnetar.broker.ownership.owner import (
    Listener,
    Owner,
    decode_owner,
    encode_owner,
    parse_listeners,
)
from magnetar.broker.ownership.traffic import TopicCounts, TrafficMeter, by_bundle
from magnetar.broker.ownership.usage import UsageMeter
from magnetar.errors import BadSetting, DamagedRecord
from magnetar.names import NamespaceName, TopicName
from magnetar.runtime.host import HostReading, read_host
from tests.unit.broker.ownership.loads import broker

OWNER = Owner("pulsar://a:1", "http://a:2", "pulsar+ssl://a:3", "https://a:4", (("x", Listener("pulsar://b:5")),))


def test_a_report_comes_back_as_it_was() -> None:
    load = BrokerLoad(
        OWNER,
        "token",
        1,
        2,
        "v",
        (ResourceUsage(1.0, 2.0),) * 5,
        {"public/default/0x00000000_0xffffffff": BundleLoad(1.0, 2.0, 3.0, 4.0, 5, 6, 7)},
    )
    assert decode_load(encode_load(load)) == load
    record = json.loads(encode_load(load))
    assert record["pulsarServiceUrl"] == "pulsar://a:1"
    assert record["lastStats"]["public/default/0x00000000_0xffffffff"]["msgThroughputIn"] == 3.0
    assert record["loadReportType"] == "LocalBrokerData"


@pytest.mark.feature("F-PRB-04")
def test_what_is_no_number_counts_as_nothing() -> None:
    record = json.loads(encode_load(broker("a", 50, {"public/default/x": 5.0})))
    record["cpu"] = {"usage": "NaN", "limit": 100}
    record["lastStats"]["public/default/x"]["msgRateIn"] = float("inf")
    found = decode_load(json.dumps(record).encode())
    assert found.resources[0].percent == 0
    assert found.total.messages_in == 0
    assert ResourceUsage(5.0, 0.0).percent == 0
    for damaged in (b"", b"[]", b"{", b'{"lastStats": 5}'):
        with pytest.raises(DamagedRecord):
            decode_load(damaged)


@pytest.mark.feature("F-LB-11", "F-LB-10")
def test_both_formulas_for_the_load_of_a_broker() -> None:
    load = broker("a", cpu=40, memory=30, bundles={"x/y/z": 1024.0 * 100})
    assert load.weighted_usage((1.0, 1.0, 1.0, 1.0, 1.0)) == 40
    assert load.weighted_usage((0.5, 1.0, 1.0, 1.0, 1.0)) == 30
    assert load.weighted_usage((0.0, 0.0, 1.0, 1.0, 1.0)) == 0
    # cpu * w + flow / max * 100 * w + rate / max * 100 * w.
    summed = load.summed_usage((0.2, 0.3, 0.5), flow_max=1024.0 * 200, rate_max=400.0)
    assert summed == pytest.approx(40 * 0.2 + 50 * 0.3 + 25 * 0.5)


@pytest.mark.feature("F-PRB-04")
@pytest.mark.parametrize("elapsed_s", [0.0, 0.001, -5.0])
def test_a_look_too_soon_leaves_the_last_answer(elapsed_s: float) -> None:
    meter = UsageMeter(network_gbps=1.0)
    meter.look(HostReading(2, busy_s=10.0, memory_bytes=5.0, memory_limit_bytes=10.0), 100.0)
    before = meter.look(HostReading(2, 11.0, 5.0, 10.0, received_bytes=125_000_000), 101.0)
    assert before[0].percent == 50
    assert before[3].percent == 100
    after = meter.look(HostReading(2, 500.0, 5.0, 10.0, received_bytes=10**12), 101.0 + elapsed_s)
    assert after == before


def test_processors_are_never_used_by_more_than_all_of_them() -> None:
    meter = UsageMeter()
    meter.look(HostReading(1, busy_s=0.0), 0.0)
    assert meter.look(HostReading(1, busy_s=50.0), 1.0)[0].percent == 100
    # A counter that falls, as after a change of machine, is no use at all.
    assert meter.look(HostReading(1, busy_s=1.0), 2.0)[0].percent == 0


def test_the_machine_says_something() -> None:
    reading = read_host()
    assert reading.processors >= 1
    assert 0 < reading.memory_bytes < reading.memory_limit_bytes
    assert reading.busy_s > 0


def test_traffic_is_what_passed_between_two_looks() -> None:
    name = TopicName.parse("t")
    bundle = Bundle(NamespaceName("public", "default"), 0, FULL)
    meter = TrafficMeter()
    assert meter.look([TopicCounts(name, 100, 50, 1000, 500, 1, 2)], 10.0)[name].messages == 0
    rates = meter.look([TopicCounts(name, 300, 40, 3000, 900, 1, 2)], 12.0)
    assert rates[name] == BundleLoad(100.0, 0.0, 1000.0, 200.0, 1, 1, 2)
    assert meter.look([], 12.1) is rates
    other = Bundle(NamespaceName("public", "empty"), 0, FULL)
    sums = by_bundle(rates, [bundle, other], lambda _: bundle)
    assert sums == {str(bundle): rates[name], str(other): BundleLoad()}


@pytest.mark.feature("F-LB-04")
def test_averages_of_a_short_and_a_long_time() -> None:
    averages = BundleAverages()
    for _ in range(10):
        averages = averages.after(BundleLoad(messages_in=100.0, bytes_in=10.0, topics=3))
    averages = averages.after(BundleLoad(messages_in=1100.0, bytes_in=10.0, topics=3))
    assert averages.short.load.messages_in == pytest.approx(200.0)
    assert averages.long.load.messages_in == pytest.approx(100 + 1000 / 11)
    record = json.loads(encode_bundle(averages))
    assert record["shortTermData"]["numSamples"] == 10
    assert record["longTermData"]["numSamples"] == 11
    assert record["topics"] == 3
    sums = json.loads(encode_broker([averages, averages]))
    assert sums["shortTermMsgRateIn"] == pytest.approx(400.0)
    assert sums["longTermMsgThroughputIn"] == pytest.approx(20.0)


def test_owners_are_written_as_pulsar_writes_them() -> None:
    assert decode_owner(encode_owner(OWNER)) == OWNER
    assert OWNER.broker_id == "a:2"
    through = OWNER.through("x")
    assert through is not None
    assert through.service_url == "pulsar://b:5"
    assert OWNER.through("y") is None
    assert OWNER.through("") is OWNER
    with pytest.raises(DamagedRecord):
        decode_owner(b"nothing")


@pytest.mark.parametrize("text", ["x", "x:ftp://a:1", "x:pulsar://a", ":pulsar://a:1", "x:pulsar://:1"])
def test_what_is_no_listener_is_refused(text: str) -> None:
    with pytest.raises(BadSetting):
        parse_listeners(text)
