# SPDX-License-Identifier: Apache-2.0
import pytest

from magnetar.cli.worker_plan import (
    PORTS_EACH,
    Charge,
    Ports,
    decode_charge,
    decode_ports,
    encode_charge,
    encode_ports,
    own_ports,
)
from magnetar.cli.workers import _charged, _checked
from magnetar.config.load import load_settings
from magnetar.errors import BadSetting

SHARED = Ports(6650, 8080)


def test_a_charge_reads_as_it_was_written() -> None:
    charge = Charge("worker-1", "broker", SHARED, Ports(1, 2, 3, 4))
    assert decode_charge(encode_charge(charge)) == charge


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"name": "a"}'])
def test_anything_else_is_no_charge(text: str) -> None:
    with pytest.raises(BadSetting, match="--worker"):
        decode_charge(text)


def test_ports_from_a_first_one_on() -> None:
    ports = own_ports(2, 7000, [], lambda port: True, lambda: 0)
    assert ports == [Ports(7000, 7001, 7002, 7003), Ports(7004, 7005, 7006, 7007)]
    with pytest.raises(BadSetting):
        own_ports(2, 65_535 - 2 * PORTS_EACH + 2, [], lambda port: True, lambda: 0)
    assert own_ports(2, 65_535 - 2 * PORTS_EACH + 1, [], lambda port: True, lambda: 0)[1].https == 65_535


def test_ports_are_kept_unless_somebody_has_them() -> None:
    fresh = iter(range(9000, 9100))
    first = own_ports(1, None, [], lambda port: True, lambda: next(fresh))
    assert first == [Ports(9000, 9001, 9002, 9003)]
    again = own_ports(2, None, first, lambda port: port != 9001, lambda: next(fresh))
    assert again == [Ports(9000, 9004, 9002, 9003), Ports(9005, 9006, 9007, 9008)]
    assert decode_ports(encode_ports(again)) == again


def test_no_port_is_given_twice() -> None:
    offered = iter([5, 5, 6, 6, 7, 8])
    assert own_ports(1, None, [], lambda port: True, lambda: next(offered)) == [Ports(5, 6, 7, 8)]


@pytest.mark.parametrize("value", [b"", b"{}", b'{"version": 2, "workers": []}', b'{"version": 1, "workers": [[1]]}'])
def test_ports_that_cannot_be_read_are_chosen_anew(value: bytes) -> None:
    assert decode_ports(value) == []


def test_a_worker_has_tls_where_all_have_it() -> None:
    own = Ports(1, 2, 3, 4)
    plain = Charge("", "broker", SHARED, SHARED)
    assert _charged(plain, 1, own).own == Ports(1, 2, -1, -1)
    assert _charged(plain._replace(shared=Ports(6650, 8080, 6651, 8443)), 2, own).own == own


def test_listeners_with_one_port_for_all_are_refused() -> None:
    settings = load_settings([], {}, {"advertisedListeners": "outside:pulsar://127.0.0.1:7777"})
    with pytest.raises(BadSetting, match="each worker has its own"):
        _checked(settings)
