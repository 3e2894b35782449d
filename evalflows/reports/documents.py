"""Reports of experiments and decisions as JSON documents; those of plans and backtests as they are kept: what `--format
json` gives, as far as a terminal shows it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from evalflows.reports.candidates import CandidatesOfGate
from evalflows.reports.decisions import Decision
from evalflows.reports.experiment_report import ExperimentOverview, ExperimentsReport
from evalflows.reports.results import Result
from evalflows.reports.worst import WorstExamples, WorstItem
from evalflows.specs.hints import Hint
from evalflows.store.queries.conclusions import VERDICT_FIELDS
from evalflows.store.records import DecisionConclusion, from_json

if TYPE_CHECKING:
    from evalflows.reports.comparison import ComparisonReport, Overview
    from evalflows.reports.previous_runs import PreviousRun

Document = dict[str, Any]

AGAINST = {
    "baseline_experiment_id": "baseline_experiment_id",
    "baseline": "baseline",
    **{own: name for own, name in VERDICT_FIELDS.items() if own not in ("reason", "reason_code", "warning")},
}
"""The fields of a result that are about its difference from the baseline, and their names in the document."""


def document(
    reports: Sequence[ExperimentsReport],
    *,
    candidates: Sequence[Decision | CandidatesOfGate] = (),
    comparison: "ComparisonReport | None" = None,
    previous: "Sequence[PreviousRun]" = (),
    calls_made: int | None = None,
    next_command: Hint | None,
) -> Document:
    """Return what `run`, `gate` and `show` print, as one object.

    Args:
        reports: One per table that is printed; what several have, such as a shared baseline, is listed once.
        candidates: The decisions, those of one gate on several candidates together.
        comparison: The comparison of the experiments' answers, or the one that is shown.
        previous: How experiments did against the runs before them.
        calls_made: Model calls of this run; None if nothing was run, or if some may not have been recorded.
        next_command: The command to run next; None if nothing is kept that one could show.
    """
    targets = {experiment.experiment_id: experiment.target for report in reports for experiment in report.experiments}
    worst = [examples for report in reports if report.worst for examples in report.worst.examples]
    content: Document = {
        "experiments": _once(asdict(experiment) for report in reports for experiment in report.experiments),
        "metrics": _once(
            metric_document(result, targets) for report in reports for result in report.results if result.has_rows
        ),
        "decisions": [_decision(decision) for report in reports for decision in report.decisions],
        "standings": [candidate.standing for candidate in candidates if isinstance(candidate, CandidatesOfGate)],
        "comparison": comparison and _comparison(comparison),
        "worst_examples": [worst_document(examples) for examples in worst],
        "grids": [asdict(grid) for report in reports for grid in report.grids],
        "failures": _once(asdict(failure) for report in reports for failure in report.failures),
        "judge_checks": _once(asdict(check) for report in reports for check in report.judge_checks),
        "excluded_metrics": _once(metric for report in reports for metric in _excluded(report)),
        "fallbacks_and_tiers": _once(asdict(stepped) for report in reports for stepped in report.stepped),
        "panels": _once(asdict(panel) for report in reports for panel in report.panels),
        "types_apart": _once(asdict(apart) for report in reports for apart in report.types_apart),
        "unpriced_calls": _once(asdict(calls) for report in reports for calls in report.unpriced),
        "reduced_limits": _once(asdict(limit) for report in reports for limit in report.reduced_limits),
        "by_field": _once(line for report in reports for line in report.by_field),
        "remarks": _once(
            {"kind": remark.kind, "severity": remark.severity, "text": remark.text}
            for report in reports
            for remark in report.remarks
        ),
        "sentences": _once(sentence for report in reports for sentence in report.sentences),
        "previous": [run.as_dict() for run in previous],
        "calls_made": calls_made,
        "next": next_command and str(next_command),
        "next_is_for_person": next_command is not None and next_command.for_person,
    }
    return plain(content)  # type: ignore[no-any-return]


def listed(
    experiments: Sequence[ExperimentOverview], comparisons: "Sequence[Overview]", gates: Mapping[str, Mapping[str, str]]
) -> list[Document]:
    """Return what `ls` prints: experiments with the conclusions of their gates, and comparisons, newest first."""
    rows = [
        {"kind": "experiment", **asdict(experiment), "gates": gates.get(experiment.experiment_id, {})}
        for experiment in experiments
    ]
    rows += [{"kind": "comparison", **asdict(comparison)} for comparison in comparisons]
    rows.sort(key=lambda row: row["started_at"], reverse=True)  # stable: the targets of a run keep their order
    return plain(rows)  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """Return a value of JSON: times as ISO 8601 in UTC, null for a number that is not finite."""
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def worst_document(examples: WorstExamples) -> Document:
    """Return the worst examples by one metric of one experiment."""
    fields = ("metric", "experiment_id", "name", "baseline_experiment_id", "baseline")
    items = [_item(item) for item in examples.items]
    return plain({**{name: getattr(examples, name) for name in fields}, "examples": items})  # type: ignore[no-any-return]


def _excluded(report: ExperimentsReport) -> list[Document]:
    """Return the metrics that decide nothing because of their judge."""
    return [
        {
            "experiment_id": identity,
            "metric": metric,
            "judge": exclusion.judge,
            "reason_code": exclusion.reason.code,
            "reason": exclusion.message,
        }
        for (identity, metric), exclusion in report.excluded.items()
    ]


def _once(parts: Iterable[Any]) -> list[Any]:
    out: list[Any] = []
    for item in parts:
        if item not in out:
            out.append(item)
    return out


def metric_document(result: Result, targets: Mapping[str, str]) -> Document:
    """Return a result under the target's own name; in tables, experiments of one name are told apart by their times."""
    own = {name: value for name, value in asdict(result).items() if name not in AGAINST}
    against: Document = {new: getattr(result, old) for old, new in AGAINST.items()}
    against["baseline"] = targets.get(result.baseline_experiment_id or "", result.baseline)
    against["verdict"] = result.verdict_text
    return {
        **own,
        "target": targets.get(result.experiment_id, result.target),
        "against_baseline": against if result.baseline_experiment_id else None,
    }


def _decision(decision: Decision) -> Document:
    parsed = ("reasons", "comparability", "policy", "candidate_apart", "baseline_apart", "limits")
    return {
        **{name: value for name, value in asdict(decision).items() if name not in parsed},
        "rules": from_json(decision.reasons),
        "limits": decision.what_limits,
        "comparability": from_json(decision.comparability) or [],
        "policy": from_json(decision.policy),
    }


def _comparison(report: "ComparisonReport") -> Document:
    return {
        **asdict(report.overview),
        "win_rates": [{**asdict(rate), "verdict": rate.verdict_text} for rate in report.win_rates],
        "ranking": [asdict(rank) for rank in report.ranking],
        "biases": [asdict(bias) for bias in report.biases],
        "failures": [{"source": evaluator, "error": error, "count": n} for evaluator, error, n in report.errors],
        "sentences": report.sentences,
    }


def _item(item: WorstItem) -> Document:
    texts = ("inputs", "outputs", "baseline_outputs")
    fields = {name: value for name, value in asdict(item).items() if name != "n_worse"}
    return {**fields, **{name: from_json(getattr(item, name)) for name in texts}}


class CallSizeDocument(TypedDict):
    tokens_in: float | None
    tokens_out: float | None
    mode: Literal["direct", "batch"]
    basis: str


class WaysDocument(TypedDict):
    """What calls cost in USD in other ways; null where that is not known or cannot be."""

    direct: float | None
    ledger: float | None
    prefixes: float | None
    batch: float | None


class PlannedCallsDocument(TypedDict):
    caller: str
    model: str | None
    calls: int | None
    at_most: bool
    in_ledger: int | None
    usd: float | None
    ways: WaysDocument
    size: CallSizeDocument
    note: str | None


class EffectDocument(TypedDict):
    purpose: Literal["difference", "non_inferiority", "superiority"]
    declared: float
    size: float


class DesignDocument(TypedDict):
    repetitions: int
    examples: int
    clusters: int | None
    calls: int
    usd: float | None
    is_cheapest: bool


class SampleSizesDocument(TypedDict):
    effect: EffectDocument
    designs: Sequence[DesignDocument]


class MetricPlanDocument(TypedDict):
    metric: str
    sample_sizes: Sequence[SampleSizesDocument]


class CurrentDesignDocument(TypedDict):
    n_clusters: int | None


class PlanDocument(TypedDict):
    name: str
    sentences: Sequence[str]
    is_detail: Sequence[bool]
    calls: Sequence[PlannedCallsDocument]
    design: CurrentDesignDocument
    metrics: Sequence[MetricPlanDocument]


class PastDecisionDocument(TypedDict):
    candidate: str
    baseline: str
    relation: Literal["halves", "baseline", "earlier"]
    is_same_target: bool
    is_refused: bool
    conclusion: DecisionConclusion
    because: str


class BacktestDocument(TypedDict):
    gate: str
    experiments: str
    sentences: Sequence[str]
    decisions: Sequence[PastDecisionDocument]
