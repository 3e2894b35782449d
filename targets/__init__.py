"""Targets, the systems under test: from inputs to outputs."""

from evalflows.targets.chat import chat, check_fields
from evalflows.targets.http import check_body, http
from evalflows.targets.python import python
from evalflows.targets.recorded import NoRecordedAnswerError, recorded, recorded_column, replayed
from evalflows.targets.target import Answer, Target, as_fields, as_outputs, length_of, seed_of
from evalflows.targets.tools import check_tools

__all__ = [
    "Answer",
    "NoRecordedAnswerError",
    "Target",
    "as_fields",
    "as_outputs",
    "chat",
    "check_body",
    "check_fields",
    "check_tools",
    "http",
    "length_of",
    "python",
    "recorded",
    "recorded_column",
    "replayed",
    "seed_of",
]
