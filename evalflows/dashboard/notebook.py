"""How results show themselves in a notebook: tables with verdicts, and plots. Self-contained, and without script."""

from collections.abc import Callable, Sequence

from markupsafe import Markup

from evalflows.analysis.judge_exclusions import excluded_metrics
from evalflows.dashboard.charts import Estimate, domain, forest
from evalflows.dashboard.compare import metric_table, with_baseline
from evalflows.dashboard.links import NoLinks
from evalflows.dashboard.rendering import Site, render
from evalflows.reports.comparison import ComparisonReport
from evalflows.reports.diff import ExperimentsDiff
from evalflows.reports.results import Result, results_of
from evalflows.specs.errors import InputError, StorageError
from evalflows.specs.escaping import escaped
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MEASURES
from evalflows.store.store import Store


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing that notebooks show. `str` gives the SVG, for a file."""

    svg: Markup
    title: str

    def __str__(self) -> str:
        return str(self.svg)

    def __repr__(self) -> str:
        return f"Plot({escaped(self.title)!r})"

    def _repr_svg_(self) -> str:
        return str(self.svg)

    def _repr_html_(self) -> str:
        return str(self.svg)


def shown(make: Callable[[], Markup]) -> str:
    """Return the HTML of a result; if the store cannot be read, a line that says why."""
    try:
        return str(make())
    except (InputError, StorageError) as error:
        return str(Markup("<p><b>evalflows:</b> {}</p>").format(escaped(str(error))))


def results_table(store: Store, title: str, results: Sequence[Result], notes: Sequence[str]) -> Markup:
    """Return a table of an experiment's metrics: means, or those of Compare if its run had a baseline."""
    baselines = sorted(
        {result.baseline_experiment_id for result in results if result.baseline_experiment_id is not None}
    )
    compared = with_baseline(store, results, results_of(store, baselines)) if baselines else None
    return metrics_table(store, title, results, notes, compared)


def metrics_table(
    store: Store, title: str, results: Sequence[Result], notes: Sequence[str], compared: ExperimentsDiff | None
) -> Markup:
    """Return the rows of metrics, if compared those that Compare has: means, the difference on one axis, changed
    examples, the verdict."""
    return render(
        "notebook_results.html",
        _site(store),
        title=title,
        results=[result for result in results if result.has_rows],
        notes=notes,
        compared=compared,
        table=None if compared is None else metric_table(store, compared),
        excluded={} if compared is None else excluded_metrics(store, compared.run_groups),
    )


def win_rates_table(store: Store, title: str, report: ComparisonReport) -> Markup:
    """Return a table of win rates with verdicts."""
    return render("notebook_win_rates.html", _site(store), title=title, report=report)


def plot_of_means(title: str, results: Sequence[Result]) -> Plot:
    """Draw the mean of each metric with its interval; means of one metric share their scale.

    Metrics of evaluators from 0 to 1 are drawn from 0 to 1.
    """
    drawn = [result for result in results if result.is_worth_showing and result.mean is not None]
    scales = {result.metric: _scale([other for other in drawn if other.metric == result.metric]) for result in drawn}
    has_systems = len({result.experiment_id for result in drawn}) > 1
    estimates = [
        Estimate(
            label=f"{result.metric} · {result.target}" if has_systems else result.metric,
            value=result.mean,
            low=result.ci_low,
            high=result.ci_high,
            scale=scales[result.metric],
            text=f"{result.mean_text} {result.interval_text}".strip(),
        )
        for result in drawn
    ]
    return Plot(forest(estimates, title), title)


def plot_of_differences(title: str, results: Sequence[Result]) -> Plot:
    """Draw the difference of each metric from the baseline with its interval; the mark is no difference."""
    drawn = [result for result in results if result.difference is not None]
    estimates = [
        Estimate(
            label=f"{result.metric} · {result.target}",
            value=result.difference,
            low=result.difference_low,
            high=result.difference_high,
            scale=domain([result.difference, result.difference_low, result.difference_high, 0.0]),
            text=" ".join(filter(None, [result.difference_text, result.verdict_text])),
            mark=0.0,
            kind=_colour(result.conclusion),
        )
        for result in drawn
    ]
    return Plot(forest(estimates, title), title)


def plot_of_win_rates(title: str, report: ComparisonReport) -> Plot:
    """Draw each win rate with its interval; the mark is 50 %."""
    estimates = [
        Estimate(
            label=f"{rate.metric} · {rate.candidate} against {rate.baseline}",
            value=rate.win_rate,
            low=rate.win_rate_low,
            high=rate.win_rate_high,
            scale=(0.0, 1.0),
            text=" ".join(filter(None, [rate.rate_text, rate.verdict_text])),
            mark=0.5,
            kind=_colour(rate.conclusion),
        )
        for rate in report.win_rates
        if rate.is_overall and rate.win_rate is not None
    ]
    return Plot(forest(estimates, title), title)


def _scale(results: Sequence[Result]) -> tuple[float, float]:
    ends = [end for result in results for end in (result.mean, result.ci_low, result.ci_high) if end is not None]
    is_share = results[0].metric not in MEASURES and min(ends) >= 0 and max(ends) <= 1
    return (0.0, 1.0) if is_share else domain(ends)


def _colour(conclusion: str | None) -> str:
    return conclusion if conclusion in ("better", "worse") else ""


def _site(store: Store) -> Site:
    return Site(store=store, links=NoLinks())
