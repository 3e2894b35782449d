"""Sentences about the results of a run group: verdicts, reasons for not enough evidence, and warnings."""

from collections.abc import Sequence

from evalflows.reports.figures import figure
from evalflows.reports.results import Result, conclusion_text
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
