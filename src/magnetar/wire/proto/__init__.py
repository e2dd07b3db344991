# SPDX-License-Identifier: Apache-2.0
"""Modules that `make proto` generates from proto/*.proto. Never edited by hand; committed, so that a user needs no protoc."""
