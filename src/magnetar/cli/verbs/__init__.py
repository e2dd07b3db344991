# SPDX-License-Identifier: Apache-2.0
"""The nouns and verbs of `magnetar admin`: which request each is. One module per noun or family of nouns.

The admin command calls it. Never sends anything; a verb that needs several requests gets a place to send them to.
"""
