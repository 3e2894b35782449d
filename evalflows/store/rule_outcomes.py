"""The outcome of each rule of a decision, as it is stored."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from evalflows.store.records import Json, ReasonCode, from_json

Kind = Literal["non_inferiority", "superiority", "threshold", "confident_threshold"]

Outcome = Literal["met", "broken", "open"]

DIFFERENCES: frozenset[Kind] = frozenset({"non_inferiority", "superiority"})
"""Kinds of rules that compare with a baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOutcome:
    """The outcome of a rule, with its figures. Decisions of early versions lack some."""

    rule: Kind
    metric: str
    bound: float
    outcome: Outcome
    text: str
    reason_code: ReasonCode | None = None  # why it is open
    value: float | None = None  # the difference or the mean, in the metric's own direction; low and high likewise
    low: float | None = None
    high: float | None = None
    n: int | None = None
    n_missing: int | None = None
    p_below: float | None = None  # one-sided p for a broken bound, in the candidate's best case
    p_adjusted: float | None = None

    @property
    def is_difference(self) -> bool:
        """Whether the rule compares with a baseline."""
        return self.rule in DIFFERENCES

    @property
    def name(self) -> str:
        """What the kind of rule is called in texts."""
        return self.rule.replace("_", " ")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def rule_outcomes(reasons: Json) -> list[RuleOutcome]:
    """Return the outcomes in the `reasons` of a decision, in its order."""
    return [
        RuleOutcome(**{name: value for name, value in stored.items() if name in RuleOutcome.__slots__})
        for stored in from_json(reasons)
    ]
