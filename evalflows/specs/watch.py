"""Watch rules: which metric of production is watched, in which windows, and when it raises an alert."""

import math
from datetime import date
from typing import Any, Literal

from pydantic import Field, model_validator

from evalflows.specs.model import SpecModel

RuleKind = Literal["threshold", "fall", "failure_share", "change"]
WindowSize = Literal["hour", "day"]

KINDS: tuple[RuleKind, ...] = ("threshold", "fall", "failure_share", "change")
FIELDS: dict[RuleKind, frozenset[str]] = {
    "threshold": frozenset({"minimum", "maximum", "confidence_level"}),
    "fall": frozenset({"margin", "against", "confidence_level", "allow_variation"}),
    "failure_share": frozenset({"maximum", "confidence_level"}),
    "change": frozenset({"margin", "allow_variation"}),
}
"""The fields that only some kinds of rules have."""
ONLY_SOME = frozenset().union(*FIELDS.values())

TRACES = "traces"
"""The metric of a `failure_share` of whole traces: of those whose root span ended in an error."""
MEASURED = ("latency", "cost", "tokens")
"""Metrics of traces that need no evaluator."""

DIMENSIONS = ("tag", "version", "model", "environment")
OF_METADATA = "metadata."
"""Before the name of a field of a trace's metadata, which is a dimension too."""
ALL = "all"
"""The slice with all traces."""

PREVIOUS = "previous"
"""What a `fall` is measured against unless it names an experiment: the previous window."""

LATE_S: dict[WindowSize, float] = {"hour": 900.0, "day": 3600.0}


def check_dimension(name: str) -> str:
    """Return what slices windows. Raise ValueError unless it is known."""
    key = name.removeprefix(OF_METADATA)
    if name not in DIMENSIONS and (key in ("", name) or '"' in key):
        raise ValueError(f"got {name!r}, wanted one of {', '.join(DIMENSIONS)}, or a path such as metadata.plan")
    return name


class WatchSpec(SpecModel):
    """One watch rule. It looks once at each window after the window has closed."""

    name: str = Field("", description="The rule's name in alerts; default: its kind and metric")
    kind: RuleKind = Field(
        description="`threshold`: the mean is certainly below `minimum` or above `maximum`; `fall`: it is certainly "
        "worse than before by more than `margin`; `failure_share`: the share of failed judgements, or traces, is "
        "certainly above `maximum`; `change`: a detector of lasting changes for the worse by more than `margin`"
    )
    metric: str = Field(
        min_length=1,
        description="A metric of the evaluators; `latency`, `cost` or `tokens` of traces; for failure_share, a metric "
        f"whose judgements fail, or `{TRACES}`; `closed_modes` for each closed failure mode of the evaluators",
    )
    window: WindowSize = Field("day", description="Length of the windows, in UTC: `hour` or `day`")
    slices: list[str] = Field(
        default_factory=lambda: [ALL],
        min_length=1,
        description="Slices to watch separately: `tag`, `version`, `model`, `environment`, or a field of the metadata "
        "such as `metadata.plan`, for each of its values; `version=1.4` for a single value; `all` for all traces",
    )
    min_n: int = Field(
        30,
        ge=2,
        description="Scored traces (sessions, if traces have them) that a window needs; with fewer than 30, intervals "
        "of skewed scores cover less often than stated",
    )
    minimum: float | None = Field(None, description="threshold: the mean should be at least this")
    maximum: float | None = Field(
        None, description="threshold: the mean should be at most this; failure_share: the share should be"
    )
    against: str | None = Field(
        None,
        description=f"fall: `{PREVIOUS}` for the previous window (the default), or the name of an experiment for its "
        "mean",
    )
    margin: float | None = Field(
        None, ge=0, description="fall, change: a loss that does not matter; default: the metric's margin, else 0"
    )
    confidence_level: float | None = Field(
        None,
        gt=0.5,
        lt=1,
        description="Confidence level of the interval of each window and slice; default: as high as needed for at "
        "most 0.75 false alarms of the rule in 30 days if the truth is at its bound, or 0.1 for a fall",
    )
    allow_variation: bool | None = Field(
        None,
        description="fall, change: whether windows may vary by more than chance, as weekends and releases do; the "
        "variation is estimated from the windows of 28 days, once there are five; default: true",
    )
    since: date | None = Field(None, description="The first day to watch; for `closed_modes`, each mode has its own")
    late_s: float | None = Field(
        None,
        ge=0,
        description="Seconds after a window's end in which late spans still count; default: 900 for hours, 3600 for "
        "days",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, rule: object) -> object:
        """Expand the short forms: `accuracy` watches for a change, {threshold: accuracy, …} names kind and metric."""
        if isinstance(rule, str):
            return {"kind": "change", "metric": rule}
        if isinstance(rule, dict) and "kind" not in rule:
            named: list[Any] = [kind for kind in KINDS if kind in rule]
            if len(named) == 1:
                rest = {name: value for name, value in rule.items() if name != named[0]}
                return {"kind": named[0], "metric": rule[named[0]], **rest}
        return rule

    @model_validator(mode="after")
    def _is_consistent(self) -> "WatchSpec":
        for field in sorted(ONLY_SOME - FIELDS[self.kind]):
            if getattr(self, field) is not None:
                raise ValueError(f"{field}: got {getattr(self, field)!r} in a rule of kind {self.kind!r}, wanted none")
        bounds = [bound for bound in (self.minimum, self.maximum) if bound is not None]
        if self.kind == "threshold" and len(bounds) != 1:
            raise ValueError(f"threshold of {self.metric!r}: wanted one of minimum and maximum")
        if self.kind == "failure_share" and not (self.maximum is not None and 0 <= self.maximum < 1):
            raise ValueError(f"failure_share of {self.metric!r}: got maximum {self.maximum}, wanted 0 to below 1")
        if not all(map(math.isfinite, (*bounds, self.margin or 0.0))):
            raise ValueError(f"{self.kind} of {self.metric!r}: wanted finite numbers")
        for entry in self.slices:
            dimension, is_one, value = entry.partition("=")
            if bool(is_one) != bool(value):
                raise ValueError(f"slices: got {entry!r}, wanted a slice such as version=1.4")
            if entry != ALL:
                try:
                    check_dimension(dimension)
                except ValueError as error:
                    raise ValueError(f"slices: {error}, or {ALL}") from None
        return self

    @property
    def title(self) -> str:
        """The rule's name in alerts."""
        return self.name or f"{self.kind} {self.metric}" + (" hourly" if self.window == "hour" else "")

    @property
    def closes_after_s(self) -> float:
        """Seconds between a window's end and its closing."""
        return LATE_S[self.window] if self.late_s is None else self.late_s

    def watches(self, part: str) -> bool:
        """Return whether the rule watches a slice, such as `version=1.4`."""
        return part in self.slices or part.partition("=")[0] in self.slices
