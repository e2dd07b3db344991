# SPDX-License-Identifier: Apache-2.0
"""Finds the Java that Spark needs, and installs it where that may be done: on Debian and its kin, as root.

`python -m tools.java` says what it found in one sentence. Without Java the Spark suite is skipped loudly; under
CI=true that is a failure.
Carries.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools import apt

LEAST = 17
PACKAGE = "openjdk-17-jre-headless"


def java_words(program: str) -> str:
    """The whole version of a java program; empty if it does not run."""
    try:
        told = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return ""
    found = re.search(r'version "(\d[^"]*)"', told)
    return found[1] if found else ""


def java_version(program: str) -> int:
    """The feature release of a java program; 0 if it does not run."""
    found = re.match(r"\d+", java_words(program))
    return int(found[0]) if found else 0


def find_java() -> str | None:
    """A java that is new enough: that of JAVA_HOME first, as Spark itself does it, then the PATH."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    on_path = shutil.which("java")
    candidates += [on_path] if on_path else []
    return next((program for program in candidates if java_version(program) >= LEAST), None)


def install_java() -> bool:
    return not apt.install(PACKAGE, lambda: find_java() is not None)


def main() -> int:
    program = find_java()
    if program is None and install_java():
        program = find_java()
    if program is not None:
        print(f"Java {java_version(program)} for Spark: {program}")
        return 0
    print(f"Spark needs Java {LEAST} or newer: install {PACKAGE}, or set JAVA_HOME to one.", file=sys.stderr)
    return 1 if os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    sys.exit(main())
