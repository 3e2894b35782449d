"""Check that the code that runs is the code whose version is stored."""

from collections.abc import Callable
from typing import Any

from evalflows.specs.code_versions import changed_since_import, listed
from evalflows.specs.errors import InputError


def check_loaded(where: str, function: Callable[..., Any]) -> None:
    """Raise InputError for code that was edited after Python had imported it: the run would be of the older code."""
    if stale := changed_since_import(function):
        modules = sorted({name.rpartition(".")[0] for name in stale})
        reload = "; ".join(f"importlib.reload({module})" for module in modules)
        raise InputError(
            f"{where}: {listed(stale)} changed on disk after the import, wanted the module loaded again: {reload} and "
            "its names imported anew, or Python restarted"
        )
