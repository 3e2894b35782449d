"""Results of experiments: one row per metric and system, on all or some examples, with remarks on what they lack or
what limits them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from evalflows.analysis.changes import ChosenExamples
from evalflows.analysis.figures import ONLY_JUDGE_DIFFERS, estimate, estimate_text, p_text
from evalflows.reports.names import names_apart
from evalflows.specs.frozen import dataclass
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import LATENCY, MEASURES, is_pass_k
from evalflows.store.queries.conclusions import VERDICT_FIELDS, decisions_on, verdicts_of_decisions
from evalflows.store.queries.lookup import run_groups
from evalflows.store.queries.people_checks import people_batches
from evalflows.store.records import EXCLUDED, EstimateRow, from_json
from evalflows.store.sql import ask, ask_records
from evalflows.store.store import Store

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

ALLOWS_FOR_RARE = "the interval includes 0 because it allows for rare values that the sample may not show"

_COMPARED = """
select distinct candidate_experiment_id, baseline_experiment_id from source.verdicts
where is_one_of(run_group, $1) and candidate_experiment_id is not null and baseline_experiment_id is not null
"""

_COUNTS = ("scored", "missing", "not_applicable", "sampled_out", "shares")

Severity = Literal["bad", "warning", "note"]

RemarkKind = Literal[
    "budget", "missing", "undecided", "drift", "controls", "bundle", "people", "types", "thinking", "invalid",
    "quarantine", "copies", "stepped", "panel", "failure", "estimated", "not_applicable", "no_interval", "no_range",
    "few", "rare", "family", "connection", "batched", "validated", "bundled", "tried",
]  # fmt: skip

SEVERITIES: dict[RemarkKind, Severity] = {
    "budget": "bad",  # calls that a budget does not count
    "missing": "bad",  # values
    "undecided": "warning",  # why a verdict is not enough evidence, or no more than no worse
    "drift": "warning",  # of a judge, as its anchors show
    "controls": "warning",  # a judge that known-answer controls do not validate
    "bundle": "warning",  # a judge whose scores sharing a call changes, or may change
    "people": "warning",  # a judge that people's labels reject
    "types": "warning",  # text compared with numbers
    "thinking": "warning",  # it is part of answers
    "invalid": "warning",
    "quarantine": "warning",  # examples that weigh less in verdicts
    "copies": "warning",  # examples that resemble final ones
    "stepped": "warning",  # a fallback or an earlier tier judged
    "panel": "warning",  # a judge of a panel was left out
    "failure": "warning",  # an error of a target or an evaluator
    "estimated": "warning",  # cost
    "not_applicable": "note",
    "no_interval": "note",
    "no_range": "note",
    "few": "note",  # why an interval is less reliable than stated
    "rare": "note",  # why the interval of a significant difference includes 0
    "family": "note",  # the verdicts of one table come from several families
    "connection": "note",  # whose calls at once were reduced
    "batched": "note",  # answers without a latency
    "validated": "note",  # a judge that they do
    "bundled": "note",  # a judge whose scores sharing a call does not change
    "tried": "note",  # how many versions: the best is ahead partly by luck
}
"""How bad each kind of remark is. They are shown in this order."""


WHO = {"run": "the run", "diff": "this diff"}
"""Families of verdicts in words; those of gates are called `gate NAME`."""


def why_interval_includes_0(conclusion: str | None, low: float | None, high: float | None) -> str:
    """Return why the interval of a significant difference includes 0, as its test allows for less; else empty."""
    if conclusion not in ("better", "worse") or low is None or high is None:
        return ""
    return ALLOWS_FOR_RARE if low <= 0 <= high else ""


def conclusion_text(conclusion: str | None, reason_code: str | None, margin: float | None = None) -> str:
    """Return a verdict's conclusion in the words that all output uses, with the margin that it depends on.

    Empty if there is no verdict.
    """
    if conclusion == UNDECIDED and reason_code == "no_significant_difference":
        return "no significant difference"
    if conclusion == UNDECIDED and reason_code == "too_brief":
        return "both under a millisecond"
    if conclusion == UNDECIDED and reason_code == "only_judge_differs":
        return ONLY_JUDGE_DIFFERS
    text = CONCLUSIONS.get(conclusion or "", "")
    return f"{text} (margin {margin:g})" if conclusion in WITHIN_MARGIN and margin is not None else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One metric of one experiment, compared with the baseline's if there is one."""

    experiment_id: str
    experiment: str
    target: str
    metric: str
    evaluator: str
    is_of_experiment: bool  # whether it is one value of all runs together, and no run has one
    shares: str | None  # shares of labels, for a categorical metric
    mean: float | None
    standard_error: float | None  # None if the interval is not based on one
    ci_low: float | None
    ci_high: float | None
    confidence_level: float | None  # of the interval
    method: str | None  # of the interval
    has_range: bool  # whether one is declared, which the interval does not leave
    scored: int
    missing: int
    not_applicable: int
    sampled_out: int
    cost_usd: float | None
    baseline_experiment_id: str | None
    baseline: str | None
    paired_mean: float | None  # over the pairs that the difference rests on, which may be some of the values
    paired_baseline_mean: float | None
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
    family: str | None  # what its p-value is adjusted with: `run`, `gate NAME`, or `diff`
    n_in_family: int | None

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
    def n_values(self) -> int:
        """Values that are known, missing, not needed, or not sampled."""
        return self.scored + self.missing + self.not_applicable + self.sampled_out

    @property
    def mean_text(self) -> str:
        return self.shares or self._mean_and_interval[0]

    @property
    def scored_text(self) -> str:
        """The number of scored runs; for a sample, `n of all`."""
        return f"{self.scored} of {self.n_values}" if self.sampled_out else str(self.scored)

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
        return estimate_text(self.difference, *ends, self.metric, signed=True)

    def pairs_text(self, n_shared: int) -> str:
        """Return how many of the shared examples its difference rests on, unless on all."""
        if self.n_pairs is None or self.n_pairs == n_shared:
            return ""
        is_timed = self.metric == LATENCY and self.reason_code != "not_side_by_side"
        return f"{self.n_pairs} of {n_shared} pairs{', answered side by side' if is_timed else ''}"

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
    def why_interval_includes_0(self) -> str:
        """Why the interval of its significant difference includes 0; empty if it does not."""
        return why_interval_includes_0(self.conclusion, self.difference_low, self.difference_high)

    @property
    def leaves_shares(self) -> bool:
        """Whether the mean is from 0 to 1, as that of shares, and the interval is not, as nothing declares a range."""
        if self.mean is None or self.ci_low is None or self.ci_high is None or self.has_range:
            return False
        is_within = 0 <= self.mean <= 1 and self.metric not in MEASURES
        return is_within and not (self.ci_low >= 0 and self.ci_high <= 1)

    @property
    def has_reason_sentence(self) -> bool:
        """Whether a sentence gives the reason for not enough evidence, or for no more than that, because no interval
        shows it."""
        quiet = self.metric in MEASURES and self.difference_low is None and not self.difference  # unknown, or equal
        is_open = self.conclusion in (UNDECIDED, *WITHIN_MARGIN) and self.reason is not None
        return is_open and self.reason_code not in ("no_significant_difference", "too_brief") and not quiet


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """The means of a baseline and a candidate as text, between which the difference lies that stands beside them."""

    baseline: str
    candidate: str
    pairs: str = ""  # `31 pairs` if they are the means of these, and those of all values are others

    @property
    def text(self) -> str:
        return f"{self.baseline} → {self.candidate}"


def means_of(result: Result, baseline: Result | None) -> Means | None:
    """Return the means of a result and of the baseline's: of all values, or of the pairs if their means are others.

    None if the difference is not known and the two have not as many values.
    """
    before, after = result.paired_baseline_mean, result.paired_mean
    if before is None or after is None:
        is_alike = baseline is not None and baseline.n_values == result.n_values
        return Means(baseline=baseline.mean_text, candidate=result.mean_text) if baseline and is_alike else None
    half = ((result.difference_high or 0.0) - (result.difference_low or 0.0)) / 2

    def texts(*means: float) -> list[str]:
        """With the digits of the difference."""
        return [estimate(mean, mean - half, mean + half, result.metric)[0] for mean in means]

    of_pairs, n = texts(before, after), result.n_pairs
    of_all = [side.mean for side in (baseline, result) if side is not None and side.mean is not None]
    if baseline and texts(*of_all) == of_pairs:
        return Means(baseline=baseline.mean_text, candidate=result.mean_text)
    return Means(baseline=of_pairs[0], candidate=of_pairs[1], pairs=f"{n} pair{'s' * (n != 1)}")


def means_in(results: Sequence[Result]) -> dict[tuple[str, str], Means | None]:
    """Return the means of each result and of its baseline's among them, by experiment and metric."""
    known = {(result.experiment_id, result.metric): result for result in results}
    return {key: means_of(row, known.get((row.baseline_experiment_id or "", row.metric))) for key, row in known.items()}


def differences_in(results: Sequence[Result]) -> dict[tuple[str, str], list[str]]:
    """Return the difference of each result in lines, by experiment and metric, for a table of means of all values: the
    second is of the means of the pairs, if they are others."""
    means = means_in(results)
    return {
        (result.experiment_id, result.metric): [
            result.difference_text,
            *([f"{of_both.pairs}: {of_both.text}"] if of_both and of_both.pairs else []),
        ]
        for result in results
        for of_both in [means[result.experiment_id, result.metric]]
    }


def results_of(store: Store, experiments: Sequence[str]) -> list[Result]:
    """Return the results of experiments: by metric, built-in measures last, then in the given order."""
    return _named_apart(store, _results(store, experiments))


def results_of_each(store: Store, experiments: Sequence[str]) -> dict[str, list[Result]]:
    """Return the results of each experiment, as `results_of` of it alone, which together takes half of the time."""
    found = _results(store, experiments)
    return {
        identity: _named_apart(store, [result for result in found if result.experiment_id == identity])
        for identity in experiments
    }


def _results(store: Store, experiments: Sequence[str]) -> list[Result]:
    decisions = decisions_on(store, experiments)
    groups = [*run_groups(store, experiments), *decisions]
    store.verify(groups, {"verdicts"})
    with store.reading(only={"run_group": groups}):
        compared = {identity for pair in ask(store, (_COMPARED, [groups]))[0] for identity in pair}
    only = {
        "run_group": groups,
        "decision_id": decisions,
        "batch_id": people_batches(store),
        "experiment_id": sorted({*experiments, *compared}),
    }
    with store.reading(only=only):
        return ask_records(store, Result, _RESULTS, [list(experiments), [*MEASURES]])


def results_against(store: Store, candidate: str, baseline: str | None, decisions: Sequence[str]) -> list[Result]:
    """Return the results of a candidate and of its baseline, baseline first.

    Differences and verdicts are those of the gates' `decisions`; of other metrics, those of the run group if it has the
    same baseline. Without a baseline there are none.
    """
    results = results_of(store, [identity for identity in (baseline, candidate) if identity is not None])
    decided = verdicts_of_decisions(store, candidate, decisions)
    names = {result.experiment_id: result.target for result in results}
    against: dict[str, Any] = {"baseline_experiment_id": baseline, "baseline": names.get(baseline or "")}
    out = []
    for result in results:
        is_candidate = result.experiment_id == candidate and baseline is not None
        if is_candidate and result.metric in decided:
            result = replace(result, **against, **decided[result.metric])
        elif result.baseline_experiment_id != baseline or not is_candidate:
            result = without_verdict(result)
        out.append(result)
    return out


def without_verdict(result: Result) -> Result:
    """Return a result that is compared with no other."""
    nothing: dict[str, Any] = dict.fromkeys(("baseline_experiment_id", "baseline", *VERDICT_FIELDS))
    return replace(result, **nothing)


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
select r.experiment_id, r.experiment, r.target, r.metric, r.evaluator, r.subject_kind = 'experiment',
       l.shares, r.mean, r.standard_error,
       r.ci_low, r.ci_high, r.confidence_level, r.method,
       x.spec ->> ('$.metrics."' || replace(r.metric, '"', '\\"') || '".range') is not null as has_range,
       r.scored, r.missing, r.not_applicable, r.sampled_out, r.cost_usd, r.baseline_experiment_id, r.baseline,
       r.paired_mean, r.paired_baseline_mean, r.difference, r.difference_standard_error, r.difference_low,
       r.difference_high, r.difference_method, r.p_value, r.p_adjusted, r.n_pairs, r.minimum_detectable_effect,
       r.margin, r.conclusion, r.reason, r.reason_code, r.warning, r.family, r.n_in_family
from results r join source.experiments x using (experiment_id) left join (
    select experiment_id, metric, evaluator_version,
           string_agg(label || ' ' || round(100 * share)::int || ' %', ', ' order by n desc, label) as shares
    from label_shares where is_one_of(experiment_id, $1) group by all
) l using (experiment_id, metric, evaluator_version)
where is_one_of(r.experiment_id, $1)
order by coalesce(list_position($2, r.metric), 0), r.metric, list_position($1, r.experiment_id), r.evaluator_version
"""


def on_chosen(store: Store, results: Sequence[Result], chosen: ChosenExamples) -> list[Result]:
    """Return the results with the means, counts and labels of the chosen examples; costs are unchanged.

    Scores of whole experiments cannot be restricted, and are left out.
    """
    pairs = [(owner, example) for owner, examples in chosen.examples.items() for example in examples]
    (rows,) = ask(store, (_COUNTED, [[pair[column] for pair in pairs] for column in (0, 1)]))
    counted = {
        (owner, metric, evaluator): dict(zip(_COUNTS, row, strict=True)) for owner, metric, evaluator, *row in rows
    }
    means = {(estimate.experiment_id, estimate.metric): estimate for estimate in chosen.estimates}
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
    """Return the mean of a result; None for labels. Why there is no interval, unless a verdict gives its own reason."""
    fields = ("mean", "standard_error", "ci_low", "ci_high", "confidence_level", "method")
    found: dict[str, Any] = {name: getattr(mean, name) if mean else None for name in fields}
    if mean is not None and result.conclusion is None:
        found |= {"reason": mean.reason, "reason_code": mean.reason_code}
    return found


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


def drawing_scales(store: Store, results: Sequence[Result]) -> dict[str, tuple[float, float]]:
    """Return the scale on which each metric of evaluators is drawn: its declared range, or 0 to 1 if all its intervals
    are within it. A metric without is not among them."""
    rows = (
        store.read("experiments", identity)[0] for identity in dict.fromkeys(result.experiment_id for result in results)
    )
    of_specs = [from_json(row.spec).get("metrics") or {} for row in rows]
    declared = {metric: spec["range"] for metrics in of_specs for metric, spec in metrics.items() if spec.get("range")}
    outside = {
        result.metric
        for result in results
        if any(end is not None and not 0 <= end <= 1 for end in (result.mean, result.ci_low, result.ci_high))
    }
    found: dict[str, tuple[float, float]] = {}
    for metric in dict.fromkeys(result.metric for result in results if result.metric not in MEASURES):
        if metric in declared:
            found[metric] = (declared[metric][0], declared[metric][1])
        elif metric not in outside:
            found[metric] = (0.0, 1.0)
    return found


class Remark(NamedTuple):
    """One fact that limits results or is missing from them. Doors may leave out what they show elsewhere."""

    kind: RemarkKind
    text: str
    without_data: str | None = None  # the same for where no value of the data may be, if the text may quote one

    @property
    def severity(self) -> Severity:
        return SEVERITIES[self.kind]


def by_severity(remarks: Iterable[Remark]) -> list[Remark]:
    """Return each remark once, the worst first."""
    places = [*SEVERITIES]
    return sorted(dict.fromkeys(remarks), key=lambda remark: places.index(remark.kind))


def remarks_on(results: Sequence[Result]) -> list[Remark]:
    """Return what is missing, the reasons for not enough evidence, and what was left out, the worst first."""
    makers = (_missing, _reasons, _not_applicable, _no_interval, _no_range, _few, rare_values, _families)
    return by_severity(remark for make in makers for remark in make(results))


def judges_in_sentences(results: Sequence[Result]) -> set[str]:
    """Return the evaluators of which the sentences already report that they decide nothing."""
    return {result.evaluator for result in results if result.has_reason_sentence and result.reason_code in EXCLUDED}


def _reasons(results: Sequence[Result]) -> Iterator[Remark]:
    candidates = dict.fromkeys(result.target for result in results if result.baseline is not None)
    reasons: dict[tuple[str, str, str | None, str | None], list[str]] = {}
    for result in results:
        if result.has_reason_sentence:
            key = (result.conclusion or UNDECIDED, result.metric, result.reason, result.reason_code)
            reasons.setdefault(key, []).append(result.target)
    for (conclusion, metric, reason, code), whose in reasons.items():
        also = "" if conclusion == UNDECIDED or code == "worse_within_margin" else ", not better,"
        of = f" of {', '.join(dict.fromkeys(whose))}" if candidates.keys() - {*whose} else ""
        yield Remark("undecided", f"{CONCLUSIONS[conclusion]}{also} in {metric}{of}: {reason}")


def _not_applicable(results: Sequence[Result]) -> Iterator[Remark]:
    for result in results:
        if result.not_applicable and not result.scored and not result.missing and result.metric not in MEASURES:
            text = f"{result.metric} does not apply to any of the {result.not_applicable} answers of {result.target}"
            yield Remark("not_applicable", text)


def _no_interval(results: Sequence[Result]) -> Iterator[Remark]:
    """Yield why means have no interval, each reason once with its metrics; of a difference, the verdict gives it."""
    compared = {result.metric for result in results if result.baseline_experiment_id is not None}
    alone = [result for result in results if result.metric not in compared and result.is_worth_showing]
    lacking = [result for result in alone if result.mean is not None and result.ci_low is None and result.reason]
    for reason, names in grouped((result.reason, result.metric) for result in lacking).items():
        yield Remark("no_interval", f"no interval of {', '.join(dict.fromkeys(names))}: {reason}")


def _no_range(results: Sequence[Result]) -> Iterator[Remark]:
    others = {result.metric for result in results if result.mean is not None and not 0 <= result.mean <= 1}
    for metric in dict.fromkeys(one.metric for one in results if one.leaves_shares and one.metric not in others):
        what = f"{metric}: no range is declared, so its interval exceeds 0 to 1"
        yield Remark("no_range", f"{what}; if no value can, declare metrics: {{{metric}: {{range: [0, 1]}}}}")


def _few(results: Sequence[Result]) -> Iterator[Remark]:
    """Yield the warnings of verdicts, each once with its metrics."""
    metrics: dict[str, dict[str, None]] = {}
    for result in results:
        if result.warning and result.is_worth_showing:
            metrics.setdefault(result.warning, {})[result.metric] = None
    yield from (Remark("few", f"{', '.join(names)}: {warning}") for warning, names in metrics.items())


def rare_values(results: Iterable[Result]) -> Iterator[Remark]:
    """Yield the metrics whose test and whose interval rest on different assumptions, and seem to disagree."""
    if names := dict.fromkeys(row.metric for row in results if row.why_interval_includes_0):
        yield Remark("rare", f"{', '.join(names)}: significantly different; {ALLOWS_FOR_RARE}")


def _families(results: Sequence[Result]) -> Iterator[Remark]:
    """Yield which verdicts are of which family, if those of evaluators' metrics are of several."""
    found: dict[tuple[str, int], dict[str, None]] = {}
    for result in results:
        if result.p_adjusted is not None and result.metric not in MEASURES and result.family and result.n_in_family:
            found.setdefault((result.family, result.n_in_family), {})[result.metric] = None
    if len(found) > 1:
        parts = [
            f"{', '.join(metrics)} by {WHO.get(family, family)} ({n} comparison{'s' * (n != 1)})"
            for (family, n), metrics in sorted(found.items())
        ]
        yield Remark("family", f"p-values are adjusted within families: {'; '.join(parts)}")


def _missing(results: Sequence[Result]) -> Iterator[Remark]:
    """Yield how many values are missing; metrics that lack as many are named together."""
    lacking = (  # a measure without any value is shown as unknown
        result for result in results if result.missing and (result.scored or result.metric not in MEASURES)
    )
    by_counts = grouped(((result.target, result.missing, result.scored), result.metric) for result in lacking)
    for (target, missing, scored), names in by_counts.items():
        text = f"{missing} of {missing + scored} values of {', '.join(names)} are missing in {target}"
        yield Remark("missing", text)
