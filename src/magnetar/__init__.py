# SPDX-License-Identifier: Apache-2.0
"""Magnetar: an Apache-Pulsar-compatible messaging and streaming platform."""

__version__ = "0.1.0.dev0"
