"""An experiment: a dataset, the targets that answer it, and the evaluators that judge the answers."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from specs.comparison import CompareSpec
from specs.dataset import DatasetSpec
from specs.evaluator import EvaluatorSpec
from specs.gate import GateSpec
from specs.metric import MEASURES, CompositeSpec, MetricSpec
from specs.running import (
    Adjusted,
    BreakerPause,
    BreakerWindow,
    BudgetUsd,
    ChunkRetries,
    ChunkRetryDelay,
    ChunkSize,
    Connections,
    Fresh,
    Level,
    MaxCalls,
    RunKey,
)
from specs.score_config import ScoreConfigSpec
from specs.spec_file import change_spec, load_spec
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
    level: Level = 0.95
    adjustment: Adjusted = "holm"
    gates: list[GateSpec] = Field(
        default_factory=list, description="What must hold of a candidate before it may be released"
    )
    connections: Connections
    repetitions: int = Field(1, ge=1, description="How often each example is answered")
    max_concurrency: int | None = Field(
        None, ge=1, description="Most items in the user's own code at once, per process"
    )
    chunk_size: ChunkSize = None
    chunk_retries: ChunkRetries = 2
    chunk_retry_delay_s: ChunkRetryDelay = 10.0
    budget_usd: BudgetUsd = None
    max_calls: MaxCalls = None
    breaker_window: BreakerWindow = 20
    breaker_pause_s: BreakerPause = 10.0
    run_key: RunKey = None
    fresh: Fresh = False
    compare: CompareSpec | None = Field(
        None, description="Compare the targets' answers in pairs, when all are there; needs two targets or more"
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
        self._check_gates()
        if self.compare is not None and len(self.targets) < 2:
            raise ValueError("compare: got one target, wanted two or more to compare")
        if self.baseline is not None and self.baseline not in [target.name for target in self.targets]:
            known = ", ".join(target.name for target in self.targets)
            raise ValueError(f"baseline: got {self.baseline!r}, wanted one of {known}")
        return self

    def _check_gates(self) -> None:
        names = [target.name for target in self.targets]
        twice = [name for name, count in Counter(gate.name for gate in self.gates).items() if count > 1]
        if twice:
            raise ValueError(f"gates: two are called {twice[0]!r}, wanted a name of its own for each")
        if len({gate.batch for gate in self.gates}) > 1:
            raise ValueError("gates: batch: got several, wanted the same for all: they look at the same runs")
        for gate in self.gates:
            if gate.candidate is not None and gate.candidate not in names:
                raise ValueError(
                    f"gates: {gate.name}: candidate: got {gate.candidate!r}, wanted one of {', '.join(names)}"
                )
            if not self.candidates(gate):
                raise ValueError(f"gates: {gate.name}: the candidate is the baseline, {self.baseline_target(gate)!r}")

    @property
    def batch(self) -> int | None:
        """After how many examples the gates look; None where they wait for all."""
        return min((gate.batch for gate in self.gates if gate.batch is not None), default=None)

    def baseline_target(self, gate: GateSpec) -> str | None:
        """The target that a gate compares with; None where it is an approved baseline."""
        names = [target.name for target in self.targets]
        if gate.baseline is not None:
            return gate.baseline if gate.baseline in names else None
        return (self.baseline or names[0]) if len(names) > 1 else None

    def candidates(self, gate: GateSpec) -> list[str]:
        """The targets that a gate decides on."""
        base = self.baseline_target(gate)
        return [one.name for one in self.targets if one.name != base and gate.candidate in (None, one.name)]

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
    return load_spec(ExperimentSpec, path, changes, wanted="name, dataset, targets, evaluators")


def change_experiment(spec: ExperimentSpec, changes: Sequence[str]) -> ExperimentSpec:
    """A spec with changes such as `budget_usd=10` applied. Raises InputError for one that cannot be made."""
    return change_spec(spec, changes, f"experiment {spec.name!r}")
