# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks`: every measurement of minutes, one table each."""

from benchmarks import standalone

if __name__ == "__main__":
    standalone.main()
