"""Model calls. All go through one path; `wrap` and `step` record calls made in your own code.

The two are imported on first use: the SDK is slow to import, and listing connections does not need it.
"""

from typing import TYPE_CHECKING

from evalflows.specs.late_names import lazy_names

if TYPE_CHECKING:
    from evalflows.llm.wrapped import step, wrap

__all__ = ["step", "wrap"]


__getattr__, __dir__ = lazy_names(__name__, {"wrapped": ("step", "wrap")})
