# SPDX-License-Identifier: Apache-2.0
"""Schemas of topics: their versions, where those are kept, and which may follow which.

Sessions and administration ask the registry. Never looks at a message.
"""
