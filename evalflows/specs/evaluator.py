"""Evaluator specs: a function that gives scores, or a cascade of them."""

import json
from collections.abc import Set
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from evalflows.specs.attachments import Modality
from evalflows.specs.connections import Mode
from evalflows.specs.metric_names import kept_apart
from evalflows.specs.model import SpecModel

PAIR_LABELS = ("win", "tie")
"""The labels of a judged pair, whichever answer won: what a tier may decide."""

CASCADE = "cascade"
"""The value of `use` for an evaluator made of tiers."""

PANEL = "panel"
"""The value of `use` for an evaluator made of several judges, whose scores are combined into one."""

PanelCombine = Literal["mean", "median", "majority", "weighted"]

Rate = Annotated[float, Field(gt=0, le=1)]


def as_key(value: object) -> str:
    """Convert an example's value to a key of `sample_rates`: text and dates unchanged, others as JSON, 1.0 as 1."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_json = value is None or isinstance(value, int | float | list | dict)
    return json.dumps(value, sort_keys=True) if is_json else str(value)


def _keyed(rates: object) -> object:
    """Convert the keys to text: YAML parses `1`, `true` and `null` as the values that examples also have."""
    return {as_key(key): rate for key, rate in rates.items()} if isinstance(rates, dict) else rates


def _class_names(values: object) -> object:
    """Replace exception classes, as Python programs give them, and "module:Class" by their names."""
    values = values if isinstance(values, list | tuple) else [values]
    names = [value.__name__ if isinstance(value, type) else value for value in values]
    return [name.replace(":", ".") if isinstance(name, str) else name for name in names]


class FallbackSpec(SpecModel):
    """A function that gives scores, and its settings. A plain string is short for `use`."""

    use: str = Field(description='The short name of a built-in evaluator, or "module:name" of your own')
    name: str = Field("", description="The metric's name; default: the function's own name")
    args: dict[str, Any] = Field(default_factory=dict, description="Settings, passed by name")
    connection: str | None = Field(None, description="The connection of the judge model")
    model: str | None = Field(None, description="The judge model; default: the connection's model")
    mode: Mode | None = Field(
        None,
        description="How the judge's calls are made: direct or batch; default: the spec's or the connection's mode",
    )
    sees: list[Modality] = Field(
        default_factory=list,
        description="Which files of the example and the answers a built-in judge sees: image, audio, file (PDF). It "
        "gets only the names and sizes of other files",
    )
    version: str | None = Field(None, description="Your own version label, stored beside the hash of the source")
    timeout_s: float | None = Field(
        None,
        gt=0,
        description="Timeout of one evaluation in seconds, not counting model calls made with `complete`. A "
        "synchronous function then runs in a separate process, which is killed at the timeout",
    )
    retry_on: Annotated[list[str], BeforeValidator(_class_names)] = Field(
        default_factory=list,
        description="Names of your own transient exceptions (Busy, or my_client.Busy): the chunk and `resume` retry "
        "them, like an HTTP 5xx",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"use": value} if isinstance(value, str) else value

    def retries(self, error: BaseException) -> bool:
        """Return whether `retry_on` names the class of an error, or a class that it inherits from."""
        names = {name for kind in type(error).__mro__ for name in (kind.__name__, f"{kind.__module__}.{kind.__name__}")}
        return not names.isdisjoint(self.retry_on)

    @property
    def metric(self) -> str:
        """The metric's name, unless the function returns a name itself. That of a function called like a measure, such
        as `cost`, is kept apart from the measure."""
        return self.name or kept_apart(self.own_name)

    @property
    def own_name(self) -> str:
        """The name of the function."""
        return self.use.rpartition(":")[2].rpartition(".")[2]


class TierSpec(FallbackSpec):
    """One tier of a cascade: an evaluator, and which of its scores are final.

    By default every score is final. If the evaluator does not apply, the next tier always judges.
    """

    decides: list[float | str] = Field(
        default_factory=list,
        description="Final scores: numbers or labels; true is 1 and false is 0. For pairs of answers: win or tie",
    )
    decides_from: float | None = Field(None, description="Scores of at least this value are final")
    decides_to: float | None = Field(None, description="Scores of at most this value are final")

    @model_validator(mode="after")
    def _leaves_something_open(self) -> "TierSpec":
        high, low = self.decides_from, self.decides_to
        if high is not None and low is not None and high <= low:
            raise ValueError(f"decides_from: got {high:g} with decides_to {low:g}, which is every score")
        return self

    def is_final(self, value: float | None, label: str | None) -> bool:
        """Return whether a score of this tier is final."""
        if not self.decides and self.decides_from is None and self.decides_to is None:
            return value is not None or label is not None
        if value is None:
            return label in self.decides
        high = self.decides_from is not None and value >= self.decides_from
        low = self.decides_to is not None and value <= self.decides_to
        return high or low or value in self.decides or (label is not None and label in self.decides)


class AnchorsSpec(SpecModel):
    """Answers with known scores. A judge judges some of them again in every run, so that its drift shows.

    A plain string is short for `dataset`.
    """

    dataset: str = Field(
        description="A file of rows with inputs, outputs (for a pair of answers, a list of both), known (the score "
        "that the judge should give; for a pair first, second or tie) and the reference_outputs, metadata and steps "
        "that the judge needs; or the id of its snapshot"
    )
    share: Rate = Field(0.02, description="Anchors to judge in a run or a batch, as a share of the judge's judgements")
    at_least: int | None = Field(
        None, ge=1, description="Minimum number of anchors to judge; default: 30 in a run, 1 in a batch of production"
    )
    seed: int = Field(0, description="Seed of their order")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"dataset": value} if isinstance(value, str) else value


class JudgeSpec(FallbackSpec):
    """An evaluator, or a cascade of them, with a fallback."""

    tiers: list[TierSpec] = Field(
        default_factory=list,
        description="With `use: cascade`: evaluators in order, the cheapest first. Each judges the answers left open "
        "by the previous tiers; `decided_by` names the tier that gave the score",
    )
    fallback: FallbackSpec | None = Field(
        None,
        description="The evaluator to use when this one is unavailable; its scores keep this evaluator's name, and "
        "`decided_by` names the evaluator that gave them",
    )
    controls: int | None = Field(
        None,
        ge=2,
        description="Known-answer controls: test a judge on this many right and as many wrong answers (references of "
        "the example, and of other examples); a judge of pairs, on pairs of the two. A judge that fails validation "
        "decides nothing",
    )
    anchors: AnchorsSpec | None = Field(
        None,
        description="Answers with known scores, judged again in every run: they show whether the judge has drifted",
    )
    fallback_counts: bool = Field(
        False,
        description="Whether gates and verdicts may use a metric if the fallback judged more than half of it; "
        "default: they stay open",
    )

    @model_validator(mode="after")
    def _has_tiers_or_none(self) -> Self:
        if (self.use == CASCADE) != bool(self.tiers):
            got = f"use: {self.use}" + (" with tiers" if self.tiers else " without")
            raise ValueError(f"tiers: got {got}, wanted use: {CASCADE} and tiers, or neither")
        if self.fallback_counts and self.fallback is None:
            raise ValueError("fallback_counts: got true without a fallback, wanted one")
        own = {"args", "connection", "model", "sees", "timeout_s", "fallback"}
        if self.tiers and (extra := sorted(name for name in own if getattr(self, name))):
            raise ValueError(
                f"tiers: got {extra[0]} beside tiers, wanted it within a tier (use, name, args, connection, model, "
                "timeout_s)"
            )
        return self


class BoundSpec(SpecModel):
    """A bound on a score."""

    below: float | None = Field(None, description="The score is below this")
    at_least: float | None = Field(None, description="The score is at least this")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.below is None) == (self.at_least is None):
            raise ValueError(f"got {'neither' if self.below is None else 'both'}, wanted one of below and at_least")
        return self


Wanted = bool | float | str | BoundSpec
"""A score: yes or no, a number, a label, or a bound."""


class EvaluatorSpec(JudgeSpec):
    """An evaluator of an experiment."""

    needs: dict[str, Wanted] = Field(
        default_factory=dict,
        description="Metric of another evaluator: the score that an answer must have, such as {correct: false} or "
        "{quality: {below: 0.5}}. For other answers this evaluator does not apply, and asks no model",
    )

    sample_rate: Rate | None = Field(
        None, description="The share of the examples to judge, sampled by their ids; default: all"
    )
    sample_seed: int = Field(0, description="Seed of the sample; evaluators with the same seed judge the same examples")
    sample_by: str | None = Field(
        None, description="An example field, such as metadata.risk, whose values have their own sample_rates"
    )
    sample_rates: Annotated[dict[str, Rate], BeforeValidator(_keyed)] = Field(
        default_factory=dict,
        description="Value of that field: rate; other values use sample_rate. Means are weighted accordingly",
    )

    repeats: int = Field(
        1, ge=1, le=100, description="How often each answer is judged; a judge's temperature is then 1 by default"
    )
    panel: list[JudgeSpec] = Field(
        default_factory=list,
        description="With `use: panel`: judges of the same answers, whose scores become one. Each judge's own score "
        "is kept, as the metric PANEL/NAME; NAME defaults to its model, else its function",
    )
    combine: PanelCombine | None = Field(
        None,
        description="How repeats, or the scores of a panel, become one score; default: the majority of yes/no and "
        "labels, the median of numbers. `weighted`, for a panel: by each judge's agreement with people's labels",
    )

    bundle: str | None = Field(
        None,
        min_length=1,
        description="A name shared by several judges of one connection: one call asks them all, with an answer each",
    )
    bundle_sample: int = Field(
        20,
        ge=2,
        description="How many answers each judge of a bundle also judges alone, twice, to see whether sharing a call "
        "changes its scores; the largest number in the bundle counts",
    )
    bundle_unchecked: bool = Field(
        False,
        description="Whether gates and verdicts may use this judge even if sharing a call changes its scores, which "
        "is then not tested",
    )

    resample: bool = Field(
        False,
        description="For your own summary evaluator: whether it is a pure function of its lists, so that it may be "
        "called on resamples and its metrics have intervals and differences, like those of the built-in evaluators",
    )
    resample_s: float = Field(60, gt=0, description="Maximum seconds for the resamples")

    @model_validator(mode="after")
    def _can_repeat(self) -> "EvaluatorSpec":
        if self.repeats > 1 and (self.tiers or self.panel or self.timeout_s is not None):
            got = "tiers" if self.tiers else "a panel" if self.panel else "timeout_s"
            raise ValueError(f"repeats: got {self.repeats} with {got}, wanted one of the two")
        if self.combine and self.repeats == 1 and not self.panel:
            raise ValueError(f"combine: got {self.combine} without repeats, wanted repeats of at least 2, or a panel")
        if self.combine == "weighted" and not self.panel:
            raise ValueError("combine: got weighted with repeats, wanted mean, median or majority")
        return self

    @model_validator(mode="after")
    def _can_share_a_call(self) -> "EvaluatorSpec":
        if self.bundle is None:
            if extra := fields_given(self, {"bundle_sample", "bundle_unchecked"}):
                raise ValueError(f"{extra[0]}: got it without bundle, wanted the name of the bundle")
        elif self.tiers or self.panel:
            got = "tiers" if self.tiers else "a panel"
            raise ValueError(f"bundle: got {self.bundle!r} with {got}, wanted one of the two")
        return self

    @model_validator(mode="after")
    def _has_members_or_none(self) -> "EvaluatorSpec":
        if (self.use == PANEL) != bool(self.panel):
            got = f"use: {self.use}" + (" with members" if self.panel else " without")
            raise ValueError(f"panel: got {got}, wanted use: {PANEL} and panel, or neither")
        if len(self.panel) == 1:
            raise ValueError("panel: got one judge, wanted at least two")
        if self.panel and (extra := fields_given(self, _OF_MEMBERS)):
            raise ValueError(f"panel: got {extra[0]} beside it, wanted it for each judge within the panel")
        names = [_member_name(judge) for judge in self.panel]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"panel: got two judges {repeated!r}, wanted a name for each")
        return self

    @property
    def members(self) -> "list[EvaluatorSpec]":
        """The judges of a panel, each as an evaluator that judges the same sample."""
        sample = {name: getattr(self, name) for name in (*SAMPLE, "needs")}
        tested = ({name: getattr(judge, name) or getattr(self, name) for name in _TESTS} for judge in self.panel)
        names = (f"{self.metric}/{_member_name(judge)}" for judge in self.panel)
        return [
            EvaluatorSpec(**dict(judge) | sample | test | {"name": name})
            for judge, test, name in zip(self.panel, tested, names, strict=True)
        ]

    @model_validator(mode="after")
    def _has_rates_or_none(self) -> "EvaluatorSpec":
        if self.sample_rates and not self.sample_by:
            raise ValueError("sample_rates: got no sample_by, wanted the field that the rates are for")
        if self.sample_by and not self.sample_rates:
            raise ValueError("sample_by: got no sample_rates, wanted a rate for each value of the field")
        return self

    @property
    def is_sampled(self) -> bool:
        return self.sample_rate is not None or bool(self.sample_rates)


_TESTS = ("controls", "anchors")
"""What a panel may give for all of its judges: how they are tested."""

SAMPLE = {"sample_rate", "sample_seed", "sample_by", "sample_rates"}
"""Fields of an evaluator that define its sample. They belong to the experiment, not to the evaluator's version."""

SHARED = {"connection", "model", "mode", "sees", "repeats", "needs", *SAMPLE}
"""Fields that are the same for all judges of a bundle."""

_OF_MEMBERS = {*JudgeSpec.model_fields} - {"use", "name", *_TESTS}
"""Fields that only the judges of a panel may have."""


def _member_name(judge: JudgeSpec) -> str:
    return judge.name or judge.model or judge.own_name


def fields_given(spec: BaseModel, names: Set[str]) -> list[str]:
    """Return those of some fields that do not have their default, sorted."""
    fields = type(spec).model_fields
    return sorted(n for n in names if getattr(spec, n) != fields[n].get_default(call_default_factory=True))
