# SPDX-License-Identifier: Apache-2.0
"""Bytes that nobody can guess, for keys. Carries."""

import os


def secret_bytes(count: int) -> bytes:
    return os.urandom(count)
