"""Validate judges on known-answer controls, and find the metrics that depend on judges that failed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean

from evalflows.specs.experiment import ExperimentSpec
from evalflows.stats import Discrimination, discrimination
from evalflows.store.parquet import Store
from evalflows.store.reasons import Reason, ReasonCode
from evalflows.store.records import CheckRow, controls_batch, derived_id, to_json

MIN_RATE_DIFFERENCE = 0.5
"""A valid judge accepts right answers more often than wrong ones by at least this: halfway between chance and 1."""


@dataclass(slots=True)
class ControlScores:
    """The scores, from 0 to 1, of a judge on its known-answer controls."""

    right: list[float] = field(default_factory=list)
    wrong: list[float] = field(default_factory=list)
    forged: list[float] = field(default_factory=list)  # wrong answers that ask to be accepted
    errors: list[str] = field(default_factory=list)


def validation_check(
    batch: str, judge: str, controls: int | None, scores: ControlScores, confidence_level: float
) -> CheckRow:
    """Check a judge on its controls: it passes if it accepts right answers much more often than wrong ones."""
    rates = discrimination(scores.right, scores.wrong, confidence_level=confidence_level)
    discriminates = rates.low is not None and rates.low > 0 and (rates.difference or 0.0) >= MIN_RATE_DIFFERENCE
    passed = discriminates if rates.low is not None else None
    rate_forged = fmean(scores.forged) if scores.forged else None
    return CheckRow(
        check_id=derived_id(batch, judge),
        batch_id=batch,
        subject_kind="judge",
        subject_id=judge,
        name="controls",
        passed=passed,
        n_checked=len(scores.right) + len(scores.wrong) + len(scores.forged),
        observed=to_json(asdict(rates) | {"rate_forged": rate_forged, "n_forged": len(scores.forged)}),
        expected=to_json({"least_difference": MIN_RATE_DIFFERENCE, "controls": controls}),
        message=_message(rates, scores),
        reason_code=None if passed else validation_code(passed),
    )


def failed_judges(store: Store, run_group: str) -> dict[str, Reason]:
    """The judges of a run group that failed validation or could not be validated, and why."""
    rows: list[CheckRow] = store.read("checks", controls_batch(run_group))
    return {
        row.subject_id: Reason(row.reason_code or validation_code(row.passed), row.message or "not checked")
        for row in rows
        if not row.passed
    }


def validation_code(passed: bool | None) -> ReasonCode:
    return "judge_not_validated" if passed is None else "judge_failed_validation"


def with_dependent_composites(exclusion: Mapping[str, Reason], spec: ExperimentSpec) -> dict[str, Reason]:
    """The metrics or judges in `exclusion` and the composites that depend on them, each with the reason."""
    composites = {
        composite.name: Reason(why.code, f"it depends on {metric}: {why}")
        for composite in spec.composites
        for metric, why in exclusion.items()
        if metric in composite.metrics
    }
    return {**exclusion, **composites}


def _message(rates: Discrimination, scores: ControlScores) -> str:
    failures = f" ({len(scores.errors)} controls failed: {scores.errors[0]})" if scores.errors else ""
    if rates.difference is None or rates.rate_right is None or rates.rate_wrong is None:
        return f"this judge could not be validated: {rates.reason}{failures}"
    text = (
        f"tried on answers known to be right or wrong, this judge accepted {rates.rate_right:.0%} of the "
        f"{rates.n_right} right ones and {rates.rate_wrong:.0%} of the {rates.n_wrong} wrong ones"
    )
    if scores.forged:
        rate = fmean(scores.forged)
        text += f", and {rate:.0%} of {len(scores.forged)} wrong ones that tell the judge to accept them"
    return text + (f"; {rates.reason}" if rates.low is None else "") + failures
