"""Sentences about the results of a run group: verdicts, reasons for not enough evidence, and warnings."""

from collections.abc import Sequence

from evalflows.reports.figures import figure
from evalflows.reports.results import CONCLUSIONS, UNDECIDED, Result
from evalflows.specs.metric_names import MEASURES
from evalflows.store.reasons import JUDGE_FAILED


def sentences(results: Sequence[Result]) -> list[str]:
    """Summarize a run group: one sentence per candidate, reasons for not enough evidence, and warnings."""
    compared = [result for result in results if result.baseline and result.metric not in MEASURES]
    verdicts = [
        _verdict(target, [result for result in compared if result.target == target])
        for target in dict.fromkeys(result.target for result in compared)
    ]
    return [*verdicts, *_reasons(results), *_warnings(results)]


def _verdict(target: str, results: Sequence[Result]) -> str:
    metrics: dict[str, list[str]] = {}
    for result in sorted(results, key=lambda one: [*CONCLUSIONS].index(one.conclusion or UNDECIDED)):
        metrics.setdefault(result.verdict_text, []).append(_with_figures(result))
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


def _reasons(results: Sequence[Result]) -> list[str]:
    reasons = dict.fromkeys((result.metric, result.reason) for result in results if result.has_reason_sentence)
    return [f"not enough evidence in {metric}: {reason}" for metric, reason in reasons]


def judges_in_sentences(results: Sequence[Result]) -> set[str]:
    """Return the evaluators whose failed validation the sentences already report."""
    return {result.evaluator for result in results if result.has_reason_sentence and result.reason_code in JUDGE_FAILED}


def _warnings(results: Sequence[Result]) -> list[str]:
    idle = [
        f"{result.metric} does not apply to any of the {result.not_applicable} answers of {result.target}"
        for result in results
        if result.not_applicable and not result.scored and not result.missing and result.metric not in MEASURES
    ]
    shown = [result for result in results if result.warning and result.is_worth_showing]
    few = [
        f"{', '.join(dict.fromkeys(result.metric for result in shown if result.warning == warning))}: {warning}"
        for warning in dict.fromkeys(result.warning for result in shown)
    ]
    return [*idle, *few, *_missing(results)]


def _missing(results: Sequence[Result]) -> list[str]:
    """Say how many values are missing; metrics that lack as many are named together."""
    metrics: dict[tuple[str, int, int], list[str]] = {}
    for result in results:
        is_unknown = result.metric in MEASURES and not result.scored  # its mean is shown as unknown
        if result.missing and not is_unknown:
            metrics.setdefault((result.target, result.missing, result.scored), []).append(result.metric)
    return [
        f"{missing} of {missing + scored} values of {', '.join(names)} are missing in {target}"
        for (target, missing, scored), names in metrics.items()
    ]
