# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The loops of `spark/batch_layout.py` and `spark/spans.py`, compiled: the same results, which tests hold them to."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy


cdef extern from "crc32c.h":
    void magnetar_crc32c_prepare()
    uint32_t magnetar_crc32c(uint32_t crc, const char *data, size_t size) nogil
    uint32_t magnetar_get32(const char *data) nogil


magnetar_crc32c_prepare()

EDITION = 9

cdef enum:
    WIDTH = 8
    IS_NULL = 1
    KEY_IS_BASE64 = 2
    IS_COMPACTED_OUT = 4
    HAS_KEY = 8
    SIZE_MAX = 0x7FFFFFFF


cdef struct Pairs:
    int64_t *places
    Py_ssize_t count
    Py_ssize_t room


cdef inline int _number(const uint8_t *data, Py_ssize_t size, Py_ssize_t *at, int64_t *number) noexcept nogil:
    """A varint of up to nine bytes; 0 where there is none."""
    cdef int shift = 0
    cdef uint8_t byte
    number[0] = 0
    while at[0] < size and shift < 63:
        byte = data[at[0]]
        at[0] += 1
        number[0] |= <int64_t>(byte & 127) << shift
        if byte < 128:
            return 1
        shift += 7
    return 0


cdef int _pair(const uint8_t *data, Py_ssize_t size, Py_ssize_t at, Py_ssize_t until, Pairs *pairs) noexcept nogil:
    cdef int part
    cdef int64_t length
    cdef int64_t *place
    cdef int64_t *moved
    if pairs.count == pairs.room:
        pairs.room = 2 * pairs.room + 64
        moved = <int64_t *>realloc(pairs.places, pairs.room * 4 * sizeof(int64_t))
        if moved == NULL:
            return -1
        pairs.places = moved
    place = pairs.places + 4 * pairs.count
    for part in range(2):
        if at >= size or data[at] != (0x12 if part else 0x0A):
            return 0
        at += 1
        if not _number(data, size, &at, &length) or length > size - at:
            return 0
        place[0] = at
        at += length
        place[1] = at
        place += 2
    pairs.count += 1
    return at == until


cdef int _message(const uint8_t *data, Py_ssize_t size, Py_ssize_t *position, int64_t *row, Pairs *pairs) noexcept nogil:
    """One message's row; 1 when it is usual, 0 when not, -1 when memory is out."""
    cdef Py_ssize_t at = position[0] + 4
    cdef Py_ssize_t until
    cdef int64_t value, payload = -1, sequence_id = -1, key_start = 0, key_end = 0, event_time = 0
    cdef int64_t flags = 0, flag, count = 0
    cdef int found
    cdef uint8_t tag
    if at > size:
        return 0
    until = at + magnetar_get32(<const char *>data + position[0])
    if until > size:
        return 0
    while at < until:
        tag = data[at]
        at += 1
        if not _number(data, size, &at, &value):
            return 0
        if tag == 0x18:
            payload = value
        elif tag == 0x40:
            sequence_id = value
        elif tag == 0x28:
            event_time = value
        elif tag == 0x12 or tag == 0x0A or tag == 0x3A:
            if value > size - at:
                return 0
            if tag == 0x12:
                key_start = at
                key_end = at + value
                flags |= HAS_KEY
            elif tag == 0x0A:
                found = _pair(data, size, at, at + value, pairs)
                if found != 1:
                    return found
                count += 1
            at += value
        elif tag == 0x20 or tag == 0x30 or tag == 0x48:
            flag = IS_COMPACTED_OUT if tag == 0x20 else KEY_IS_BASE64 if tag == 0x30 else IS_NULL
            flags = flags | flag if value else flags & ~flag
        elif tag != 0x50:
            return 0
    if at != until or payload < 0 or payload > SIZE_MAX or payload > size - until:
        return 0
    if not flags & HAS_KEY:
        key_start = key_end = until
    row[0] = until
    row[1] = until + payload
    row[2] = key_start
    row[3] = key_end
    row[4] = event_time
    row[5] = sequence_id
    row[6] = flags
    row[7] = count
    position[0] = until + payload
    return 1


def lay_out(bytes data not None, Py_ssize_t count, Py_ssize_t start):
    """Rows and pairs, each as the bytes of its numbers; None where a message is unusual."""
    cdef const uint8_t *bytes_in = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t position = start
    cdef Py_ssize_t index
    cdef Pairs pairs
    cdef bytes rows
    cdef int64_t *row
    cdef int found = 1
    if start < 0 or start > size or count < 0 or count > (size - start) // 4:
        return None
    rows = PyBytes_FromStringAndSize(NULL, count * WIDTH * sizeof(int64_t))
    row = <int64_t *>PyBytes_AS_STRING(rows)
    pairs.places = NULL
    pairs.count = pairs.room = 0
    try:
        with nogil:
            for index in range(count):
                found = _message(bytes_in, size, &position, row + index * WIDTH, &pairs)
                if found != 1:
                    break
        if found < 0:
            raise MemoryError
        if found == 0:
            return None
        return rows, PyBytes_FromStringAndSize(<char *>pairs.places, pairs.count * 4 * sizeof(int64_t))
    finally:
        free(pairs.places)


cdef int64_t _sizes(const int64_t[:, :] spans, Py_ssize_t limit) except -1:
    """Of all of them together; raises ValueError where one is not within the buffer."""
    cdef int64_t total = 0
    cdef Py_ssize_t index
    for index in range(spans.shape[0]):
        if spans[index, 0] < 0 or spans[index, 1] < spans[index, 0] or spans[index, 1] > limit:
            raise ValueError("a span lies outside of its buffer")
        total += spans[index, 1] - spans[index, 0]
    return total


def gather(list pieces not None, allocate):
    """Spans of several buffers behind each other; returns where each begins (and the last ends), and all the bytes."""
    cdef const int64_t[:, :] spans
    cdef char[::1] out
    cdef const char *data
    cdef char *to
    cdef int32_t *offset
    cdef bytes offsets, source
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t index, length
    cdef int64_t total = 0, position = 0
    cdef tuple piece
    for piece in pieces:
        spans = piece[1]
        total += _sizes(spans, PyBytes_GET_SIZE(<bytes?>piece[0]))
        count += spans.shape[0]
    if total > SIZE_MAX:
        raise ValueError("more than a column of bytes holds")
    offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * sizeof(int32_t))
    offset = <int32_t *>PyBytes_AS_STRING(offsets)
    offset[0] = 0
    buffer = allocate(total)
    if total:
        out = buffer
        to = &out[0]
    else:
        to = NULL
    for piece in pieces:
        source = <bytes>piece[0]
        data = PyBytes_AS_STRING(source)
        spans = piece[1]
        with nogil:
            for index in range(spans.shape[0]):
                length = spans[index, 1] - spans[index, 0]
                memcpy(to + position, data + spans[index, 0], length)
                position += length
                offset += 1
                offset[0] = <int32_t>position
    return offsets, buffer


def is_intact(bytes body not None, Py_ssize_t start):
    cdef const char *data = PyBytes_AS_STRING(body)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
    cdef uint32_t found
    if start < 0 or size - start < 2 or <uint8_t>data[start] != 0x0E or <uint8_t>data[start + 1] != 0x01:
        return True
    if size - start < 6:
        return False
    with nogil:
        found = magnetar_crc32c(0, data + start + 6, size - start - 6)
    return found == magnetar_get32(data + start + 2)
