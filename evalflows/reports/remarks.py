"""What is said of results in sentences: the verdicts, and remarks on what they lack or what limits them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from evalflows.analysis.figures import figure
from evalflows.reports.results import CONCLUSIONS, UNDECIDED, Result
from evalflows.specs.grouping import grouped
from evalflows.specs.metric_names import MEASURES
from evalflows.store.records import EXCLUDED

Severity = Literal["bad", "warning", "note"]

RemarkKind = Literal[
    "budget", "missing", "undecided", "controls", "people", "types", "thinking", "invalid", "copies", "stepped",
    "failure", "estimated", "not_applicable", "no_range", "few", "rare", "family", "connection", "validated", "tried",
]  # fmt: skip

SEVERITIES: dict[RemarkKind, Severity] = {
    "budget": "bad",  # calls that a budget does not count
    "missing": "bad",  # values
    "undecided": "warning",  # why a verdict is not enough evidence, or no more than no worse
    "controls": "warning",  # a judge that known-answer controls do not validate
    "people": "warning",  # a judge that people's labels reject
    "types": "warning",  # text compared with numbers
    "thinking": "warning",  # it is part of answers
    "invalid": "warning",
    "copies": "warning",  # examples that resemble final ones
    "stepped": "warning",  # a fallback or an earlier tier judged
    "failure": "warning",  # an error of a target or an evaluator
    "estimated": "warning",  # cost
    "not_applicable": "note",
    "no_range": "note",
    "few": "note",  # why an interval is less reliable than stated
    "rare": "note",  # why the interval of a significant difference includes 0
    "family": "note",  # the verdicts of one table come from several families
    "connection": "note",  # whose calls at once were reduced
    "validated": "note",  # a judge that they do
    "tried": "note",  # how many versions: the best is ahead partly by luck
}
"""How bad each kind of remark is. They are shown in this order."""


WHO = {"run": "the run", "diff": "this diff"}
"""Families of verdicts in words; those of gates are called `gate NAME`."""


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


def sentences(results: Sequence[Result]) -> list[str]:
    """Return one sentence per candidate, and the remarks on the results."""
    return [*verdict_sentences(results), *(remark.text for remark in remarks_on(results))]


def remarks_on(results: Sequence[Result]) -> list[Remark]:
    """Return what is missing, the reasons for not enough evidence, and what was left out, the worst first."""
    makers = (_missing, _reasons, _not_applicable, _no_range, _few, _rare, _families)
    return by_severity(remark for make in makers for remark in make(results))


def verdict_sentences(results: Sequence[Result]) -> list[str]:
    """Return one sentence per candidate: how it compares with the baseline."""
    compared = [result for result in results if result.baseline and result.metric not in MEASURES]
    return [
        _verdict(target, [result for result in compared if result.target == target])
        for target in dict.fromkeys(result.target for result in compared)
    ]


def _verdict(target: str, results: Sequence[Result]) -> str:
    places = [*CONCLUSIONS]
    ordered = sorted(results, key=lambda r: (places.index(r.conclusion or UNDECIDED), not r.difference))
    metrics = grouped((result.verdict_text, _with_figures(result)) for result in ordered)
    parts = [f"{verdict} in {', '.join(named)}" for verdict, named in metrics.items()]
    return f"{target} against {results[0].baseline}: {'; '.join(parts)}"


def _with_figures(result: Result) -> str:
    """Return the metric with its difference; if that is not significant, with the minimum detectable effect."""
    if result.conclusion != UNDECIDED:
        return f"{result.metric} {result.difference_text}"
    if result.minimum_detectable_effect is None or result.reason_code != "no_significant_difference":
        return result.metric
    size = figure(result.minimum_detectable_effect, result.metric)
    return f"{result.metric} (minimum detectable effect {size})"


def judges_in_sentences(results: Sequence[Result]) -> set[str]:
    """Return the evaluators of which the sentences already report that they decide nothing."""
    return {result.evaluator for result in results if result.has_reason_sentence and result.reason_code in EXCLUDED}


def _reasons(results: Sequence[Result]) -> Iterator[Remark]:
    reasons = dict.fromkeys(
        (result.conclusion or UNDECIDED, result.metric, result.reason, result.reason_code)
        for result in results
        if result.has_reason_sentence
    )
    for conclusion, metric, reason, code in reasons:
        also = "" if conclusion == UNDECIDED or code == "worse_within_margin" else ", not better,"
        yield Remark("undecided", f"{CONCLUSIONS[conclusion]}{also} in {metric}: {reason}")


def _not_applicable(results: Sequence[Result]) -> Iterator[Remark]:
    for result in results:
        if result.not_applicable and not result.scored and not result.missing and result.metric not in MEASURES:
            text = f"{result.metric} does not apply to any of the {result.not_applicable} answers of {result.target}"
            yield Remark("not_applicable", text)


def _no_range(results: Sequence[Result]) -> Iterator[Remark]:
    for metric in dict.fromkeys(result.metric for result in results if result.leaves_shares):
        what = f"{metric}: no range is declared, so its interval leaves 0 to 1"
        yield Remark("no_range", f"{what}; if no value can, declare metrics: {{{metric}: {{range: [0, 1]}}}}")


def _few(results: Sequence[Result]) -> Iterator[Remark]:
    """Yield the warnings of verdicts, each once with its metrics."""
    metrics: dict[str, dict[str, None]] = {}
    for result in results:
        if result.warning and result.is_worth_showing:
            metrics.setdefault(result.warning, {})[result.metric] = None
    yield from (Remark("few", f"{', '.join(names)}: {warning}") for warning, names in metrics.items())


def _rare(results: Sequence[Result]) -> Iterator[Remark]:
    """Yield the metrics whose test and whose interval rest on different assumptions, and seem to disagree."""
    names = [
        row.metric
        for row in results
        if row.conclusion in ("better", "worse") and row.difference_low is not None and row.difference_high is not None
        if row.difference_low <= 0 <= row.difference_high
    ]
    if names:
        why = "the interval includes 0 because it allows for rare values that the sample may not show"
        yield Remark("rare", f"{', '.join(dict.fromkeys(names))}: significantly different; {why}")


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
