# SPDX-License-Identifier: Apache-2.0
"""Who a client is, and what it may do. Sessions and administration ask the guard here; nothing here opens a socket,
writes a credential anywhere, or looks at a message.
"""
