"""LangSmith's errors, as programs catch them: those of this project by their names."""

from evalflows.compat.langsmith.absent import ABSENT
from evalflows.compat.langsmith.datasets import ConflictError as LangSmithConflictError
from evalflows.specs.errors import InputError as LangSmithError
from evalflows.specs.errors import NotFoundError as LangSmithNotFoundError

__all__ = [
    "LangSmithAPIError", "LangSmithAuthError", "LangSmithConflictError", "LangSmithConnectionError", "LangSmithError",
    "LangSmithNotFoundError", "LangSmithRateLimitError", "LangSmithRequestTimeout", "LangSmithUserError",
]  # fmt: skip


class LangSmithAPIError(LangSmithError):
    """An error of LangSmith's server: never raised here, where there is none. So are those below."""


class LangSmithAuthError(LangSmithAPIError): ...


class LangSmithConnectionError(LangSmithAPIError): ...


class LangSmithRateLimitError(LangSmithAPIError): ...


class LangSmithRequestTimeout(LangSmithAPIError): ...  # noqa: N818


LangSmithUserError = LangSmithError

__getattr__ = ABSENT.of_module(__name__)
