"""How far an experiment is: what is missing, what another attempt may yet better, what it cost."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from store.parquet import Store
from store.records import ExperimentRow, ScoreRow, derived_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The sums over an experiment's calls, each counted once."""

    calls: int
    tokens_in: int
    tokens_out: int
    cost_usd: float | None  # None if any call's cost is not known


def spent(store: Store, experiment_id: str) -> Spent:
    """What the experiment paid for itself; answers from other experiments' calls cost nothing."""
    row = store.query(
        """select count(*), coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0), coalesce(sum(cost_usd), 0),
                  count(*) filter (cost_usd is null)
           from source.calls where experiment_id = ?""",
        [experiment_id],
    )[0]
    return Spent(calls=row[0], tokens_in=int(row[1]), tokens_out=int(row[2]), cost_usd=None if row[4] else row[3])


def spent_by_group(store: Store, run_group: str) -> tuple[int, float, int]:
    """What the experiments of one start have paid: calls, USD, and how many of the calls have no known price."""
    query = """select count(*), coalesce(sum(cost_usd), 0), count(*) filter (cost_usd is null) from source.calls
               where experiment_id in (select experiment_id from source.experiments where run_group = ?)"""
    calls, usd, unpriced = store.query(query, [run_group])[0]
    return int(calls), float(usd), int(unpriced)


def cached_calls(store: Store, experiment_id: str) -> int:
    """How many answers came from the ledger."""
    query = """select coalesce(sum(calls_cached), 0) from (
                   select calls_cached from source.outputs where experiment_id = $1
                   union all select calls_cached from source.scores where experiment_id = $1)"""
    return int(store.query(query, [experiment_id])[0][0])


def open_work(store: Store, experiment_id: str, transient: Collection[str]) -> int:
    """How many rows stand for something that another attempt may yet bring: not attempted, or failed for now.

    `transient` are the kinds of error that may pass.
    """
    query = """select count(*) from (
                   select status, error_kind from source.outputs where experiment_id = $1
                   union all select status, error_kind from source.scores where experiment_id = $1)
               where status = 'not_attempted' or (status = 'failed' and list_contains($2, error_kind))"""
    return int(store.query(query, [experiment_id, sorted(transient)])[0][0])


def whats_missing(
    store: Store, experiment: ExperimentRow, evaluators: Sequence[str], summaries: Sequence[str] = ()
) -> str | None:
    """What an experiment still lacks for each run to have its row and each evaluator's, in words; None if nothing.

    A row that says that nothing was attempted is none; why, is said too.

    `summaries` are the evaluators that judge the experiment as a whole, and so give it one row at least.
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
    why = _why_not_attempted(store, experiment.experiment_id)
    return f"not done: {', '.join(lacking)}{why}" if lacking else None


def _why_not_attempted(store: Store, experiment_id: str) -> str:
    """The reasons that the rows give, the most frequent one first; nothing if there is none."""
    query = """select error from (
                   select error, status, error_kind from source.outputs where experiment_id = $1
                   union all select error, status, error_kind from source.scores where experiment_id = $1)
               where status = 'not_attempted' and error_kind <> 'no_output' group by error
               order by count(*) desc, error limit 3"""
    reasons = [error.removeprefix("not attempted: ") for (error,) in store.query(query, [experiment_id])]
    return f" ({'; '.join(reasons)})" if reasons else ""


def no_answers(store: Store, experiment: ExperimentRow) -> str | None:
    """Says so, with the most frequent error, if not one run of an experiment was answered."""
    query = "select count(*) filter (status = 'ok'), count(*), mode(error) from source.outputs where experiment_id = ?"
    answered, runs, error = store.query(query, [experiment.experiment_id])[0]
    return None if answered else f"none of {runs} answered: {error}"


def no_judgements(store: Store, experiment: ExperimentRow, kinds: Collection[str]) -> str | None:
    """Says so, with the most frequent error, if every judgement of an evaluator failed by an error of these kinds.

    What it did not apply to does not count.
    """
    query = """select s.evaluator, count(*), mode(s.error) from source.scores s join source.outputs o using (run_id)
               where s.experiment_id = ? and o.status = 'ok' and s.status not in ('not_applicable', 'sampled_out')
               group by s.evaluator
               having bool_and(s.status = 'failed' and list_contains(?, coalesce(s.error_kind, '')))
               order by s.evaluator"""
    lost = store.query(query, [experiment.experiment_id, sorted(kinds)])
    return "; ".join(f"{evaluator} judged none of {n} answers: {error}" for evaluator, n, error in lost) or None


def complete_scores(store: Store, experiment_id: str) -> None:
    """Publish the scores anew, where they need it, so that each run has its row for every metric.

    An evaluator may give several metrics, or one by another name than its own. Where it failed or did not apply, the
    row that says so becomes one for each metric that it gave elsewhere; where it left a metric out, a row says so.
    The scores of turns stay as they are: of how many there are, only a judgement knows.
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
    kept = [row for row in rows if row.turn is not None or (row.evaluator, row.evaluator_version) not in several]
    of_run: dict[tuple[str, str, str], list[ScoreRow]] = {}
    for row in whole:
        if (row.evaluator, row.evaluator_version) in several:
            of_run.setdefault((row.subject_id, row.evaluator, row.evaluator_version), []).append(row)
    for (_, evaluator, version), found in of_run.items():
        kept += _one_a_metric(found, several[evaluator, version])
    store.publish("scores", experiment_id, kept)


def _gave_several(store: Store, experiment_id: str) -> bool:
    """Whether an evaluator gave anything else than one metric of its own name: nearly none does, and to read all rows
    takes longer than to ask."""
    query = """select count(*) from source.scores where experiment_id = ? and turn is null and metric <> evaluator"""
    return bool(store.query(query, [experiment_id])[0][0])


def _one_a_metric(rows: list[ScoreRow], metrics: list[str]) -> list[ScoreRow]:
    given = {row.metric: row for row in rows if row.metric in metrics and row.status != "failed"}
    if given:
        first = next(iter(given.values()))
        return [given.get(metric) or _left_out(first, metric) for metric in metrics]
    said = max(rows, key=lambda row: (row.status != "failed", row.recorded_at))
    return [_copy(said, metrics[0]), *(_unpaid(_copy(said, metric)) for metric in metrics[1:])]


def _copy(row: ScoreRow, metric: str) -> ScoreRow:
    return replace(row, metric=metric, score_id=derived_id(row.subject_id, row.turn, metric, row.evaluator_version))


def _unpaid(row: ScoreRow) -> ScoreRow:
    """What several rows cost together stands at the first, so that sums are right."""
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
