# SPDX-License-Identifier: Apache-2.0
"""A pipeline declared in Python: the same words as in YAML, and functions in the places of SQL.

A step is a function of DataFrames, named by its parameters, or of columns; which of the two, its type hints say.
Decides.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from magnetar.spark.pipelines.spec import PipelineSpec, pipeline_spec

Function = TypeVar("Function", bound=Callable[..., Any])


class Pipeline:
    """What `magnetar pipeline` looks for in a Python file, by the name `pipeline`."""

    def __init__(self, name: str, **words: Any) -> None:
        """`words` are those of a YAML file, with `_` for `-`: cluster, variables, checkpoint, trigger, dead_letter …"""
        self._document: dict[str, Any] = {"name": name, "sources": {}, "steps": [], "sinks": [], **_dashed(words)}

    def source(self, name: str, **words: Any) -> None:
        self._document["sources"][name] = _dashed(words)

    def sql(self, name: str, text: str, **words: Any) -> None:
        self._document["steps"].append({"name": name, "sql": text, **_dashed(words)})

    def step(self, function: Function) -> Function:
        """A function from DataFrames to a DataFrame; its parameters are names of sources and steps."""
        inputs = list(inspect.signature(function).parameters)
        self._document["steps"].append({"name": function.__name__, "python": function, "from": inputs})
        return function

    def column(
        self, source: str, *, name: str | None = None, into: str | None = None
    ) -> Callable[[Function], Function]:
        """A function from columns to a value: its parameters are columns of `source`, its result is a new one."""

        def declared(function: Function) -> Function:
            words = {"name": name or f"with_{function.__name__}", "python": function, "from": [source], "into": into}
            self._document["steps"].append({key: value for key, value in words.items() if value is not None})
            return function

        return declared

    def sink(self, source: str, **words: Any) -> None:
        self._document["sinks"].append({"from": source, **_dashed(words)})

    def spec(self, variables: Mapping[str, str] | None = None) -> PipelineSpec:
        """Raises BadSetting."""
        return pipeline_spec(self._document, variables)


def _dashed(words: Mapping[str, Any]) -> dict[str, Any]:
    """`dead_letter` is `dead-letter`, and `service_url` is `service.url`, as the words of a YAML file are."""
    dotted = {"service_url": "service.url", "metadata_url": "metadata.url", "admin_url": "admin.url"}
    dashes = ("dead_letter", "partition_by", "order_by", "deleted_when", "topics_by_row")
    renamed = {name: name.replace("_", "-") for name in dashes} | dotted
    return {renamed.get(name, name): value for name, value in words.items()}
