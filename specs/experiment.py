"""An experiment: a dataset, the targets that answer it, and the evaluators that judge the answers."""

from collections import Counter
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from specs.connection import ConnectionSpec
from specs.dataset import DatasetSpec
from specs.errors import InputError, first_problem, short
from specs.evaluator import EvaluatorSpec
from specs.metric import MEASURES, CompositeSpec, MetricSpec
from specs.score_config import ScoreConfigSpec
from specs.target import TargetSpec


def _one_is_many(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


class ExperimentSpec(BaseModel):
    """What spec files, the flow's parameters and the form in Prefect's UI share. Each target is an experiment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="What the experiment is called", min_length=1)
    description: str = Field("", description="What it is for")
    metadata: dict[str, Any] = Field(default_factory=dict, description="Whatever should be found again with it")
    tags: list[str] = Field(default_factory=list)
    dataset: DatasetSpec
    targets: list[TargetSpec] = Field(
        min_length=1, description="The variants under test, each of a kind: chat, python, http or recorded"
    )
    baseline: str | None = Field(
        None, description="The target that the others are compared with; the first where left out"
    )
    evaluators: Annotated[list[EvaluatorSpec], BeforeValidator(_one_is_many)] = Field(
        default_factory=list, description="What judges every answer"
    )
    summary_evaluators: Annotated[list[EvaluatorSpec], BeforeValidator(_one_is_many)] = Field(
        default_factory=list, description="What judges all answers of an experiment at once"
    )
    composites: list[CompositeSpec] = Field(default_factory=list, description="Several metrics as one number a run")
    metrics: dict[str, MetricSpec] = Field(
        default_factory=dict, description="Direction and range of a metric, by its name"
    )
    score_configs: dict[str, ScoreConfigSpec] = Field(
        default_factory=dict, description="What a score may be that names one of these as its `config_id`"
    )
    level: float = Field(0.95, gt=0.5, lt=1, description="The confidence level of intervals")
    connections: dict[str, ConnectionSpec] = Field(
        default_factory=dict, description="Connections besides openai and local"
    )
    repetitions: int = Field(1, ge=1, description="How often each example is answered")
    max_concurrency: int | None = Field(
        None, ge=1, description="Most items in the user's own code at once, per process"
    )
    chunk_size: int | None = Field(
        None, ge=1, description="Items a Prefect task run takes; chosen by their number where left out"
    )
    chunk_retries: int = Field(
        2, ge=0, le=10, description="How often Prefect runs a chunk again for calls that may yet succeed"
    )
    chunk_retry_delay_s: float = Field(10.0, ge=0, description="Seconds before the first time; each later one, twice")
    budget_usd: float | None = Field(
        None,
        ge=0,
        description="Most money for the model calls of the whole run; spent, it ends incomplete",
    )
    max_calls: int | None = Field(None, ge=0, description="Most model calls that the whole run may pay for")
    breaker_window: int = Field(
        20, ge=2, description="Where more than half of so many last items failed, the rest is not attempted for now"
    )
    breaker_pause_s: float = Field(10.0, gt=0, description="Seconds until one item is tried again then")
    run_key: str | None = Field(
        None, description="Runs with the same key are one: a second one continues the first", min_length=1
    )
    fresh: bool = Field(
        False, description="Pay for every model call anew, even where another experiment has its answer"
    )

    @model_validator(mode="after")
    def _names_differ(self) -> "ExperimentSpec":
        own = [*self.judges, *(composite.name for composite in self.composites)]
        for what, names in (("targets", [target.name for target in self.targets]), ("evaluators", own)):
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                raise ValueError(f"{what}: two are called {twice[0]!r}, wanted a name of its own for each")
        for name in own:
            if name in MEASURES:
                raise ValueError(f"evaluators: {name!r} is measured of every run, wanted another name")
        for metric, declared in self.metrics.items():
            if (most := max(declared.pass_k, default=0)) > self.repetitions:
                raise ValueError(f"metrics: {metric}: pass_k: got {most}, with repetitions {self.repetitions}")
        for evaluator in self.summary_evaluators:
            said = {"tiers": evaluator.tiers, "a sample": evaluator.is_sampled, "timeout_s": evaluator.timeout_s}
            if given := [name for name, what in said.items() if what]:
                raise ValueError(f"summary_evaluators: {evaluator.metric!r}: got {given[0]}, which is for evaluators")
        if self.baseline is not None and self.baseline not in [target.name for target in self.targets]:
            known = ", ".join(target.name for target in self.targets)
            raise ValueError(f"baseline: got {self.baseline!r}, wanted one of {known}")
        return self

    @property
    def judges(self) -> list[str]:
        """The names of all evaluators."""
        return [evaluator.metric for evaluator in (*self.evaluators, *self.summary_evaluators)]

    def direction(self, metric: str) -> MetricSpec:
        """What is declared of a metric, and what goes without saying."""
        declared = self.metrics.get(metric, MetricSpec())
        return declared.model_copy(update={"higher_is_better": declared.is_higher_better(metric)})

    def experiment_name(self, target: str) -> str:
        """The name of the experiment that a target becomes."""
        return self.name if len(self.targets) == 1 else f"{self.name}-{target}"


def load_experiment(path: str | Path, changes: Sequence[str] = ()) -> ExperimentSpec:
    """Read a spec file (YAML), with changes such as `targets.0.model=gpt-4o` applied.

    Raises InputError, in one line, for whatever is wrong with it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that there is not is a ValueError
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise InputError(
            f"{path}: got {type(content).__name__}, wanted a mapping with name, dataset, targets, evaluators"
        )
    return _changed(content, changes, str(path))


def change_experiment(spec: ExperimentSpec, changes: Sequence[str]) -> ExperimentSpec:
    """A spec with changes such as `budget_usd=10` applied. Raises InputError for one that cannot be made."""
    return _changed(spec.model_dump(mode="json"), changes, f"experiment {spec.name!r}") if changes else spec


def _changed(content: dict[str, Any], changes: Sequence[str], where: str) -> ExperimentSpec:
    for change in changes:
        _apply(content, change)
    try:
        return ExperimentSpec.model_validate(content)
    except ValidationError as error:
        raise InputError(first_problem(error, where)) from error


def _apply(content: dict[str, Any], change: str) -> None:
    """Set one field of a spec: `path.to.it=value`, the value as YAML, an element of a list by its number."""
    path, equals, text = change.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise InputError(f"--set {change}: wanted key=value, such as repetitions=3 or targets.0.model=gpt-4o")
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"--set {change}: the value is not YAML: {' '.join(str(error).split())}") from error
    place: Any = content
    for key in keys[:-1]:
        place = _step(place, key, change)
    if isinstance(place, list):
        _step(place, keys[-1], change)
        place[int(keys[-1])] = value
    elif isinstance(place, dict):
        place[keys[-1]] = value
    else:
        raise InputError(f"--set {change}: {'.'.join(keys[:-1])} is {short(place)}, wanted a mapping or a list")


def _step(place: Any, key: str, change: str) -> Any:
    """What stands at a key, as a copy of its own there: an alias of YAML is one object in two places."""
    if isinstance(place, list):
        if not key.isdecimal() or int(key) >= len(place):
            raise InputError(f"--set {change}: got {key!r}, wanted a number below {len(place)}")
        place[int(key)] = copy(place[int(key)])
        return place[int(key)]
    if isinstance(place, dict):
        place[key] = copy(place.get(key, {}))
        return place[key]
    raise InputError(f"--set {change}: nothing below {short(place)}")
