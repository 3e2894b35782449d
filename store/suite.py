"""Reading what a dataset must be like: a suite of expectations."""

from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from specs.dataset import Expectation
from specs.errors import InputError, first_problem
from specs.paths import located
from store.jsonl import parse_json

_LISTED = TypeAdapter(list[Expectation])


def load_expectations(given: Sequence[Expectation] | str | None) -> list[Expectation]:
    """The expectations themselves, or those of a suite's file as Great Expectations writes it. Raises InputError."""
    if not isinstance(given, str):
        return list(given or ())
    try:
        content = parse_json(located(given).read_bytes(), given)
    except OSError as error:
        raise InputError(f"{given}: cannot be read: {error.strerror or error}") from error
    listed = content.get("expectations") if isinstance(content, dict) else content
    if not isinstance(listed, list):
        raise InputError(f"{given}: wanted a list of expectations, or a suite with 'expectations'")
    try:
        return _LISTED.validate_python(listed)
    except ValidationError as error:
        raise InputError(first_problem(error, given)) from error
