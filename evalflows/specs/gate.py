"""Gate specs: the rules that a candidate must meet to be released, against a baseline or a window of production."""

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import MIN_EXAMPLES, sliced_metric
from evalflows.specs.model import SpecModel
from evalflows.specs.moments import in_utc
from evalflows.specs.quarantine import AT_MOST, QuarantineSpec

__all__ = ["GateSpec"]

PREFIX = "production:"
FORM = "production:EVALUATION@24h, @7d or @2026-11-01..2026-11-08, and [version=1.4] for one version"

_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_TEXT = re.compile(r"production:(?P<evaluation>.+)@(?P<window>[^@\[\]]+?)(?:\[version=(?P<version>[^\[\]]+)\])?")
LONGEST = timedelta(days=3660)

Adjustment = Literal["holm", "benjamini_hochberg", "none"]
"""How p-values are adjusted for multiple comparisons: Holm controls the family-wise error rate, Benjamini-Hochberg the
false discovery rate."""

Number = Annotated[float, Field(strict=True)]
"""Strict, so that `true` does not count as 1."""

RULE_FIELDS = ("non_inferiority", "superiority", "thresholds", "confident_thresholds")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductionBaseline:
    """The scores that a trace evaluation has given to the items that began in a window."""

    evaluation: str
    since: datetime | None = None  # None: a duration before now, which is fixed before a run starts
    until: datetime | None = None  # excluded
    last: timedelta | None = None
    version: str | None = None  # of the application; None for all

    def fixed(self, now: datetime) -> "ProductionBaseline":
        """Return the window with its ends; one that has them already is unchanged."""
        if self.last is None:
            return self
        until = now.astimezone(UTC).replace(microsecond=0)
        return ProductionBaseline(
            evaluation=self.evaluation, since=until - self.last, until=until, version=self.version
        )

    @property
    def text(self) -> str:
        """The window of a fixed baseline, as `baseline` takes it."""
        window = "" if self.since is None or self.until is None else f"{_stamp(self.since)}..{_stamp(self.until)}"
        return f"{PREFIX}{self.evaluation}@{window}{f'[version={self.version}]' if self.version else ''}"


def _stamp(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def production_baseline(text: str) -> ProductionBaseline:
    """Return the window that a text such as `production:support@24h` means. Raise ValueError for another text."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"got {text!r}, wanted {FORM}")
    evaluation, version = found["evaluation"], found["version"]
    if duration := re.fullmatch(r"(\d{1,6})([mhdw])", found["window"]):
        last = int(duration[1]) * _UNITS[duration[2]]
        if not timedelta(0) < last <= LONGEST:
            raise ValueError(f"got the window {found['window']}, wanted one of at most {LONGEST.days} days")
        return ProductionBaseline(evaluation=evaluation, last=last, version=version)
    ends = [_moment(end, text) for end in found["window"].split("..")]
    if len(ends) != 2:
        raise ValueError(f"got {text!r}, wanted {FORM}")
    if ends[0] >= ends[1]:
        raise ValueError(f"got {text!r}, wanted a window that ends after it begins")
    return ProductionBaseline(evaluation=evaluation, since=ends[0], until=ends[1], version=version)


def _moment(text: str, whole: str) -> datetime:
    try:
        return in_utc(datetime.fromisoformat(text))
    except ValueError:
        raise ValueError(f"got {whole!r}, wanted {FORM}") from None


def any_rise(value: object) -> object:
    """Expand a metric, or a list of metrics, to a required improvement of more than 0 for each."""
    metrics = [value] if isinstance(value, str) else value
    if isinstance(metrics, list) and all(isinstance(metric, str) for metric in metrics):
        return dict.fromkeys(metrics, 0.0)
    return value


class RecalibrationSpec(SpecModel):
    """Recalibration of scores by an older judge: the newer judge scores a sample of the same answers."""

    sample: int = Field(100, ge=20, description="Number of the baseline's answers that the newer judge scores")
    seed: int = Field(0, ge=0, lt=1 << 32, description="Seed of the sample")


class ClosedModesSpec(SpecModel):
    """A bound on the rate of every closed failure mode."""

    at_most: float = Field(ge=0, lt=1, description="The share of the answers, as in confident_thresholds")


class GateSpec(SpecModel):
    """A release gate: PASS if every rule is met at its confidence level, FAIL if one is violated at it, else NOT ENOUGH
    EVIDENCE. A rule's metric may name a slice: `contains@split=hard`, `contains@metadata.topic=law`."""

    name: str = Field("release", min_length=1, description="The gate's name")
    non_inferiority: dict[str, Number] = Field(
        default_factory=dict,
        description="Metric: non-inferiority margin. The metric must not fall by more than the margin (or rise, if "
        "lower is better)",
    )
    superiority: Annotated[dict[str, Number], BeforeValidator(any_rise)] = Field(
        default_factory=dict,
        description="Metric: minimum improvement. The metric must rise by at least this (or fall, if lower is better); "
        "a list of metrics requires any improvement",
    )
    thresholds: dict[str, Number] = Field(
        default_factory=dict,
        description="Metric: threshold that its mean must reach (or not exceed, if lower is better)",
    )
    confident_thresholds: dict[str, Number] = Field(
        default_factory=dict,
        description="Metric: threshold that the lower end of its mean's confidence interval must reach (or the upper "
        "end not exceed, if lower is better)",
    )
    closed_modes: ClosedModesSpec | None = Field(
        None, description="A confident_threshold for each closed mode in the taxonomies of the evaluators"
    )
    candidate: str | None = Field(
        None, description="The target to decide on; default: every target but the baseline, of the gate and of the spec"
    )
    baseline: str | None = Field(
        None,
        description="The baseline: one of the targets, the name of an approved baseline, or a window of production, "
        "such as production:EVALUATION@24h. Default: the spec's baseline if it has several targets, else the baseline "
        "approved under the experiment's name",
    )
    adjustment: Adjustment = Field(
        "holm",
        description="How the tests of rules that can fail the gate are adjusted for multiple comparisons; to pass, all "
        "rules must be met",
    )
    min_examples: int = Field(
        MIN_EXAMPLES, ge=2, description="Minimum number of examples (or of clusters, if there are any) for a decision"
    )
    only_shared: bool = Field(
        False,
        description="Leave out the baseline's examples that the candidate lacks, or has with other inputs or "
        "references. By default they count as missing: a candidate could otherwise pass by leaving out what it fails",
    )
    invalid_at_most: float = Field(
        0.1,
        ge=0,
        le=1,
        description="The share of a side's trials of conversations that may be invalid, since the simulated user did "
        "not keep to its goal; with more there is no decision",
    )
    recalibrate: RecalibrationSpec | None = Field(
        None,
        description="Recalibration if the baseline was scored by another judge: score a sample of it again and correct "
        "for the difference",
    )
    judge_drift: Literal["refuse", "rejudge"] = Field(
        "refuse",
        description="If a judge has drifted since it judged the baseline, as its anchors show: `refuse` decides "
        "nothing on its metrics, `rejudge` has today's judge judge the baseline's answers again, and decides on these "
        "scores",
    )
    approved_by: list[str] = Field(
        default_factory=list, description="Who may approve the baseline; default: anybody who can write to the store"
    )
    signers: str | None = Field(
        None,
        description="A file of SSH keys, as ssh-keygen's allowed_signers: the approval of the baseline must be signed "
        "by one of them (of those in approved_by, if it is given)",
    )
    batch: int | None = Field(
        None,
        ge=10,
        description="Run an interim analysis after every this many examples, with anytime-valid intervals, and stop "
        "once decided",
    )

    @model_validator(mode="after")
    def _rules_are_valid(self) -> "GateSpec":
        if self.closed_modes is None and not any(getattr(self, kind) for kind in RULE_FIELDS):
            raise ValueError(f"gate {self.name!r}: got no rules, wanted one of {', '.join(RULE_FIELDS)}")
        for kind in RULE_FIELDS:
            for metric, bound in getattr(self, kind).items():
                if not math.isfinite(bound):
                    raise ValueError(f"{kind}: {metric}: got {bound}, wanted a number")
        for metric, margin in self.non_inferiority.items():
            if margin <= 0:
                raise ValueError(
                    f"non_inferiority: {metric}: got {margin:g}, wanted a margin above 0, or superiority instead"
                )
        for metric, rise in self.superiority.items():
            if rise < 0:
                raise ValueError(f"superiority: {metric}: got {rise:g}, wanted 0 or more, or non_inferiority instead")
        self._check_production()
        return self

    def _check_production(self) -> None:
        """Raise ValueError for what cannot be compared with production, whose items are no examples."""
        if self.production is None:
            return
        if self.recalibrate is not None or self.batch is not None:
            setting = "batch" if self.recalibrate is None else "recalibrate"
            raise ValueError(f"gate {self.name!r}: got {setting} with a window of production, wanted neither")
        for metric in self.compared:
            if sliced_metric(metric).path is not None:
                raise ValueError(
                    f"gate {self.name!r}: got {metric!r} with a window of production, wanted a whole metric: slices "
                    "are of examples"
                )

    @property
    def production(self) -> ProductionBaseline | None:
        """The window of production that it compares with; None if it does not."""
        return production_baseline(self.baseline) if self.baseline and self.baseline.startswith(PREFIX) else None

    @property
    def compared(self) -> list[str]:
        """The metrics that it compares with a baseline."""
        return list(dict.fromkeys([*self.non_inferiority, *self.superiority]))

    @property
    def compares(self) -> bool:
        """Whether the gate needs a baseline."""
        return bool(self.non_inferiority or self.superiority)

    @property
    def metrics(self) -> list[str]:
        """All metrics of the rules."""
        return list(dict.fromkeys(metric for kind in RULE_FIELDS for metric in getattr(self, kind)))


class GatePolicy(GateSpec):
    """A gate as stored in its decisions: with the spec's quarantine."""

    quarantine: list[QuarantineSpec] = Field(default_factory=list)
    quarantine_at_most: float = AT_MOST

    @property
    def stored(self) -> str:
        """The policy as JSON."""
        left_out = set() if self.quarantine else {"quarantine", "quarantine_at_most"}
        return self.model_dump_json(exclude=left_out if self.only_shared else {*left_out, "only_shared"})
