"""LangSmith's `testing` and `expect`: what a test marked `@pytest.mark.langsmith` logs about itself.

A suite is an experiment, and each test an example.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from evalflows.compat.langsmith.cases import Note, current_case, judging
from evalflows.compat.langsmith.schemas import Fields
from evalflows.llm.wrapped import plain
from evalflows.specs.errors import InputError, short

__all__ = ["log_feedback", "log_inputs", "log_outputs", "log_reference_outputs", "trace_feedback"]

_FIELDS = {"key", "score", "value", "comment", "metadata"}


def log_inputs(inputs: dict[str, Any], /) -> None:
    """Add to the inputs of the running test's example. All of these raise InputError outside of a marked test."""
    current_case("log_inputs").inputs |= _mapping("log_inputs", inputs)


def log_outputs(outputs: dict[str, Any], /) -> None:
    """Add to the outputs of the running test."""
    current_case("log_outputs").outputs |= _mapping("log_outputs", outputs)


def log_reference_outputs(reference_outputs: dict[str, Any], /) -> None:
    """Add to the reference outputs of the running test's example."""
    current_case("log_reference_outputs").reference_outputs |= _mapping("log_reference_outputs", reference_outputs)


def log_feedback(
    feedback: dict[str, Any] | list[dict[str, Any]] | None = None,
    /,
    *,
    key: str | None = None,
    score: float | bool | None = None,
    value: str | float | bool | None = None,
    **kwargs: Any,
) -> None:
    """Log a judgement of the running test: `key` with `score` or `value`, and a `comment`; or mappings of these.

    Raise InputError for a judgement without a key, for an unknown field, and for a second one of the same key.
    """
    case = current_case("log_feedback")
    own = {"key": key, "score": score, "value": value, **kwargs}
    if feedback is not None and any(field is not None for field in own.values()):
        raise InputError("log_feedback: got both feedback and its fields, wanted one of them")
    logged: Sequence[Any] = [own] if feedback is None else [feedback] if isinstance(feedback, Mapping) else feedback
    for fields in logged:
        case.log(*_note(_mapping("log_feedback", fields)))


@contextmanager
def trace_feedback(*, name: str = "Feedback") -> Iterator[None]:
    """Judge in this block: its model calls belong to the judgements that it logs, and are no steps of the test."""
    with judging(current_case("trace_feedback")):
        yield


def _note(fields: Fields) -> tuple[str, Note]:
    given = {name: value for name, value in fields.items() if value is not None}
    if unknown := given.keys() - _FIELDS:
        raise InputError(f"log_feedback: got {min(unknown)!r}, wanted only {', '.join(sorted(_FIELDS))}")
    if "key" not in given:
        raise InputError(f"log_feedback: got {short(fields)}, wanted a key")
    return str(given.pop("key")), Note(**given)


def _mapping(where: str, fields: object) -> Fields:
    if not isinstance(fields, Mapping):
        raise InputError(f"{where}: got {short(fields)}, wanted a dict")
    return {str(name): plain(value) for name, value in fields.items()}
