"""The command in a process of its own, which finds the modules of this folder, and evalflows as this process does."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

SUPPORT = str(Path(__file__).parent)


def command(*arguments: str) -> list[str]:
    """Return the command line of `evalflows` with arguments."""
    return [str(Path(sys.executable).with_name("evalflows")), *arguments]


def with_support(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of this process, changed, with this folder first on the path of modules."""
    own = os.environ | dict(environment or {})
    return own | {"PYTHONPATH": os.pathsep.join(filter(None, [SUPPORT, os.environ.get("PYTHONPATH")]))}
