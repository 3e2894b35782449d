"""The progress of an experiment: missing rows, retryable rows, and cost."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from evalflows.store.merge import count_rows
from evalflows.store.parquet import Store
from evalflows.store.records import ExperimentRow, ScoreRow, derived_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Sums over the calls of an experiment or a comparison, each counted once."""

    calls: int | None  # None if some may have been made that nobody recorded
    tokens_in: int | None  # None if calls were not recorded and none reported any
    tokens_out: int | None
    cost_usd: float | None  # None if the cost of a call is unknown


def spent(store: Store, experiment_id: str) -> Spent:
    """Return what an experiment or a comparison paid, as recorded and as HTTP applications report.

    Answers reused from other experiments cost nothing.
    """
    row = store.query(
        """select sum(calls), coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0), coalesce(sum(cost_usd), 0),
                  count(*) filter (cost_usd is null), count(*) filter (calls is null),
                  count(*) filter (calls is null) > 0 and count(tokens_in) = 0
           from (select 1 as calls, tokens_in, tokens_out, cost_usd from source.calls where experiment_id = $1
                 union all
                 select calls, tokens_in, tokens_out, cost_usd from source.outputs
                 where experiment_id = $1 and status in ('ok', 'failed')
                     and (calls is null or ($1 in applications and status = 'ok'))
                 union all
                 select calls, tokens_in, tokens_out, cost_usd from source.scores
                 where experiment_id = $1 and calls is null
                 union all
                 select calls, tokens_in, tokens_out, cost_usd from source.comparisons
                 where comparison_id = $1 and calls is null)""".replace("applications", _APPLICATIONS),
        [experiment_id],
    )[0]
    return Spent(
        calls=None if row[5] else int(row[0] or 0),
        tokens_in=None if row[6] else int(row[1]),
        tokens_out=None if row[6] else int(row[2]),
        cost_usd=None if row[4] else row[3],
    )


_APPLICATIONS = "(select experiment_id from source.experiments where target_kind = 'http')"


def calls_of_group(store: Store, run_group: str) -> int | None:
    """Return the model calls of a run group so far; None if some may have been made that nobody recorded."""
    rows = store.query("select distinct experiment_id from source.experiments where run_group = ?", [run_group])
    calls = [spent(store, identity).calls for (identity,) in rows]
    return None if None in calls else sum(number for number in calls if number is not None)


def spent_by_group(store: Store, run_group: str) -> tuple[int, float, int]:
    """Return the paid calls of a run group, their cost in USD, and the number of calls with unknown price.

    An answer of an HTTP application counts as one call.
    """
    query = """with of_group as (select experiment_id, target_kind from source.experiments where run_group = ?)
               select count(*), coalesce(sum(cost_usd), 0), count(*) filter (cost_usd is null) from (
                   select cost_usd from source.calls where experiment_id in (select experiment_id from of_group)
                   union all
                   select cost_usd from source.outputs where status = 'ok'
                   and experiment_id in (select experiment_id from of_group where target_kind = 'http'))"""
    calls, usd, unpriced = store.query(query, [run_group])[0]
    return int(calls), float(usd), int(unpriced)


def cached_calls(store: Store, experiment_id: str) -> int:
    """Return the number of calls answered from the ledger."""
    query = """select coalesce(sum(calls_cached), 0) from (
                   select calls_cached from source.outputs where experiment_id = $1
                   union all select calls_cached from source.scores where experiment_id = $1)"""
    return int(store.query(query, [experiment_id])[0][0])


def application_versions(store: Store, experiment_id: str) -> str | None:
    """Return the versions of the HTTP application that answered, in order of time; None if none was said."""
    query = """select string_agg(application_version, ', ' order by since) from (
                   select application_version, min(started_at) as since from source.outputs
                   where experiment_id = ? and application_version is not null group by 1)"""
    return store.query(query, [experiment_id])[0][0]  # type: ignore[no-any-return]


def open_work(store: Store, experiment_id: str, transient: Collection[str]) -> int:
    """Return the number of rows that another attempt may complete: not attempted, or with a transient failure.

    `transient` are the retryable error kinds.
    """
    query = """select count(*) from (
                   select status, error_kind from source.outputs where experiment_id = $1
                   union all select status, error_kind from source.scores where experiment_id = $1)
               where status = 'not_attempted' or (status = 'failed' and list_contains($2, error_kind))"""
    return int(store.query(query, [experiment_id, sorted(transient)])[0][0])


def has_all_files(store: Store, experiment: ExperimentRow) -> bool:
    """Return whether a sealed experiment has its files of outputs and scores; a damaged one may have been deleted."""
    tables = ["outputs", *(["scores"] if json.loads(experiment.evaluators) else [])]
    return all(store.is_sealed(table, experiment.experiment_id) for table in tables)


def may_be_complete(store: Store, experiment: ExperimentRow, evaluators: Sequence[str]) -> bool:
    """Return whether the open parts of an experiment have as many rows as if all runs were answered and judged."""
    planned = experiment.n_examples * experiment.repetitions
    wanted = {"outputs": planned, "scores": planned * len(evaluators)}
    return all(
        count_rows(store.filesystem, store.open_parts(table, experiment.experiment_id)) >= count
        for table, count in wanted.items()
    )


def whats_missing(
    store: Store, experiment: ExperimentRow, evaluators: Sequence[str], summaries: Sequence[str] = ()
) -> str | None:
    """Describe which answers and scores an experiment lacks, and why; None if it is complete.

    Rows that were not attempted count as lacking. `summaries` are the evaluators that judge the experiment as a whole,
    which give at least one row.
    """
    planned = experiment.n_examples * experiment.repetitions
    outputs, not_attempted = store.query(
        "select count(*), count(*) filter (status = 'not_attempted') from source.outputs where experiment_id = ?",
        [experiment.experiment_id],
    )[0]
    judged = dict(
        store.query(
            """select evaluator, count(distinct subject_id) from source.scores
               where experiment_id = ? and subject_kind in ('run', 'experiment') and status <> 'not_attempted'
               group by 1""",
            [experiment.experiment_id],
        )
    )
    lacking = [f"{planned - outputs + not_attempted} of {planned} answers"] if outputs - not_attempted < planned else []
    lacking += [f"{planned - judged.get(e, 0)} of {planned} by {e}" for e in evaluators if judged.get(e, 0) < planned]
    lacking += [f"the score by {e}" for e in summaries if not judged.get(e)]
    if not lacking:
        return None
    return f"not done: {', '.join(lacking)}{_why_not_attempted(store, experiment.experiment_id)}"


def _why_not_attempted(store: Store, experiment_id: str) -> str:
    """Return the reasons of rows that were not attempted, most frequent first; empty if there are none."""
    query = """select max_by(error, recorded_at) from (
                   select error, status, error_kind, recorded_at from source.outputs where experiment_id = $1
                   union all select error, status, error_kind, recorded_at from source.scores where experiment_id = $1)
               where status = 'not_attempted' and error_kind <> 'no_output'
               group by case when error_kind = 'over_budget' then error_kind else error end  -- whose sums grow
               order by count(*) desc, 1 limit 3"""
    reasons = [error for (error,) in store.query(query, [experiment_id])]
    return f" ({'; '.join(reasons)})" if reasons else ""


def no_answers(store: Store, experiment: ExperimentRow) -> str | None:
    """Describe, with the most frequent error, an experiment without any answered run; None if there is one."""
    query = "select count(*) filter (status = 'ok'), count(*), mode(error) from source.outputs where experiment_id = ?"
    answered, runs, error = store.query(query, [experiment.experiment_id])[0]
    return None if answered else f"none of {runs} answered: {error}"


def no_judgements(store: Store, experiment: ExperimentRow, kinds: Collection[str]) -> str | None:
    """Describe, with the most frequent error, evaluators whose judgements all failed with these error kinds.

    Runs to which an evaluator does not apply are ignored.
    """
    never = """select evaluator from source.scores where experiment_id = ?
               group by 1 having not bool_or(status = 'scored')"""
    if not store.query(never, [experiment.experiment_id]):  # as usual, and in a tenth of the time
        return None
    query = """select s.evaluator, count(*), mode(s.error) from source.scores s
               join source.outputs o using (experiment_id, run_id)
               where s.experiment_id = ? and o.status = 'ok' and s.status not in ('not_applicable', 'sampled_out')
               group by s.evaluator
               having bool_and(s.status = 'failed' and list_contains(?, coalesce(s.error_kind, '')))
               order by s.evaluator"""
    failed = store.query(query, [experiment.experiment_id, sorted(kinds)])
    return "; ".join(f"{evaluator} judged none of {n} answers: {error}" for evaluator, n, error in failed) or None


def complete_scores(store: Store, experiment_id: str) -> None:
    """Rewrite the scores, if needed, so that each run has one row per metric.

    An evaluator may give several metrics, or one with a name other than its own. If it failed or did not apply, that
    row becomes one row per metric that it gave elsewhere; if it left a metric out, a row is added. Scores of turns are
    left unchanged, because only an evaluation knows the number of turns.
    """
    if not _gave_several(store, experiment_id):
        return
    rows: list[ScoreRow] = store.read("scores", experiment_id)
    metrics: dict[tuple[str, str], dict[str, None]] = {}
    whole = [row for row in rows if row.turn is None]
    for row in whole:
        if row.status == "scored" or (row.status != "failed" and row.metric != row.evaluator):
            metrics.setdefault((row.evaluator, row.evaluator_version), {})[row.metric] = None
    several = {key: list(names) for key, names in metrics.items() if list(names) != [key[0]]}
    if not several:
        return
    completed = [row for row in rows if row.turn is not None or (row.evaluator, row.evaluator_version) not in several]
    of_run: dict[tuple[str, str, str], list[ScoreRow]] = {}
    for row in whole:
        if (row.evaluator, row.evaluator_version) in several:
            of_run.setdefault((row.subject_id, row.evaluator, row.evaluator_version), []).append(row)
    for (_, evaluator, version), judgements in of_run.items():
        completed += _row_per_metric(judgements, several[evaluator, version])
    store.publish("scores", experiment_id, completed)


def _gave_several(store: Store, experiment_id: str) -> bool:
    """Return whether an evaluator gave anything but one metric of its own name: few do, and this is faster than reading
    all rows."""
    query = """select count(*) from source.scores where experiment_id = ? and turn is null and metric <> evaluator"""
    return bool(store.query(query, [experiment_id])[0][0])


def _row_per_metric(rows: list[ScoreRow], metrics: list[str]) -> list[ScoreRow]:
    judged = {row.metric: row for row in rows if row.metric in metrics and row.status != "failed"}
    if judged:
        first = next(iter(judged.values()))
        return [judged.get(metric) or _left_out(first, metric) for metric in metrics]
    last = max(rows, key=lambda row: (row.status != "failed", row.recorded_at))
    return [_copy(last, metrics[0]), *(_unpaid(_copy(last, metric)) for metric in metrics[1:])]


def _copy(row: ScoreRow, metric: str) -> ScoreRow:
    return replace(row, metric=metric, score_id=derived_id(row.subject_id, row.turn, metric, row.evaluator_version))


def _unpaid(row: ScoreRow) -> ScoreRow:
    """Remove the cost, which the first row has for all, so that sums are right."""
    return replace(row, calls=0, calls_cached=0, tokens_in=None, tokens_out=None, cost_usd=0.0)


def _left_out(row: ScoreRow, metric: str) -> ScoreRow:
    return replace(
        _unpaid(_copy(row, metric)),
        value=None,
        label=None,
        data_type=None,
        status="not_applicable",
        comment=f"{row.evaluator} gave no {metric} for this run",
        metadata=None,
    )
