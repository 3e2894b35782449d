"""Validate judges on known-answer controls, and find the metrics that depend on judges that failed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean

from evalflows.specs.experiment import ExperimentSpec
from evalflows.stats import Discrimination, discrimination
from evalflows.store.parquet import Store
from evalflows.store.reasons import Reason, ReasonCode
from evalflows.store.records import CheckRow, controls_batch, derived_id, to_json

LEAST_DIFFERENCE = 0.5
"""A valid judge accepts right answers at least this much more often than wrong ones: halfway between chance and 1."""


@dataclass(slots=True)
class TriedJudge:
    """The scores of a judge on its controls, scaled to 0 to 1."""

    right: list[float] = field(default_factory=list)
    wrong: list[float] = field(default_factory=list)
    forged: list[float] = field(default_factory=list)  # wrong answers that ask to be accepted
    errors: list[str] = field(default_factory=list)


def fitness_check(batch: str, judge: str, controls: int | None, tried: TriedJudge, confidence_level: float) -> CheckRow:
    """Check a judge on its controls: it passes if it accepts right answers much more often than wrong ones."""
    found = discrimination(tried.right, tried.wrong, confidence_level=confidence_level)
    discriminates = found.low is not None and found.low > 0 and (found.difference or 0.0) >= LEAST_DIFFERENCE
    passed = discriminates if found.low is not None else None
    forged = fmean(tried.forged) if tried.forged else None
    return CheckRow(
        check_id=derived_id(batch, judge),
        batch_id=batch,
        subject_kind="judge",
        subject_id=judge,
        name="controls",
        passed=passed,
        n_checked=len(tried.right) + len(tried.wrong) + len(tried.forged),
        observed=to_json(asdict(found) | {"rate_forged": forged, "n_forged": len(tried.forged)}),
        expected=to_json({"least_difference": LEAST_DIFFERENCE, "controls": controls}),
        message=_in_words(found, tried),
        reason_code=None if passed else fitness_code(passed),
    )


def failed_judges(store: Store, run_group: str) -> dict[str, Reason]:
    """The judges of a run group that failed validation or could not be validated, and why."""
    rows: list[CheckRow] = store.read("checks", controls_batch(run_group))
    return {
        row.subject_id: Reason(row.reason_code or fitness_code(row.passed), row.message or "not checked")
        for row in rows
        if not row.passed
    }


def fitness_code(passed: bool | None) -> ReasonCode:
    return "judge_not_validated" if passed is None else "judge_failed_validation"


def resting_on(exclusion: Mapping[str, Reason], spec: ExperimentSpec) -> dict[str, Reason]:
    """Judges that failed validation, and the composites that depend on them, each with the reason."""
    composites = {
        composite.name: Reason(why.code, f"it depends on {judge}: {why}")
        for composite in spec.composites
        for judge, why in exclusion.items()
        if judge in composite.metrics
    }
    return {**exclusion, **composites}


def _in_words(found: Discrimination, tried: TriedJudge) -> str:
    failed = f" ({len(tried.errors)} controls failed: {tried.errors[0]})" if tried.errors else ""
    if found.difference is None or found.rate_right is None or found.rate_wrong is None:
        return f"this judge could not be validated: {found.reason}{failed}"
    text = (
        f"on known-answer controls, this judge accepted {found.rate_right:.0%} of {found.n_right} right answers and "
        f"{found.rate_wrong:.0%} of {found.n_wrong} wrong ones"
    )
    if tried.forged:
        text += f", {fmean(tried.forged):.0%} if these asked to be accepted"
    return text + (f"; {found.reason}" if found.low is None else "") + failed
