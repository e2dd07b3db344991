# SPDX-License-Identifier: Apache-2.0
"""A directory for PYTHONPATH: Spark looks there for packages that offer data sources to every session.

Used by `magnetar sql --serve`; nothing imports it as a package.
"""
