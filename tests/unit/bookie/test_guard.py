# SPDX-License-Identifier: Apache-2.0
"""Who is served: a secret that both sides prove, and TLS, with a whole bookie and the real channel."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from magnetar.bookie.guard import guard_of
from magnetar.config.bookie_server import BookieServerSettings
from magnetar.config.ledger import ChannelSettings
from magnetar.errors import BadSetting, BookieUnavailable, CannotStart
from magnetar.ledger.bookies import Address
from magnetar.ledger.channel import NO_ANSWER
from magnetar.ledger.tcp_channel import TcpChannel, TcpChannels
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.runtime.tasks import Tasks
from magnetar.wire.bookkeeper import v2, v3
from magnetar.wire.bookkeeper.codes import ReturnCode
from magnetar.wire.bookkeeper.shared_secret import NONCE_BYTES, PLUGIN, BookieSide, ClientSide
from magnetar.wire.proto import bookkeeper_pb2 as bk
from tests.conformance.certificates import Authority
from tests.unit.bookie.benches import KEY, packed
from tests.unit.bookie.ports import RawClient, bookie_on_a_port

LEDGER = 7


class Outcome:
    def __init__(self) -> None:
        self.told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def on_added(self, bookie: str, first: int, last: int, code: int) -> None:
        self.told.set_result(code)


@asynccontextmanager
async def channel_to(port: int, **settings: Any) -> AsyncIterator[TcpChannel]:
    crashes: list[BaseException] = []
    tasks = Tasks("test", lambda name, error: crashes.append(error))

    async def address(bookie: str) -> Address:
        return Address("127.0.0.1", port)

    channels = TcpChannels(address, tasks, ChannelSettings(request_timeout_ms=10_000, **settings))
    try:
        yield channels("b1")
    finally:
        channels.close()
        await tasks.close()
    assert not crashes


async def code_of(channel: TcpChannel) -> int:
    outcome = Outcome()
    channel.add(LEDGER, 0, packed(LEDGER, 0), KEY, outcome)
    return await outcome.told


def written(directory: Path, name: str, text: str) -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


@pytest.mark.feature("F-SEC-05")
@pytest.mark.parametrize("use_v2_protocol", [True, False])
def test_only_who_knows_the_secret_is_served(loop_run: Any, tmp_path: Path, use_v2_protocol: bool) -> None:
    right = written(tmp_path, "right", "open sesame\n")
    wrong = written(tmp_path, "wrong", "open barley")

    async def scenario() -> None:
        async with bookie_on_a_port(SimulatedDisk(), bookie_id="b1", secret_file=right) as bookie:
            port = bookie.endpoints[0].port
            strangers: list[dict[str, Any]] = [{"secret_file": wrong}, {}]
            for settings in strangers:
                async with channel_to(port, use_v2_protocol=use_v2_protocol, **settings) as channel:
                    assert await code_of(channel) in (NO_ANSWER, ReturnCode.UNAUTHORIZED)
            assert bookie.storage.counts.adds_ok == 0
            async with channel_to(port, use_v2_protocol=use_v2_protocol, secret_file=right) as channel:
                assert await code_of(channel) == ReturnCode.OK
                assert await channel.read(LEDGER, 0) == packed(LEDGER, 0)
                assert await channel.entry_ids(LEDGER) == [0]

    loop_run(scenario())


@pytest.mark.feature("F-SEC-05")
def test_a_bookie_that_does_not_know_the_secret_is_not_spoken_to(loop_run: Any, tmp_path: Path) -> None:
    secret = written(tmp_path, "right", "open sesame")
    other = written(tmp_path, "other", "other")

    async def scenario() -> None:
        bookies: list[dict[str, Any]] = [{}, {"secret_file": other}]
        for bookies_own in bookies:
            async with (
                bookie_on_a_port(SimulatedDisk(), bookie_id="b1", **bookies_own) as bookie,
                channel_to(bookie.endpoints[0].port, secret_file=secret) as channel,
            ):
                assert await code_of(channel) == NO_ANSWER
                with pytest.raises(BookieUnavailable):
                    await channel.entry_ids(LEDGER)

    loop_run(scenario())


def test_a_stranger_is_refused_in_the_words_of_its_version(loop_run: Any, tmp_path: Path) -> None:
    secret = written(tmp_path, "right", "open sesame")

    async def scenario() -> None:
        async with bookie_on_a_port(SimulatedDisk(), secret_file=secret) as bookie:
            client = await RawClient.connect(bookie)
            entry = packed(LEDGER, 0)
            client.send(v2.add_front(len(entry), KEY) + entry)
            assert await client.answer_2() == v2.AddResponse(ReturnCode.UNAUTHORIZED, LEDGER, 0)
            client.send(v2.encode_read(LEDGER, 0))
            answer = await client.answer_2()
            assert isinstance(answer, v2.ReadResponse)
            assert answer.code == ReturnCode.UNAUTHORIZED
            client.close()
            client = await RawClient.connect(bookie)
            request = v3.request(bk.READ_LAC, 5)
            request.readLacRequest.ledgerId = LEDGER
            assert (await client.ask_3(request)).status == bk.EUA
            request = v3.request(bk.AUTH, 6)
            request.authRequest.authPluginName = "another plugin"
            request.authRequest.payload = b""
            assert (await client.ask_3(request)).status == bk.EUA
            assert await client.packet() is None, "and the connection ends"
            client.close()

    loop_run(scenario())


@pytest.mark.feature("F-SEC-05")
def test_tls_and_the_secret_together(loop_run: Any, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("bookie")
    secret = written(tmp_path, "right", "open sesame")
    served: dict[str, Any] = {
        "tls_certificate_file": certificate,
        "tls_key_file": key,
        "tls_required": True,
        "secret_file": secret,
    }

    async def scenario() -> None:
        async with bookie_on_a_port(SimulatedDisk(), bookie_id="b1", **served) as bookie:
            port = bookie.endpoints[0].port
            async with channel_to(port, secret_file=secret, tls_trust_file=str(authority.file)) as channel:
                assert await code_of(channel) == ReturnCode.OK
                assert await channel.read(LEDGER, 0) == packed(LEDGER, 0)
            async with channel_to(port, secret_file=secret) as channel:
                assert await code_of(channel) == NO_ANSWER, "without TLS the secret is not enough"
            stranger = Authority(tmp_path / "other")
            async with channel_to(port, secret_file=secret, tls_trust_file=str(stranger.file)) as channel:
                assert await code_of(channel) == NO_ANSWER, "another authority has signed the bookie's certificate"
        async with (
            bookie_on_a_port(SimulatedDisk(), bookie_id="b1") as bookie,
            channel_to(bookie.endpoints[0].port, tls_trust_file=str(authority.file)) as channel,
        ):
            assert await code_of(channel) == NO_ANSWER, "it speaks no TLS"

    loop_run(scenario())


def test_both_sides_prove_it_and_nothing_can_be_used_again() -> None:
    nonces = iter(bytes([n]) * NONCE_BYTES for n in range(1, 9))
    bookie, client = (side(b"secret", lambda count: next(nonces)) for side in (BookieSide, ClientSide))
    assert isinstance(bookie, BookieSide)
    assert isinstance(client, ClientSide)
    first = client.first()
    answer = bookie.on_message(PLUGIN, first)
    assert answer is not None
    assert bookie.on_message(PLUGIN, answer[NONCE_BYTES:]) is None, "the bookie's own proof is not the client's"
    assert not bookie.is_admitted
    again = BookieSide(b"secret", lambda count: next(nonces))
    proof = client.on_answer(PLUGIN, answer)
    assert proof is not None
    assert again.on_message(PLUGIN, first) != answer
    assert again.on_message(PLUGIN, proof) is None, "a proof is for one connection"


def test_settings_that_promise_what_cannot_be_kept_are_refused(tmp_path: Path) -> None:
    empty = written(tmp_path, "empty", "\n")
    with pytest.raises(BadSetting, match="empty"):
        guard_of(BookieServerSettings(secret_file=empty))
    with pytest.raises(CannotStart):
        guard_of(BookieServerSettings(secret_file=str(tmp_path / "absent")))
    with pytest.raises(BadSetting, match="tls_certificate_file"):
        guard_of(BookieServerSettings(tls_required=True))
