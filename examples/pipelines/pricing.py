# SPDX-License-Identifier: Apache-2.0
"""What the pipeline `enrichment` does with each row."""

from typing import NamedTuple


class Price(NamedTuple):
    total: float
    is_large: bool


def price(amount: int, discount: float) -> Price:
    """Columns come by the names of the parameters; the fields of the result are columns."""
    if amount <= 0:
        raise ValueError(f"an order of {amount} has no price")
    total = amount * (1 - discount)
    return Price(total, total > 100)
