"""From stored rows to what evaluators and targets are shown: new objects each time, so no change reaches another."""

import json
from collections.abc import Iterable
from typing import Any

from evaluators.subject import Evaluation, Evaluations, ExampleView, RunView
from store.records import ExampleRow, OutputRow, ScoreRow, from_json


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
    return Evaluations(
        Evaluation(
            name=row.metric,
            value=row.value if row.value is not None else row.label,
            comment=row.comment,
            status=row.status,
        )
        for row in rows
    )
