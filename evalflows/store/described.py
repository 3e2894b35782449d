"""What rows hold as JSON: what judged a run (evaluators, composites and the mapper, with the versions that tell runs
apart), and the outcome of each rule of a decision. Specs are read by row_specs.py, which needs pydantic.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Literal

from evalflows.specs.frozen import dataclass
from evalflows.store.records import DecisionConclusion, Json, ReasonCode, from_json, to_json

DescribedScope = Literal["item", "run", "pair", "composite", "mapper"]

Kind = Literal["non_inferiority", "superiority", "threshold", "confident_threshold"]

Outcome = Literal["met", "broken", "open"]

DIFFERENCES: frozenset[Kind] = frozenset({"non_inferiority", "superiority"})
"""Kinds of rules that compare with a baseline."""


DECIDING: Mapping[DecisionConclusion, Outcome] = {"PASS": "met", "FAIL": "broken", "NOT ENOUGH EVIDENCE": "open"}
"""The outcome of the rules that lead to a conclusion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedEvaluator:
    """An evaluator, a composite, the mapper of a trace evaluation, or a metric of votes."""

    name: str
    version: str
    use: str | None = None  # as the spec names it; None of composites and mappers
    declared_version: str | None = None
    code: Mapping[str, str] | None = None  # a hash of each part of the user's code; the paths of a mapper of paths
    scope: DescribedScope | None = None
    sample: Mapping[str, Any] | None = None  # which subjects it judges, if not all
    definition: str | None = None  # of a composite of production: its version without its evaluators

    @property
    def stored(self) -> dict[str, Any]:
        """The fields that apply, for JSON."""
        values = {name: getattr(self, name) for name in self.__slots__}
        is_evaluator = self.use is not None and self.code is not None
        return {
            name: value
            for name, value in values.items()
            if value is not None or (name == "declared_version" and is_evaluator)
        }


def to_described(evaluators: Iterable[DescribedEvaluator]) -> Json:
    """Return evaluators as a row of a run, a comparison or a batch has them."""
    return to_json([evaluator.stored for evaluator in evaluators])


def from_described(text: Json) -> list[DescribedEvaluator]:
    """Return the evaluators of such a row."""
    return [
        DescribedEvaluator(**{name: value for name, value in stored.items() if name in DescribedEvaluator.__slots__})
        for stored in from_json(text)
    ]


def panels_of(spec: Json) -> dict[str, list[str]]:
    """Return the panels of a stored spec by their metric, each with the metrics of its judges."""
    composites = from_json(spec).get("composites") or ()
    return {composite["name"]: panel for composite in composites if (panel := composite.get("panel"))}


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


def deciding_rules(rules: Iterable[RuleOutcome], conclusion: DecisionConclusion) -> list[RuleOutcome]:
    """Return the rules that led to a conclusion."""
    return [rule for rule in rules if rule.outcome == DECIDING[conclusion]]


def rule_outcomes(reasons: Json) -> list[RuleOutcome]:
    """Return the outcomes in the `reasons` of a decision, in its order."""
    return [
        RuleOutcome(**{name: value for name, value in stored.items() if name in RuleOutcome.__slots__})
        for stored in from_json(reasons)
    ]
