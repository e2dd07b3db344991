# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The loops of `wire/runs.py`, compiled: the same results for the same arguments, which tests hold them to."""

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsUnsignedLongLongMask
from cpython.list cimport PyList_Check, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy


cdef extern from "crc32c.h":
    void magnetar_crc32c_prepare()
    uint32_t magnetar_crc32c(uint32_t crc, const char *data, size_t size) nogil
    void magnetar_put32(char *to, uint32_t number) nogil
    void magnetar_put64(char *to, uint64_t number) nogil
    uint32_t magnetar_get32(const char *data) nogil
    uint64_t magnetar_get64(const char *data) nogil
    int magnetar_put_varint(char *to, uint64_t number) nogil


magnetar_crc32c_prepare()

EDITION = 9


def extend(uint32_t checksum, data not None):
    cdef Py_buffer view
    if PyBytes_CheckExact(data):
        return magnetar_crc32c(checksum, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return magnetar_crc32c(checksum, <const char *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def cut_frames(bytes chunk not None, Py_ssize_t start, Py_ssize_t size_max, list frames not None):
    cdef const char *data = PyBytes_AS_STRING(chunk)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(chunk)
    cdef Py_ssize_t total, command, until
    while size - start >= 8:
        total = magnetar_get32(data + start)
        command = magnetar_get32(data + start + 4)
        until = start + 4 + total
        if total > size_max or command > total - 4 or until > size:
            break
        frames.append((
            PyBytes_FromStringAndSize(data + start + 8, command),
            PyBytes_FromStringAndSize(data + start + 8 + command, until - start - 8 - command),
        ))
        start = until
    return start


def cut_adds(bytes chunk not None, Py_ssize_t start, Py_ssize_t size_max, bytes master_key not None, list entries not None):
    cdef const char *data = PyBytes_AS_STRING(chunk)
    cdef const char *packet
    cdef const char *key = NULL
    cdef Py_ssize_t size = PyBytes_GET_SIZE(chunk)
    cdef Py_ssize_t length
    if PyBytes_GET_SIZE(master_key) == 20:
        key = PyBytes_AS_STRING(master_key)
    elif PyBytes_GET_SIZE(master_key):
        return start, master_key
    if start < 0:
        raise ValueError("a chunk is read from its beginning or later")
    while size - start >= 4:
        length = magnetar_get32(data + start)
        if length < 40 or length > size_max or length > size - start - 4:
            break
        packet = data + start + 4
        if magnetar_get32(packet) != 0x02010000:
            break
        if key == NULL:
            master_key = PyBytes_FromStringAndSize(packet + 4, 20)
            key = PyBytes_AS_STRING(master_key)
        elif memcmp(key, packet + 4, 20):
            break
        entries.append(PyBytes_FromStringAndSize(packet + 24, length - 24))
        start += 4 + length
    return start, master_key


def answer_adds(int32_t code, list entries not None):
    cdef bytes answers = PyBytes_FromStringAndSize(NULL, 28 * len(entries))
    cdef char *to = PyBytes_AS_STRING(answers)
    cdef bytes entry
    for entry in entries:
        if PyBytes_GET_SIZE(entry) < 16:
            raise ValueError("a packed entry begins with two ids")
        magnetar_put32(to, 24)
        magnetar_put32(to + 4, 0x02010000)
        magnetar_put32(to + 8, <uint32_t>code)
        memcpy(to + 12, PyBytes_AS_STRING(entry), 16)
        to += 28
    return answers


def fine_ledgers(dict states not None, bytes master_key not None, list entries not None, Py_ssize_t start, Py_ssize_t bytes_max):
    cdef list found = []
    cdef bytes entry
    cdef const char *data
    cdef int64_t ledger_id, last = -1
    cdef object number = None
    cdef object state
    cdef Py_ssize_t at
    cdef Py_ssize_t size
    if start < 0:
        raise ValueError("entries are read from the first or a later one")
    for at in range(start, len(entries)):
        entry = <bytes?>entries[at]
        data = PyBytes_AS_STRING(entry)
        size = PyBytes_GET_SIZE(entry)
        if size < 32 or size > bytes_max or <int64_t>magnetar_get64(data + 8) < 0:
            break
        ledger_id = <int64_t>magnetar_get64(data)
        if ledger_id != last or number is None:
            number = ledger_id
            state = states.get(number)
            if state is None or not state.open_to_adds or state.master_key != master_key:
                break
            last = ledger_id
        found.append(number)
    return found


def put_entries(dict ledgers not None, list ledger_ids not None, list entries not None, Py_ssize_t start):
    cdef Py_ssize_t at
    cdef Py_ssize_t count = len(ledger_ids)
    cdef Py_ssize_t added = 0
    cdef Py_ssize_t added_bytes = 0
    cdef bytes entry
    cdef object ledger_id, last = None
    cdef object entry_id
    cdef dict held = None
    cdef object old
    if start < 0 or start + count > len(entries):
        raise ValueError("there are fewer entries than ledgers")
    for at in range(count):
        ledger_id = ledger_ids[at]
        entry = <bytes?>entries[start + at]
        if PyBytes_GET_SIZE(entry) < 16:
            raise ValueError("a packed entry begins with two ids")
        if ledger_id is not last:
            held = ledgers.get(ledger_id)
            if held is None:
                held = {}
                ledgers[ledger_id] = held
            last = ledger_id
        entry_id = <int64_t>magnetar_get64(PyBytes_AS_STRING(entry) + 8)
        added += 1
        added_bytes += PyBytes_GET_SIZE(entry)
        old = held.get(entry_id)
        if old is not None:
            added -= 1
            added_bytes -= PyBytes_GET_SIZE(<bytes?>old)
        held[entry_id] = entry
    return added, added_bytes


cdef inline int _varint(const uint8_t *data, Py_ssize_t size, Py_ssize_t *at, uint64_t *number) noexcept:
    """Read a number of at most ten bytes; 0 when there is none."""
    cdef int shift = 0
    cdef uint8_t byte
    number[0] = 0
    while at[0] < size and shift < 70:
        byte = data[at[0]]
        at[0] += 1
        number[0] |= <uint64_t>(byte & 127) << shift
        if byte < 128:
            return 1
        shift += 7
    return 0


cdef int _is_plain_send(
    bytes command, uint64_t *producer_id, uint64_t *sequence_id, uint64_t *messages, uint64_t *highest
) noexcept:
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(command)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(command)
    cdef Py_ssize_t at = 5
    if size < 8 or data[0] != 0x08 or data[1] != 0x06 or data[2] != 0x32 or data[3] != size - 4 or data[4] != 0x08:
        return 0
    if not _varint(data, size, &at, producer_id) or at >= size or data[at] != 0x10:
        return 0
    at += 1
    if not _varint(data, size, &at, sequence_id):
        return 0
    messages[0] = 1
    highest[0] = 0
    if at < size and data[at] == 0x18:
        at += 1
        if not _varint(data, size, &at, messages):
            return 0
    if at < size and data[at] == 0x30:
        at += 1
        if not _varint(data, size, &at, highest):
            return 0
    return at == size and 0 < messages[0] < 0x80000000


cdef int _is_intact(bytes body) noexcept:
    cdef const char *data = PyBytes_AS_STRING(body)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
    if size < 10 or <uint8_t>data[0] != 0x0E or <uint8_t>data[1] != 0x01:
        return 0
    if magnetar_get32(data + 6) > size - 10:
        return 0
    return magnetar_crc32c(0, data + 6, size - 6) == magnetar_get32(data + 2)


def read_sends(list frames not None, Py_ssize_t start, list run not None):
    cdef uint64_t producer_id = 0, sequence_id = 0, messages = 0, highest = 0, first_id = 0
    cdef Py_ssize_t at
    cdef Py_ssize_t count = len(frames)
    cdef tuple frame
    cdef bytes command, body
    for at in range(start, count):
        frame = <tuple?>frames[at]
        command = <bytes?>frame[0]
        body = <bytes?>frame[1]
        if not PyBytes_GET_SIZE(body) or not _is_plain_send(
            command, &producer_id, &sequence_id, &messages, &highest
        ):
            return at, first_id
        if at == start:
            first_id = producer_id
        elif producer_id != first_id:
            return at, first_id
        if not _is_intact(body):
            return at, first_id
        run.append((sequence_id, highest if highest >= sequence_id else 0, messages, body))
    return max(start, count), first_id


def pack_entries(int64_t ledger_id, int64_t first, int64_t last_add_confirmed, int64_t length, list entries not None):
    cdef list packed = []
    cdef bytes front, message, entry
    cdef tuple parts
    cdef Py_ssize_t front_size, size
    cdef char *to
    cdef char metadata[32]
    cdef uint32_t checksum
    magnetar_put64(metadata, ledger_id)
    magnetar_put64(metadata + 16, last_add_confirmed)
    for parts in entries:
        front = <bytes?>parts[0]
        message = <bytes?>parts[1]
        front_size = PyBytes_GET_SIZE(front)
        size = PyBytes_GET_SIZE(message)
        length += front_size + size
        magnetar_put64(metadata + 8, first)
        magnetar_put64(metadata + 24, length)
        entry = PyBytes_FromStringAndSize(NULL, 36 + front_size + size)
        to = PyBytes_AS_STRING(entry)
        memcpy(to, metadata, 32)
        memcpy(to + 36, PyBytes_AS_STRING(front), front_size)
        memcpy(to + 36 + front_size, PyBytes_AS_STRING(message), size)
        checksum = magnetar_crc32c(0, metadata, 32)
        checksum = magnetar_crc32c(checksum, to + 36, front_size + size)
        magnetar_put32(to + 32, checksum)
        packed.append(entry)
        first += 1
    return packed, length


def pack_entry(
    int64_t ledger_id,
    int64_t entry_id,
    int64_t last_add_confirmed,
    int64_t length,
    bytes front not None,
    bytes message not None,
):
    cdef Py_ssize_t front_size = PyBytes_GET_SIZE(front)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(message)
    cdef bytes entry = PyBytes_FromStringAndSize(NULL, 36 + front_size + size)
    cdef char *to = PyBytes_AS_STRING(entry)
    cdef uint32_t checksum
    magnetar_put64(to, ledger_id)
    magnetar_put64(to + 8, entry_id)
    magnetar_put64(to + 16, last_add_confirmed)
    magnetar_put64(to + 24, length)
    memcpy(to + 36, PyBytes_AS_STRING(front), front_size)
    memcpy(to + 36 + front_size, PyBytes_AS_STRING(message), size)
    checksum = magnetar_crc32c(magnetar_crc32c(0, to, 32), to + 36, front_size + size)
    magnetar_put32(to + 32, checksum)
    return entry


def are_plain(object entries):
    cdef object parts
    for parts in entries:
        if type(parts) is not tuple or len(<tuple>parts) != 2:
            return False
        if not PyBytes_CheckExact((<tuple>parts)[0]) or not PyBytes_CheckExact((<tuple>parts)[1]):
            return False
    return True


def are_consecutive(list entries not None, int64_t ledger_id, int64_t first, Py_ssize_t bytes_max):
    cdef object entry
    cdef const char *data
    for entry in entries:
        if not PyBytes_CheckExact(entry):
            raise TypeError("a packed entry is bytes")
        if PyBytes_GET_SIZE(entry) < 32 or PyBytes_GET_SIZE(entry) > bytes_max:
            return False
        data = PyBytes_AS_STRING(entry)
        if <int64_t>magnetar_get64(data) != ledger_id or <int64_t>magnetar_get64(data + 8) != first:
            return False
        first += 1
    return True


def ready_run(object producer, list run not None, Py_ssize_t bytes_max, int64_t last_index, uint64_t timestamp_ms):
    cdef list entries = []
    cdef list waiting = []
    cdef object found
    cdef tuple send
    cdef bytes payload
    cdef int64_t messages
    cdef Py_ssize_t length
    cdef Py_ssize_t size = 0
    for found in run:
        send = <tuple?>found
        if len(send) != 4:
            raise ValueError("a message of a run has four fields")
        payload = <bytes?>send[3]
        messages = send[2]
        length = PyBytes_GET_SIZE(payload)
        if length > bytes_max or messages < 1:
            return None
        size += length
        last_index += messages
        entries.append((_entry_front(timestamp_ms, <uint64_t>last_index), payload))
        waiting.append((producer, send[0], send[1], length, send[2]))
    return entries, waiting, last_index, size


def take_answered(object waiting, Py_ssize_t count_max):
    cdef list receipts = []
    cdef object popleft = waiting.popleft
    cdef object producer = waiting[0][0]
    cdef tuple answered
    cdef int64_t size = 0, messages = 0
    while count_max > 0 and waiting:
        answered = <tuple?>waiting[0]
        if len(answered) != 5:
            raise ValueError("what waits for an answer has five fields")
        if answered[0] is not producer:
            break
        popleft()
        receipts.append((answered[1], answered[2]))
        size += <int64_t>answered[3]
        messages += <int64_t>answered[4]
        count_max -= 1
    return receipts, size, messages


def entry_front(uint64_t broker_timestamp_ms, uint64_t index):
    return _entry_front(broker_timestamp_ms, index)


cdef bytes _entry_front(uint64_t broker_timestamp_ms, uint64_t index):
    cdef char front[28]
    cdef int size
    front[0] = 0x0E
    front[1] = 0x02
    front[6] = 0x08
    size = 7 + magnetar_put_varint(front + 7, broker_timestamp_ms)
    front[size] = 0x10
    size += 1
    size += magnetar_put_varint(front + size, index)
    magnetar_put32(front + 2, size - 6)
    return PyBytes_FromStringAndSize(front, size)


def entry_runs(list entries not None, Py_ssize_t first, Py_ssize_t last):
    cdef list found = []
    cdef list run
    cdef dict newest = {}
    cdef bytes entry
    cdef Py_ssize_t at
    cdef object ledger_id
    cdef int64_t entry_id
    if first < 0 or last >= len(entries):
        raise ValueError("there are no such entries")
    for at in range(first, last + 1):
        entry = <bytes?>entries[at]
        if PyBytes_GET_SIZE(entry) < 16:
            raise ValueError("a packed entry begins with two ids")
        ledger_id = <int64_t>magnetar_get64(PyBytes_AS_STRING(entry))
        entry_id = <int64_t>magnetar_get64(PyBytes_AS_STRING(entry) + 8)
        known = newest.get(ledger_id)
        if known is not None:
            run = <list>known
            if <int64_t>run[2] + 1 == entry_id:
                run[2] = entry_id
                continue
        run = [ledger_id, entry_id, entry_id]
        newest[ledger_id] = run
        found.append(run)
    return found


def frame_single_receipts(list receipts not None):
    """As `frame_receipts`, for messages of any producers and ledgers."""
    cdef bytes frames = PyBytes_FromStringAndSize(NULL, 80 * len(receipts))
    cdef char *start = PyBytes_AS_STRING(frames)
    cdef char *to = start
    cdef char fields[64]
    cdef char message_id[24]
    cdef int size, id_size, size_size
    cdef uint64_t highest
    cdef tuple receipt
    for receipt in receipts:
        if PyTuple_GET_SIZE(receipt) != 5:
            raise ValueError("a receipt is five numbers")
        message_id[0] = 0x08
        id_size = 1 + magnetar_put_varint(message_id + 1, PyLong_AsUnsignedLongLongMask(receipt[1]))
        message_id[id_size] = 0x10
        id_size += 1
        id_size += magnetar_put_varint(message_id + id_size, PyLong_AsUnsignedLongLongMask(receipt[2]))
        fields[0] = 0x08
        size = 1 + magnetar_put_varint(fields + 1, PyLong_AsUnsignedLongLongMask(receipt[0]))
        fields[size] = 0x10
        size += 1
        size += magnetar_put_varint(fields + size, PyLong_AsUnsignedLongLongMask(receipt[3]))
        fields[size] = 0x1A
        fields[size + 1] = id_size
        memcpy(fields + size + 2, message_id, id_size)
        size += 2 + id_size
        highest = PyLong_AsUnsignedLongLongMask(receipt[4])
        if highest:
            fields[size] = 0x20
            size += 1
            size += magnetar_put_varint(fields + size, highest)
        size_size = 1 if size < 128 else 2
        magnetar_put32(to, 7 + size_size + size)
        magnetar_put32(to + 4, 3 + size_size + size)
        to[8] = 0x08
        to[9] = 0x07
        to[10] = 0x3A
        to += 11
        to += magnetar_put_varint(to, size)
        memcpy(to, fields, size)
        to += size
    return frames[: to - start]


def frame_receipts(uint64_t producer_id, uint64_t ledger_id, uint64_t entry_id, list sequences not None):
    """A receipt takes at most 64 bytes: sizes 8, command 4, four numbers with tags 11 each, and a length."""
    cdef bytes frames = PyBytes_FromStringAndSize(NULL, 80 * len(sequences))
    cdef char *start = PyBytes_AS_STRING(frames)
    cdef char *to = start
    cdef char producer[11]
    cdef char message_id[24]
    cdef char sequence[11]
    cdef char highest[11]
    cdef char size_bytes[11]
    cdef int producer_size, ledger_size, id_size, sequence_size, highest_size, receipt, size_size, command
    cdef tuple pair
    cdef uint64_t highest_id
    producer[0] = 0x08
    producer_size = 1 + magnetar_put_varint(producer + 1, producer_id)
    message_id[0] = 0x08
    ledger_size = 1 + magnetar_put_varint(message_id + 1, ledger_id)
    message_id[ledger_size] = 0x10
    ledger_size += 1
    sequence[0] = 0x10
    highest[0] = 0x20
    for pair in sequences:
        id_size = ledger_size + magnetar_put_varint(message_id + ledger_size, entry_id)
        sequence_size = 1 + magnetar_put_varint(sequence + 1, <uint64_t>pair[0])
        highest_id = <uint64_t>pair[1]
        highest_size = 1 + magnetar_put_varint(highest + 1, highest_id) if highest_id else 0
        receipt = producer_size + sequence_size + 2 + id_size + highest_size
        size_size = magnetar_put_varint(size_bytes, receipt)
        command = 3 + size_size + receipt
        magnetar_put32(to, 4 + command)
        magnetar_put32(to + 4, command)
        to[8] = 0x08
        to[9] = 0x07
        to[10] = 0x3A
        to += 11
        memcpy(to, size_bytes, size_size)
        to += size_size
        memcpy(to, producer, producer_size)
        to += producer_size
        memcpy(to, sequence, sequence_size)
        to += sequence_size
        to[0] = 0x1A
        to[1] = id_size
        to += 2
        memcpy(to, message_id, id_size)
        to += id_size
        memcpy(to, highest, highest_size)
        to += highest_size
        entry_id += 1
    return frames[: to - start]


def count_intact(int64_t ledger_id, int64_t first, list entries not None):
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t size
    cdef const char *data
    cdef object entry
    for entry in entries:
        if not PyBytes_CheckExact(entry):
            raise TypeError("a packed entry is bytes")
        data = PyBytes_AS_STRING(entry)
        size = PyBytes_GET_SIZE(entry)
        if size < 36 or <int64_t>magnetar_get64(data) != ledger_id or <int64_t>magnetar_get64(data + 8) != first + count:
            break
        if magnetar_crc32c(magnetar_crc32c(0, data, 32), data + 36, size - 36) != magnetar_get32(data + 32):
            break
        count += 1
    return count


def log_run(
    uint32_t seed, uint64_t start, bytes data not None, int64_t ledger_id, int64_t first, Py_ssize_t count_max
):
    cdef list begins = []
    cdef list ends = []
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t length
    cdef const char *record
    while at + 32 <= size:
        record = PyBytes_AS_STRING(data) + at
        length = magnetar_get32(record + 8)
        if magnetar_get32(record) != 0x4D474552 or magnetar_get32(record + 4) != start + at:
            break
        if length < 16 or length > size - at - 16:
            break
        if <int64_t>magnetar_get64(record + 12) == ledger_id and <int64_t>magnetar_get64(record + 20) == first:
            if magnetar_crc32c(seed, record, 12 + length) != magnetar_get32(record + 12 + length):
                break
            begins.append(at + 12)
            ends.append(at + 12 + length)
            count += 1
            if count >= count_max:
                break
            first += 1
        elif not begins:
            break
        at += 16 + length
    return begins, ends


def journal_records(uint32_t seed, uint64_t offset, uint64_t synced, list entries not None):
    cdef bytes entry, records
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t length
    cdef char *to
    for entry in entries:
        size += PyBytes_GET_SIZE(entry) + 25
    records = PyBytes_FromStringAndSize(NULL, size)
    to = PyBytes_AS_STRING(records)
    for entry in entries:
        length = PyBytes_GET_SIZE(entry)
        magnetar_put32(to, 0x4D474A52)
        magnetar_put32(to + 4, <uint32_t>offset)
        magnetar_put64(to + 8, synced)
        to[16] = 1
        magnetar_put32(to + 17, length)
        memcpy(to + 21, PyBytes_AS_STRING(entry), length)
        magnetar_put32(to + 21 + length, magnetar_crc32c(seed, to, 21 + length))
        to += 25 + length
        offset += 25 + length
    return records


def entries_within(list entries not None, Py_ssize_t start, Py_ssize_t bytes_max):
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t count = len(entries)
    if start < 0:
        raise ValueError("entries are counted from the first or a later one")
    while start < count and size < bytes_max:
        size += PyBytes_GET_SIZE(<bytes?>entries[start]) + 16
        start += 1
    return start, size


cdef int _add_size(dict sizes, int64_t ledger_id, Py_ssize_t size) except -1:
    cdef object known = sizes.get(ledger_id)
    sizes[ledger_id] = size if known is None else known + size
    return 0


def log_records(uint32_t seed, uint64_t offset, uint64_t location, list entries not None, dict sizes not None):
    cdef bytes entry, records, rows
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t own_size = 0
    cdef Py_ssize_t length
    cdef int64_t ledger_id, own = 0
    cdef char *to
    cdef char *row
    for entry in entries:
        if PyBytes_GET_SIZE(<bytes?>entry) < 16:
            raise ValueError("a packed entry begins with two ids")
        size += PyBytes_GET_SIZE(entry) + 16
    records = PyBytes_FromStringAndSize(NULL, size)
    rows = PyBytes_FromStringAndSize(NULL, 28 * len(entries))
    to = PyBytes_AS_STRING(records)
    row = PyBytes_AS_STRING(rows)
    for entry in entries:
        length = PyBytes_GET_SIZE(entry)
        magnetar_put32(to, 0x4D474552)
        magnetar_put32(to + 4, <uint32_t>offset)
        magnetar_put32(to + 8, length)
        memcpy(to + 12, PyBytes_AS_STRING(entry), length)
        magnetar_put32(to + 12 + length, magnetar_crc32c(seed, to, 12 + length))
        memcpy(row, to + 12, 16)
        magnetar_put64(row + 16, location + offset)
        magnetar_put32(row + 24, length)
        ledger_id = <int64_t>magnetar_get64(to + 12)
        if ledger_id != own and own_size:
            _add_size(sizes, own, own_size)
            own_size = 0
        own = ledger_id
        own_size += 16 + length
        to += 16 + length
        row += 28
        offset += 16 + length
    if own_size:
        _add_size(sizes, own, own_size)
    return records, rows


cdef struct Outgoing:
    const char *data
    Py_ssize_t size
    uint64_t ledger_id
    uint64_t entry_id


cdef inline int _varint_size(uint64_t number) noexcept:
    cdef int size = 1
    while number >= 0x80:
        number >>= 7
        size += 1
    return size


cdef int _bytes_of(object stored, const char **data, Py_ssize_t *size) except -1:
    """Where the bytes of an entry's body lie; 0 when it is not one stretch of memory."""
    cdef object body = stored.body
    cdef Py_buffer *view
    if not PyMemoryView_Check(body):
        return 0
    view = PyMemoryView_GET_BUFFER(body)
    if view.ndim != 1 or view.itemsize != 1 or (view.strides != NULL and view.strides[0] != 1):
        return 0
    data[0] = <const char *>view.buf
    size[0] = view.len
    return 1


cdef int _outgoing(object delivery, bint whole, Outgoing *found) except -1:
    """Read what is needed of a delivery; 0 when it is not a first one of a whole entry."""
    cdef object position
    cdef Py_ssize_t start
    if not PyTuple_Check(delivery) or PyTuple_GET_SIZE(delivery) != 6:
        raise TypeError("a delivery is a tuple of six")
    if (<object>PyTuple_GET_ITEM(delivery, 5)) or (<object>PyTuple_GET_ITEM(delivery, 4)):
        return 0
    position = <object>PyTuple_GET_ITEM(delivery, 1)
    if not PyTuple_Check(position) or PyTuple_GET_SIZE(position) != 2:
        raise TypeError("a position is a tuple of two")
    if not _bytes_of((<object>PyTuple_GET_ITEM(delivery, 0)), &found.data, &found.size):
        return 0
    start = 0 if whole else (<object>PyTuple_GET_ITEM(delivery, 2)).message_start
    if not 0 <= start <= found.size:
        return 0
    found.data += start
    found.size -= start
    found.ledger_id = <uint64_t><int64_t>(<object>PyTuple_GET_ITEM(position, 0))
    found.entry_id = <uint64_t><int64_t>(<object>PyTuple_GET_ITEM(position, 1))
    return 1


# What is the same in all MESSAGE commands of a consumer: its id, and what follows the entry id and the message id.
cdef struct Surround:
    char consumer[12]
    char partition[12]
    char epoch[12]
    int consumer_size
    int partition_size
    int epoch_size


cdef inline int _put_field(char *to, char tag, int64_t number) noexcept:
    """A field that is left out where the number is -1."""
    to[0] = tag
    return 0 if number == -1 else 1 + magnetar_put_varint(to + 1, <uint64_t>number)


cdef inline Py_ssize_t _id_size(const Outgoing *each, const Surround *around) noexcept:
    return 2 + _varint_size(each.ledger_id) + _varint_size(each.entry_id) + around.partition_size


cdef inline Py_ssize_t _message_size(const Outgoing *each, const Surround *around) noexcept:
    return around.consumer_size + 2 + _id_size(each, around) + around.epoch_size


cdef char *_put_message(char *to, const Outgoing *each, const Surround *around) noexcept:
    """Sizes and command in front of the stored bytes; returns where those begin."""
    cdef Py_ssize_t message = _message_size(each, around)
    cdef Py_ssize_t command = 3 + _varint_size(message) + message
    magnetar_put32(to, 4 + command + each.size)
    magnetar_put32(to + 4, command)
    to[8] = 0x08
    to[9] = 0x09
    to[10] = 0x4A
    to += 11
    to += magnetar_put_varint(to, message)
    memcpy(to, around.consumer, around.consumer_size)
    to += around.consumer_size
    to[0] = 0x12
    to[1] = _id_size(each, around)
    to[2] = 0x08
    to += 3
    to += magnetar_put_varint(to, each.ledger_id)
    to[0] = 0x10
    to += 1
    to += magnetar_put_varint(to, each.entry_id)
    memcpy(to, around.partition, around.partition_size)
    to += around.partition_size
    memcpy(to, around.epoch, around.epoch_size)
    return to + around.epoch_size


cdef bytes _put_messages(const Outgoing *found, Py_ssize_t count, const Surround *around, Py_ssize_t copied_max):
    """Frames as one buffer; the body of the last one is left out when it is larger than copied_max."""
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t index, message
    cdef bytes frames
    cdef char *to
    for index in range(count):
        message = _message_size(&found[index], around)
        size += 11 + _varint_size(message) + message
        if found[index].size <= copied_max:
            size += found[index].size
    frames = PyBytes_FromStringAndSize(NULL, size)
    to = PyBytes_AS_STRING(frames)
    for index in range(count):
        to = _put_message(to, &found[index], around)
        if found[index].size <= copied_max:
            memcpy(to, found[index].data, found[index].size)
            to += found[index].size
    return frames


def frame_messages(
    uint64_t consumer_id,
    int64_t partition,
    int64_t epoch,
    bint whole,
    object deliveries,
    Py_ssize_t copied_max,
):
    """Bodies up to copied_max are copied behind their header, which is cheaper than a buffer of their own."""
    cdef Py_ssize_t count
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t until
    cdef Outgoing *found
    cdef Surround around
    cdef list buffers = []
    if not PyList_Check(deliveries):
        raise TypeError("deliveries are a list")
    count = PyList_GET_SIZE(deliveries)
    around.consumer[0] = 0x08
    around.consumer_size = 1 + magnetar_put_varint(around.consumer + 1, consumer_id)
    around.partition_size = _put_field(around.partition, 0x18, partition)
    around.epoch_size = _put_field(around.epoch, 0x28, epoch)
    found = <Outgoing *>PyMem_Malloc((count or 1) * sizeof(Outgoing))
    if found == NULL:
        raise MemoryError
    try:
        for until in range(count):
            if not _outgoing(<object>PyList_GET_ITEM(deliveries, until), whole, &found[until]):
                return None
        while at < count:
            until = at + 1
            while until < count and found[until - 1].size <= copied_max:
                until += 1
            buffers.append(_put_messages(&found[at], until - at, &around, copied_max))
            if found[until - 1].size > copied_max:
                delivery = deliveries[until - 1]
                buffers.append(delivery[0].body if whole else delivery[0].body[delivery[2].message_start :])
            at = until
    finally:
        PyMem_Free(found)
    return buffers


def read_ack(bytes command not None):
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(command)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(command)
    cdef Py_ssize_t at = 3
    cdef Py_ssize_t until
    cdef uint64_t length = 0, consumer_id = 0, ledger_id = 0, entry_id = 0, other = 0, request_id = 0
    cdef list positions = []
    cdef bint is_numbered = False
    if size < 3 or data[0] != 0x08 or data[1] != 0x0A or data[2] != 0x52:
        return None
    if not _varint(data, size, &at, &length) or length != <uint64_t>(size - at):
        return None
    if at >= size or data[at] != 0x08:
        return None
    at += 1
    if not _varint(data, size, &at, &consumer_id) or size - at < 2 or data[at] != 0x10 or data[at + 1] != 0:
        return None
    at += 2
    while at < size and data[at] == 0x1A:
        at += 1
        if at >= size or data[at] > 127:
            return None
        until = at + 1 + data[at]
        at += 1
        if until > size or at >= until or data[at] != 0x08:
            return None
        at += 1
        if not _varint(data, until, &at, &ledger_id) or at >= until or data[at] != 0x10:
            return None
        at += 1
        if not _varint(data, until, &at, &entry_id) or ledger_id >> 63 or entry_id >> 63:
            return None
        if at < until and data[at] == 0x18:
            at += 1
            if not _varint(data, until, &at, &other):
                return None
        if at < until and data[at] == 0x20:
            at += 1
            if not _varint(data, until, &at, &other):
                return None
        if at != until:
            return None
        positions.append((ledger_id, entry_id))
    if at < size and data[at] == 0x40:
        at += 1
        is_numbered = True
        if not _varint(data, size, &at, &request_id):
            return None
    if at != size or not positions:
        return None
    return consumer_id, request_id if is_numbered else None, positions


cdef inline int _skip(const uint8_t *data, Py_ssize_t size, Py_ssize_t *at, int kind) noexcept:
    """Pass over a field's value of this wire type; 0 when that is not possible."""
    cdef uint64_t number = 0
    if kind == 0:
        return _varint(data, size, at, &number)
    if kind == 2:
        if not _varint(data, size, at, &number) or number > <uint64_t>(size - at[0]):
            return 0
        at[0] += <Py_ssize_t>number
        return 1
    if kind == 1 or kind == 5:
        at[0] += 8 if kind == 1 else 4
        return at[0] <= size
    return 0


cdef inline bint _is_ascii(const uint8_t *data, Py_ssize_t size) noexcept:
    cdef Py_ssize_t at
    for at in range(size):
        if data[at] > 127:
            return False
    return True


cdef object _front(const uint8_t *data, Py_ssize_t size, bint keyed):
    """Of a stored message without anything special: where it begins, its messages, its key; None of any other."""
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t at, until, value
    cdef uint64_t tag = 0, number = 0, sequence_id = 0
    cdef Py_ssize_t name = -1, name_size = 0, key = -1, key_size = 0
    cdef int field, kind, seen = 0
    cdef int32_t messages = 1
    cdef bint is_ordering_key = False
    if size >= 6 and data[0] == 0x0E and data[1] == 0x02:
        start = 6 + magnetar_get32(<const char *>data + 2)
    if size - start < 10 or data[start] != 0x0E or data[start + 1] != 0x01:
        return None
    at = start + 10
    until = at + magnetar_get32(<const char *>data + start + 6)
    if until > size:
        return None
    while at < until:
        if not _varint(data, until, &at, &tag) or tag > 0x7FFF:
            return None
        field = tag >> 3
        kind = tag & 7
        value = at
        if not field or not _skip(data, until, &at, kind):
            return None
        if field == 1 or field == 6 or field == 18:
            if kind != 2 or not _varint(data, until, &value, &number):
                return None
            if field == 1:
                seen |= 1
                name = value
                name_size = number
            elif field == 18 or not is_ordering_key:
                is_ordering_key = field == 18
                key = value
                key_size = number
        elif field == 2 or field == 3 or field == 11:
            if kind != 0 or not _varint(data, until, &value, &number):
                return None
            if field == 11:
                messages = <int32_t>number
            else:
                seen |= 1 << (field - 1)
                if field == 2:
                    sequence_id = number
        elif (field == 17 and keyed) or field >= 19 and field <= 23 or field >= 26 and field <= 29:
            return None
    if seen != 7 or messages < 1:
        return None
    if not keyed:
        return start, messages, None
    if key < 0:
        if not _is_ascii(data + name, name_size):
            return None
        return start, messages, PyBytes_FromStringAndSize(<const char *>data + name, name_size) + b"-%d" % sequence_id
    if not is_ordering_key and not _is_ascii(data + key, key_size):
        return None
    return start, messages, PyBytes_FromStringAndSize(<const char *>data + key, key_size)


def read_fronts(entries not None, bint keyed):
    cdef const char *data = NULL
    cdef Py_ssize_t size = 0
    cdef list found = []
    for entry in entries:
        found.append(_front(<const uint8_t *>data, size, keyed) if _bytes_of(entry, &data, &size) else None)
    return found
