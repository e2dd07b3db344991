# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The loops of `wire/runs.py`, compiled: the same results for the same arguments, which tests hold them to."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef extern from "crc32c.h":
    void magnetar_crc32c_prepare()
    uint32_t magnetar_crc32c(uint32_t crc, const char *data, size_t size) nogil
    void magnetar_put32(char *to, uint32_t number) nogil
    void magnetar_put64(char *to, uint64_t number) nogil
    uint32_t magnetar_get32(const char *data) nogil
    uint64_t magnetar_get64(const char *data) nogil
    int magnetar_put_varint(char *to, uint64_t number) nogil


magnetar_crc32c_prepare()


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


cdef int _is_plain_send(bytes command, uint64_t *producer_id, uint64_t *sequence_id) noexcept:
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(command)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(command)
    cdef Py_ssize_t at = 5
    if size < 8 or data[0] != 0x08 or data[1] != 0x06 or data[2] != 0x32 or data[3] != size - 4 or data[4] != 0x08:
        return 0
    if not _varint(data, size, &at, producer_id) or at >= size or data[at] != 0x10:
        return 0
    at += 1
    return _varint(data, size, &at, sequence_id) and at == size


cdef int _is_intact(bytes body) noexcept:
    cdef const char *data = PyBytes_AS_STRING(body)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
    if size < 10 or <uint8_t>data[0] != 0x0E or <uint8_t>data[1] != 0x01:
        return 0
    if magnetar_get32(data + 6) > size - 10:
        return 0
    return magnetar_crc32c(0, data + 6, size - 6) == magnetar_get32(data + 2)


def read_sends(list frames not None, Py_ssize_t start, list run not None):
    cdef uint64_t producer_id = 0, sequence_id = 0, first_id = 0
    cdef Py_ssize_t at
    cdef Py_ssize_t count = len(frames)
    cdef tuple frame
    cdef bytes command, body
    for at in range(start, count):
        frame = <tuple?>frames[at]
        command = <bytes?>frame[0]
        body = <bytes?>frame[1]
        if not PyBytes_GET_SIZE(body) or not _is_plain_send(command, &producer_id, &sequence_id):
            return at, first_id
        if at == start:
            first_id = producer_id
        elif producer_id != first_id:
            return at, first_id
        if not _is_intact(body):
            return at, first_id
        run.append((sequence_id, 0, 1, body))
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


def log_entries(uint32_t seed, uint64_t start, bytes data not None, int64_t ledger_id, list places not None):
    cdef list found = []
    cdef object place
    cdef int64_t entry_id
    cdef uint64_t location, offset, begin
    cdef Py_ssize_t length
    cdef uint64_t size = PyBytes_GET_SIZE(data)
    cdef const char *record
    for place in places:
        entry_id, location, length = place
        offset = location & 0xFFFFFFFF
        begin = offset - start
        if offset < start or length < 16 or begin + length + 16 > size:
            break
        record = PyBytes_AS_STRING(data) + begin
        if magnetar_get32(record) != 0x4D474552 or magnetar_get32(record + 4) != <uint32_t>offset:
            break
        if magnetar_get32(record + 8) != <uint32_t>length:
            break
        if magnetar_crc32c(seed, record, 12 + length) != magnetar_get32(record + 12 + length):
            break
        if <int64_t>magnetar_get64(record + 12) != ledger_id or <int64_t>magnetar_get64(record + 20) != entry_id:
            break
        found.append(PyBytes_FromStringAndSize(record + 12, length))
    return found


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


def log_records(uint32_t seed, uint64_t offset, uint64_t location, list entries not None):
    cdef bytes entry, records, rows
    cdef tuple item
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t length
    cdef char *to
    cdef char *row
    for item in entries:
        size += PyBytes_GET_SIZE(<bytes?>item[2]) + 16
    records = PyBytes_FromStringAndSize(NULL, size)
    rows = PyBytes_FromStringAndSize(NULL, 28 * len(entries))
    to = PyBytes_AS_STRING(records)
    row = PyBytes_AS_STRING(rows)
    for item in entries:
        entry = <bytes>item[2]
        length = PyBytes_GET_SIZE(entry)
        magnetar_put32(to, 0x4D474552)
        magnetar_put32(to + 4, <uint32_t>offset)
        magnetar_put32(to + 8, length)
        memcpy(to + 12, PyBytes_AS_STRING(entry), length)
        magnetar_put32(to + 12 + length, magnetar_crc32c(seed, to, 12 + length))
        magnetar_put64(row, <int64_t>item[0])
        magnetar_put64(row + 8, <int64_t>item[1])
        magnetar_put64(row + 16, location + offset)
        magnetar_put32(row + 24, length)
        to += 16 + length
        row += 28
        offset += 16 + length
    return records, rows
