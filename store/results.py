"""Results as a person reads them: one line a metric and system, and what is to be said of them in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from specs.metric import MEASURES
from store.catalog import ask
from store.parquet import Store

CONCLUSIONS = {
    "better": "better",
    "worse": "worse",
    "no_worse": "no worse",
    "equivalent": "equivalent",
    "not_enough_evidence": "not enough evidence",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One metric of one experiment, beside the baseline's where there is one."""

    experiment_id: str
    experiment: str
    target: str
    metric: str
    shares: str | None  # of labels, where the metric is one
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
    smallest_detectable_effect: float | None
    conclusion: str | None
    reason: str | None
    warning: str | None

    @property
    def says_something(self) -> bool:
        """Whether there is a value, or one is missing; a measure that is not known, or a cost of nothing, says none."""
        if self.metric in MEASURES:
            return bool(self.scored or self.missing) and not (self.metric == "cost" and not self.mean)
        return bool(self.scored or self.missing or self.not_applicable or self.sampled_out)

    @property
    def mean_text(self) -> str:
        return self.shares or figure(self.mean, self.metric)

    @property
    def scored_text(self) -> str:
        """How many the mean is of; of a sample, of how many."""
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
        text = CONCLUSIONS.get(self.conclusion or "", "")
        return f"{text}: unfit judge" if "planted answers" in (self.reason or "") else text

    @property
    def cost_text(self) -> str:
        return "unknown" if self.cost_usd is None else f"{self.cost_usd:.4f}"


def figure(value: float | None, metric: str, *, signed: bool = False) -> str:
    """A number with as many digits as its metric bears; `-` for none."""
    if value is None:
        return "-"
    digits = {"cost": 6, "tokens": 1, "length": 1}.get(metric, 3)
    text = f"{value:{'+' if signed else ''}.{digits}f}"
    return text.replace("-", "+" if signed else "") if float(text) == 0 else text


def p_text(value: float | None) -> str:
    """A p-value; nothing where there is none."""
    return "" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def span(low: float | None, high: float | None, metric: str, *, signed: bool = False) -> str:
    """An interval; nothing where there is none."""
    if low is None or high is None:
        return ""
    return f"[{figure(low, metric, signed=signed)}, {figure(high, metric, signed=signed)}]"


def results_of(store: Store, experiments: Sequence[str]) -> list[Result]:
    """The results of some experiments: by metric, the measures last, and in the experiments' order."""
    (rows,) = ask(store, (_RESULTS, [list(experiments), [*MEASURES]]))
    return [Result(**dict(zip(Result.__slots__, row, strict=True))) for row in rows]


def sentences(results: Sequence[Result]) -> list[str]:
    """What is to be said of a run group, for someone who reads no tables: a sentence a candidate, and warnings."""
    said = []
    for target in dict.fromkeys(result.target for result in results if result.baseline):
        of_target = [result for result in results if result.target == target and result.metric not in MEASURES]
        if compared := [result for result in of_target if result.baseline]:
            said.append(_verdict(target, compared))
    return [*said, *_reasons(results), *_warnings(results)]


def _verdict(target: str, results: Sequence[Result]) -> str:
    def listed(conclusion: str) -> str:
        return ", ".join(
            f"{result.metric} {result.difference_text}" for result in results if result.conclusion == conclusion
        )

    parts = [f"{word} in {text}" for word in ("better", "worse") if (text := listed(word))]
    parts += [f"{word} in {text}" for conclusion, word in _WITHIN.items() if (text := listed(conclusion))]
    open_ = ", ".join(_seeable(result) for result in results if result.conclusion == "not_enough_evidence")
    parts += [f"not enough evidence in {open_}"] if open_ else []
    return f"{target} against {results[0].baseline}: {'; '.join(parts)}"


_WITHIN = {"no_worse": "no worse, by the margin,", "equivalent": "the same, within the margin,"}


def _seeable(result: Result) -> str:
    """A metric, with how small a difference would probably have been found."""
    is_open = (result.reason or "").startswith("the difference may be none")
    if result.smallest_detectable_effect is None or not is_open:
        return result.metric
    size = figure(result.smallest_detectable_effect, result.metric)
    return f"{result.metric} (a difference of {size} would probably have been seen)"


def _reasons(results: Sequence[Result]) -> list[str]:
    """Why there is not enough evidence, where it is more than that the difference may be none."""
    found: dict[tuple[str, str], None] = {}
    for result in results:
        plain = (result.reason or "").startswith("the difference may be none")
        quiet = result.metric in MEASURES and result.difference_low is None  # not known, or the same throughout
        if result.conclusion == "not_enough_evidence" and result.reason and not plain and not quiet:
            found[result.metric, result.reason] = None
    return [f"{metric} decides nothing: {reason}" for metric, reason in found]


def _warnings(results: Sequence[Result]) -> list[str]:
    idle = [
        f"{result.metric} applies to none of the {result.not_applicable} answers of {result.target}"
        for result in results
        if result.not_applicable and not result.scored and not result.missing and result.metric not in MEASURES
    ]
    few = dict.fromkeys(f"{result.metric}: {result.warning}" for result in results if result.warning)
    missing = [
        f"{result.missing} of {result.missing + result.scored} values of {result.metric} are missing in {result.target}"
        for result in results
        if result.missing and result.metric not in MEASURES
    ]
    return [*idle, *few, *missing]


_RESULTS = """
select r.experiment_id, r.experiment, r.target, r.metric, l.shares, r.mean, r.ci_low, r.ci_high, r.scored, r.missing,
       r.not_applicable, r.sampled_out, r.cost_usd, r.baseline, r.difference, r.difference_low, r.difference_high,
       r.p_value, r.p_adjusted, r.n_pairs, r.smallest_detectable_effect, r.conclusion, r.reason, r.warning
from results r left join (
    select experiment_id, metric, evaluator_version,
           string_agg(label || ' ' || round(100 * share)::int || ' %', ', ' order by n desc, label) as shares
    from label_shares group by all
) l using (experiment_id, metric, evaluator_version)
where list_contains($1, r.experiment_id)
order by coalesce(list_position($2, r.metric), 0), r.metric, list_position($1, r.experiment_id)
"""
