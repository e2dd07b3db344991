# SPDX-License-Identifier: Apache-2.0
"""What a session may have open: topics and subscriptions that are stored, and those that are not.

Decides.
"""

from typing import TypeAlias

from magnetar.broker.non_persistent_subscription import NonPersistentSubscription
from magnetar.broker.non_persistent_topic import NonPersistentTopic
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import Topic

ServedTopic: TypeAlias = Topic | NonPersistentTopic
ServedSubscription: TypeAlias = Subscription | NonPersistentSubscription
