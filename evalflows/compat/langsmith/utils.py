"""LangSmith's errors, as programs catch them: those of this project by their names."""

from evalflows.compat.langsmith.absent import ABSENT
from evalflows.compat.langsmith.datasets import ConflictError as LangSmithConflictError
from evalflows.specs.errors import InputError as LangSmithError
from evalflows.specs.errors import NotFoundError as LangSmithNotFoundError

__all__ = ["LangSmithConflictError", "LangSmithError", "LangSmithNotFoundError"]


__getattr__ = ABSENT.of_module(__name__)
