"""What went wrong, as it was noted: the comments on bad scores, errors, and people's notes."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from math import ceil
from typing import Any

from evalflows.specs.errors import InputError, NotFoundError
from evalflows.specs.failure_modes import PREFIX
from evalflows.specs.frozen import dataclass
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.queries.trace_evaluations import production_metric, trace_evaluations
from evalflows.store.queries.traces import LATEST, Window, condition, item_keys
from evalflows.store.records import from_json
from evalflows.store.sql import ask, ask_records
from evalflows.store.store import Store

MOST = 1_000_000
"""Most traces that are looked at."""

_ONE_EACH = """
select min(o.run_id) from staging.outputs o join staging.experiments e using (experiment_id)
join staging.examples x on x.snapshot_id = e.snapshot_id and x.example_id = o.example_id
where list_contains($1, o.experiment_id) group by x.example_id, x.inputs
"""

_TRACE_SCORES = """
select trace_id, metric, value, data_type = 'BOOLEAN', comment from trace_scores
where case when $2 is null then subject_kind = 'trace' else trace_id is not null and left(evaluation_day, -11) = $2 end
      and status = 'scored' and value is not null and not starts_with(metric, $1)
"""

_TRACE_ERRORS = """
select o.trace_id, o.status_message from staging.observations o join traces t using (trace_id)
where t.status = 'error' and o.status = 'error' order by o.started_at, o.span_id
"""

_RATES = """
select coalesce(experiment, evaluation) as of, subject_kind, started_at, evaluator_version, n_with, n, rate
from mode_rates
where mode = $1 and ($2 is null or list_contains($2, experiment_id) or list_contains($2, left(experiment_id, -11)))
order by started_at, of
"""

_ANSWERS = """
select run_id, example_id, subject_kind, subject_id, comment from mode_items
where mode = $1 and ($3 is null or list_contains($3, experiment_id) or list_contains($3, left(experiment_id, -11)))
order by started_at desc, subject_id limit $2
"""


def owners_of(store: Store, reference: str) -> list[str]:
    """Return the ids of the experiments that a reference means, else that of the trace evaluation of this name."""
    try:
        return find_experiments(store, reference)
    except NotFoundError as missing:
        known = {evaluation.name: evaluation.evaluation_id for evaluation in trace_evaluations(store)}
        if reference in known:
            return [known[reference]]
        if known:
            raise NotFoundError(f"{missing}; trace evaluations: {', '.join(known)}") from None
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An answer, or a trace, that went wrong."""

    id: str  # of the run or trace
    notes: Sequence[str]  # what was noted about it, without repetitions


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTexts:
    """An answer, or a trace, as JSON."""

    id: str  # of the run or trace
    inputs: str | None
    reference_outputs: str | None
    outputs: str | None


def texts_of(store: Store, ids: Sequence[str]) -> list[AnswerTexts]:
    """Return the texts of runs or traces, in order of their ids."""
    found = ask_records(store, AnswerTexts, _RUN_TEXTS, [[*ids]])
    if others := {*ids} - {texts.id for texts in found}:  # to plan a query of traces takes 0.2 s
        found += ask_records(store, AnswerTexts, _TRACE_TEXTS, [[*others]])
    return sorted(found, key=lambda texts: texts.id)


def share_of_experiments(store: Store, experiments: Sequence[str], share: float) -> list[str]:
    """Return the ids of the answers to a random share of the examples of experiments, the same each time: one for each
    example and its inputs."""
    (rows,) = ask(store, (_ONE_EACH, [[*experiments]]))
    return _share([identity for (identity,) in rows], share)


def share_of_traces(store: Store, filter: str | None, share: float) -> list[str]:  # noqa: A002
    """Return the ids of a random share of the traces, the same each time. Raise InputError for an invalid filter."""
    window = Window(moment="started_at", since=None, until=LATEST, newest_first=False)
    return _share([key.id for key in item_keys(store, "traces", condition(filter, "traces"), window, MOST)], share)


def _share(ids: Sequence[str], share: float) -> list[str]:
    by_chance = sorted(ids, key=lambda identity: sha256(identity.encode()).digest())
    return sorted(by_chance[: ceil(share * len(ids))])


@dataclass(frozen=True, slots=True, kw_only=True)
class BadScore:
    """Which scores of a metric are bad: below or above a bound, or the bad one of yes and no without a bound."""

    metric: str
    below: float | None = None
    above: float | None = None


def bad_score(text: str) -> BadScore:
    """Read `correct`, `quality<3` or `cost>0.1`. Raise InputError for another text."""
    found = re.fullmatch(r"\s*([^<>]+?)\s*(?:([<>])\s*(\S+))?\s*", text)
    try:
        bound = None if found is None or found[3] is None else float(found[3])
    except ValueError:
        found = None
    if found is None:
        raise InputError(f"--failed: got {text!r}, wanted a metric, or one with a bound such as quality<3 or cost>0.1")
    return BadScore(metric=found[1], below=bound if found[2] == "<" else None, above=bound if found[2] == ">" else None)


def failures_of_experiments(
    store: Store, experiments: Sequence[str], bad: Sequence[BadScore] = (), against: str | None = None
) -> list[Failure]:
    """Return the answers of experiments that failed, or whose score is bad, in order of their ids.

    Bad scores are by default those of all yes/no metrics but failure modes. With an experiment to compare with, bad are
    scores worse than its mean score of the same example.
    """
    chosen = {
        "experiments": [*experiments],
        "metrics": [bound.metric for bound in bad],
        "below": [bound.below for bound in bad],
        "above": [bound.above for bound in bad],
        "against": against,
        "prefix": PREFIX,
    }
    (rows,) = ask(store, (_OF_EXPERIMENTS, chosen))
    if bad and (unknown := {bound.metric for bound in bad} - _metrics(store, experiments)):
        raise InputError(f"--failed: the experiments have no metric {min(unknown)!r}")
    return _noted(rows)


def failures_of_traces(
    store: Store, only: str | None, bad: Sequence[BadScore] = (), evaluation: str | None = None
) -> list[Failure]:
    """Return the traces that ended in an error, or whose score is bad, as `failures_of_experiments` does.

    Of a trace evaluation, given by its id, only its scores count, and errors of the traces that it judged.

    Raise InputError for an invalid filter.
    """
    window = Window(moment="started_at", since=None, until=LATEST, newest_first=False)
    keys = {key.id for key in item_keys(store, "traces", condition(only, "traces"), window, MOST)}
    bounds = {bound.metric: bound for bound in bad}
    scores, errors = ask(store, (_TRACE_SCORES, [PREFIX, evaluation]), (_TRACE_ERRORS, []))
    if evaluation is not None:
        keys &= {trace for trace, *_ in scores}
    directions: dict[str, bool] = {}
    rows = [(trace, error) for trace, error in errors if trace in keys]
    for trace, metric, value, is_yes_no, comment in scores:
        if trace not in keys or (bounds and metric not in bounds):
            continue
        bound = bounds.get(metric, BadScore(metric=metric))
        if bound.below is not None or bound.above is not None:
            is_bad = value < bound.below if bound.below is not None else value > (bound.above or 0.0)
        else:
            if metric not in directions:
                directions[metric] = production_metric(store, metric).is_higher_better(metric)
            is_bad = is_yes_no and value == (0 if directions[metric] else 1)
        if is_bad:
            rows.append((trace, comment))
    return _noted(sorted(rows, key=lambda row: (row[0], row[1] or "")))


def _noted(rows: Iterable[tuple[str, str | None]]) -> list[Failure]:
    notes: dict[str, dict[str, None]] = {}
    for identity, note in rows:
        of_item = notes.setdefault(identity, {})
        if note and note.strip():
            of_item[note] = None
    return [Failure(id=identity, notes=[*texts]) for identity, texts in sorted(notes.items())]


def _metrics(store: Store, experiments: Sequence[str]) -> set[str]:
    query = "select distinct metric from staging.scores where list_contains(?, experiment_id)"
    return {metric for (metric,) in ask(store, (query, [[*experiments]]))[0]}


_RUN_TEXTS = """
select o.run_id, x.inputs::varchar, x.reference_outputs::varchar, o.outputs::varchar
from staging.outputs o join staging.experiments e using (experiment_id)
join staging.examples x on x.snapshot_id = e.snapshot_id and x.example_id = o.example_id
where list_contains($1, o.run_id)
"""

_TRACE_TEXTS = """
select trace_id, case when json_valid(input) then input else to_json(input)::varchar end, null,
       case when json_valid(output) then output else to_json(output)::varchar end
from traces where list_contains($1, trace_id)
"""

_OF_EXPERIMENTS = """
with given as (
    select s.run_id, s.example_id, s.metric, s.value, s.data_type, s.comment, higher_is_better(e.spec, s.metric) as up
    from staging.scores s join staging.experiments e using (experiment_id)
    where list_contains($experiments, s.experiment_id) and s.subject_kind = 'run' and s.turn is null
      and s.status = 'scored' and s.value is not null and not starts_with(s.metric, $prefix)
      and (len($metrics) = 0 or list_contains($metrics, s.metric))
), before as (
    select example_id, metric, avg(value) as value from staging.scores
    where experiment_id = $against and subject_kind = 'run' and turn is null and status = 'scored' group by all
), rated as (
    select g.*, b.value as before,
           list_extract($below::double[], list_position($metrics, g.metric)) as below,
           list_extract($above::double[], list_position($metrics, g.metric)) as above
    from given g left join before b using (example_id, metric)
), bad as (
    select run_id, comment from rated
    where case when $against is not null then (case when up then before - value else value - before end) > 1e-9
               when below is not null then value < below
               when above is not null then value > above
               else data_type = 'BOOLEAN' and value = (case when up then 0 else 1 end) end
), failed as (
    select run_id, error from staging.outputs
    where list_contains($experiments, experiment_id) and status = 'failed'
)
select run_id, comment from (
    select run_id, comment, 0 as place from bad
    union all select run_id, error, 1 from failed
    union all select l.subject_id, l.comment, 2 from staging.labels l
        where l.comment is not null and l.subject_id in (select run_id from bad union all select run_id from failed)
) order by run_id, place, comment
"""


@dataclass(frozen=True, slots=True)
class ModeRate:
    """How often a mode holds in an experiment, or on a day of a trace evaluation."""

    experiment: str  # its name, or that of the trace evaluation
    subject_kind: str
    started_at: datetime
    evaluator_version: str
    n_holding: int
    n: int  # scored answers or items
    rate: float  # samples are weighted by the inverse sampling rate

    @property
    def text(self) -> str:
        return f"{self.n_holding} of {self.n} ({self.rate:.1%})"


def rates_of_mode(store: Store, mode: str, experiment: str | None = None) -> list[ModeRate]:
    """Return the rate of a mode in all experiments and trace evaluations, or those that a reference means, newest last.

    Raise InputError if none has scores of it.
    """
    ids = owners_of(store, experiment) if experiment else None
    found = ask_records(store, ModeRate, _RATES, [mode, ids])
    if not found:
        where = repr(experiment) if experiment else "the store"
        wanted = "wanted an experiment or a trace evaluation with the evaluator failure_modes"
        raise InputError(f"{where}: got no scores of {PREFIX}{mode}, {wanted}")
    return found


@dataclass(frozen=True, slots=True)
class AnswerWithMode:
    """An answer, or an item of production, that has a mode, and why."""

    run_id: str | None  # None in production
    example_id: str | None
    subject_kind: str
    subject_id: str  # of the run, trace, observation or session
    comment: str | None


def answers_with_mode(
    store: Store, mode: str, count: int = MOST, owners: Sequence[str] | None = None
) -> list[AnswerWithMode]:
    """Return the newest answers and items with a mode: all, or those of some experiments and trace evaluations."""
    return ask_records(store, AnswerWithMode, _ANSWERS, [mode, count, owners])


def examples_with_mode(store: Store, mode: str, owners: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return the examples whose answers have a mode, as rows of a dataset: of all experiments, or of these."""
    (found,) = ask(store, (_EXAMPLES, [f"{PREFIX}{mode}", owners, owners]))
    return [
        {
            "id": f"{mode}-{example}",
            "inputs": from_json(inputs),
            "reference_outputs": from_json(reference),
            "metadata": (from_json(metadata) or {}) | {"mode": mode, "source_example": example},
            "cluster": cluster,
        }
        for example, inputs, reference, metadata, cluster in found
    ]


_EXAMPLES = """
select example_id, inputs::varchar, reference_outputs::varchar, metadata::varchar, cluster from item_scores
where metric = ? and status = 'scored' and value > 0 and (? is null or list_contains(?, experiment_id))
qualify row_number() over (partition by example_id order by started_at desc, run_id) = 1
order by example_id
"""
