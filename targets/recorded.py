"""Answers that were given before: in a file, in a column of the dataset, in another experiment."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from specs.errors import InputError
from store.records import OutputRow, to_json
from targets.target import Answer, Target


class NoRecordedAnswerError(LookupError):
    """The recording has none for this example, or holds an error instead."""


Answers = Mapping[str, tuple[int, Mapping[str, Any]]]
"""Numbered rows by what their example is found by."""


def recorded(answers: Iterable[tuple[int, Mapping[str, Any]]], where: str) -> Target:
    """A target that gives back recorded answers, found by the example's id or else by its inputs.

    `answers` are numbered rows of {"id" or "inputs", "outputs" or "error", "latency_s"}. Raises InputError, with the
    row's number, for a row of another shape and for one that answers what another row has answered.
    """
    known: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for number, row in answers:
        key = _key(row, f"{where}:{number}")
        if key in known:
            raise InputError(f"{where}:{number}: answers the same example as line {known[key][0]}")
        known[key] = number, row

    def call(offered: Mapping[str, Any]) -> Answer:
        row = _found(known, offered)
        if row is None or row.get("outputs") is None:
            said = row.get("error") if row else None
            raise NoRecordedAnswerError(said or f"{where} has no answer for this example")
        return Answer(outputs=row["outputs"], latency_s=_seconds(row.get("latency_s")))

    return Target(call=call, is_async=False)


REFERENCE = "reference_outputs"
"""The column that is no field of the metadata: the reference itself, such as what a person said."""


def recorded_column(column: str) -> Target:
    """A target that gives back what a field of the example's metadata holds, or the example's reference."""

    def call(offered: Mapping[str, Any]) -> Answer:
        answer = _reference(offered) if column == REFERENCE else offered["metadata"].get(column)
        if answer is None:
            lacks = "example has no" if column == REFERENCE else "example's metadata has no"
            raise NoRecordedAnswerError(f"the {lacks} {column!r}")
        return Answer(outputs=answer)

    return Target(call=call, is_async=False)


def replayed(outputs: Iterable[OutputRow], experiment: str) -> Target:
    """A target that gives back the outputs of another experiment, by example and repetition, with what they cost."""
    known = {(row.example_id, row.repetition): row for row in outputs}

    def call(offered: Mapping[str, Any]) -> Answer:
        row = known.get((offered["example_id"], offered["repetition"]))
        if row is None or row.outputs is None:
            said = row.error if row else None
            raise NoRecordedAnswerError(said or f"{experiment} has no answer for this example and repetition")
        return Answer(
            outputs=json.loads(row.outputs),
            latency_s=row.latency_s,
            tokens_in=row.tokens_in,
            tokens_out=row.tokens_out,
            cost_usd=row.cost_usd,
            steps=row.steps,
            reused_from=row.run_id,
        )

    return Target(call=call, is_async=False)


def _reference(offered: Mapping[str, Any]) -> Any:
    return offered["example"].reference_outputs


def _found(known: Answers, offered: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = known.get(f"id:{offered['example_id']}") or known.get(_inputs_key(offered["inputs"]))
    return found[1] if found else None


def _key(row: Mapping[str, Any], where: str) -> str:
    if "outputs" not in row and not row.get("error"):
        raise InputError(f"{where}: got {', '.join(row) or 'nothing'}, wanted 'outputs' (or 'error')")
    if row.get("id") is not None:
        return f"id:{row['id']}"
    if "inputs" in row:
        try:
            return _inputs_key(row["inputs"])
        except (TypeError, ValueError) as error:
            raise InputError(f"{where}: inputs: not JSON: {error}") from error
    raise InputError(f"{where}: got {', '.join(row)}, wanted 'id' or 'inputs' to find the example by")


def _inputs_key(inputs: Any) -> str:
    return "inputs:" + to_json(inputs if isinstance(inputs, Mapping) else {"input": inputs})


def _seconds(value: Any) -> float | None:
    """A latency as it was recorded, as a number or as the text of a cell; None for what is none."""
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < math.inf else None
