"""From stored rows to what evaluators and targets are shown: new objects each time, so no change reaches another."""

import json
from collections.abc import Iterable
from typing import Any

from evaluators.call import offer_fields, offer_run
from evaluators.subject import Evaluation, Evaluations, ExampleView, RunView
from specs.columns import at_path
from specs.errors import InputError
from store.records import ExampleRow, OutputRow, ScoreRow, from_json

_OBJECTS = frozenset({"example", "run", "root_run", "attachments", "evaluations", "scores"})
_FIELDS = {
    "inputs": frozenset({"inputs", "input"}),
    "reference_outputs": frozenset({"reference_outputs", "expected_output"}),
    "metadata": frozenset({"metadata"}),
    "outputs": frozenset({"outputs", "output"}),
}


def offered_of_run(
    asked: frozenset[str], example: ExampleRow, output: OutputRow, scores: Iterable[ScoreRow]
) -> dict[str, Any]:
    """What a run offers of what is asked for; the rest is not read, which for a quick rule takes longer than the rule.

    Everything is made anew, so that what an evaluator writes to it reaches no other.
    """
    if not asked.isdisjoint(_OBJECTS):
        seen = example_view(example)
        return offer_run(seen, run_view(output, seen.inputs), evaluations_view(scores))
    texts = {
        "inputs": example.inputs,
        "reference_outputs": example.reference_outputs,
        "metadata": example.metadata or "{}",
        "outputs": output.outputs,
    }
    return offer_fields({name: from_json(text) for name, text in texts.items() if not asked.isdisjoint(_FIELDS[name])})


def value_at(example: ExampleRow, path: str) -> Any:
    """What an example has at a path such as `split` or `metadata.topic`. Raises InputError where there is none."""
    fields = {
        "inputs": json.loads(example.inputs),
        "reference_outputs": from_json(example.reference_outputs),
        "metadata": from_json(example.metadata) or {},
        "split": example.split,
        "cluster": example.cluster,
    }
    return at_path(fields, path)


def has_value(example: ExampleRow, path: str) -> bool:
    """Whether an example has anything at a path."""
    try:
        return value_at(example, path) is not None
    except InputError:
        return False


def example_view(row: ExampleRow) -> ExampleView:
    return ExampleView(
        id=row.example_id,
        inputs=json.loads(row.inputs),
        reference_outputs=from_json(row.reference_outputs),
        metadata=from_json(row.metadata) or {},
        split=row.split,
        cluster=row.cluster,
        attachments=from_json(row.attachments) or {},
    )


def run_view(row: OutputRow, inputs: dict[str, Any]) -> RunView:
    return RunView(
        id=row.run_id,
        inputs=inputs,
        outputs=from_json(row.outputs),
        error=row.error,
        repetition=row.repetition,
        steps=from_json(row.steps) or [],
        latency_s=row.latency_s,
        tokens_in=row.tokens_in,
        tokens_out=row.tokens_out,
        cost_usd=row.cost_usd,
        started_at=row.started_at,
    )


def evaluations_view(rows: Iterable[ScoreRow]) -> Evaluations:
    """The scores of a run; those of its turns are not among them."""
    return Evaluations(
        Evaluation(
            name=row.metric,
            value=row.value if row.value is not None else row.label,
            comment=row.comment,
            status=row.status,
            metadata=from_json(row.metadata),
            data_type=row.data_type,
            config_id=row.config_id,
        )
        for row in rows
        if row.turn is None
    )
