"""Which examples to show after the figures: those on which a candidate did worst, each in a few lines."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from itertools import chain, islice, zip_longest
from textwrap import wrap
from typing import Any

from evalflows.analysis.changes import ExampleChange
from evalflows.analysis.figures import figure
from evalflows.reports.decisions import Decision
from evalflows.reports.names import names_apart
from evalflows.reports.results import Result, results_of
from evalflows.specs import hints
from evalflows.specs.errors import InputError
from evalflows.specs.escaping import one_line
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.hints import Hint
from evalflows.specs.metric_names import MEASURES, base_metric, metric_of, sliced_metric
from evalflows.store.queries.lookup import run_groups
from evalflows.store.records import ExperimentRow
from evalflows.store.sql import ask
from evalflows.store.store import Store

_TOLD = frozenset({"persona", "facts", "must_not_tell", "first_message", "state", "turns"})
"""Fields beside the `goal` of a simulated user."""

_FIGURES = ("value", "missing", "comment", "error", "baseline_value", "baseline_missing", "baseline_error", "n_worse")
"""The fields of an item that the columns after the ids are."""

_TEXTS = ("inputs", "reference_outputs", "metadata")

# DuckDB makes list_contains a filter of its scan, with which it held nearly all texts: 1.2 GB of 1,000 with 1 MB each.
_INPUTS = """
select example_id, inputs::varchar, reference_outputs::varchar, metadata::varchar
from examples
where snapshot_id = $1 and list_position($2, example_id) > 0
"""

_OUTPUTS = """
select run_id, outputs::varchar from outputs where experiment_id in ($1, $2) and list_position($3, run_id) > 0
"""

Side = tuple[str, str | None]
"""A candidate and its baseline, if there is one, by ids."""

Ranked = tuple[Any, ...]
"""A row of _WORST after the metric."""

HIDDEN = "single final examples are not shown: show and diff do so with --final, which counts as a look"

SHOWN = 5
MOST_LINES = 2
"""Lines of each text."""

Outcomes = Mapping[tuple[str, str], str]
"""Of a gate's rules, by candidate and metric."""

_RANKS = ("broken", "open", "worse")
"""Metrics of a gate's rules come before what it does not ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstItem:
    """One example, with the candidate's worst answer and the baseline's best; values are means over repetitions."""

    example_id: str
    inputs: str  # JSON, as are the outputs
    value: float | None  # None if nothing was scored
    missing: int  # repetitions that failed or were not attempted
    outputs: str | None
    comment: str | None
    error: str | None
    baseline_value: float | None
    baseline_missing: int
    baseline_outputs: str | None
    baseline_error: str | None
    reference_outputs: str | None = field(default=None, compare=False)
    metadata: str | None = field(default=None, compare=False)
    n_worse: int | None = field(default=None, compare=False)  # all examples that got worse, of which it is one


def worst_items(
    store: Store, candidate: str, baseline: str | None, metric: str, count: int | None, *, missing_first: bool = False
) -> list[WorstItem]:
    """Return the examples with the largest drop from a baseline in a metric, worst first; without a baseline, those
    with the worst values. `count` of them, or all. The metric's direction defines "worse".

    With a baseline, only examples that both experiments have with the same inputs, and where the candidate is worse or
    a value is missing. `missing_first` puts examples with missing values first, otherwise they come last. For pass@k
    metrics, the base metric is shown. Of a slice, `contains@split=hard`, only its examples.
    """
    sliced = sliced_metric(metric)
    name = base_metric(sliced.metric)
    most = count if sliced.path is None else None
    sign = 1.0 if is_higher_better(store, candidate, name) else -1.0
    ranked = _ranked(store, candidate, baseline, {name: sign}, most, missing_first=missing_first)[name]
    if sliced.path is not None:
        from evalflows.store.queries.shared_examples import ids_in  # late: specs are slow to import

        within = ids_in(store, store.read("experiments", candidate)[0], sliced)
        inside = [row for row in ranked if row[0] in within]
        ranked = [(*row[:-1], len(inside)) for row in inside[:count]]
    return _with_texts(store, candidate, baseline, ranked)


def _ranked(
    store: Store,
    candidate: str,
    baseline: str | None,
    signs: Mapping[str, float],
    most: int | None,
    *,
    missing_first: bool = False,
) -> dict[str, list[Ranked]]:
    """Return at most so many examples by each metric, worst first, without their texts. Lower is worse where its sign
    is 1, higher where it is -1."""
    found: dict[str, list[Ranked]] = {metric: [] for metric in signs}
    values = [candidate, baseline, [*signs], [*signs.values()], missing_first, most]
    for metric, *row in ask(store, (_WORST, values))[0]:
        found[metric].append(tuple(row))
    return found


def _with_texts(store: Store, candidate: str, baseline: str | None, ranked: Sequence[Ranked]) -> list[WorstItem]:
    """Return the ranked examples with their texts. Those of all examples might not fit into memory."""
    if not ranked:
        return []
    runs = [run for row in ranked for run in row[1:3] if run is not None]
    (((snapshot,),),) = ask(store, ("select snapshot_id from source.experiments where experiment_id = $1", [candidate]))
    examples, outputs = ask(
        store, (_INPUTS, [snapshot, [row[0] for row in ranked]]), (_OUTPUTS, [candidate, baseline, runs])
    )
    outputs_of, texts_of = dict(outputs), {example: texts for example, *texts in examples}
    return [
        WorstItem(
            example_id=example,
            **dict(zip(_TEXTS, texts_of[example], strict=True)),
            outputs=outputs_of.get(run),
            baseline_outputs=outputs_of.get(baseline_run),
            **dict(zip(_FIGURES, figures, strict=True)),
        )
        for example, run, baseline_run, *figures in ranked
    ]


def is_higher_better(store: Store, experiment: str, metric: str) -> bool:
    """Return whether higher is better for a metric, according to the experiment's spec."""
    return _directions(store, [(experiment, metric)])[experiment, metric]


def _directions(store: Store, metrics: Sequence[tuple[str, str]]) -> dict[tuple[str, str], bool]:
    """Return the same for some metrics, each of an experiment."""
    if not metrics:
        return {}
    query = """select experiment_id, metric, higher_is_better(spec, metric) from source.experiments
               join (select unnest($1) as experiment_id, unnest($2) as metric) using (experiment_id)
               where is_one_of(experiment_id, $1)"""
    (rows,) = ask(store, (query, [[pair[column] for pair in metrics] for column in (0, 1)]))
    return {(experiment, metric): bool(higher) for experiment, metric, higher in rows}


_WORST = """
with wanted as (
    select unnest($3) as metric, unnest($4) as sign
), runs as (
    -- an example without a row was not attempted
    select e.experiment_id, w.metric, w.sign, e.repetitions, x.example_id, x.position, x.content, j.run_id, j.status,
           case when j.status = 'scored' then j.value end as value, j.comment, coalesce(j.error, o.error) as error,
           j.repetition, coalesce(j.status, 'not_attempted') in ('failed', 'not_attempted') as is_missing
    from source.experiments e
    join (
        select snapshot_id, example_id, position, case when $2 is not null then md5(inputs::varchar) end as content
        from source.examples
    ) x using (snapshot_id)
    cross join wanted w
    -- the ids are repeated, since DuckDB would otherwise read the rows of all experiments
    left join run_values j
        on j.experiment_id = e.experiment_id and j.example_id = x.example_id and j.metric = w.metric
           and list_contains($3, j.metric) and j.experiment_id in ($1, $2)
    left join source.outputs o
        on o.experiment_id = e.experiment_id and o.run_id = j.run_id and o.experiment_id in ($1, $2)
    where e.experiment_id in ($1, $2)
), by_experiment as (
    select experiment_id, metric, sign, example_id, any_value(content) as content, any_value(position) as position,
           avg(value) as value,
           count(*) filter (run_id is not null and is_missing) + any_value(repetitions) - count(run_id) as missing,
           -- the run to show: a missing one, else the candidate's worst and the baseline's best
           first({'run_id': run_id, 'comment': comment, 'error': error} order by
               is_missing desc,
               (case when experiment_id = $1 then sign else -sign end) * value nulls last, repetition) as shown
    from runs
    group by experiment_id, metric, sign, example_id
), paired as (
    select c.*, b.value as baseline_value, coalesce(b.missing, 0) as baseline_missing, b.shown as baseline_shown,
           c.missing + coalesce(b.missing, 0) > 0 as is_missing,
           c.sign * (case when $2 is null then -c.value else b.value - c.value end) as loss
    from by_experiment c
    left join by_experiment b
        on b.experiment_id = $2 and b.metric = c.metric and b.example_id = c.example_id and b.content = c.content
    where c.experiment_id = $1 and ($2 is null or b.example_id is not null)
)
select metric, example_id, shown.run_id, baseline_shown.run_id, value, missing, shown.comment, shown.error,
       baseline_value, baseline_missing, baseline_shown.error, count(*) filter (loss > 0) over (partition by metric)
from paired
where is_missing or ($2 is null and value is not null) or loss > 0
qualify $6 is null or $6 >= row_number() over (
    partition by metric order by $5 and is_missing desc, loss desc nulls last, position
)
order by $5 and is_missing desc, loss desc nulls last, position
"""


def item_lines(item: WorstItem, metric: str, *, compared: bool, width: int, most: int = 1) -> Iterator[str]:
    """Yield the values and the question, then the answers, and what the evaluator said or the error.

    Each text has at most `most` lines of `width` characters, and is cut with an ellipsis.
    """
    begin = f"{one_line(item.example_id)}: {item_values(item, metric, compared=compared)}  "
    yield from cut_lines(begin, plain_text(item.inputs), width, most, indent=2)
    for name, text in item_texts(item, compared=compared):
        yield from cut_lines(f"    {name}: ", text, width, most)


def item_values(item: WorstItem, metric: str, *, compared: bool) -> str:
    """Return the value, after that of the baseline if they are compared: `was 1, now 0`."""
    now = value_text(item.value, item.missing, metric)
    return f"was {value_text(item.baseline_value, item.baseline_missing, metric)}, now {now}" if compared else now


def item_texts(item: WorstItem, *, compared: bool) -> Iterator[tuple[str, str]]:
    """Yield the answers, and what the evaluator said or the error, each with its name."""
    yield "answer", plain_text(item.outputs)
    if compared:
        yield "baseline", plain_text(item.baseline_outputs)
    baseline_error = None if item.baseline_error == item.error else item.baseline_error
    for name, text in (("comment", item.comment), ("error", item.error), ("baseline's error", baseline_error)):
        if text:
            yield name, text


def brief_lines(item: WorstItem | ExampleChange, values: str, width: int) -> list[str]:
    """Return an example in two lines of `width` characters: its values and question, and why, or else the answer."""
    begin = f"{one_line(item.example_id)}  {one_line(values)}  "
    why = item.comment or item.error
    name, text = ("", why) if why else ("answer: ", plain_text(item.outputs))
    return [*cut_lines(begin, plain_text(item.inputs), width, 1), *cut_lines(f"  {name}", text, width, 1)]


def change_text(was: str, now: str) -> str:
    """Return what a value was and is: `0.75 → 0.28`."""
    return f"{was} → {now}"


def value_text(value: float | None, missing: int, metric: str) -> str:
    """Format an example's value, without zeros at its end, and the number of repetitions that lack one."""
    if value is None:
        return "missing" if missing else "-"
    text = figure(value, metric)
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text + (f" ({missing} missing)" if missing else "")


def cut_lines(begin: str, text: str, width: int, most: int, indent: int = 6) -> list[str]:
    """Wrap a text between words, with `begin` before it; at most `most` lines, cut with an ellipsis."""
    line = " ".join(text.split())
    return wrap(
        f"{begin}{line}",
        width,
        max_lines=most,
        placeholder=" …",
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
    )


def plain_text(text: str | None) -> str:
    """Return JSON as text on one line; an object with a single field as that field's value, `messages` as a chat, and
    what a simulated user is told as its goal."""
    if text is None:
        return "-"
    value: Any = json.loads(text)
    if isinstance(value, dict) and isinstance(messages := value.get("messages"), list) and all(map(_is_said, messages)):
        return " / ".join(chain.from_iterable(map(_said, messages)))
    if isinstance(value, dict) and isinstance(value.get("goal"), str) and not _TOLD.isdisjoint(value):
        return str(value["goal"])
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_said(message: Any) -> bool:
    return isinstance(message, dict) and isinstance(message.get("role"), str)


def _said(message: dict[str, Any]) -> Iterator[str]:
    """Yield what a message says, with its role, then the tools that it calls."""
    content = message.get("content")
    if content:
        yield f"{message['role']}: {content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)}"
    for call in message.get("tool_calls") or ():
        function = call.get("function") or call
        yield f"{function.get('name')}({function.get('arguments') or ''})"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstExamples:
    """The worst examples by one metric of one experiment."""

    metric: str
    experiment_id: str
    name: str
    baseline_experiment_id: str | None
    baseline: str | None
    items: Sequence[WorstItem]

    @property
    def n_worse(self) -> int | None:
        """How many examples got worse in all; None if they are the worst, without a baseline."""
        return self.items[0].n_worse if self.items and self.baseline_experiment_id else None

    @property
    def heading(self) -> str:
        if self.baseline:
            return f"examples that got worse by {self.metric}: {self.name} against {self.baseline}"
        return f"worst examples by {self.metric}: {self.name}"

    def lines(self, width: int) -> Iterator[str]:
        """Yield a heading, and a few lines for each example, at most `width` characters wide."""
        yield self.heading
        for item in self.items:
            compared = self.baseline is not None
            lines = item_lines(item, self.metric, compared=compared, width=width - 2, most=MOST_LINES)
            yield from (f"  {line}" for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """What to show: at most SHOWN examples in all, and the command that lists all of them, if they are kept."""

    examples: Sequence[WorstExamples]
    command: Hint | None


def worst_of(store: Store, results: Sequence[Result], decisions: Sequence[Decision], hidden: Set[str]) -> Worst | None:
    """Return the examples that got worse against the baseline, by the metric that is worst off.

    That is the metric of a broken rule of the decisions; else one of an open rule; else one with the verdict worse;
    else the one with the largest drop. Without a baseline, return the lowest scores of all metrics. None if nothing got
    worse, or if all answers have the same scores. Examples that are `hidden` are left out.
    """
    outcomes = _outcomes(decisions)
    shown = [result for result in results if _has_examples(result, outcomes)]
    if any(result.baseline_experiment_id for result in results):
        compared = [result for result in shown if result.baseline_experiment_id]
        signs = _signs(store, compared)
        first = _first_ranked(store, signs)
        found = drops(
            compared,
            decisions,
            lambda result: signs[_side(result)][base_metric(result.metric)] > 0,
            lambda result: _items(store, result, first[_side(result)][base_metric(result.metric)], hidden),
        )
        return found and Worst(examples=[found[1]], command=drops_command(store, found[0]))
    broken = [result for result in shown if outcomes.get((result.experiment_id, result.metric)) == "broken"]
    return _lowest(store, broken or shown, hidden)


def _outcomes(decisions: Sequence[Decision]) -> Outcomes:
    return {
        (decision.candidate_experiment_id, metric_of(rule.metric)): rule.outcome
        for decision in decisions
        for rule in sorted(decision.rules, key=lambda rule: rule.outcome == "broken")
    }


def drops(
    results: Sequence[Result],
    decisions: Sequence[Decision],
    is_higher_better: Callable[[Result], bool],
    items_of: Callable[[Result], Sequence[WorstItem]],
) -> tuple[Result, WorstExamples] | None:
    """Return the result that is worst off and has examples that got worse, with these; None if there is none.

    `items_of` gives the examples that got worse by a result, and `is_higher_better` the direction of its metric.
    """
    outcomes = _outcomes(decisions)
    ranked = sorted(
        (
            (
                _rank(result, outcomes.get((result.experiment_id, result.metric))),
                (1 if is_higher_better(result) else -1) * (result.difference or 0.0),  # drops are negative
                index,
                result,
            )
            for index, result in enumerate(results)
            if result.baseline_experiment_id and _has_examples(result, outcomes)
        ),
        key=lambda ranked: ranked[:3],
    )
    for *_, result in ranked:
        if items := items_of(result):
            return result, _of_result(result, items)
    return None


def _rank(result: Result, outcome: str | None) -> int:
    kinds = (outcome, result.conclusion if outcome != "broken" else None)
    return min((_RANKS.index(kind) for kind in kinds if kind in _RANKS), default=len(_RANKS))


def _has_examples(result: Result, outcomes: Outcomes) -> bool:
    """Return whether examples explain a metric: not those of labels, nor measures, unless a rule on one is broken."""
    is_broken = outcomes.get((result.experiment_id, result.metric)) == "broken"
    return result.shares is None and result.scored > 0 and (result.metric not in MEASURES or is_broken)


def _lowest(store: Store, results: Sequence[Result], hidden: Set[str]) -> Worst | None:
    signs = _signs(store, results)
    first = _first_ranked(store, signs)
    by_metric = []
    for result in results:
        side, metric = _side(result), base_metric(result.metric)
        items = _items(store, result, first[side][metric], hidden) if result.mean is not None else []
        below = [item for item in items if signs[side][metric] * ((result.mean or 0.0) - (item.value or 0.0)) > 0]
        by_metric.append([(result, item) for item in below])
    taken = [pair for pair in chain(*zip_longest(*by_metric)) if pair is not None]
    chosen = grouped(islice(taken, SHOWN))
    examples = [_of_result(result, items) for result, items in chosen.items()]
    return Worst(examples=examples, command=_lowest_command(store, [*chosen])) if examples else None


def _side(result: Result) -> Side:
    return result.experiment_id, result.baseline_experiment_id


def _signs(store: Store, results: Sequence[Result]) -> dict[Side, dict[str, float]]:
    """Return 1 for each metric of results of which higher is better, else -1, by what is compared."""
    signs: dict[Side, dict[str, float]] = {}
    higher = _directions(store, [(result.experiment_id, base_metric(result.metric)) for result in results])
    for result in results:
        metric = base_metric(result.metric)
        signs.setdefault(_side(result), {})[metric] = 1.0 if higher[result.experiment_id, metric] else -1.0
    return signs


def _first_ranked(store: Store, signs: Mapping[Side, Mapping[str, float]]) -> dict[Side, dict[str, list[Ranked]]]:
    return {side: _ranked(store, *side, of_side, SHOWN) for side, of_side in signs.items()}


def all_worst(
    store: Store, experiments: Sequence[str], metrics: Sequence[str], against: str | None = None, *, hidden: Set[str]
) -> list[WorstExamples]:
    """Return all examples that got worse by each of the metrics, worst first, without those that are hidden.

    Args:
        store: The store.
        experiments: Ids.
        metrics: Names of metrics.
        hidden: Ids of examples that are left out, such as final ones.
        against: The experiment to compare with. Default: the baseline in the experiments' run. Without one, all scored
            examples are returned, lowest first.

    Raise InputError for a metric that no experiment has.
    """
    results = results_of(store, experiments)
    known = list(dict.fromkeys(result.metric for result in results if result.scored))
    if unknown := [metric for metric in metrics if metric not in known]:
        raise InputError(f"metric: got {unknown[0]!r}, wanted one of {', '.join(known) or 'none, as none is scored'}")
    compared = [_against(store, result, against) for result in results if result.metric in metrics]
    compared = [result for result in compared if result.baseline_experiment_id] or compared
    compared.sort(key=lambda result: metrics.index(result.metric))
    return [
        _of_result(result, _known(result, worst_items(store, *_side(result), result.metric, None), hidden))
        for result in compared
    ]


def _against(store: Store, result: Result, against: str | None) -> Result:
    if against is None or against == result.experiment_id:
        return result
    rows: list[ExperimentRow] = [store.read("experiments", owner)[0] for owner in (result.experiment_id, against)]
    apart = names_apart(store, {row.experiment_id: row.target for row in rows})
    return replace(result, target=apart[result.experiment_id], baseline_experiment_id=against, baseline=apart[against])


def _of_result(result: Result, items: Sequence[WorstItem]) -> WorstExamples:
    return WorstExamples(
        metric=result.metric,
        experiment_id=result.experiment_id,
        name=result.target,
        baseline_experiment_id=result.baseline_experiment_id,
        baseline=result.baseline,
        items=items,
    )


def _items(store: Store, result: Result, ranked: Sequence[Ranked], hidden: Set[str]) -> list[WorstItem]:
    return _known(result, _with_texts(store, *_side(result), ranked), hidden)


def _known(result: Result, items: Sequence[WorstItem], hidden: Set[str]) -> list[WorstItem]:
    """Return the worst examples of which all values are known, without those that are hidden."""
    baseline = result.baseline_experiment_id
    known = dropped(items) if baseline else [item for item in items if item.value is not None]
    return [item for item in known if item.example_id not in hidden]


def dropped(items: Sequence[WorstItem]) -> list[WorstItem]:
    """Return the items that got worse, without those that only lack a value."""
    worse = items[: items[0].n_worse] if items else []
    return [item for item in worse if item.value is not None and item.baseline_value is not None]


def drops_command(store: Store, result: Result) -> Hint:
    """Return the command that lists every example that got worse; `show` knows the baseline that its tables show."""
    query = """select baseline_experiment_id from current_verdicts
               where candidate_experiment_id = $1 and metric = $2 and slice = 'all' and is_shown"""
    (own,) = ask(store, (query, [result.experiment_id, result.metric]))
    is_own = (result.baseline_experiment_id,) in own
    return hints.show_worst(result.experiment_id, [result.metric], None if is_own else result.baseline_experiment_id)


def _lowest_command(store: Store, results: Sequence[Result]) -> Hint:
    """Return the command that lists all scores of experiments, lowest first."""
    experiments = list(dict.fromkeys(result.experiment_id for result in results))
    of_one = len(experiments) == 1
    reference = experiments[0] if of_one else run_groups(store, experiments)[0]
    return hints.show_worst(reference, [result.metric for result in results])
