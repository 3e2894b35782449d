"""Compare experiments, and the result of a comparison."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from evalflows.api.calling import RaisedToCaller, call_flow, flow_settings
from evalflows.api.results import ExperimentResult, links_of
from evalflows.engine.spec_evaluators import named_reference
from evalflows.reports.comparison import ComparisonReport, comparison_report
from evalflows.reports.progress import Watch
from evalflows.specs import hints
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import IncompleteError, InputError, first_problem
from evalflows.specs.escaping import one_line, print_note
from evalflows.specs.evaluator import FallbackSpec
from evalflows.store.records import ComparisonSetRow
from evalflows.store.sql import ask_arrow
from evalflows.store.store import Store
from evalflows.tasks.compare import check_and_resolve
from evalflows.tasks.start import refuse_if_running

Compared = Sequence[str | ExperimentResult]
"""Experiments: names, ids, or results of `evaluate`."""

PairwiseEvaluator = Callable[..., Any] | str | Mapping[str, Any] | FallbackSpec

if TYPE_CHECKING:
    import pandas as pd

    from evalflows.dashboard.notebook import Plot


class ComparativeResult:
    """A finished comparison. Iterates over its pairs as mappings, by metric, then in the dataset's order."""

    def __init__(self, comparison_id: str) -> None:
        self._store = store = Store()
        (row,) = store.read("comparison_sets", comparison_id)
        self._row: ComparisonSetRow = row
        self._pairs = ask_arrow(store, _PAIRS, [comparison_id]).to_pylist()
        self.report: ComparisonReport = comparison_report(store, comparison_id)

    def __repr__(self) -> str:
        metrics = ", ".join(sorted({pair["metric"] for pair in self._pairs}))
        return f"ComparativeResult({self.name!r}, {self.comparison_id}, {len(self)} pairs: {metrics})"

    def __str__(self) -> str:
        """Return the comparison's name, its summary, one sentence per line, and where its page is."""
        page = f"page: {self.url}" if self.url else f"pages: {hints.dashboard()}"
        return "\n".join([f"{self.name} ({self.comparison_id})", *self.report.sentences, page])

    def _repr_html_(self) -> str:
        from evalflows.dashboard.notebook import shown, win_rates_table  # late: only notebooks need templates

        return shown(lambda: win_rates_table(self._store, f"{self.name} ({self.comparison_id})", self.report))

    def plot(self) -> "Plot":
        """Draw each win rate with its interval; notebooks show it, and `str` gives the SVG."""
        from evalflows.dashboard.notebook import plot_of_win_rates

        return plot_of_win_rates(f"Win rates of {self.name}", self.report)

    @property
    def url(self) -> str | None:
        """The address of its page, if a dashboard runs here or EVALFLOWS_DASHBOARD_URL names one; else None."""
        return links_of(self._store).comparison(self.comparison_id)

    @property
    def comparison_id(self) -> str:
        return self._row.comparison_id

    @property
    def name(self) -> str:
        return self._row.name

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._pairs)

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per pair and metric.

        Columns: example_id, repetition, metric, left, right (experiments; with the end of the id if the two have one
        name), winner (an experiment, `tie`, or None if
        the verdict is missing), shown_first (an experiment, `both`, or None if
        that is not known), inputs.*, reference.*, left.*, right.*, and
        scores, comments, status and cost.
        """
        import pandas as pd

        return pd.DataFrame([_flat(pair) for pair in self._pairs])

    def win_rates(self) -> "pd.DataFrame":
        """Return one row per candidate, baseline, metric and slice."""
        return self._query("select * from win_rates where comparison_id = ?")

    def leaderboard(self) -> "pd.DataFrame":
        """Return one row per experiment, metric and slice, best first."""
        return self._query(
            "select * from leaderboard where comparison_id = ? order by metric, slice <> 'all', slice, rank"
        )

    def _query(self, query: str) -> "pd.DataFrame":
        table: pd.DataFrame = ask_arrow(Store(), query, [self.comparison_id]).to_pandas()
        return table


def compare(spec: ComparisonSpec, resume: str | None = None, watch: Watch | None = None) -> str:
    """Run a comparison as a flow and return its id.

    Args:
        spec: The comparison; checked before Prefect starts.
        resume: Id of a comparison to resume.
        watch: Called every second with the progress.

    Raise InputError if the spec is wrong, and IncompleteError if the comparison could not be completed.
    """
    from evalflows.flows.compare_experiments import compare_experiments  # late: making a flow takes time

    with RaisedToCaller(), call_flow(watch):
        refuse_if_running(spec, resume)
        checked = check_and_resolve(spec)
        with checked.handed_on(), flow_settings() as checked.caller.server:
            return compare_experiments(checked.prepared.spec, resume)


def evaluate_comparative(
    experiments: Compared,
    /,
    evaluators: Sequence[PairwiseEvaluator] | PairwiseEvaluator,
    *,
    experiment_prefix: str | None = None,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    max_concurrency: int = 5,
    randomize_order: bool = True,
    both_orders: bool = False,
    load_nested: bool = False,
    **settings: Any,
) -> ComparativeResult:
    """Compare the answers of two or more existing experiments pair by pair.

    Args:
        experiments: Names, ids, or results of `evaluate`; the first is the baseline.
        evaluators: Functions that take any of inputs, outputs (a list), reference_outputs, runs (a list), example; or
            `"module:name"`, `"pairwise_preference"`, or specs.
        experiment_prefix: Name of the comparison.
        description: Purpose of the comparison.
        metadata: Metadata to store with it.
        max_concurrency: Maximum number of pairs judged at once; 0 means 1.
        randomize_order: Show the answers of each pair in random order; if false, in the order of `experiments`.
        both_orders: Judge each pair in both orders; if the verdicts differ, the pair is a tie.
        load_nested: Pass the steps of the runs to the evaluators.
        settings: Further fields of ComparisonSpec, such as baseline, pairs, failed_output, slice_by, seed, run_key.

    Failed judgements are reported on standard error. Raise InputError, before anything is called, if the settings are
    wrong, and IncompleteError if the comparison could not be completed, or every judgement failed.
    """
    if "name" in settings:
        raise InputError("evaluate_comparative: got name, wanted experiment_prefix")
    if callable(evaluators) or isinstance(evaluators, str | Mapping | FallbackSpec):
        evaluators = [evaluators]
    try:
        spec = ComparisonSpec(
            name=experiment_prefix or "",
            description=description or "",
            metadata=dict(metadata or {}),
            experiments=[
                experiment if isinstance(experiment, str) else experiment.experiment_id for experiment in experiments
            ],
            evaluators=[_evaluator(evaluator) for evaluator in evaluators],
            max_concurrency=max_concurrency or 1,
            randomize_order=randomize_order,
            both_orders=both_orders,
            load_nested=load_nested,
            **settings,
        )
    except ValidationError as error:
        problem = first_problem(error, "evaluate_comparative", ComparisonSpec)
        raise InputError(problem) from (error if error.error_count() > 1 else None)
    result = ComparativeResult(compare(spec))
    _report_failures(result)
    return result


def _report_failures(result: ComparativeResult) -> None:
    """Print how many judgements of each metric failed, and why the first did. Raise IncompleteError if all did."""
    pairs = list(result)
    failed = [pair for pair in pairs if pair["status"] == "missing"]
    counts = Counter(pair["metric"] for pair in failed)
    errors = {pair["metric"]: one_line(pair["error"]) for pair in reversed(failed)}
    for metric, count in counts.items():
        of_metric = sum(pair["metric"] == metric for pair in pairs)
        print_note(f"{result.name}: {count} of {of_metric} judgements by {metric} failed: {errors[metric]}")
    if pairs and len(failed) == len(pairs):
        raise IncompleteError(f"{result.name}: all {len(pairs)} judgements failed: {errors[pairs[0]['metric']]}")


async def aevaluate_comparative(
    experiments: Compared, /, evaluators: Sequence[PairwiseEvaluator], **settings: Any
) -> ComparativeResult:
    """Run `evaluate_comparative` without blocking the event loop. The arguments are the same."""
    return await asyncio.to_thread(evaluate_comparative, experiments, evaluators, **settings)


def _evaluator(evaluator: PairwiseEvaluator) -> object:
    if isinstance(evaluator, str | FallbackSpec):
        return evaluator
    if not isinstance(evaluator, Mapping):
        return named_reference(evaluator)
    use = evaluator.get("use")
    if use is None or isinstance(use, str):
        return evaluator
    return {**evaluator, **named_reference(use, evaluator.get("name"))}


def _flat(pair: dict[str, Any]) -> dict[str, Any]:
    texts = {"inputs": "inputs", "reference": "reference_outputs", "left": "left_outputs", "right": "right_outputs"}
    columns = {name: value for name, value in pair.items() if name not in texts.values()}
    for prefix, name in texts.items():
        columns |= {f"{prefix}.{field}": value for field, value in json.loads(pair[name] or "{}").items()}
    return columns


_PAIRS = """
with named as (
    select *, left_experiment || case when is_same then '-' || right(left_experiment_id, 8) else '' end as "left",
           right_experiment || case when is_same then '-' || right(right_experiment_id, 8) else '' end as "right"
    from (select *, left_experiment = right_experiment as is_same from pair_outcomes where comparison_id = ?)
)
select example_id, repetition, metric, "left", "right",
       case when left_points > 0.5 then "left" when left_points < 0.5 then "right" else winner end as winner,
       case shown_first when 'left' then "left" when 'right' then "right" else shown_first end as shown_first,
       outcome, left_score, right_score, comment, other_comment, status, error, decided_by, agreement,
       left_run_id, right_run_id, left_experiment_id, right_experiment_id, cost_usd,
       inputs, reference_outputs, left_outputs, right_outputs
from named
order by metric, repetition, position, left_experiment_id, right_experiment_id
"""
