# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.perf`: what flags mean, when a load is over, and what its lines say."""

import pytest

from benchmarks import perf
from benchmarks.perf_work import ENDLESS, Meter, Work
from magnetar.cli.values import WrongUse


def work(words: str) -> Work:
    name, *rest = words.split()
    return perf.work_of(name, perf.COMMANDS[name].read(rest, more=perf._SHARED))


def test_flags_are_those_of_pulsar_perf() -> None:
    found = work("produce t -u pulsar://127.0.0.1:7 -r 2000 -s 100 -n 2 -t 3 -m 500 -time 4 -o 64 -c 2 -bm 10")
    assert found.topics == tuple(f"persistent://public/default/t-{number}" for number in range(3))
    assert (found.service_url, found.rate, found.size, found.batch) == ("pulsar://127.0.0.1:7", 2_000, 100, 10)
    assert (found.producers, found.outstanding, found.connections) == (2, 64, 2)
    assert (found.messages, found.seconds) == (500, 4)
    found = work("consume t -ss mine -st Key_Shared -n 4 -q 50 -sp Earliest -m 9")
    assert (found.subscription, found.kind, found.consumers, found.queue) == ("mine", "Key_Shared", 4, 50)
    assert (found.earliest, found.messages) == (True, 9)
    found = work("latency t -r 10 -s 200 -ss mine -nc 3 -bm 7 -db")
    assert (found.size, found.subscription, found.consumers, found.batch) == (200, "mine", 3, 1)


@pytest.mark.parametrize("words", ["produce", "produce t -n 0", "produce t -s 7", "latency t", "consume t -n 0"])
def test_what_makes_no_load_is_refused(words: str) -> None:
    with pytest.raises(WrongUse):
        work(words)


def test_the_official_client_has_one_connection() -> None:
    with pytest.raises(WrongUse, match="one connection"):
        work("produce t --client official -c 2")


def test_a_schedule_is_kept_to_its_end_and_a_closed_loop_ends_in_time() -> None:
    paced = work("produce t -r 200 -time 3")
    assert (paced.wanted, paced.limit_s, paced.schedule_s) == (600, float("inf"), 3)
    assert work("produce t -r 200 -time 3 -m 100").wanted == 100
    closed = work("produce t -time 3")
    assert (closed.wanted, closed.limit_s) == (ENDLESS, 3)


def test_every_producer_has_a_place_on_a_connection() -> None:
    shares = work("produce t -t 3 -n 2 -c 4").shares()
    assert sorted(map(len, shares)) == [1, 1, 2, 2]
    assert sorted(topic[-1] for share in shares for topic in share) == ["0", "0", "1", "1", "2", "2"]
    assert len(work("produce t -c 4").shares()) == 1


def test_it_says_which_loop_it_is() -> None:
    assert perf.words_of("produce", work("produce t"), "raw").startswith("closed loop: ")
    assert perf.words_of("produce", work("produce t -r 5 -bm 2"), "raw") == (
        "open loop: 5 messages a second, latency from when each batch of raw frames was due"
    )


def test_lines_are_about_their_time_and_the_aggregate_about_all(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    source = [1.0, 2.0]
    meter = Meter("published", 1_000, [source])
    now[0] = 12.0
    assert meter.messages == 0
    assert meter.line() == (
        "published: 1.0 msg/s --- 0.0 Mbit/s --- latency ms: "
        "mean 1.500 p50 1.003 p95 2.000 p99 2.000 p99.9 2.000 p99.99 2.000 max 2.000"
    )
    assert not source
    source += [3.0] * 18
    now[0] = 14.0
    assert meter.line().startswith("published: 9.0 msg/s --- 0.1 Mbit/s --- latency ms: mean 3.000 p50 3.000")
    assert meter.aggregate() == (
        "Aggregated: published 20 messages in 4.0 s --- 5.0 msg/s --- 0.0 Mbit/s --- "
        "latency ms: mean 2.850 p50 3.000 p95 3.000 p99 3.000 p99.9 3.000 p99.99 3.000 max 3.000"
    )


def test_a_meter_with_a_count_needs_no_latencies() -> None:
    assert Meter("received", messages=lambda: 7).aggregate().startswith("Aggregated: received 7 messages")


@pytest.mark.parametrize("words", [[], ["--help"], ["produce", "--help"], ["consume", "--help"], ["latency", "-h"]])
def test_help_is_shown(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert perf.main(words) == 0
    assert (words[0] if words and words[0] in perf.COMMANDS else "produce|consume|latency") in capsys.readouterr().out
