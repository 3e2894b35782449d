"""Read the expectations that a dataset must meet."""

from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from evalflows.specs.dataset import Expectation
from evalflows.specs.errors import InputError, first_problem
from evalflows.specs.paths import located
from evalflows.store.ingest.jsonl import parse_json

_EXPECTATIONS = TypeAdapter(list[Expectation])


def load_expectations(source: Sequence[Expectation] | str | None) -> list[Expectation]:
    """Return the given expectations, or read them from a suite file in Great Expectations' format.

    Raises InputError if the file cannot be read or is not a suite.
    """
    if not isinstance(source, str):
        return list(source or ())
    try:
        content = parse_json(located(source).read_bytes(), source)
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror or error}") from error
    expectations = content.get("expectations") if isinstance(content, dict) else content
    if not isinstance(expectations, list):
        got = type(expectations).__name__
        raise InputError(f"{source}: got {got}, wanted a list of expectations, or a suite with 'expectations'")
    try:
        return _EXPECTATIONS.validate_python(expectations)
    except ValidationError as error:
        raise InputError(first_problem(error, source)) from error
