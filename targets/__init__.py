"""The system under test: inputs -> outputs."""

from targets.chat import chat, check_fields
from targets.http import check_body, http
from targets.python import python
from targets.recorded import NoRecordedAnswerError, recorded, recorded_column, replayed
from targets.target import Answer, Target, as_outputs, length_of

__all__ = [
    "Answer",
    "NoRecordedAnswerError",
    "Target",
    "as_outputs",
    "chat",
    "check_body",
    "check_fields",
    "http",
    "length_of",
    "python",
    "recorded",
    "recorded_column",
    "replayed",
]
