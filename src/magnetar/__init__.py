# SPDX-License-Identifier: Apache-2.0
"""Magnetar: an Apache-Pulsar-compatible messaging and streaming platform. The rooms are drawn in ARCHITECTURE.md."""
