# SPDX-License-Identifier: Apache-2.0
"""Is the extra `spark` installed?"""

import os
import sys
from importlib.util import find_spec


def ignored_without_pyspark(suite: str, names: str = "test_*.py") -> list[str]:
    """What pytest must not collect; says so on the terminal, and fails under CI=true."""
    if find_spec("pyspark") is not None:
        return []
    sentence = f"SKIPPED {suite}: pyspark is not installed; `make setup-all` installs it"
    if os.environ.get("CI") == "true":
        raise RuntimeError(sentence)
    sys.stderr.write(f"{sentence}\n")
    return [names]
