"""Results of experiments on some of their examples only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalflows.reports.results import Result
from evalflows.specs.metric_names import is_pass_k
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.records import EstimateRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenExamples:
    """Which examples of each experiment count, by experiment id, and the means on these."""

    where: str  # the condition that chose them
    examples: Mapping[str, Sequence[str]]
    estimates: Sequence[EstimateRow]


def on_chosen(store: Store, results: Sequence[Result], chosen: ChosenExamples) -> list[Result]:
    """Return the results with the means, counts and labels of the chosen examples; costs are unchanged.

    Scores of whole experiments cannot be restricted, and are left out.
    """
    pairs = [(owner, example) for owner, examples in chosen.examples.items() for example in examples]
    (rows,) = ask(store, (_COUNTED, [[pair[place] for pair in pairs] for place in (0, 1)]))
    counted = {
        (owner, metric, evaluator): dict(zip(_COUNTS, row, strict=True)) for owner, metric, evaluator, *row in rows
    }
    means = {(one.experiment_id, one.metric): one for one in chosen.estimates}
    out = []
    for result in results:
        mean = means.get((result.experiment_id, result.metric))
        counts = counted.get((result.experiment_id, result.metric, result.evaluator))
        if is_pass_k(result.metric) and mean is not None:
            n = len(chosen.examples[result.experiment_id])
            counts = {**dict.fromkeys(_COUNTS), "scored": mean.n_examples, "missing": n - mean.n_examples}
            counts |= {"not_applicable": 0, "sampled_out": 0}
        if counts is not None:
            out.append(replace(result, **counts, **_mean_of(mean, result)))
    return out


def _mean_of(mean: EstimateRow | None, result: Result) -> dict[str, Any]:
    """The mean of a result; None for labels. Why there is no interval, unless a verdict gives its own reason."""
    fields = ("mean", "standard_error", "ci_low", "ci_high", "confidence_level", "method")
    found: dict[str, Any] = {name: getattr(mean, name) if mean else None for name in fields}
    if mean is not None and result.conclusion is None:
        found |= {"reason": mean.reason, "reason_code": mean.reason_code}
    return found


_COUNTS = ("scored", "missing", "not_applicable", "sampled_out", "shares")

_COUNTED = """
with chosen as (
    select v.experiment_id, v.metric, v.evaluator, v.value, v.label, v.status,
           case when v.status = 'scored' then 1 / coalesce(v.sampling_rate, 1.0) end as weight
    from run_values v semi join (select unnest($1) as experiment_id, unnest($2) as example_id) c
         on v.experiment_id = c.experiment_id and v.example_id = c.example_id
), labels as (
    select experiment_id, metric, evaluator, label, count(*) as n,
           sum(weight) / sum(sum(weight)) over (partition by experiment_id, metric, evaluator) as share
    from chosen where status = 'scored' and label is not null group by experiment_id, metric, evaluator, label
), shares as (
    select experiment_id, metric, evaluator,
           string_agg(label || ' ' || round(100 * share)::int || ' %', ', ' order by n desc, label) as shares
    from labels group by experiment_id, metric, evaluator
)
select experiment_id, metric, evaluator,
       case when count(value) > 0 then count(value) filter (status = 'scored')
            else count(*) filter (status = 'scored') end,
       count(*) filter (status in ('failed', 'not_attempted')),
       count(*) filter (status = 'not_applicable')
           + case when count(value) > 0 then count(*) filter (status = 'scored' and value is null) else 0 end,
       count(*) filter (status = 'sampled_out'),
       any_value(shares)
from chosen left join shares using (experiment_id, metric, evaluator)
group by experiment_id, metric, evaluator
"""
