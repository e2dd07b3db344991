# SPDX-License-Identifier: Apache-2.0
"""Bytes that nobody can guess, from the operating system: keys, nonces. Never for jitter or choice. Carries."""

import os


def secret_bytes(count: int) -> bytes:
    return os.urandom(count)
