# SPDX-License-Identifier: Apache-2.0
"""A pipeline's file: YAML, or Python with a `Pipeline` called `pipeline`; and the functions that YAML names.

Carries.
"""

import sys
from collections.abc import Callable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from magnetar.cli.exits import WRONG_USE, Failure

if TYPE_CHECKING:
    from magnetar.spark.pipelines.spec import PipelineSpec

FILE_BYTES_MAX: Final = 4 << 20


def load_pipeline(path: str, variables: Mapping[str, str]) -> "PipelineSpec":
    """Raises BadSetting or Failure with one sentence."""
    from magnetar.spark.pipelines.pipeline import Pipeline
    from magnetar.spark.pipelines.spec import pipeline_spec

    file = Path(path)
    if not file.is_file():
        raise Failure(f"There is no file {path}", WRONG_USE)
    if file.suffix == ".py":
        declared = getattr(_module(file), "pipeline", None)
        if not isinstance(declared, Pipeline):
            raise Failure(f"{path} has no Pipeline that is called `pipeline`", WRONG_USE)
        return declared.spec(variables)
    return pipeline_spec(_document(file), variables)


def _document(file: Path) -> Any:
    import yaml

    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise Failure(f"{file} is larger than {FILE_BYTES_MAX} bytes", WRONG_USE)
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{file} cannot be read: {error}", WRONG_USE) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise Failure(f"{file} is no YAML: {' '.join(str(error).split())[:300]}", WRONG_USE) from None


def finder_beside(path: str) -> Callable[[str], Callable[..., Any]]:
    """Finds `file.py:name`, where the file lies beside the pipeline's."""
    folder = Path(path).absolute().parent

    def find(text: str) -> Callable[..., Any]:
        place, _, name = text.partition(":")
        file = folder / place
        if not name or file.suffix != ".py" or not file.is_file():
            raise Failure(f"python: {text!r} should be file.py:function, and the file beside the pipeline's", WRONG_USE)
        found = getattr(_module(file), name, None)
        if not callable(found):
            raise Failure(f"{file.name} has no function {name}", WRONG_USE)
        function: Callable[..., Any] = found
        return function

    return find


def _module(file: Path) -> ModuleType:
    """The file as a module that workers are sent whole, for they cannot import it."""
    from magnetar.spark.pipelines.shipping import ship_whole

    name = f"magnetar_pipeline_{file.stem}"
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        # It is the user's own code: any failure of it is about the file.
        raise Failure(f"{file} cannot be run: {type(error).__name__}: {error}", WRONG_USE) from error
    ship_whole(module)
    return module
