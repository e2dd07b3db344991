# SPDX-License-Identifier: Apache-2.0
"""The key by which a message finds its consumer on a Key_Shared subscription.

Decides.
"""

import base64

from magnetar.wire.proto.pulsar_api_pb2 import MessageMetadata


def sticky_key(metadata: MessageMetadata) -> bytes:
    """The ordering key, else the key; a message without either is its own key, so that such messages spread."""
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        key = metadata.partition_key
        if metadata.partition_key_b64_encoded:
            try:
                return base64.b64decode(key)
            except ValueError:
                return key.encode()
        return key.encode()
    return f"{metadata.producer_name}-{metadata.sequence_id}".encode()
