# SPDX-License-Identifier: Apache-2.0
"""Small files that a person put there: a token, a key. Read whole, at once, never written.

For a few kilobytes on a local disk the loop is not worth leaving. Carries.
"""

from magnetar.errors import CannotStart


def read_small_file(path: str, bytes_max: int) -> bytes:
    """The file's bytes. Raises CannotStart, which names the path but never the content."""
    try:
        with open(path, "rb") as file:
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise CannotStart(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > bytes_max:
        raise CannotStart(f"{path} is larger than {bytes_max} bytes, which is too much for what it should hold")
    return content
