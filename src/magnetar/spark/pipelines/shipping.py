# SPDX-License-Identifier: Apache-2.0
"""Modules that exist on the driver alone: their functions travel to workers with their code.

Assembles.
"""

from collections.abc import Callable
from types import ModuleType

from pyspark import cloudpickle


def ship_whole(module: ModuleType) -> None:
    """Functions of this module are pickled by value from now on."""
    register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    register(module)
