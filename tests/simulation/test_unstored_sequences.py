# SPDX-License-Identifier: Apache-2.0
"""Deduplication saves what is stored: what is on its way may be lost with the broker, and is then sent again."""

import pytest

from magnetar.broker.deduplication import Deduplication, Identity


@pytest.mark.feature("F-PROD-30")
def test_what_is_only_on_its_way_is_not_saved_as_stored() -> None:
    known = Deduplication(names_max=10)
    for sequence_id in range(3):
        known.on_appended(Identity("p", sequence_id, sequence_id))
    assert known.snapshot() == {}
    known.on_persisted(2)
    assert known.snapshot() == {"p": 1}
