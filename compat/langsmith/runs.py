"""Read runs, feedback and experiments from the store as LangSmith's objects."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from evalflows.compat.langsmith.schemas import Feedback, Fields, Identity, Run, TracerSession
from evalflows.compat.langsmith.views import dataset_id, run_key, run_of, score_of
from evalflows.specs.errors import InputError
from evalflows.store.ingest.labels import later_labels
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.records import DataType, ExperimentRow, LabelRow, derived_id, new_id, to_json
from evalflows.store.snapshots import load_snapshot

SOURCE = "evalflows.compat.langsmith"

_FEEDBACK = """
select * from (
    select score_id as id, run_id, metric as key, value, label, data_type, coalesce(error, comment) as comment,
           status, experiment_id, recorded_at, null as comparison_id
    from source.scores where subject_kind = 'run' and turn is null and status <> 'sampled_out'
    union all
    select label_id, subject_id, metric, value, label, data_type, comment, 'scored', experiment_id, recorded_at, null
    from source.labels where subject_kind = 'run'
    union all
    select judgement_id || '-left', left_run_id, metric,
           coalesce(left_score, case winner when 'left' then 1 when 'right' then 0 when 'tie' then 0.5 end),
           null, 'NUMERIC', coalesce(error, comment), status, left_experiment_id, recorded_at, comparison_id
    from source.comparisons
    union all
    select judgement_id || '-right', right_run_id, metric,
           coalesce(right_score, case winner when 'right' then 1 when 'left' then 0 when 'tie' then 0.5 end),
           null, 'NUMERIC', coalesce(error, comment), status, right_experiment_id, recorded_at, comparison_id
    from source.comparisons
)
where ($1::varchar[] is null or list_contains($1::varchar[], run_id))
  and ($2::varchar[] is null or list_contains($2::varchar[], key))
order by recorded_at, id
"""

_OUTPUTS = """
select count(*), avg((status <> 'ok')::int), quantile_cont(latency_s, 0.5), quantile_cont(latency_s, 0.99),
       sum(tokens_in)::bigint, sum(tokens_out)::bigint,
       case when count(cost_usd) = count(*) then sum(cost_usd) end
from source.outputs where experiment_id = ?
"""

_SCORES = """
select subject_kind, metric, count(*) filter (status = 'scored'), avg(value),
       count(*) filter (status in ('failed', 'not_attempted'))
from source.scores where experiment_id = ? and turn is null group by all order by metric
"""


def experiments_of(store: Store, projects: Iterable[Identity], runs: Iterable[str], example: str | None) -> list[str]:
    """Return the experiments named by `projects`, or else those that contain the runs or the example.

    Raises InputError for an unknown project, and if nothing identifies the experiments.
    """
    if experiments := [find_experiments(store, str(project), just_one=True)[0] for project in projects]:
        return experiments
    if not (runs := list(runs)) and example is None:
        raise InputError("list_runs: wanted project_name or project_id, run_ids, or reference_example_id")
    query = "select distinct experiment_id from source.outputs where list_contains($1, run_id) or example_id = $2"
    return [row[0] for row in store.query(query, [runs, example])]


def runs_of(store: Store, experiments: Iterable[str]) -> list[Run]:
    """Return every run of the experiments, newest first."""
    runs = []
    for identity in experiments:
        (row,) = store.read("experiments", identity)
        inputs = {example.example_id: example.inputs for example in load_snapshot(store, row.snapshot_id)}
        runs += [run_of(output, json.loads(inputs[output.example_id])) for output in store.read("outputs", identity)]
    return sorted(runs, key=lambda run: (run.start_time is not None, run.start_time), reverse=True)


def feedback_of(store: Store, runs: Sequence[Identity] | None, keys: str | Sequence[str] | None) -> list[Feedback]:
    """Return the judgements and human labels of some runs, or of all, oldest first."""
    identities = None if runs is None else [run_key(run) for run in runs]
    metrics = [keys] if isinstance(keys, str) else None if keys is None else list(keys)
    return [_feedback(row) for row in store.query(_FEEDBACK, [identities, metrics])]


def _feedback(row: tuple[Any, ...]) -> Feedback:
    identity, run, key, value, label, data_type, comment, status, experiment, recorded_at, comparison = row
    missing = status in ("failed", "not_attempted")
    return Feedback(
        id=identity,
        run_id=run,
        key=key,
        score=score_of(value, data_type),
        value=label,
        comment=comment or (status if missing else None),
        created_at=recorded_at,
        session_id=experiment,
        extra={"error": True} if missing else None,
        comparative_experiment_id=comparison,
    )


def label_run(
    store: Store,
    run_id: Identity,
    key: str,
    *,
    score: float | None,
    value: str | float | None,
    comment: str | None,
    metadata: Mapping[str, Any] | None,
) -> Feedback:
    """Store a person's feedback on a run as a row of `labels`. Raises InputError if the run does not exist."""
    run = run_key(run_id)
    outputs = store.query("select experiment_id, example_id from source.outputs where run_id = ?", [run])
    if not outputs:
        raise InputError(f"create_feedback: run {str(run_id)!r}: not in the store")
    label, number = (value, score) if isinstance(value, str) else (None, value if score is None else score)
    kind: DataType = "BOOLEAN" if isinstance(number, bool) else "NUMERIC" if number is not None else "CATEGORICAL"
    batch = new_id("batch")
    row = LabelRow(
        label_id=derived_id(batch, run, key),
        batch_id=batch,
        subject_kind="run",
        subject_id=run,
        experiment_id=outputs[0][0],
        example_id=outputs[0][1],
        metric=key,
        value=None if number is None else float(number),
        label=label,
        data_type=None if number is None and label is None else kind,
        comment=comment,
        source=SOURCE,
        metadata=None if metadata is None else to_json(dict(metadata)),
    )
    store.publish("labels", batch, later_labels(store, [row]))
    return next(feedback for feedback in feedback_of(store, [run], key) if feedback.id == row.label_id)


def project_of(store: Store, reference: Identity, *, include_stats: bool) -> TracerSession:
    """Return an experiment, optionally with its statistics. Raises InputError if it does not exist."""
    (identity,) = find_experiments(store, str(reference), just_one=True)
    return _project(store, identity, include_stats=include_stats)


def all_projects(store: Store, *, include_stats: bool = False) -> Iterator[TracerSession]:
    """Yield all experiments, newest first."""
    newest_first = "select experiment_id from source.experiments order by started_at desc, experiment_id desc"
    for (identity,) in store.query(newest_first):
        yield _project(store, identity, include_stats=include_stats)


def _project(store: Store, identity: str, *, include_stats: bool) -> TracerSession:
    row: ExperimentRow = store.read("experiments", identity)[0]
    return TracerSession(
        id=identity,
        name=row.name,
        description=row.description,
        start_time=row.started_at,
        end_time=row.ended_at,
        metadata=json.loads(row.metadata or "{}"),
        reference_dataset_id=dataset_id(row.dataset_name),
        **(_statistics(store, identity) if include_stats else {}),
    )


def _statistics(store: Store, experiment: str) -> Fields:
    """Return statistics of the runs and, per metric, of the judgements: `n` were scored, `missing` were not."""
    count, error_rate, p50, p99, tokens_in, tokens_out, cost = store.query(_OUTPUTS, [experiment])[0]
    scores = store.query(_SCORES, [experiment])

    def by_metric(subject: str) -> Fields:
        return {
            metric: {"n": n, "avg": mean, "missing": missing}
            for kind, metric, n, mean, missing in scores
            if kind == subject
        }

    return {
        "run_count": count,
        "error_rate": error_rate,
        "latency_p50": None if p50 is None else timedelta(seconds=p50),
        "latency_p99": None if p99 is None else timedelta(seconds=p99),
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_cost": cost,
        "feedback_stats": by_metric("run"),
        "session_feedback_stats": by_metric("experiment"),
    }
