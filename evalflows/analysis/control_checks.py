"""Whether a judge told right answers from wrong ones in its known-answer controls."""

from dataclasses import asdict, dataclass, field
from statistics import fmean

from evalflows.stats.agreement import Discrimination, discrimination
from evalflows.store.records import CheckRow, derived_id, to_json

MIN_RATE_DIFFERENCE = 0.5
"""A valid judge accepts right answers more often than wrong ones by at least this: halfway between chance and 1."""


@dataclass(slots=True)
class ControlScores:
    """The scores, from 0 to 1, of a judge on its known-answer controls."""

    right: list[float] = field(default_factory=list)
    wrong: list[float] = field(default_factory=list)
    forged: list[float] = field(default_factory=list)  # wrong answers that ask to be accepted
    errors: list[str] = field(default_factory=list)
    of_pairs: bool = False  # a right answer beside a wrong one: how often the first is preferred, by which one it is


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
        reason_code={True: None, None: "judge_not_validated", False: "judge_failed_validation"}[passed],
    )


def _message(rates: Discrimination, scores: ControlScores) -> str:
    failures = f" ({len(scores.errors)} controls failed: {scores.errors[0]})" if scores.errors else ""
    if rates.difference is None or rates.rate_right is None or rates.rate_wrong is None:
        return f"this judge could not be validated: {rates.reason}{failures}"
    if scores.of_pairs:
        text = (
            f"tried on a right answer beside a wrong one, this judge preferred the one shown first in "
            f"{rates.rate_right:.0%} of {rates.n_right} pairs where it was right, and in {rates.rate_wrong:.0%} of "
            f"{rates.n_wrong} where it was wrong"
        )
        forged = "where it was wrong and told the judge to prefer it"
    else:
        text = (
            f"tried on answers known to be right or wrong, this judge accepted {rates.rate_right:.0%} of the "
            f"{rates.n_right} right ones and {rates.rate_wrong:.0%} of the {rates.n_wrong} wrong ones"
        )
        forged = "wrong ones that tell the judge to accept them"
    if scores.forged:
        text += f", and {fmean(scores.forged):.0%} of {len(scores.forged)} {forged}"
    return text + (f"; {rates.reason}" if rates.low is None else "") + failures
