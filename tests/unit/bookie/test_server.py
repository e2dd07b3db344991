# SPDX-License-Identifier: Apache-2.0
"""A bookie's port: every operation and code of both versions, bad input, back-pressure."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.bookie import server as bookie_server
from magnetar.bookie.bookie import Bookie
from magnetar.config.bookie import BookieSettings
from magnetar.runtime.simulated_disk import SimulatedDisk
from magnetar.wire.bookkeeper import entry_set, v2, v3
from magnetar.wire.bookkeeper.codes import LAST_ADD_CONFIRMED, RequestFlag, ReturnCode, WriteFlag
from magnetar.wire.proto import bookkeeper_pb2 as bk
from tests.unit.bookie.benches import KEY, ROOMY, packed, run
from tests.unit.bookie.ports import RawClient, bookie_on_a_port

LEDGER = 9
Scenario = Callable[[Bookie, RawClient], Awaitable[None]]


def served(scenario: Scenario, settings: BookieSettings = ROOMY, **changes: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), bookie_on_a_port(SimulatedDisk(), settings, **changes) as bookie:
            client = await RawClient.connect(bookie)
            try:
                await scenario(bookie, client)
            finally:
                client.close()

    run(main())


def add_2(entry_id: int, body: bytes = b"body", *, key: bytes = KEY, flags: int = 0) -> bytes:
    entry = packed(LEDGER, entry_id, body)
    return v2.add_front(len(entry), key, flags) + entry


def add_3(entry_id: int, txn_id: int = 1, **fields: Any) -> bk.Request:
    request = v3.request(bk.ADD_ENTRY, txn_id)
    request.addRequest.ledgerId = LEDGER
    request.addRequest.entryId = entry_id
    request.addRequest.masterKey = KEY
    request.addRequest.body = packed(LEDGER, entry_id)
    for name, value in fields.items():
        setattr(request.addRequest, name, value)
    return request


def read_3(entry_id: int, txn_id: int = 2, **fields: Any) -> bk.Request:
    request = v3.request(bk.READ_ENTRY, txn_id)
    request.readRequest.ledgerId = LEDGER
    request.readRequest.entryId = entry_id
    for name, value in fields.items():
        setattr(request.readRequest, name, value)
    return request


async def added(client: RawClient, *entry_ids: int) -> None:
    for entry_id in entry_ids:
        client.send(add_2(entry_id))
    for _ in entry_ids:
        answer = await client.answer_2()
        assert isinstance(answer, v2.AddResponse)
        assert answer.code == 0


# --- version 2 --------------------------------------------------------------------------------


@pytest.mark.feature("F-BKS-01")
def test_adds_and_reads_of_version_2() -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        await added(client, 0, 1, 2)
        client.send(v2.encode_read(LEDGER, 1))
        assert await client.answer_2() == v2.ReadResponse(0, LEDGER, 1, packed(LEDGER, 1))
        client.send(v2.encode_read(LEDGER, LAST_ADD_CONFIRMED))
        assert await client.answer_2() == v2.ReadResponse(0, LEDGER, -1, packed(LEDGER, 2))
        client.send(v2.encode_batch_read(LEDGER, 1, 77, 10, 10_000))
        entries = [packed(LEDGER, 1), packed(LEDGER, 2)]
        assert await client.answer_2() == v2.BatchReadResponse(0, LEDGER, 1, 77, entries)

    served(scenario)


def test_codes_of_version_2() -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        client.send(v2.encode_read(LEDGER, 0))
        assert await client.answer_2() == v2.ReadResponse(ReturnCode.NO_LEDGER, LEDGER, 0, b"")
        await added(client, 0)
        client.send(v2.encode_read(LEDGER, 5))
        assert await client.answer_2() == v2.ReadResponse(ReturnCode.NO_ENTRY, LEDGER, 5, b"")
        client.send(v2.encode_batch_read(LEDGER, 5, 3, 10, 10_000))
        assert await client.answer_2() == v2.BatchReadResponse(ReturnCode.NO_ENTRY, LEDGER, 5, 3, [])
        client.send(add_2(1, key=b"x" * 20))
        assert await client.answer_2() == v2.AddResponse(ReturnCode.UNAUTHORIZED, LEDGER, 1)
        client.send(v2.encode_read(LEDGER, 0, b"x" * 20))
        assert await client.answer_2() == v2.ReadResponse(ReturnCode.UNAUTHORIZED, LEDGER, 0, b"")
        client.send(v2.encode_read(LEDGER, 0, KEY))
        assert await client.answer_2() == v2.ReadResponse(0, LEDGER, 0, packed(LEDGER, 0))
        client.send(add_2(1))
        assert await client.answer_2() == v2.AddResponse(ReturnCode.FENCED, LEDGER, 1)
        client.send(add_2(1, flags=RequestFlag.RECOVERY_ADD))
        assert await client.answer_2() == v2.AddResponse(0, LEDGER, 1)

    served(scenario)


def test_an_earlier_version_is_answered_in_its_own_form() -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        for version in (0, 1):
            entry = packed(LEDGER, version)
            packet = v2.packet_header(1, version=version).to_bytes(4, "big") + KEY + entry
            client.send(len(packet).to_bytes(4, "big"), packet)
            answer = await client.packet()
            assert answer is not None
            assert v2.read_packet_header(answer) == (version, 1, 0)
            assert v2.decode_response(answer) == v2.AddResponse(0, LEDGER, version)

    served(scenario)


def test_whoever_wants_to_authenticate_is_told_that_nobody_has_to() -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        client.send(v2.encode_auth(bk.AuthMessage(authPluginName="any", payload=b"x")))
        answer = await client.answer_2()
        assert isinstance(answer, v2.AuthResponse)
        assert answer.message.authPluginName == "AuthDisabledPlugin"
        request = v3.request(bk.AUTH, 5)
        request.authRequest.CopyFrom(bk.AuthMessage(authPluginName="any", payload=b"x"))
        response = await client.ask_3(request)
        assert response.status == bk.EOK
        assert response.authResponse.authPluginName == "AuthDisabledPlugin"

    served(scenario)


# --- version 3 --------------------------------------------------------------------------------


def test_adds_and_reads_of_version_3() -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        for i in range(3):
            client.send(v3.encode(add_3(i, 100 + i, writeFlags=WriteFlag.DEFERRED_SYNC if i == 1 else 0)))
        for i in range(3):
            response = await client.answer_3()
            assert (response.header.txnId, response.status) == (100 + i, bk.EOK)
            assert (response.addResponse.ledgerId, response.addResponse.entryId) == (LEDGER, i)
        response = await client.ask_3(read_3(1))
        assert response.readResponse.body == packed(LEDGER, 1)
        assert response.readResponse.maxLAC == 1

    served(scenario)


def test_codes_of_version_3() -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        response = await client.ask_3(read_3(0))
        assert (response.status, response.readResponse.status) == (bk.ENOLEDGER, bk.ENOLEDGER)
        assert (await client.ask_3(add_3(0))).status == bk.EOK
        assert (await client.ask_3(read_3(4))).status == bk.ENOENTRY
        assert (await client.ask_3(add_3(1, masterKey=b"other"))).status == bk.EUA
        fence = bk.ReadRequest.FENCE_LEDGER
        assert (await client.ask_3(read_3(0, flag=fence))).status == bk.EUA, "a fence without a key"
        assert (await client.ask_3(read_3(0, flag=fence, masterKey=KEY))).readResponse.body == packed(LEDGER, 0)
        assert (await client.ask_3(add_3(1))).status == bk.EFENCED
        assert (await client.ask_3(add_3(1, flag=bk.AddRequest.RECOVERY_ADD))).status == bk.EOK
        request = read_3(0)
        request.header.version = bk.VERSION_TWO
        assert (await client.ask_3(request)).status == bk.EBADVERSION
        tls = v3.request(bk.START_TLS, 8)
        tls.startTLSRequest.SetInParent()
        assert (await client.ask_3(tls)).status == bk.EBADREQ

    served(scenario)


@pytest.mark.feature("B-35")
def test_last_add_confirmed_of_version_3() -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        ask = v3.request(bk.READ_LAC, 1)
        ask.readLacRequest.ledgerId = LEDGER
        assert (await client.ask_3(ask)).status == bk.ENOLEDGER
        assert (await client.ask_3(add_3(0))).status == bk.EOK
        response = await client.ask_3(ask)
        assert response.readLacResponse.lastEntryBody == packed(LEDGER, 0)
        assert not response.readLacResponse.HasField("lacBody")
        write = v3.request(bk.WRITE_LAC, 2)
        write.writeLacRequest.ledgerId = LEDGER
        write.writeLacRequest.lac = 0
        write.writeLacRequest.masterKey = KEY
        write.writeLacRequest.body = b"a confirmation"
        assert (await client.ask_3(write)).status == bk.EOK
        assert (await client.ask_3(ask)).readLacResponse.lacBody == b"a confirmation"

    served(scenario)


@pytest.mark.feature("F-BKS-26")
def test_a_long_poll_ends_with_the_confirmation_or_with_its_time() -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        await client.ask_3(add_3(0))
        poll = read_3(LAST_ADD_CONFIRMED, 5, previousLAC=0, timeOut=50_000, flag=bk.ReadRequest.ENTRY_PIGGYBACK)
        client.send(v3.encode(poll))
        await client.ask_3(add_3(1))
        client.send(v3.encode(add_3(2, 6)))
        said = {response.header.txnId: response for response in [await client.answer_3(), await client.answer_3()]}
        answer = said[5].readResponse
        assert (answer.maxLAC, answer.entryId, answer.body) == (1, 1, packed(LEDGER, 1))
        poll = read_3(LAST_ADD_CONFIRMED, 7, previousLAC=1, timeOut=1, flag=bk.ReadRequest.ENTRY_PIGGYBACK)
        answer = (await client.ask_3(poll)).readResponse
        assert (answer.status, answer.maxLAC, answer.HasField("body")) == (bk.EOK, 1, False)
        poll.readRequest.entryId = 1
        assert (await client.ask_3(poll)).status == bk.EBADREQ

    served(scenario)


def test_lists_force_and_free_space() -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        for i in (0, 1, 5):
            await client.ask_3(add_3(i))
        ask = v3.request(bk.GET_LIST_OF_ENTRIES_OF_LEDGER, 1)
        ask.getListOfEntriesOfLedgerRequest.ledgerId = LEDGER
        held = (await client.ask_3(ask)).getListOfEntriesOfLedgerResponse.availabilityOfEntriesOfLedger
        assert entry_set.decode(held, 100) == [0, 1, 5]
        force = v3.request(bk.FORCE_LEDGER, 2)
        force.forceLedgerRequest.ledgerId = LEDGER
        assert (await client.ask_3(force)).status == bk.EOK
        info = v3.request(bk.GET_BOOKIE_INFO, 3)
        info.getBookieInfoRequest.requested = 3
        said = (await client.ask_3(info)).getBookieInfoResponse
        assert 0 < said.freeDiskSpace <= said.totalDiskCapacity
        info.getBookieInfoRequest.requested = 1
        assert not (await client.ask_3(info)).getBookieInfoResponse.HasField("freeDiskSpace")

    served(scenario)


# --- bad input --------------------------------------------------------------------------------


def sized(packet: bytes) -> bytes:
    return len(packet).to_bytes(4, "big") + packet


@pytest.mark.parametrize(
    ("packet", "code"),
    [
        (b"\x02\x09\x00\x00" + b"\x00" * 16, ReturnCode.BAD_REQUEST),
        (b"\x02\x01\x00\x00", ReturnCode.BAD_REQUEST),
        (b"\x02\x02\x00\x01" + b"\x00" * 16, ReturnCode.BAD_REQUEST),
        (b"\x02\x07\x00\x00" + b"\x00" * 8, ReturnCode.BAD_REQUEST),
        (b"\x09\x01\x00\x00" + b"\x00" * 40, ReturnCode.BAD_VERSION),
        (b"\xff" * 40, ReturnCode.BAD_VERSION),
    ],
)
def test_what_cannot_be_read_gets_a_code_and_the_connection_lives(packet: bytes, code: int) -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        client.send(sized(packet))
        answer = await client.packet()
        assert answer is not None
        assert int.from_bytes(answer[4:8], "big") == code
        await added(client, 0)

    served(scenario)


def test_a_protobuf_without_its_message_gets_a_code() -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        response = await client.ask_3(v3.request(bk.ADD_ENTRY, 3))
        assert (response.header.txnId, response.status) == (3, bk.EBADREQ)
        response = await client.ask_3(v3.request(bk.RANGE_ADD_ENTRY, 4))
        assert (response.header.txnId, response.status) == (4, bk.EBADREQ)
        await added(client, 0)

    served(scenario)


@pytest.mark.parametrize("size", [0, 3, 2**31 - 1, 2**32 - 1, 70 * 1024])
def test_an_impossible_size_ends_the_connection_alone(size: int) -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        client.send(add_2(0), size.to_bytes(4, "big"))
        assert (await client.answer_2()) == v2.AddResponse(0, LEDGER, 0)
        assert await client.packet() is None
        other = await RawClient.connect(bookie)
        await added(other, 1)
        other.close()

    served(scenario)


def test_an_entry_that_is_not_what_the_packet_says_or_too_large_is_refused() -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        client.send(add_2(0, b"x" * ROOMY.entry_bytes_max))
        assert await client.answer_2() == v2.AddResponse(ReturnCode.BAD_REQUEST, LEDGER, 0)
        request = add_3(0, body=packed(LEDGER, 1))
        assert (await client.ask_3(request)).status == bk.EBADREQ
        client.send(sized(b"\x02\x01\x00\x00" + KEY + (-4).to_bytes(8, "big", signed=True) + b"\x00" * 40))
        answer = await client.answer_2()
        assert isinstance(answer, v2.AddResponse)
        assert answer.code == ReturnCode.BAD_REQUEST

    served(scenario)


# --- back-pressure ----------------------------------------------------------------------------


@pytest.mark.feature("F-BP-02")
def test_reading_stops_at_the_bound_of_adds_and_goes_on() -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        for i in range(500):
            client.send(add_2(i, b"x" * 1000))
        for i in range(500):
            assert await client.answer_2() == v2.AddResponse(0, LEDGER, i)

    served(scenario, connection_adds_max=7, connection_adds_bytes_max=20_000)


@pytest.mark.feature("F-BP-03", "F-BP-05")
def test_too_many_questions_at_once_are_refused() -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        await added(client, 0)
        poll = {"previousLAC": 0, "timeOut": 60_000, "flag": bk.ReadRequest.ENTRY_PIGGYBACK}
        for i in range(2):
            client.send(v3.encode(read_3(LAST_ADD_CONFIRMED, i, **poll)))
        client.send(v2.encode_read(LEDGER, 1))
        assert await client.answer_2() == v2.ReadResponse(ReturnCode.TOO_MANY_REQUESTS, LEDGER, 1, b"")
        # What is in memory takes no time, and therefore no place.
        client.send(v2.encode_read(LEDGER, 0))
        assert await client.answer_2() == v2.ReadResponse(0, LEDGER, 0, packed(LEDGER, 0))
        assert (await client.ask_3(read_3(0, 9))).status == bk.ETOOMANYREQUESTS
        other = await RawClient.connect(bookie)
        other.send(v2.encode_read(LEDGER, 1))
        assert await other.answer_2() == v2.ReadResponse(ReturnCode.NO_ENTRY, LEDGER, 1, b"")
        other.close()

    served(scenario, connection_reads_max=2)


@pytest.mark.feature("F-BP-08")
def test_a_client_that_takes_no_answers_is_not_read_from() -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        client.send(add_2(0, b"x" * 60_000))
        await client.answer_2()
        for _ in range(400):
            client.send(v2.encode_read(LEDGER, 0))
        for _ in range(400):
            answer = await client.answer_2()
            assert isinstance(answer, v2.ReadResponse)
            assert len(answer.entry) > 60_000

    served(scenario, connection_write_bytes_max=64 * 1024)


def test_one_connection_too_many_is_refused() -> None:
    async def scenario(bookie: Bookie, client: RawClient) -> None:
        await added(client, 0)
        other = await RawClient.connect(bookie)
        other.send(add_2(1))
        with pytest.raises((ConnectionError, AssertionError)):
            await other.answer_2()
        other.close()
        await added(client, 2)

    served(scenario, connections_max=1)


def test_who_says_nothing_is_let_go_and_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """F141: whoever has asked once may be silent for as long as it likes."""
    monkeypatch.setattr(bookie_server, "FIRST_REQUEST_LIMIT_S", 0.05)

    async def scenario(bookie: Bookie, client: RawClient) -> None:
        await added(client, 0)
        silent = [await RawClient.connect(bookie) for _ in range(50)]
        for each in silent:
            with pytest.raises((ConnectionError, AssertionError)):
                await each.answer_2()
            each.close()
        await added(client, 1)
        monkeypatch.setattr(bookie_server, "FIRST_REQUEST_LIMIT_S", 60)
        others = [await RawClient.connect(bookie) for _ in range(50)]
        for number, each in enumerate(others, 2):
            await added(each, number)
            each.close()

    served(scenario, connections_max=51)
