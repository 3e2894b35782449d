"""LangChain's constitutional principles, of which none is included: a principle is given with its own text."""

import re
from collections.abc import Mapping
from typing import Any

from evalflows.specs.errors import InputError

_NAMES = re.compile(r"harmful\d+|uo-[a-z]+-\d+|age-innappropriate")
REMEDY = "ConstitutionalPrinciple(name=…, critique_request=…), or {name: question}: LangChain's texts are not included"


def refuse_principles(criteria: Any) -> None:
    """Raise InputError if a criterion is one of LangChain's principles by name: the name alone says nothing."""
    if isinstance(criteria, list | tuple):
        for criterion in criteria:
            refuse_principles(criterion)
    elif isinstance(criteria, str) and _NAMES.fullmatch(criteria):
        raise InputError(f"criteria: got the principle {str(criteria)!r} by its name, wanted {REMEDY}")
    elif isinstance(criteria, Mapping):
        refuse_principles([name for name, text in criteria.items() if text is None])
