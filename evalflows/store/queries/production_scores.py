"""Scores of production for statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evalflows.specs.gate import ProductionBaseline
from evalflows.specs.grouping import grouped
from evalflows.store.described import from_described
from evalflows.store.observations import day_of
from evalflows.store.queries.values import MetricValues, has_two_values
from evalflows.store.sql import ask
from evalflows.store.store import Store
from evalflows.store.views import view_text

JudgeModels = Mapping[str, str]
"""The judge models, by the tier or fallback that decided."""

_SCORES = """
select * from source.judgements
where experiment_id between $1 and $2 and subject_at >= $3 and subject_at < $4 and turn is null
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductionScores:
    """One metric of the items of a window, by one version of an evaluator."""

    values: MetricValues  # by item
    clusters: Sequence[str]  # the session of each item; else its trace
    noun: str  # what an item is
    judge_models: JudgeModels

    @property
    def n_scored(self) -> int:
        return self.values.scored

    @property
    def n_clusters(self) -> int:
        return len(set(self.clusters))


def known_evaluations(store: Store) -> dict[str, str]:
    """Return the trace evaluations that have run: their ids, by name."""
    rows = store.query("select distinct name, evaluation_id from source.watermarks order by 1")
    return dict(rows)


def composite_definitions(store: Store, evaluation_id: str) -> dict[str, str]:
    """Return the versions of an evaluation's composites, each with that of its definition alone."""
    rows = store.query("select distinct evaluators from source.watermarks where evaluation_id = ?", [evaluation_id])
    judges = [judge for (evaluators,) in rows for judge in from_described(evaluators)]
    return {judge.version: judge.definition for judge in judges if judge.definition is not None}


def versions_in(store: Store, evaluation_id: str, window: ProductionBaseline, metric: str) -> dict[str, list[str]]:
    """Return the evaluators that gave a metric in a window, each with its versions, the newest first."""
    query = f"""select evaluator, evaluator_version from ({_SCORES}) where metric = $5
                group by all order by evaluator, max(recorded_at) desc"""
    (rows,) = ask(store, (query, [*_bounds(evaluation_id, window), metric]))
    return grouped(rows)


def production_scores(
    store: Store, evaluation_id: str, window: ProductionBaseline, metric: str, evaluator_version: str
) -> ProductionScores | None:
    """Return the scores of a metric by one version of an evaluator in a window; None if there are none."""
    values = [*_bounds(evaluation_id, window), metric, evaluator_version, window.version]
    (rows,) = ask(store, (_PRODUCTION_VALUES, values))
    if not rows:
        return None
    kinds, clusters, numbers, missing, rates, evaluators, yes_no, models, deciders = zip(*rows, strict=True)
    array = np.array([np.nan if number is None else number for number in numbers])
    is_missing = np.array(missing, dtype=bool)
    is_yes_no = all(yes_no)
    return ProductionScores(
        values=MetricValues(
            metric=metric,
            evaluator=evaluators[0],
            evaluator_version=evaluator_version,
            is_yes_no=is_yes_no,
            is_binary=is_yes_no or has_two_values(evaluators[0], array),
            values=array,
            missing=is_missing,
            scored=int((~np.isnan(array)).sum()),
            n_missing=int(is_missing.sum()),
            weights=np.array([1.0 if rate is None else 1 / rate for rate in rates]),
            are_0_or_1=bool(np.isin(array[~np.isnan(array)], (0, 1)).all()),
        ),
        clusters=list(clusters),
        noun=f"{kinds[0]}s",
        judge_models=_models(zip(deciders, models, strict=True)),
    )


def _models(pairs: zip[tuple[str | None, str | None]]) -> JudgeModels:
    models: dict[str, set[str]] = {}
    for decider, model in pairs:
        if model is not None:
            models.setdefault(decider or "", set()).add(model)
    return {decider: ", ".join(sorted(names)) for decider, names in models.items()}


def _bounds(evaluation_id: str, window: ProductionBaseline) -> list[object]:
    assert window.since is not None and window.until is not None  # fixed before
    days = [f"{evaluation_id}-{day_of(moment)}" for moment in (window.since, window.until)]
    return [*days, window.since, window.until]


_PRODUCTION_VALUES = f"""
with observations as (
    select * from staging.observations where day >= ($3::timestamptz - interval 1 day)::date::varchar
), traces as ({view_text("traces")}), of_session as (
    select session_id, arg_max(version, started_at) as version from traces where session_id is not null group by all
)
select s.subject_kind,
       case when s.subject_kind = 'session' then s.subject_id
            else coalesce(t.session_id, split_part(s.subject_id, '/', 1)) end,
       case when s.status = 'scored' then s.value end, s.status in ('failed', 'not_attempted'), s.sampling_rate,
       s.evaluator, coalesce(s.data_type, 'BOOLEAN') = 'BOOLEAN', s.judge_model, s.decided_by
from ({_SCORES}) s
left join traces t on s.subject_kind <> 'session' and t.trace_id = split_part(s.subject_id, '/', 1)
left join of_session o on s.subject_kind = 'session' and o.session_id = s.subject_id
where s.metric = $5 and s.evaluator_version = $6 and ($7 is null or coalesce(t.version, o.version) = $7)
      and s.status in ('scored', 'failed', 'not_attempted')
order by s.subject_id
"""
