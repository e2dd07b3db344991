# SPDX-License-Identifier: Apache-2.0
"""A real broker inside a test: `LocalPulsar` on the test's own loop, fixture `pulsar` for blocking clients.

Everything is real but the disk, which is in memory unless a directory is given: wire protocol, storage, cursors,
errors.
"""

from magnetar.testing.local_pulsar import LocalPulsar
from magnetar.testing.threaded import ThreadedPulsar

__all__ = ["LocalPulsar", "ThreadedPulsar"]
