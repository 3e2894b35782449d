"""Calling a model: one path for every call. `wrap` and `step` are for calls in your own code."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llm.wrapped import step, wrap

__all__ = ["step", "wrap"]


def __getattr__(name: str) -> Any:
    """Only where they are asked for: the SDK takes its time to import, and to list connections it is not needed."""
    if name not in __all__:
        raise AttributeError(f"module 'llm' has no attribute {name!r}")
    from llm import wrapped

    return getattr(wrapped, name)
