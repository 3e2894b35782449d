"""Results of experiments: one row per metric and system, and sentences about them."""

from collections.abc import Sequence
from dataclasses import dataclass

from evalflows.reports.figures import figure, p_text, span
from evalflows.specs.metric_names import MEASURES
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import run_groups
from evalflows.store.reasons import JUDGE_FAILED

CONCLUSIONS = {
    "better": "better",
    "worse": "worse",
    "no_worse": "no worse",
    "equivalent": "equivalent",
    "not_enough_evidence": "not enough evidence",
}


def conclusion_text(conclusion: str | None, reason_code: str | None) -> str:
    """Return a verdict's conclusion as text; empty if there is none."""
    if conclusion == "not_enough_evidence" and reason_code == "no_significant_difference":
        return "no significant difference"
    return CONCLUSIONS.get(conclusion or "", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One metric of one experiment, compared with the baseline's if there is one."""

    experiment_id: str
    experiment: str
    target: str
    metric: str
    evaluator: str
    shares: str | None  # shares of labels, for a categorical metric
    mean: float | None
    ci_low: float | None
    ci_high: float | None
    scored: int
    missing: int
    not_applicable: int
    sampled_out: int
    cost_usd: float | None
    baseline: str | None
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    p_value: float | None
    p_adjusted: float | None
    n_pairs: int | None
    minimum_detectable_effect: float | None
    conclusion: str | None
    reason: str | None
    reason_code: str | None
    warning: str | None

    @property
    def is_worth_showing(self) -> bool:
        """Whether the row is worth showing: metrics without any value and a cost of 0 are not."""
        return bool(self.scored) and not (self.metric == "cost" and not self.mean)

    @property
    def has_rows(self) -> bool:
        """Whether any run has a value of this metric, or a row that says why not; a cost of 0 does not count."""
        without = self.metric not in MEASURES and (self.not_applicable or self.sampled_out)
        return bool(self.is_worth_showing or self.missing or without)

    @property
    def mean_text(self) -> str:
        return self.shares or figure(self.mean, self.metric)

    @property
    def scored_text(self) -> str:
        """The number of scored runs; for a sample, `n of all`."""
        whole = self.scored + self.missing + self.not_applicable + self.sampled_out
        return f"{self.scored} of {whole}" if self.sampled_out else str(self.scored)

    @property
    def interval_text(self) -> str:
        return span(self.ci_low, self.ci_high, self.metric)

    @property
    def difference_text(self) -> str:
        if self.difference is None:
            return ""
        interval = span(self.difference_low, self.difference_high, self.metric, signed=True)
        return f"{figure(self.difference, self.metric, signed=True)} {interval}".rstrip()

    @property
    def p_text(self) -> str:
        return p_text(self.p_value)

    @property
    def p_adjusted_text(self) -> str:
        return p_text(self.p_adjusted)

    @property
    def verdict_text(self) -> str:
        text = conclusion_text(self.conclusion, self.reason_code)
        return f"{text}: judge failed validation" if self.reason_code == "judge_failed_validation" else text

    @property
    def has_reason_sentence(self) -> bool:
        """Whether a sentence gives the reason for not enough evidence, because no interval shows it."""
        quiet = self.metric in MEASURES and self.difference_low is None  # unknown, or constant
        is_open = self.conclusion == "not_enough_evidence" and self.reason is not None
        return is_open and self.reason_code != "no_significant_difference" and not quiet

    @property
    def cost_text(self) -> str:
        return "unknown" if self.cost_usd is None else f"{self.cost_usd:.4f}"


def results_of(store: Store, experiments: Sequence[str]) -> list[Result]:
    """Return the results of experiments: by metric, built-in measures last, then in the given order."""
    store.verify(run_groups(store, experiments), {"verdicts"})
    (rows,) = ask(store, (_RESULTS, [list(experiments), [*MEASURES]]))
    return [Result(**dict(zip(Result.__slots__, row, strict=True))) for row in rows]


def sentences(results: Sequence[Result]) -> list[str]:
    """Summarize a run group: one sentence per candidate, reasons for not enough evidence, and warnings."""
    verdicts = []
    for target in dict.fromkeys(result.target for result in results if result.baseline):
        of_target = [result for result in results if result.target == target and result.metric not in MEASURES]
        if compared := [result for result in of_target if result.baseline]:
            verdicts.append(_verdict(target, compared))
    return [*verdicts, *_reasons(results), *_warnings(results)]


def _verdict(target: str, results: Sequence[Result]) -> str:
    def listed(conclusion: str) -> str:
        return ", ".join(
            f"{result.metric} {result.difference_text}" for result in results if result.conclusion == conclusion
        )

    parts = [f"{word} in {text}" for word in ("better", "worse") if (text := listed(word))]
    parts += [f"{word} in {text}" for conclusion, word in _WITHIN.items() if (text := listed(conclusion))]
    undecided: dict[str, list[str]] = {}
    for result in results:
        if result.conclusion == "not_enough_evidence":
            text = conclusion_text(result.conclusion, result.reason_code)
            undecided.setdefault(text, []).append(_with_detectable_effect(result))
    parts += [f"{text} in {', '.join(metrics)}" for text, metrics in undecided.items()]
    return f"{target} against {results[0].baseline}: {'; '.join(parts)}"


_WITHIN = {"no_worse": "no worse (within the margin)", "equivalent": "equivalent (within the margin)"}


def _with_detectable_effect(result: Result) -> str:
    """Return the metric, with its minimum detectable effect if there is no significant difference."""
    if result.minimum_detectable_effect is None or result.reason_code != "no_significant_difference":
        return result.metric
    size = figure(result.minimum_detectable_effect, result.metric)
    return f"{result.metric} (minimum detectable effect {size})"


def _reasons(results: Sequence[Result]) -> list[str]:
    reasons = dict.fromkeys((result.metric, result.reason) for result in results if result.has_reason_sentence)
    return [f"{metric} is inconclusive: {reason}" for metric, reason in reasons]


def judges_in_sentences(results: Sequence[Result]) -> set[str]:
    """Return the evaluators whose failed validation the sentences already report."""
    return {result.evaluator for result in results if result.has_reason_sentence and result.reason_code in JUDGE_FAILED}


def _warnings(results: Sequence[Result]) -> list[str]:
    idle = [
        f"{result.metric} does not apply to any of the {result.not_applicable} answers of {result.target}"
        for result in results
        if result.not_applicable and not result.scored and not result.missing and result.metric not in MEASURES
    ]
    warned: dict[str, dict[str, None]] = {}
    for result in results:
        if result.warning and result.is_worth_showing:
            warned.setdefault(result.warning, {})[result.metric] = None
    few = [f"{', '.join(metrics)}: {warning}" for warning, metrics in warned.items()]
    missing = [
        f"{result.missing} of {result.missing + result.scored} values of {result.metric} are missing in {result.target}"
        for result in results
        if result.missing and result.metric not in MEASURES
    ]
    return [*idle, *few, *missing]


_RESULTS = """
select r.experiment_id, r.experiment, r.target, r.metric, r.evaluator, l.shares, r.mean, r.ci_low, r.ci_high, r.scored,
       r.missing, r.not_applicable, r.sampled_out, r.cost_usd, r.baseline, r.difference, r.difference_low,
       r.difference_high, r.p_value, r.p_adjusted, r.n_pairs, r.minimum_detectable_effect, r.conclusion, r.reason,
       r.reason_code, r.warning
from results r left join (
    select experiment_id, metric, evaluator_version,
           string_agg(label || ' ' || round(100 * share)::int || ' %', ', ' order by n desc, label) as shares
    from label_shares group by all
) l using (experiment_id, metric, evaluator_version)
where list_contains($1, r.experiment_id)
order by coalesce(list_position($2, r.metric), 0), r.metric, list_position($1, r.experiment_id)
"""
