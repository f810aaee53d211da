"""Examples, imported from their files."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parents[3] / "examples"


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"example_{path.replace('/', '_').removesuffix('.py')}", FOLDER / path
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
