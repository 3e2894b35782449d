"""Build the views of stored rows that evaluators and targets get, new objects each time, safe to modify; and the
columns of a run."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from evalflows.engine.chunks import ExampleChunk
from evalflows.evaluators.views import (
    LANGFUSE_FIELDS,
    Evaluation,
    Evaluations,
    ExampleView,
    RunView,
    offer_fields,
    offer_run,
)
from evalflows.specs.metric_names import RETURNED_AS
from evalflows.store.records import ExampleRow, JudgementRow, OutputRow, derived_id, from_json
from evalflows.targets import seed_of

_OBJECTS = frozenset({"example", "run", "root_run", "attachments", "evaluations", "scores"})
_INPUTS = frozenset({"inputs", "input"})
_REFERENCES = frozenset({"reference_outputs", "expected_output"})
_OUTPUTS = frozenset({"outputs", "output"})


def run_id(chunk: ExampleChunk, example_id: str) -> str:
    return derived_id(chunk.experiment_id, example_id, chunk.repetition)


def evaluator_inputs(
    requested: frozenset[str], example: ExampleRow, output: OutputRow, scores: Iterable[JudgementRow]
) -> dict[str, Any]:
    """Build only the arguments an evaluator requests; for a quick rule, parsing the rest takes longer than the rule.

    All objects are new, so that an evaluator may modify them.
    """
    if not requested.isdisjoint(_OBJECTS):
        view = example_view(example)
        return offer_run(view, run_view(output, view.inputs), evaluations_view(scores))
    fields = {}
    if not requested.isdisjoint(_INPUTS):
        fields["inputs"] = from_json(example.inputs)
    if not requested.isdisjoint(_REFERENCES):
        fields["reference_outputs"] = from_json(example.reference_outputs)
    if "metadata" in requested:
        fields["metadata"] = from_json(example.metadata or "{}")
    if not requested.isdisjoint(_OUTPUTS):
        fields["outputs"] = from_json(output.outputs)
    return fields if requested.isdisjoint(LANGFUSE_FIELDS) else offer_fields(fields)


def example_view(row: ExampleRow) -> ExampleView:
    return ExampleView(
        id=row.example_id,
        inputs=from_json(row.inputs),
        reference_outputs=from_json(row.reference_outputs),
        metadata=from_json(row.metadata) or {},
        split=row.split,
        cluster=row.cluster,
        attachments=from_json(row.attachments) or {},
    )


def target_arguments(example: ExampleView, repetition: int) -> dict[str, Any]:
    """Return what a target can ask for."""
    return {
        "inputs": example.inputs,
        "metadata": example.metadata,
        "example": example,
        "example_id": example.id,
        "attachments": example.attachments,
        "repetition": repetition,
        "seed": seed_of(example.id, repetition),
    }


class RequestedInputs(dict[str, Any]):
    """The arguments of a recorded target, each made when it asks for it: a look-up needs one or two."""

    def __init__(self, example: ExampleRow, repetition: int) -> None:
        self._example, self._repetition = example, repetition

    def __missing__(self, name: str) -> Any:
        return _PARTS[name](self._example, self._repetition)


_PARTS: Mapping[str, Callable[[ExampleRow, int], Any]] = {
    "example_id": lambda example, _: example.example_id,
    "repetition": lambda _, repetition: repetition,
    "inputs": lambda example, _: from_json(example.inputs),
    "metadata": lambda example, _: from_json(example.metadata) or {},
    "example": lambda example, _: example_view(example),
}


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


def evaluations_view(rows: Iterable[JudgementRow]) -> Evaluations:
    """Return the scores of a run, without those of its turns."""
    return Evaluations(
        Evaluation(
            name=(metadata or {}).get(RETURNED_AS, row.metric),
            value=row.value if row.value is not None else row.label,
            comment=row.comment,
            status=row.status,
            metadata=metadata,
            data_type=row.data_type,
            config_id=row.config_id,
        )
        for row, metadata in ((row, from_json(row.metadata)) for row in rows if row.turn is None)
    )
