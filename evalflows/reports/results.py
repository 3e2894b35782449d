"""Results of experiments: one row per metric and system."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalflows.reports.figures import estimate, p_text
from evalflows.reports.names_apart import names_apart
from evalflows.specs.metric_names import LATENCY, MEASURES
from evalflows.store.catalog import ask
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import run_groups

CONCLUSIONS = {
    "better": "better",
    "worse": "worse",
    "no_worse": "no worse",
    "equivalent": "equivalent",
    "not_enough_evidence": "not enough evidence",
}


UNDECIDED = "not_enough_evidence"

WITHIN_MARGIN = ("no_worse", "equivalent")
"""The conclusions that depend on a margin."""


def conclusion_text(conclusion: str | None, reason_code: str | None, margin: float | None = None) -> str:
    """Return a verdict's conclusion in the words that all output uses, with the margin that it depends on.

    Empty if there is no verdict.
    """
    if conclusion == UNDECIDED and reason_code == "no_significant_difference":
        return "no significant difference"
    text = CONCLUSIONS.get(conclusion or "", "")
    return f"{text} (margin {margin:g})" if conclusion in WITHIN_MARGIN and margin is not None else text


SIDE_BY_SIDE = "those answered side by side, without the first round, which opens connections"
"""The pairs of latencies that are compared."""

VERDICT_FIELDS = {
    "difference": "difference",
    "difference_standard_error": "standard_error",
    "difference_low": "ci_low",
    "difference_high": "ci_high",
    "difference_method": "method",
    "p_value": "p_value",
    "p_adjusted": "p_adjusted",
    "n_pairs": "n_pairs",
    "minimum_detectable_effect": "minimum_detectable_effect",
    "margin": "margin",
    "conclusion": "conclusion",
    "reason": "reason",
    "reason_code": "reason_code",
    "warning": "warning",
}
"""The fields of a result that are a verdict's, and their names in the verdict."""


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
    standard_error: float | None  # None if the interval is not based on one
    ci_low: float | None
    ci_high: float | None
    confidence_level: float | None  # of the interval
    method: str | None  # of the interval
    scored: int
    missing: int
    not_applicable: int
    sampled_out: int
    cost_usd: float | None
    baseline_experiment_id: str | None
    baseline: str | None
    difference: float | None
    difference_standard_error: float | None
    difference_low: float | None
    difference_high: float | None
    difference_method: str | None
    p_value: float | None
    p_adjusted: float | None
    n_pairs: int | None
    minimum_detectable_effect: float | None
    margin: float | None  # smaller differences do not matter
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
        return self.shares or self._mean_and_interval[0]

    @property
    def scored_text(self) -> str:
        """The number of scored runs; for a sample, `n of all`."""
        whole = self.scored + self.missing + self.not_applicable + self.sampled_out
        return f"{self.scored} of {whole}" if self.sampled_out else str(self.scored)

    @property
    def interval_text(self) -> str:
        return self._mean_and_interval[1]

    @property
    def _mean_and_interval(self) -> tuple[str, str]:
        return estimate(self.mean, self.ci_low, self.ci_high, self.metric)

    @property
    def difference_text(self) -> str:
        if self.difference is None:
            return ""
        ends = (self.difference_low, self.difference_high)
        return " ".join(filter(None, estimate(self.difference, *ends, self.metric, signed=True, marks=(0,))))

    def pairs_text(self, n_shared: int) -> str:
        """How many of the shared examples its difference rests on, unless on all."""
        if self.n_pairs is None or self.n_pairs == n_shared:
            return ""
        return f"{self.n_pairs} of {n_shared} pairs{f': {SIDE_BY_SIDE}' if self.metric == LATENCY else ''}"

    @property
    def p_text(self) -> str:
        return p_text(self.p_value)

    @property
    def p_adjusted_text(self) -> str:
        return p_text(self.p_adjusted)

    @property
    def verdict_text(self) -> str:
        return conclusion_text(self.conclusion, self.reason_code, self.margin)

    @property
    def has_reason_sentence(self) -> bool:
        """Whether a sentence gives the reason for not enough evidence, because no interval shows it."""
        quiet = self.metric in MEASURES and self.difference_low is None and not self.difference  # unknown, or equal
        is_open = self.conclusion == UNDECIDED and self.reason is not None
        return is_open and self.reason_code != "no_significant_difference" and not quiet

    @property
    def cost_text(self) -> str:
        return "unknown" if self.cost_usd is None else f"{self.cost_usd:.4f}"


def results_of(store: Store, experiments: Sequence[str]) -> list[Result]:
    """Return the results of experiments: by metric, built-in measures last, then in the given order."""
    store.verify(run_groups(store, experiments), {"verdicts"})
    (rows,) = ask(store, (_RESULTS, [list(experiments), [*MEASURES]]))
    return _named_apart(store, [Result(**dict(zip(Result.__slots__, row, strict=True))) for row in rows])


def results_against(store: Store, candidate: str, baseline: str | None, decisions: Sequence[str]) -> list[Result]:
    """Return the results of a candidate and of its baseline, baseline first.

    Differences and verdicts are those of the gates' `decisions`; of other metrics, those of the run group if it has the
    same baseline. Without a baseline there are none.
    """
    results = results_of(store, [identity for identity in (baseline, candidate) if identity is not None])
    (rows,) = ask(store, (_DECIDED, [list(decisions), candidate]))
    decided = {row[0]: dict(zip(VERDICT_FIELDS, row[1:], strict=True)) for row in rows}
    names = {result.experiment_id: result.target for result in results}
    against: dict[str, Any] = {"baseline_experiment_id": baseline, "baseline": names.get(baseline or "")}
    out = []
    for result in results:
        is_candidate = result.experiment_id == candidate and baseline is not None
        if is_candidate and result.metric in decided:
            result = replace(result, **against, **decided[result.metric])
        elif result.baseline_experiment_id != baseline or not is_candidate:
            nothing: dict[str, Any] = dict.fromkeys(("baseline_experiment_id", "baseline", *VERDICT_FIELDS))
            result = replace(result, **nothing)
        out.append(result)
    return out


def _named_apart(store: Store, results: list[Result]) -> list[Result]:
    """Name systems apart that have the same name, as those of two runs of a spec have."""
    names = {result.experiment_id: result.target for result in results}
    names |= {
        result.baseline_experiment_id: result.baseline
        for result in results
        if result.baseline_experiment_id is not None and result.baseline is not None
    }
    apart = names_apart(store, names)
    return [
        replace(
            result,
            target=apart[result.experiment_id],
            baseline=apart.get(result.baseline_experiment_id or "", result.baseline),
        )
        for result in results
    ]


_RESULTS = """
select r.experiment_id, r.experiment, r.target, r.metric, r.evaluator, l.shares, r.mean, r.standard_error,
       r.ci_low, r.ci_high, r.confidence_level, r.method, r.scored, r.missing, r.not_applicable, r.sampled_out,
       r.cost_usd, r.baseline_experiment_id, r.baseline, r.difference, r.difference_standard_error, r.difference_low,
       r.difference_high, r.difference_method, r.p_value, r.p_adjusted, r.n_pairs, r.minimum_detectable_effect,
       r.margin, r.conclusion, r.reason, r.reason_code, r.warning
from results r left join (
    select experiment_id, metric, evaluator_version,
           string_agg(label || ' ' || round(100 * share)::int || ' %', ', ' order by n desc, label) as shares
    from label_shares where is_one_of(experiment_id, $1) group by all
) l using (experiment_id, metric, evaluator_version)
where is_one_of(r.experiment_id, $1)
order by coalesce(list_position($2, r.metric), 0), r.metric, list_position($1, r.experiment_id)
"""

_DECIDED = """
select metric, difference, standard_error, ci_low, ci_high, method, p_value, p_adjusted, n_pairs,
       minimum_detectable_effect, margin, conclusion, reason, reason_code, warning
from verdicts where is_one_of(decision_id, $1) and candidate_experiment_id = $2 and slice is null
order by recorded_at desc
"""
