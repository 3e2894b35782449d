"""Model calls. All go through one path; `wrap` and `step` record calls made in your own code."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalflows.llm.wrapped import step, wrap

__all__ = ["step", "wrap"]


def __getattr__(name: str) -> Any:
    """Import `wrap` and `step` on first use: the SDK is slow to import, and listing connections does not need it."""
    if name not in __all__:
        raise AttributeError(f"module 'llm' has no attribute {name!r}")
    from evalflows.llm import wrapped

    return getattr(wrapped, name)
