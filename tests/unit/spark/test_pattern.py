# SPDX-License-Identifier: Apache-2.0
"""Which topics a pattern finds."""

import pytest

from magnetar.errors import BadSetting
from magnetar.spark.committer import SinkTopics
from magnetar.spark.pattern import is_data, pattern_parts

TARGET = "persistent://shop/sales/orders"


def test_a_pattern_names_a_namespace_or_the_usual_one() -> None:
    namespace, expression = pattern_parts("shop/sales/orders-.*")
    assert namespace == "shop/sales"
    assert expression.fullmatch("persistent://shop/sales/orders-eu")
    assert not expression.fullmatch(TARGET)
    assert pattern_parts("t.*")[0] == "public/default"
    with pytest.raises(BadSetting, match="regular expression"):
        pattern_parts("[")


@pytest.mark.feature("F-SPK-09")
def test_what_sinks_and_brokers_keep_beside_the_data_is_not_found() -> None:
    """Staged rows would be rows twice."""
    sink, once = SinkTopics.of(TARGET, "my-query"), SinkTopics.once(TARGET)
    assert sink.log is not None
    for kept in (sink.staging, sink.log, once.staging, "persistent://shop/sales/__change_events"):
        assert not is_data(kept)
    assert is_data(TARGET)
    assert is_data("persistent://shop/sales/spark-sinks")
