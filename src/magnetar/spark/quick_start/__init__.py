# SPDX-License-Identifier: Apache-2.0
"""A directory for PYTHONPATH: what Python loads first in every process that a session starts.

Put there by `magnetar.spark.session`; nothing imports it as a package.
"""
