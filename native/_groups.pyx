# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What is queued for a log, written and synced in groups by a thread that does not need the interpreter for it.

The loop puts pieces (buffers that stay as they are until they are synced) and orders; the writer's thread is in
`write_groups` until it comes to something that is not its affair: an order, or a piece that does not fit as it is. One
lock guards the queue and the figures; nobody holds it for longer than it takes to link or unlink a piece.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from libc.errno cimport EBADF, EINTR, errno
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

from collections import deque


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *, void *)
    int pthread_mutex_destroy(pthread_mutex_t *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)
    int pthread_cond_init(pthread_cond_t *, void *)
    int pthread_cond_destroy(pthread_cond_t *)
    int pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *)
    int pthread_cond_signal(pthread_cond_t *)


cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    ssize_t preadv2(int, const iovec *, int, int64_t, int)
    ssize_t pwritev2(int, const iovec *, int, int64_t, int)
    int RWF_DSYNC
    int RWF_NOWAIT


cdef extern from "<unistd.h>" nogil:
    ssize_t write(int, const void *, size_t)


cdef extern from "<time.h>" nogil:
    struct timespec:
        int64_t tv_sec
        long tv_nsec
    int clock_gettime(int, timespec *)
    int CLOCK_MONOTONIC


EDITION = 2
ORDER = 0
BY_HAND = 1

cdef enum:
    PAGE_BYTES = 4096
    # As many as one call takes, and one of zeros.
    BUFFERS_MAX = 1023

cdef char ZEROS[PAGE_BYTES]


cdef struct Piece:
    Piece *next
    # Kept alive by `_held`. NULL: an order, which is not for this thread to read.
    void *buffers
    size_t length
    # The buffers cannot go into one call with others.
    bint by_hand
    int count
    iovec parts[1]


cdef inline double _seconds() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9


cdef class Groups:
    """Invariant: what is linked is not synced, in the order it came; `_held` has the buffers of all that is linked."""

    cdef pthread_mutex_t _lock
    cdef pthread_cond_t _bell
    cdef Piece *_first
    cdef Piece *_last
    cdef iovec _group[BUFFERS_MAX + 1]
    cdef size_t _bytes_max
    cdef int _buffers_max
    cdef int _wake
    cdef bint _telling
    cdef uint64_t _appended
    cdef uint64_t _synced
    cdef object _held
    cdef readonly long groups, full, empty
    cdef readonly double sync_seconds

    def __cinit__(self, size_t bytes_max, int buffers_max, int wake):
        """A byte count of eight is written to `wake` when more is synced than was told."""
        pthread_mutex_init(&self._lock, NULL)
        pthread_cond_init(&self._bell, NULL)
        self._bytes_max = bytes_max
        self._buffers_max = buffers_max
        self._wake = wake
        self._held = deque()

    def __dealloc__(self):
        self._unlink_all()
        pthread_cond_destroy(&self._bell)
        pthread_mutex_destroy(&self._lock)

    # --- on the loop --------------------------------------------------------------------------

    def put(self, buffers, size_t length):
        """Queue a piece; returns the position after it."""
        cdef Py_ssize_t count = len(buffers), number = 0
        cdef Piece *piece = <Piece *>malloc(sizeof(Piece) + count * sizeof(iovec))
        cdef size_t total = 0
        cdef object kept = []
        cdef object view
        if piece == NULL:
            raise MemoryError()
        try:
            for buffer in buffers:
                if PyBytes_CheckExact(buffer):
                    piece.parts[number].iov_base = PyBytes_AS_STRING(buffer)
                    piece.parts[number].iov_len = PyBytes_GET_SIZE(buffer)
                    kept.append(buffer)
                else:
                    view = PyMemoryView_FromObject(buffer).cast("B")
                    piece.parts[number].iov_base = PyMemoryView_GET_BUFFER(view).buf
                    piece.parts[number].iov_len = PyMemoryView_GET_BUFFER(view).len
                    kept.append(view)
                total += piece.parts[number].iov_len
                number += 1
        except BaseException:
            free(piece)
            raise
        piece.count = <int>count
        piece.length = length
        piece.by_hand = total != length or count > BUFFERS_MAX
        piece.buffers = <void *>kept
        self._appended += length
        self._held.append((self._appended, kept))
        self._link(piece)
        return self._appended

    def put_order(self):
        """Have the writer come back when everything before this is written."""
        cdef Piece *piece = <Piece *>malloc(sizeof(Piece))
        if piece == NULL:
            raise MemoryError()
        piece.buffers = NULL
        self._link(piece)

    def tell(self):
        """The position up to which everything is synced; the buffers before it are let go."""
        cdef uint64_t synced
        pthread_mutex_lock(&self._lock)
        self._telling = False
        synced = self._synced
        pthread_mutex_unlock(&self._lock)
        held = self._held
        while held and held[0][0] <= synced:
            held.popleft()
        return synced

    def clear(self):
        """Forget everything; the writer has ended."""
        self._unlink_all()
        self._held.clear()

    # --- on the writer's thread ---------------------------------------------------------------

    def write_groups(self, int fd, int64_t offset, int64_t until, bint fills_pages):
        """Write groups from this offset on, and sync each, for ever: until an order comes, or a piece that must be
        written by hand, or one that would end beyond `until`. Returns which, and the offset then; OSError.
        """
        cdef int what = 0
        with nogil:
            while what == 0:
                what = self._write_group(fd, &offset, until, fills_pages)
        if what < 0:
            raise OSError(-what, "the log could not be written")
        return what - 1, offset

    def take(self):
        """The buffers of the first piece and their length; it is the caller's to write, and to report as `written`."""
        cdef Piece *piece = self._first
        buffers, length = <object>piece.buffers, piece.length
        pthread_mutex_lock(&self._lock)
        self._unlink_first()
        pthread_mutex_unlock(&self._lock)
        return buffers, length

    def written(self, size_t length, double seconds):
        self._on_synced(length, seconds, self._first == NULL)

    cdef int _write_group(self, int fd, int64_t *offset, int64_t until, bint fills_pages) noexcept nogil:
        """0: a group was written. Above: why there was none. Below: an error's number."""
        cdef Piece *piece
        cdef int buffers = 0, pieces = 0, number
        cdef size_t total = 0, padding = 0
        cdef ssize_t done
        cdef double started
        pthread_mutex_lock(&self._lock)
        while self._first == NULL:
            pthread_cond_wait(&self._bell, &self._lock)
        piece = self._first
        if piece.buffers == NULL:
            self._unlink_first()
            pthread_mutex_unlock(&self._lock)
            return 1
        while piece != NULL and piece.buffers != NULL and not piece.by_hand:
            if pieces and (total + piece.length > self._bytes_max or buffers + piece.count > self._buffers_max):
                break
            if buffers + piece.count > BUFFERS_MAX:
                break
            for number in range(piece.count):
                self._group[buffers + number] = piece.parts[number]
            buffers += piece.count
            total += piece.length
            pieces += 1
            piece = piece.next
        pthread_mutex_unlock(&self._lock)
        if pieces == 0 or offset[0] + <int64_t>total > until:
            return 2
        number = buffers
        if fills_pages and (offset[0] + total) % PAGE_BYTES:
            padding = PAGE_BYTES - (offset[0] + total) % PAGE_BYTES
            self._group[buffers].iov_base = ZEROS
            self._group[buffers].iov_len = padding
            number += 1
        started = _seconds()
        done = pwritev2(fd, self._group, number, offset[0], RWF_DSYNC)
        if done < 0:
            return 0 if errno == EINTR else -errno
        if <size_t>done != total + padding:
            return 2
        offset[0] += total
        pthread_mutex_lock(&self._lock)
        for number in range(pieces):
            self._unlink_first()
        pthread_mutex_unlock(&self._lock)
        self._on_synced(total, _seconds() - started, piece == NULL)
        return 0

    cdef void _on_synced(self, size_t length, double seconds, bint is_empty) noexcept nogil:
        cdef uint64_t one = 1
        cdef bint telling
        pthread_mutex_lock(&self._lock)
        self._synced += length
        self.groups += 1
        self.sync_seconds += seconds
        if is_empty:
            self.empty += 1
        else:
            self.full += 1
        telling = self._telling
        self._telling = True
        pthread_mutex_unlock(&self._lock)
        if not telling:
            write(self._wake, &one, sizeof(one))

    # --- with the lock --------------------------------------------------------------------------

    cdef void _link(self, Piece *piece) noexcept:
        cdef bint is_first
        piece.next = NULL
        pthread_mutex_lock(&self._lock)
        is_first = self._first == NULL
        if is_first:
            self._first = piece
        else:
            self._last.next = piece
        self._last = piece
        pthread_mutex_unlock(&self._lock)
        # Behind the lock: a writer that wakes up on this processor would run into it and sleep again.
        if is_first:
            pthread_cond_signal(&self._bell)

    cdef void _unlink_first(self) noexcept nogil:
        cdef Piece *piece = self._first
        self._first = piece.next
        free(piece)

    cdef void _unlink_all(self) noexcept:
        while self._first != NULL:
            self._unlink_first()


def read_now(int fd, int64_t offset, Py_ssize_t length):
    """As `read_now` in real_file.py, into memory that nobody clears first."""
    cdef bytes found
    cdef iovec into
    cdef ssize_t count
    if length < 0:
        raise ValueError("a length is not negative")
    found = PyBytes_FromStringAndSize(NULL, length)
    into.iov_base = PyBytes_AS_STRING(found)
    into.iov_len = length
    with nogil:
        count = preadv2(fd, &into, 1, offset, RWF_NOWAIT)
    if count < 0:
        if errno == EBADF:
            raise OSError(EBADF, "the file is closed")
        return b""
    return found if count == length else found[:count]
