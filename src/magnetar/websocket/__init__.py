# SPDX-License-Identifier: Apache-2.0
"""The WebSocket API: producers, consumers and readers as JSON texts, for whoever has no client of the binary protocol.

Every session is a client of the brokers, with the rights of whoever opened it; no message goes round the protocol.
"""
