"""The system under test: inputs -> outputs."""

from targets.chat import chat, check_fields
from targets.python import python
from targets.recorded import NoRecordedAnswerError, recorded
from targets.target import Target, as_outputs

__all__ = ["NoRecordedAnswerError", "Target", "as_outputs", "chat", "check_fields", "python", "recorded"]
