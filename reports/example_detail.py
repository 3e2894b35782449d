"""Everything of one example in some experiments: what was asked, each run with its steps, and every score."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evalflows.specs.errors import NotFoundError
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreDetail:
    """One score of a run, with what the evaluator said."""

    metric: str
    value: float | None
    label: str | None
    status: str
    comment: str | None
    error: str | None
    evaluator: str
    evaluator_version: str
    judge_model: str | None
    decided_by: str | None
    metadata: str | None  # JSON
    cost_usd: float | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """One run: a target's answer in one repetition."""

    run_id: str
    experiment_id: str
    repetition: int
    status: str
    outputs: str | None  # JSON, as are the steps
    steps: str | None
    error: str | None
    error_trace: str | None
    latency_s: float | None
    tokens_in: int | None
    tokens_out: int | None
    cost_usd: float | None
    calls: int | None
    trace_id: str | None
    scores: Sequence[ScoreDetail]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleDetail:
    """One example as in the first experiment that has it, and its runs by experiment, then repetition."""

    example_id: str
    inputs: str  # JSON, as are reference, metadata and attachments
    reference_outputs: str | None
    metadata: str | None
    attachments: str | None
    split: str | None
    cluster: str | None
    runs: Sequence[RunDetail]


def example_detail(store: Store, experiments: Sequence[str], example_id: str) -> ExampleDetail:
    """Return everything of an example in experiments, given by id. Raise InputError if none of them has it."""
    ids = [list(experiments), example_id]
    examples, runs, scores = ask(store, (_EXAMPLE, ids), (_RUNS, ids), (_SCORES, ids))
    if not examples:
        raise NotFoundError(f"example {example_id!r}: in none of the experiments {', '.join(experiments)}")
    by_run: dict[str, list[ScoreDetail]] = {}
    for run_id, *score in scores:
        by_run.setdefault(run_id, []).append(ScoreDetail(**_named(ScoreDetail, score)))
    return ExampleDetail(
        **dict(zip(_EXAMPLE_FIELDS, examples[0], strict=True)),
        runs=[RunDetail(**_named(RunDetail, run), scores=by_run.get(run[0], [])) for run in runs],
    )


def _named(record: type, row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(record.__slots__, row, strict=False))  # type: ignore[attr-defined]  # scores come last


_EXAMPLE_FIELDS = ExampleDetail.__slots__[:-1]

_EXAMPLE = """
select x.example_id, x.inputs::varchar, x.reference_outputs::varchar, x.metadata::varchar, x.attachments::varchar,
       x.split, x.cluster
from experiments e join examples x using (snapshot_id)
where is_one_of(e.experiment_id, $1) and x.example_id = $2
order by list_position($1, e.experiment_id) limit 1
"""

_RUNS = """
select run_id, experiment_id, repetition, status, outputs::varchar, steps::varchar, error, error_trace, latency_s,
       tokens_in, tokens_out, cost_usd, calls, trace_id
from outputs where is_one_of(experiment_id, $1) and example_id = $2
order by list_position($1, experiment_id), repetition
"""

_SCORES = """
select run_id, metric, value, label, status, comment, error, evaluator, evaluator_version, judge_model, decided_by,
       metadata::varchar, cost_usd, recorded_at
from scores where is_one_of(experiment_id, $1) and example_id = $2 and subject_kind = 'run' and turn is null
order by metric, evaluator_version
"""
