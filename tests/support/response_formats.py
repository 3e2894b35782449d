"""Schemas of verdicts, and shortcuts that read an answer in a response format."""

from typing import Any

import pytest

from evalflows.llm.structured_output import read_answer
from evalflows.specs.connection import AnswerForm
from evalflows.specs.errors import CallError, ErrorKind

REASONING, CORRECT = {"type": "string"}, {"type": "boolean"}
SCORE = {"type": "integer", "minimum": 1, "maximum": 5}
GRADE = {"type": "string", "enum": ["A", "B", "not good"]}


def flat(**properties: Any) -> dict[str, Any]:
    return {
        "title": "verdict",
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


VERDICT = flat(reasoning=REASONING, correct=CORRECT)


def said(answer: str, schema: dict[str, Any] = VERDICT, finish_reason: str = "stop") -> Any:
    return read_answer({"content": answer}, schema, "text", finish_reason)


def call(arguments: Any, name: str = "verdict") -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}


def fault(
    message: dict[str, Any], form: AnswerForm, schema: dict[str, Any] = VERDICT, finish_reason: str | None = "stop"
) -> tuple[ErrorKind, str]:
    with pytest.raises(CallError) as raised:
        read_answer(message, schema, form, finish_reason)
    says = str(raised.value)
    assert "\n" not in says and len(says) <= 200
    return raised.value.kind, says


GOOD = '{"reasoning": "", "correct": true}'
