"""What the store has of a judge: its versions, known-answer controls, biases, and judgements that people labelled."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeVar

from evalflows.store.catalog import ask
from evalflows.store.parquet import Store

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeHealth:
    """One version of a judge with one model, over all that it judged; see the mart `judge_health`."""

    evaluator: str
    evaluator_version: str
    judge_model: str
    metrics: Sequence[str]
    kind: Literal["run", "pair"]
    n_experiments: int
    judged: int
    failed: int
    not_attempted: int
    failure_share: float | None
    controls_passed: bool | None
    controls_reason: str | None
    biases_found: int | None
    biases: Sequence[str] | None
    biases_reason: str | None
    mean_spread: float | None
    repeat_agreement: float | None
    n_repeated: int
    calls: int | None
    cost_usd: float | None
    unpriced: int
    latency_mean_s: float | None
    last_judged_at: datetime

    @property
    def cost_per_judgement(self) -> float | None:
        """In USD; None if a price is not known, or if nothing was judged."""
        made = self.judged + self.failed
        return self.cost_usd / made if self.cost_usd is not None and made else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlCheck:
    """A judge on known-answer controls, in one run group."""

    passed: bool | None
    message: str | None
    checked_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBias:
    """A check of a judge for a bias, in one comparison."""

    comparison_id: str
    comparison: str
    metric: str
    bias: str
    passed: bool | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSubject:
    """An experiment or a comparison in which people labelled what the judge judged."""

    subject_id: str
    name: str
    kind: Literal["run", "pair"]
    metric: str
    people_metric: str
    evaluator_version: str
    judge_model: str | None
    n_labels: int
    n_disagreements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A judgement, and the label of a person who disagrees."""

    example_id: str
    repetition: int
    run_id: str
    other_run_id: str | None
    judge_value: float | None
    judge_label: str | None
    comment: str | None
    people_value: float | None
    people_label: str | None
    labeller: str | None
    people_comment: str | None
    inputs: str | None  # JSON, like the answers
    reference_outputs: str | None
    outputs: str | None
    other_outputs: str | None


def judges_health(store: Store, evaluator: str | None = None) -> list[JudgeHealth]:
    """Return all versions of a judge, or of all judges, the last used first."""
    columns = ", ".join(JudgeHealth.__slots__)
    query = (
        f"select {columns} from judge_health where $1::varchar is null or evaluator = $1 "
        "order by last_judged_at desc, evaluator, evaluator_version, judge_model"
    )
    (rows,) = ask(store, (query, [evaluator]))
    return [_row(JudgeHealth, row) for row in rows]


def judge_record(store: Store, evaluator: str) -> tuple[list[ControlCheck], list[FoundBias], list[LabelledSubject]]:
    """Return a judge's controls and biases, newest first, and what people labelled of it."""
    controls, biases, subjects = ask(store, (_CONTROLS, [evaluator]), (_BIASES, [evaluator]), (_LABELLED, [evaluator]))
    return (
        [_row(ControlCheck, row) for row in controls],
        [_row(FoundBias, row) for row in biases],
        [_row(LabelledSubject, row) for row in subjects],
    )


def disagreements(store: Store, subject: LabelledSubject, *, page: int, in_page: int) -> list[Disagreement]:
    """Return a page of the labels that disagree with the judge, the largest errors first; `page` counts from 1."""
    values = [subject.subject_id, subject.metric, subject.people_metric, subject.evaluator_version]
    (rows,) = ask(store, (_DISAGREEMENTS, [*values, in_page, in_page * (page - 1)]))
    return [_row(Disagreement, row) for row in rows]


def _row(kind: type[Row], values: Sequence[object]) -> Row:
    return kind(**dict(zip(kind.__slots__, values, strict=True)))  # type: ignore[attr-defined]


_CONTROLS = """
select passed, message, recorded_at from checks
where subject_kind = 'judge' and name = 'controls' and subject_id = $1 order by recorded_at desc limit 10
"""

_BIASES = """
select b.comparison_id, b.comparison, b.metric, b.bias, b.passed, b.message
from judge_biases b
join (select distinct comparison_id, metric from comparisons where evaluator = $1) c using (comparison_id, metric)
order by b.comparison_id desc, b.metric, b.bias limit 40
"""

_LABELLED = """
select l.experiment_id, coalesce(e.name, s.name, l.experiment_id) as name, l.kind, l.metric, l.people_metric,
       l.evaluator_version, max(l.judge_model), count(*) as n, count(*) filter (not l.agrees)
from judge_labels l
left join experiments e using (experiment_id)
left join comparison_sets s on s.comparison_id = l.experiment_id
where l.evaluator = $1 and l.agrees is not null
group by all order by max(coalesce(e.started_at, s.started_at)) desc nulls last, n desc, l.metric, l.people_metric, 6
"""

_DISAGREEMENTS = """
with said as (
    select * from judge_labels
    where experiment_id = $1 and metric = $2 and people_metric = $3 and evaluator_version = $4 and not agrees
    order by abs(error) desc nulls last, example_id, repetition, label_id limit $5 offset $6
), owners as (
    select experiment_id, snapshot_id from experiments
    where experiment_id = $1
       or experiment_id in (select unnest(experiments) from comparison_sets where comparison_id = $1)
), answers as (
    select run_id, outputs from outputs where experiment_id in (select experiment_id from owners)
), asked as (
    select example_id, any_value(inputs) as inputs, any_value(reference_outputs) as reference_outputs from examples
    where snapshot_id in (select snapshot_id from owners) and example_id in (select example_id from said)
    group by example_id
)
select said.example_id, said.repetition, said.run_id, said.other_run_id, said.value, said.label, said.comment,
       said.people_value, said.people_label, said.labeller, said.people_comment, x.inputs, x.reference_outputs,
       o.outputs, r.outputs
from said
left join asked x using (example_id)
left join answers o on o.run_id = said.run_id
left join answers r on r.run_id = said.other_run_id
order by abs(said.error) desc nulls last, said.example_id, said.repetition, said.label_id
"""
