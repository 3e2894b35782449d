"""Answers that were given before."""

from collections.abc import Iterable, Mapping
from typing import Any

from specs.errors import InputError
from store.records import to_json
from targets.target import Target


class NoRecordedAnswerError(LookupError):
    """The recording has none for this example, or holds an error instead."""


def recorded(answers: Iterable[tuple[int, Mapping[str, Any]]], where: str) -> Target:
    """A target that gives back recorded answers, found by the example's id or else by its inputs.

    `answers` are numbered rows of {"id" or "inputs", "outputs" or "error"}. Raises InputError, with the row's number,
    for a row of another shape and for one that answers what another row has answered.
    """
    known: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for number, row in answers:
        key = _key(row, f"{where}:{number}")
        if key in known:
            raise InputError(f"{where}:{number}: answers the same example as line {known[key][0]}")
        known[key] = number, row

    def call(offered: Mapping[str, Any]) -> Any:
        _, row = known.get(f"id:{offered['example_id']}") or known.get(_inputs_key(offered["inputs"])) or (0, {})
        if "outputs" not in row or (row["outputs"] is None and row.get("error")):
            raise NoRecordedAnswerError(row.get("error") or f"{where} has no answer for this example")
        return row["outputs"]

    return Target(call=call, is_async=False)


def _key(row: Mapping[str, Any], where: str) -> str:
    if "outputs" not in row and not row.get("error"):
        raise InputError(f"{where}: got {', '.join(row) or 'nothing'}, wanted 'outputs' (or 'error')")
    if row.get("id") is not None:
        return f"id:{row['id']}"
    if "inputs" in row:
        return _inputs_key(row["inputs"])
    raise InputError(f"{where}: got {', '.join(row)}, wanted 'id' or 'inputs' to find the example by")


def _inputs_key(inputs: Any) -> str:
    return "inputs:" + to_json(inputs if isinstance(inputs, Mapping) else {"input": inputs})
