"""What changed example by example between experiments and their baseline, and the figures of their comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import MEASURES
from evalflows.store.layout import quoted
from evalflows.store.queries.conclusions import ComparedVerdict
from evalflows.store.records import EstimateRow
from evalflows.store.sql import ask, ask_records
from evalflows.store.store import Store

Change = Literal["improved", "regressed", "same", "flipped", "changed", "missing", "not_applicable"]
"""How a candidate's value of an example differs from the baseline's.

`flipped`: it differs although target, application and evaluator have the same version on both sides. `changed`: the
labels differ, of which none is better. `missing`: a repetition of a side failed or was not attempted.
`not_applicable`: a side has no score because it needs none, or was not sampled.
"""

CHANGES: tuple[Change, ...] = get_args(Change)

WITHOUT_TEXTS = (
    *("candidate_experiment_id", "metric", "example_id", "position", "change", "gain", "value", "baseline_value"),
    *("label", "baseline_label", "missing", "baseline_missing"),
)
"""The columns of a change that are read for all examples; texts are read for those that are shown."""

OF_RUN = ("outputs", "comment", "error")

SELECTED = """
select {columns} from changes_between({candidate}, {baseline})
where is_one_of(candidate_experiment_id, $1)
      and ($2 is null or (candidate_experiment_id, example_id) in (select (unnest($2), unnest($3))))
"""
"""$1: all experiments; $2 and $3: candidates and examples that count, pair by pair, or null."""

TEXTS = """
select distinct e.experiment_id, x.example_id, x.inputs::varchar, x.reference_outputs::varchar
from experiments e join examples x using (snapshot_id)
where is_one_of(e.experiment_id, $1) and list_contains($2, x.example_id)
"""

PLACES = """
select example_id, position, split from experiments join examples using (snapshot_id)
where experiment_id = $1 order by position, example_id
"""


def all_changes(baseline: str, candidates: Sequence[str]) -> str:
    """Return the query of all changes. DuckDB opens only the files of experiments whose ids are constants."""
    parts = (
        SELECTED.format(columns=", ".join(WITHOUT_TEXTS), candidate=quoted(candidate), baseline=quoted(baseline))
        for candidate in candidates
    )
    return "union all".join(parts)


def counts_query(changes: str) -> str:
    """Return the query of counts by metric and candidate, of a query of changes."""
    counts = ", ".join(f"count(*) filter (change = '{change}')" for change in CHANGES)
    return f"""
select candidate_experiment_id, metric, {counts}, metric in (
    select unnest(json_extract_string(spec, '$.composites[*].panel[*]')) from experiments
    where is_one_of(experiment_id, $1))
from ({changes}) group by candidate_experiment_id, metric
order by metric, list_position($1, candidate_experiment_id)
"""


def wanted_query(changes: str) -> str:
    """Return the query of some changes. $4: metrics, $5: changes, $6: candidates, each empty for all; $7: whether each
    example that changed in one way is wanted only once."""
    return f"""
select * from (
    select *, gain / nullif(max(abs(gain)) over (partition by metric), 0) as relative_gain from ({changes})
)
where (len($4) = 0 or list_contains($4, metric)) and (len($5) = 0 or list_contains($5, change))
      and (len($6) = 0 or list_contains($6, candidate_experiment_id))
qualify not $7 or row_number() over (partition by candidate_experiment_id, change, example_id
                                     order by abs(relative_gain) desc nulls last, metric) = 1
"""


def lists_query(changes: str) -> str:
    """Return the query of the first $8 changes of each candidate and kind, each after how many there are."""
    order = "case change when 'improved' then -relative_gain else relative_gain end nulls last, position"
    of_list = "partition by candidate_experiment_id, change"
    return f"""
select count(*) over ({of_list}), {", ".join(WITHOUT_TEXTS)} from ({wanted_query(changes)})
qualify row_number() over ({of_list} order by {order}) <= $8
order by list_position($1, candidate_experiment_id), list_position($5, change), {order}
"""


EXAMPLES_SHOWN = """
with wanted as (
    select unnest($1) as experiment_id, unnest($2) as metric, unnest($3) as example_id, unnest($4) as sign,
           unnest(range(len($1))) as place
), sides as (
    select place, false as is_baseline, experiment_id, metric, example_id, sign from wanted
    union all select place, true, $5, metric, example_id, -sign from wanted
), shown as (
    select s.place, s.is_baseline,
           first({'run_id': v.run_id, 'comment': v.comment, 'error': v.error} order by
               v.status in ('failed', 'not_attempted') desc, s.sign * v.value desc nulls last, v.repetition) as run
    from sides s join run_values v using (experiment_id, metric, example_id)
    group by s.place, s.is_baseline
)
select place, is_baseline, o.outputs::varchar, run.comment, coalesce(run.error, o.error)
from shown left join outputs o on o.run_id = run.run_id
    and (o.experiment_id = $5 or list_contains($1, o.experiment_id))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedExperiments:
    """Which experiments are compared, by id, and on which examples."""

    baseline_experiment_id: str
    candidate_experiment_ids: Sequence[str]
    chosen: Mapping[str, Sequence[str]] | None = None  # the examples that count, by candidate; None: all shared ones

    @property
    def experiment_ids(self) -> list[str]:
        """The baseline's, then the candidates'."""
        return [self.baseline_experiment_id, *self.candidate_experiment_ids]

    @property
    def query(self) -> str:
        """The query of all changes."""
        return all_changes(self.baseline_experiment_id, self.candidate_experiment_ids)

    @property
    def parameters(self) -> list[object]:
        """The values of $1 to $3 in it."""
        pairs = [(owner, example) for owner, examples in (self.chosen or {}).items() for example in examples]
        chosen = [[pair[column] for pair in pairs] for column in (0, 1)] if self.chosen is not None else [None, None]
        return [self.experiment_ids, *chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCounts:
    """How many shared examples changed in which way, by one metric of one candidate."""

    candidate_experiment_id: str
    metric: str
    improved: int
    regressed: int
    same: int
    flipped: int
    changed: int
    missing: int
    not_applicable: int
    of_panel: bool  # whether it is the metric of a judge of a panel

    @property
    def is_listed(self) -> bool:
        """Whether its examples are listed by default: of scores, but not of the judges that a panel combines."""
        return self.metric not in MEASURES and not self.of_panel


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleChange:
    """One metric of one example in a candidate and the baseline. Values are means over repetitions.

    Of several repetitions, the texts are those of the candidate's worst run and the baseline's best if it got worse, of
    the candidate's best and the baseline's worst if it got better; of a missing run first.
    """

    candidate_experiment_id: str
    metric: str
    example_id: str
    position: int  # in the candidate's dataset
    change: Change
    gain: float | None  # in the metric's unit; positive is better. None without two numbers
    value: float | None
    baseline_value: float | None
    label: str | None
    baseline_label: str | None
    missing: int  # repetitions that failed or were not attempted
    baseline_missing: int
    inputs: str = "{}"  # JSON, as are references and outputs
    reference_outputs: str | None = None
    outputs: str | None = None
    baseline_outputs: str | None = None
    comment: str | None = None
    baseline_comment: str | None = None
    error: str | None = None
    baseline_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeList:
    """The examples of a candidate that changed in one way, those that changed most first, each once."""

    candidate_experiment_id: str
    change: Change
    count: int  # of all such examples
    examples: Sequence[ExampleChange]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFilter:
    """Which changes are wanted. Empty: all."""

    metrics: Sequence[str] = ()
    changes: Sequence[Change] = ()
    candidates: Sequence[str] = ()
    once: bool = False  # each example that changed in one way only by the metric that changed most

    @property
    def parameters(self) -> list[object]:
        """The values of $4 to $7 in `wanted_query`."""
        return [list(self.metrics), list(self.changes), list(self.candidates), self.once]


def change_counts(store: Store, compared: ComparedExperiments) -> list[ChangeCounts]:
    """Return the counts of each metric that both sides have, by metric, then in the candidates' order."""
    return ask_records(store, ChangeCounts, counts_query(compared.query), compared.parameters)


def changed_examples(store: Store, compared: ComparedExperiments, wanted: ChangeFilter) -> list[ExampleChange]:
    """Return the changes, with texts, the worst first. Across metrics, gains are relative to the metric's largest."""
    query = f"""select null, {", ".join(WITHOUT_TEXTS)} from ({wanted_query(compared.query)})
                order by relative_gain nulls last, position, metric, candidate_experiment_id"""
    return [change for _, change in _read(store, compared, query, [*compared.parameters, *wanted.parameters])]


def change_lists(store: Store, compared: ComparedExperiments, wanted: ChangeFilter, *, limit: int) -> list[ChangeList]:
    """Return the changed examples of each candidate by kind, in the order of `wanted.changes`, at most `limit` each."""
    counts: dict[tuple[str, Change], int] = {}
    lists: dict[tuple[str, Change], list[ExampleChange]] = {}
    values = [*compared.parameters, *replace(wanted, once=True).parameters, max(limit, 1)]
    for count, change in _read(store, compared, lists_query(compared.query), values):
        counts[change.candidate_experiment_id, change.change] = count
        lists.setdefault((change.candidate_experiment_id, change.change), []).append(change)
    return [
        ChangeList(candidate_experiment_id=owner, change=change, count=count, examples=lists[owner, change][:limit])
        for (owner, change), count in counts.items()
    ]


def _read(
    store: Store, compared: ComparedExperiments, query: str, values: Sequence[object]
) -> list[tuple[int, ExampleChange]]:
    """Return rows of `(count, change)`, with texts, from one state of the store."""

    def read() -> list[tuple[int, ExampleChange]]:
        (rows,) = ask(store, (query, values))
        page = [ExampleChange(**dict(zip(WITHOUT_TEXTS, row[1:], strict=True))) for row in rows]
        changes = _with_texts(store, compared.baseline_experiment_id, page) if page else []
        return [(row[0], change) for row, change in zip(rows, changes, strict=True)]

    return store.steady(read)


def _with_texts(store: Store, baseline: str, page: Sequence[ExampleChange]) -> list[ExampleChange]:
    """Add the question, and what both sides answered and were told."""
    ids, metrics, examples = (
        [getattr(change, name) for change in page] for name in ("candidate_experiment_id", "metric", "example_id")
    )
    signs = [1.0 if (change.value or 0) > (change.baseline_value or 0) else -1.0 for change in page]  # as it moved
    rows, texts = ask(store, (EXAMPLES_SHOWN, [ids, metrics, examples, signs, baseline]), (TEXTS, [ids, examples]))
    shown = {(index, is_baseline): dict(zip(OF_RUN, row, strict=True)) for index, is_baseline, *row in rows}
    of_example: dict[tuple[str, str], Any] = {(owner, example): row for owner, example, *row in texts}
    out = []
    for index, change in enumerate(page):
        inputs, reference = of_example[change.candidate_experiment_id, change.example_id]
        baselines = {f"baseline_{name}": text for name, text in shown.get((index, True), {}).items()}
        sides = {**shown.get((index, False), {}), **baselines}
        out.append(replace(change, inputs=inputs, reference_outputs=reference, **sides))
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something else that differs between a candidate and the baseline."""

    candidate_experiment_id: str
    what: str  # examples, repetitions, target, prompt, state, evaluator, sample, judge, commit, answers, direction
    metric: str | None  # None: it concerns all metrics
    text: str
    refuses: bool  # whether it makes the metric incomparable


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenExamples:
    """Which examples of each experiment count, by experiment id, and the means on these."""

    where: str  # the condition that chose them
    examples: Mapping[str, Sequence[str]]
    estimates: Sequence[EstimateRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartingSlice:
    """A slice in which the difference of a metric departs from that of the other examples."""

    candidate_experiment_id: str
    metric: str
    slice: str  # such as metadata.topic=billing
    where: str  # its SQL condition, for `diff --where`; empty for a label, which examples do not have
    n_examples: int
    difference: float  # candidate minus baseline, within the slice
    difference_elsewhere: float
    low: float  # simultaneous interval of the difference between the two
    high: float
    p_adjusted: float  # over all slices and metrics that were searched
    is_worse: bool  # than the other examples, by the direction of the metric
    is_loss: bool  # whether the slice itself got worse than the baseline
    difference_low: float | None = None  # the interval of the difference within the slice, if it stands out
    difference_high: float | None = None

    @property
    def got_worse(self) -> bool:
        """Whether it is worse than the baseline, and departs from the other examples by that."""
        return self.is_worse and self.is_loss

    @property
    def includes_0(self) -> bool:
        """Whether the slice itself may be as good as the baseline, by its own interval."""
        return (self.difference_low or 0.0) <= 0 <= (self.difference_high or 0.0) and self.difference_low is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSearch:
    """What was searched for one candidate, and what stands out."""

    candidate_experiment_id: str
    metrics: Sequence[str]
    fields: Sequence[str]
    min_examples: int  # within a slice, and outside
    n_slices: int
    n_left_out: int  # slices of two fields beyond the most that are searched
    found: Sequence[DepartingSlice]  # worse ones first, by examples times loss
    too_few: Sequence[str] = ()  # fields of the examples of which no value has enough, with their values and sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigures:
    """What the analysis says of candidates and their baseline."""

    compared: ComparedExperiments
    verdicts: Sequence[ComparedVerdict]
    notes: Sequence[Note]
    n_compared: Mapping[str, int]  # examples that both sides have, and that count, by candidate
    chosen: ChosenExamples | None = None  # None: all examples count
    searches: Sequence[SliceSearch] = ()  # of slices, if asked for


def metrics_query(changes: str) -> str:
    """Return the query of the changes in some metrics, of a query of changes. $4: the metrics."""
    return f"""
select {", ".join(WITHOUT_TEXTS)} from ({changes}) where list_contains($4, metric)
order by list_position($4, metric), list_position($1, candidate_experiment_id)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedExample:
    """An example that the baseline shares with one candidate at least."""

    example_id: str
    position: int
    split: str | None
    candidates: Sequence[str]  # experiment ids


def shared_examples(store: Store, baseline: str, shared: Mapping[str, Sequence[str]]) -> list[SharedExample]:
    """Return the examples that a baseline shares with candidates, given by id, in the baseline's order."""
    candidates = grouped((example, candidate) for candidate, examples in shared.items() for example in examples)
    (rows,) = ask(store, (PLACES, [baseline]))
    return [
        SharedExample(example_id=example, position=position, split=split, candidates=candidates[example])
        for example, position, split in rows
        if example in candidates
    ]


def changes_of(
    store: Store, compared: ComparedExperiments, metrics: Sequence[str]
) -> dict[str, dict[str, list[ExampleChange]]]:
    """Return the changes in these metrics, without texts: by metric and example, in the candidates' order."""
    (rows,) = ask(store, (metrics_query(compared.query), [*compared.parameters, list(metrics)]))
    changes: dict[str, dict[str, list[ExampleChange]]] = {metric: {} for metric in metrics}
    for row in rows:
        change = ExampleChange(**dict(zip(WITHOUT_TEXTS, row, strict=True)))
        changes[change.metric].setdefault(change.example_id, []).append(change)
    return changes
