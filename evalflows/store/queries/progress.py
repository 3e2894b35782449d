"""The progress of experiments and comparisons: what is done, what is missing and why, and what can be tried again."""

from __future__ import annotations  # types of libraries that are imported when first used

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from evalflows.specs.errors import StorageError
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES
from evalflows.store.arrow import duckdb
from evalflows.store.file_states import states_of
from evalflows.store.file_systems import readable_paths
from evalflows.store.files import count_rows
from evalflows.store.layout import files
from evalflows.store.packs import files_of
from evalflows.store.queries.spending import PAID_CALL, REUSED_CALL
from evalflows.store.schemas import TABLES
from evalflows.store.spool import spool_folder
from evalflows.store.sql import ask
from evalflows.store.store import Store

Counts = dict[str, tuple[int, int]]
"""The answered and the failed runs, by experiment id."""

_COUNTS = """
select experiment_id, count(*) filter (status = 'ok'), count(*) filter (status = 'failed')
from {source} where list_contains($1, experiment_id) group by experiment_id
"""

_JUDGED = ("subjects", "called", "tried", "all_failed", "metrics")
_REPORTED = "status in ('ok', 'failed') and (calls is null or ($2 and status = 'ok'))"

_TRIED = """
subject_kind in ('run', 'pair') and status not in ('not_applicable', 'sampled_out', 'not_attempted')
and error_kind is distinct from 'no_output' and decided_by is distinct from 'failed_output'
"""

INTERRUPTED = "interrupted"
"""The state, in the views, of what its row calls running and no process works on: cancelled, killed, or crashed."""


def answer_counts(store: Store, experiments: Sequence[str]) -> Counts:
    """Return the counts of experiments, given by id. The files of sealed ones are read by name, and not verified."""
    sealed = {identity: path for identity in experiments if (path := store.sealed_file("outputs", identity))}
    others = [identity for identity in experiments if identity not in sealed]
    counts = dict.fromkeys(experiments, (0, 0))
    if sealed:
        try:
            counts |= _of_files(store, sealed)
        except (duckdb.Error, StorageError):  # reopened meanwhile, or damaged
            others = list(experiments)
    if others:
        (rows,) = ask(store, (_COUNTS.format(source="outputs"), [others]))
        counts |= _by_experiment(rows)
    return counts


def _of_files(store: Store, sealed: Mapping[str, str]) -> Counts:
    query = _COUNTS.format(source=files(readable_paths(store.filesystem, sorted({*sealed.values()}))))
    with store.cursor() as connection:
        return _by_experiment(connection.execute(query, [[*sealed]]).fetchall())


def _by_experiment(rows: Sequence[tuple[str, int, int]]) -> Counts:
    return {identity: (answered, failed) for identity, answered, failed in rows}


def item_metrics(store: Store, experiments: Sequence[str]) -> list[str]:
    """Return the run-level metrics of the experiments, and the built-in measures."""
    query = "select distinct metric from source.judgements where list_contains(?, experiment_id) order by metric"
    return [*(metric for (metric,) in store.query(query, [list(experiments)])), *MEASURES]


def owner_states(store: Store, owners: Collection[str], tables: Collection[str] = ()) -> frozenset[tuple[str, object]]:
    """Return the files of these owners, and all files of these tables, each with its state.

    As long as this is the same, so are the rows. Of a file system that tells no times, that holds for sealed files.
    """
    states = states_of(store.layout, store.filesystem)
    found = {*files_of(store.filesystem, states, owners, TABLES.keys())}
    found |= {path for path in states if path.split("/")[-4] in tables}
    return frozenset((path, states[path]) for path in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Sums over the calls of an experiment or a comparison, each counted once."""

    calls: int | None  # None if some may have been made that nobody recorded
    tokens_in: int | None  # None if calls were not recorded and none reported any
    tokens_out: int | None
    cost_usd: float | None  # None if the cost of a call is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSubjects:
    """What one evaluator made of the subjects of an experiment or a comparison."""

    subjects: int  # with a judgement, also a failed one; a pair without an answer counts
    called: Literal["answers", "pairs"]
    tried: int  # judgements, but for subjects without an answer and those to which it does not apply
    all_failed: bool  # these, with errors that pass
    metrics: Sequence[str]  # scored


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """What an experiment or a comparison has made so far."""

    answers: int
    answered: int
    attempted: int  # answers, also failed ones
    versions: Sequence[str]  # of the HTTP application that answered, in order of time
    judged: Mapping[str, JudgedSubjects]  # by evaluator
    calls_cached: int  # answered from the ledger
    spent: Spent

    @property
    def given_twice(self) -> str | None:
        """Metrics that several evaluators gave, which makes them ambiguous, in words.

        In an experiment a process refuses the second evaluator; another process, or a resumption, may refuse the first.
        """
        gave: dict[str, list[str]] = {}
        for evaluator, judged in sorted(self.judged.items()):
            for metric in judged.metrics:
                gave.setdefault(metric, []).append(evaluator)
        twice = [f"{' and '.join(by)} both give {metric!r}" for metric, by in sorted(gave.items()) if len(by) > 1]
        return "; ".join(f"{what}, wanted different metric names" for what in twice) or None


def work_done(store: Store, owner: str, passing: Collection[str] = (), *, is_application: bool = False) -> WorkDone:
    """Return what an experiment or a comparison has made. `passing` are the kinds of errors that pass.

    What it paid is as recorded, and as an HTTP application reports if it was one. Answers reused from other experiments
    cost nothing.
    """
    answers = store.query(_ANSWERS, [owner, is_application])
    judgements = store.query(_JUDGEMENTS, [owner, sorted(passing)])
    calls = store.query(_CALLS, [owner])
    return WorkDone(
        answers=sum(row[1] for row in answers),
        answered=sum(row[2] for row in answers),
        attempted=sum(row[3] for row in answers),
        versions=[row[0] for row in answers if row[0] is not None],
        judged={row[0]: JudgedSubjects(**dict(zip(_JUDGED, row[1:6], strict=True))) for row in judgements},
        calls_cached=sum(row[-8] for row in (*answers, *judgements, *calls)),
        spent=_spent([row[-7:] for row in (*answers, *judgements, *calls)]),
    )


def _spent(parts: Sequence[Sequence[Any]]) -> Spent:
    calls, tokens_in, tokens_out, cost, without_cost, without_calls, with_tokens = (
        math.fsum(value for value in column if value is not None) for column in zip(*parts, strict=True)
    )
    is_said = not without_calls or with_tokens
    return Spent(
        calls=None if without_calls else int(calls),
        tokens_in=int(tokens_in) if is_said else None,
        tokens_out=int(tokens_out) if is_said else None,
        cost_usd=None if without_cost else cost,
    )


def _sums(of: str, calls: str = "calls") -> str:
    """Return SQL of the columns of `_spent`, over the rows for which a condition holds."""
    sums = ", ".join(f"sum({name}) filter ({of})" for name in (calls, "tokens_in", "tokens_out", "cost_usd"))
    return f"""{sums}, count(*) filter (({of}) and cost_usd is null), count(*) filter (({of}) and {calls} is null),
               count(tokens_in) filter ({of})"""


_ANSWERS = f"""
select application_version, count(*), count(*) filter (status = 'ok'), count(*) filter (status <> 'not_attempted'),
       coalesce(sum(calls_cached), 0), {_sums(_REPORTED)}
from source.outputs where experiment_id = $1 group by 1 order by min(started_at)
"""

_JUDGEMENTS = f"""
select evaluator,
       count(distinct subject_id)
           filter (status <> 'not_attempted' or (subject_kind = 'pair' and error_kind = 'no_output')),
       case when any_value(subject_kind) filter ({_TRIED}) = 'pair' then 'pairs' else 'answers' end,
       count(*) filter ({_TRIED}),
       coalesce(bool_and(status = 'failed' and list_contains($2, coalesce(error_kind, ''))) filter ({_TRIED}), false),
       coalesce(list(distinct metric) filter (status = 'scored'), []),
       coalesce(sum(calls_cached), 0), {_sums("calls is null")}
from source.judgements where experiment_id = $1 group by 1 order by 1
"""
_CALLS = f"""
select count(*) filter ({REUSED_CALL}), {_sums(PAID_CALL, "1")} from source.calls where experiment_id = $1
"""


def calls_of_group(store: Store, run_group: str) -> int | None:
    """Return the model calls of a run group so far; None if some may have been made that nobody recorded."""
    query = "select distinct experiment_id, target_kind = 'http' from source.experiments where run_group = ?"
    rows = store.query(query, [run_group])
    calls = [work_done(store, identity, is_application=is_one).spent.calls for identity, is_one in rows]
    return None if None in calls else sum(number for number in calls if number is not None)


def open_work(store: Store, owner: str, transient: Collection[str]) -> int:
    """Return the number of rows of an experiment or a comparison that another attempt may complete.

    Those are not attempted, failed with one of the `transient` error kinds, or decided by a failed answer that has
    arrived by now.
    """
    query = """with answered as (
                   select run_id from source.outputs where status = 'ok' and experiment_id in (
                       select unnest(experiments) from source.comparison_sets where comparison_id = $1))
               select count(*) from (
                   select status, error_kind, false as has_arrived from source.outputs where experiment_id = $1
                   union all
                   select status, error_kind, coalesce(decided_by = 'failed_output' and left_run_id in (from answered)
                                                       and right_run_id in (from answered), false)
                   from source.judgements where experiment_id = $1)
               where status = 'not_attempted' or (status = 'failed' and list_contains($2, error_kind)) or has_arrived"""
    return int(store.query(query, [owner, sorted(transient)])[0][0])


def judged_examples(store: Store, comparison_id: str, n_pairs: int) -> frozenset[str]:
    """Return the examples of a comparison of which `n_pairs` pairs have been judged, counted once per evaluator.

    Pairs with an answer that was not made count as judged.
    """
    query = """select example_id from source.judgements
               where experiment_id = ? and (status <> 'not_attempted' or error_kind = 'no_output')
               group by 1 having count(distinct (evaluator, left_run_id, right_run_id)) >= ?"""
    return frozenset(example for (example,) in store.query(query, [comparison_id, n_pairs]))


def may_be_complete(store: Store, owner: str, answers: int, judgements: int) -> bool:
    """Return whether the open parts of an experiment or a comparison have as many rows as if all was done."""
    wanted = {"outputs": answers, "judgements": judgements}
    return all(count_rows(store.filesystem, store.open_parts(table, owner)) >= count for table, count in wanted.items())


def whats_missing(
    store: Store,
    owner: str,
    made: WorkDone,
    evaluators: Sequence[str],
    planned: int,
    *,
    answers: int = 0,
    summaries: Sequence[str] = (),
) -> str | None:
    """Describe which of its `answers` and `planned` judgements an experiment or a comparison lacks, and why.

    Rows that were not attempted count as lacking, but for a pair with an answer that was never made: a comparison
    cannot complete it. `summaries` are the evaluators that judge the experiment as a whole, which give at least one
    row. Return None if nothing is lacking.
    """
    judged = {evaluator: of.subjects for evaluator, of in made.judged.items()}
    lacking = [f"{answers - made.attempted} of {answers} answers"] if made.attempted < answers else []
    lacking += [f"{planned - judged.get(e, 0)} of {planned} by {e}" for e in evaluators if judged.get(e, 0) < planned]
    lacking += [f"the score by {e}" for e in summaries if not judged.get(e)]
    if not lacking:
        return None
    why = _why_not_attempted(store, owner)
    return f"not done: {', '.join(lacking)}{why}{_fully_judged(store, owner, evaluators, planned)}"


def _fully_judged(store: Store, owner: str, evaluators: Sequence[str], planned: int) -> str:
    """Return how many answers have the judgements of all evaluators, if a budget ended the judging by several."""
    query = """select count(*) filter (judges = $2), bool_or(was_over) from (
                   select count(distinct evaluator) filter (status <> 'not_attempted') as judges,
                          bool_or(error_kind in ('over_budget', 'unpriced')) as was_over
                   from source.judgements
                   where experiment_id = $1 and subject_kind = 'run' and list_contains($3, evaluator)
                   group by subject_id)"""
    if len(evaluators) < 2:
        return ""
    whole, was_over = store.query(query, [owner, len(evaluators), list(evaluators)])[0]
    return f"; {whole} of {planned} have all their judgements" if was_over else ""


def _why_not_attempted(store: Store, owner: str) -> str:
    """Return the reasons of rows that were not attempted, most frequent first; empty if there are none."""
    query = """select max_by(error, recorded_at) from (
                   select error, status, error_kind, recorded_at from source.outputs where experiment_id = $1
                   union all
                   select error, status, error_kind, recorded_at from source.judgements where experiment_id = $1)
               where status = 'not_attempted' and error_kind <> 'no_output'
               group by case when error_kind in ('over_budget', 'unpriced') then error_kind else error end  -- sums grow
               order by count(*) desc, 1 limit 3"""
    reasons = [error for (error,) in store.query(query, [owner])]
    return f" ({'; '.join(reasons)})" if reasons else ""


def nothing_made(store: Store, owner: str, made: WorkDone, *, answers: int = 0) -> dict[str, str]:
    """Return who made nothing at all, in words, each with its most frequent error: an experiment of `answers` in which
    none was made, or else evaluators whose judgements all failed with errors that pass."""
    if answers and not made.answered:
        query = "select mode(error) from source.outputs where experiment_id = ?"
        return {f"none of {made.answers} answered": store.query(query, [owner])[0][0]}
    query = f"select mode(error) from source.judgements where experiment_id = ? and evaluator = ? and {_TRIED}"
    return {
        f"{by} judged none of {of.tried} {of.called}": store.query(query, [owner, by])[0][0]
        for by, of in made.judged.items()
        if of.all_failed
    }


def spooled_if_unfinished(store: Store, state: str, owner: str, table: str) -> int:
    """Return how many rows of a table a running or interrupted owner has beside those in its parts; else 0."""
    return spooled_rows(store, owner, (table,)) if state in ("running", INTERRUPTED) else 0


def spooled_rows(store: Store, owner: str, tables: Iterable[str]) -> int:
    """Return how many answers or judgements a process on this machine has made and not written as parts, as it runs or
    has died: the rows of these tables that did not fail."""
    wanted, count = {*tables}, 0
    for path in (spool_folder(store) / owner).glob("*.jsonl"):
        with suppress(OSError), path.open("rb") as file:
            for line in file:
                with suppress(ValueError, KeyError, TypeError):  # a line that is being written
                    entry = json.loads(line.partition(b" ")[2])
                    count += entry["table"] in wanted and entry["row"]["status"] not in ("failed", "not_attempted")
    return count
