# SPDX-License-Identifier: Apache-2.0
"""Messages that are not due yet: the index of a subscription, ordered by time. Called by the pump of a Shared or
Key_Shared subscription. It never holds a message, only where it lies and when it is due.
"""
