"""Quarantine in a spec: flaky examples that are run and shown, and weigh less in verdicts, until a date."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from evalflows.specs.errors import InputError
from evalflows.specs.model import SpecModel
from evalflows.specs.values import words

AT_MOST = 0.1
"""The share of the examples that may be in quarantine by default."""

Weigh = Literal["by_noise", "not_at_all"]


class QuarantineSpec(SpecModel):
    """Examples in quarantine, by id or by a rule on their history before the run."""

    examples: list[str] = Field(default_factory=list, description="Ids of examples")
    flip_rate_above: float | None = Field(
        None,
        ge=0,
        lt=0.5,
        description="All examples that the runs before this one show to be flaky, with a higher flip rate; for yes/no "
        "metrics",
    )
    metric: str | None = Field(None, description="Only for this metric; default: for every metric of an evaluator")
    until: date = Field(description="The last day (UTC); afterwards run, plan and gate refuse the spec")
    reason: Annotated[str, AfterValidator(words)] = Field(description="Why; reports show it")
    weigh: Weigh = Field(
        "by_noise",
        description="Their weight in verdicts: by_noise (lower with more variation by chance), or not_at_all",
    )

    @model_validator(mode="after")
    def _names_examples(self) -> "QuarantineSpec":
        if bool(self.examples) == (self.flip_rate_above is not None):
            got = "both" if self.examples else "neither"
            raise ValueError(f"got {got} examples and flip_rate_above, wanted one of them")
        return self

    @property
    def name(self) -> str:
        """What names its examples, in words."""
        if self.flip_rate_above is not None:
            what = f"flip_rate_above {self.flip_rate_above:g}"
        else:
            more = f" and {len(self.examples) - 1} more" if len(self.examples) > 1 else ""
            what = f"{self.examples[0]}{more}"
        return f"{what} in {self.metric}" if self.metric else what

    def overlaps(self, other: "QuarantineSpec") -> str | None:
        """Return what two entries both name: an example, or their rule; None if nothing."""
        if None not in (self.metric, other.metric) and self.metric != other.metric:
            return None
        if self.flip_rate_above is not None and other.flip_rate_above is not None:
            return "flip_rate_above"
        return next((example for example in self.examples if example in other.examples), None)


def check_entries(entries: Sequence[QuarantineSpec]) -> None:
    """Raise ValueError if two entries name the same examples, or one names an example twice."""
    for number, entry in enumerate(entries):
        twice = next((example for example in entry.examples if entry.examples.count(example) > 1), None)
        both = twice or next((same for other in entries[:number] if (same := entry.overlaps(other))), None)
        if both:
            raise ValueError(f"quarantine: got {both!r} twice, wanted it in one entry")


def refuse_expired(entries: Sequence[QuarantineSpec], today: date) -> None:
    """Raise InputError if an entry's last day is over."""
    for entry in entries:
        if entry.until < today:
            raise InputError(
                f"quarantine: {entry.name}: got until {entry.until}, which has passed: wanted a later day, or no such "
                f"entry ({entry.reason})"
            )
