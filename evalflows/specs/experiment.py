"""Experiment specs: a dataset, the targets that answer it, and the evaluators that judge the answers."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ModelWrapValidatorHandler, model_validator

from evalflows.specs.comparison import CompareSpec
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.errors import names_to_choose
from evalflows.specs.evaluator import SHARED, EvaluatorSpec
from evalflows.specs.files import change_spec, load_spec
from evalflows.specs.gate import GateSpec
from evalflows.specs.matrix import MatrixSpec, expanded
from evalflows.specs.metric_names import MEASURES, TRIAL, base_metric, kept_apart, metric_of
from evalflows.specs.metrics import CompositeSpec, MetricSpec, ScoreConfigSpec, expand_panels
from evalflows.specs.model import SpecModel
from evalflows.specs.quarantine import AT_MOST, QuarantineSpec, check_entries
from evalflows.specs.running import ONE_OR_MORE, ComparedRunSettings, Metadata, check_unique
from evalflows.specs.target import TargetSpec
from evalflows.specs.values import words

LookShare = Annotated[float, Field(gt=0, le=1)]


class _Experiment(SpecModel):
    """The fields that only an experiment has. A separate base class, so that forms show them first."""

    name: str = Field(description="The experiment's name", min_length=1)
    tags: list[str] = Field(default_factory=list, description="Tags to search by")
    dataset: DatasetSpec
    targets: list[TargetSpec] = Field(
        min_length=1, description="The variants under test; kinds: chat, python, http, conversation or recorded"
    )
    matrix: MatrixSpec | None = Field(
        None,
        exclude=True,
        description="Fields of the single target, each with several values: every combination becomes a target",
    )
    baseline: str | None = Field(None, description="The target that the others are compared with; default: the first")
    repetitions: int = Field(1, ge=1, le=10_000, description="Number of runs per example")
    evaluators: Annotated[list[EvaluatorSpec], ONE_OR_MORE] = Field(
        default_factory=list, description="Evaluators of each run"
    )
    summary_evaluators: Annotated[list[EvaluatorSpec], ONE_OR_MORE] = Field(
        default_factory=list, description="Evaluators of all runs of an experiment together"
    )
    composites: list[CompositeSpec] = Field(
        default_factory=list, description="Several metrics combined into one number per run"
    )
    gates: list[GateSpec] = Field(
        default_factory=list, description="Release gates: rules that a candidate must meet to be released"
    )
    compare: CompareSpec | None = Field(
        None, description="Compare the targets' answers in pairs once all are complete; requires at least two targets"
    )
    description: str = Field("", description="The purpose of the experiment")
    metadata: Metadata
    metrics: dict[str, MetricSpec] = Field(
        default_factory=dict, description="Direction, range and margin of metrics, by name"
    )
    score_configs: dict[str, ScoreConfigSpec] = Field(
        default_factory=dict, description="Allowed values of scores that name one of these configs as their `config_id`"
    )
    gate_fails_run: bool = Field(
        True, description="Whether a deployment's flow run fails if a gate says FAIL; elsewhere only `gate` does"
    )
    final_looks: Annotated[int, Field(ge=1)] | Annotated[list[LookShare], ONE_OR_MORE] = Field(
        3,
        description="How many runs of `gate` may have the final examples, until another baseline is approved; they "
        "share the level of its rules equally, or as this list of shares says, such as [0.5, 0.25, 0.25]",
    )
    look_again: Annotated[str, AfterValidator(words)] | None = Field(
        None, description="Why `gate` may run the final examples once more than that; reports show it"
    )
    quarantine: Annotated[list[QuarantineSpec], ONE_OR_MORE] = Field(
        default_factory=list, description="Flaky examples, which are run and shown, and have a lower weight in verdicts"
    )
    quarantine_at_most: float = Field(
        AT_MOST, ge=0, le=1, description="Maximum share of examples with a lower weight; with more, there is no verdict"
    )
    check_results: bool = Field(False, description="Check outputs and scores before anything is concluded from them")
    max_concurrency: int | None = Field(
        None, ge=1, description="Maximum number of items running user code concurrently, per process"
    )


class ExperimentSpec(ComparedRunSettings, _Experiment):
    """A run group, as given in a spec file, in the flow's parameters, or in the form in Prefect's UI.

    Each target becomes one experiment. The form has the fields in this order: what people change from run to run, how
    answers are judged and decided on, and the rest.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _has_a_target_per_cell(cls, given: Any, made: ModelWrapValidatorHandler["ExperimentSpec"]) -> "ExperimentSpec":
        return made(expanded(given) if isinstance(given, dict) and given.get("matrix") is not None else given)

    @model_validator(mode="after")
    def _is_consistent(self) -> "ExperimentSpec":
        expand_panels(self)
        self._check_names()
        self._check_evaluators()
        self._check_bundles()
        self._check_gates()
        self._check_quarantine()
        if sum(self.look_shares) > 1 + 1e-9:
            raise ValueError(f"final_looks: got shares that add up to {sum(self.look_shares):g}, wanted at most 1")
        if self.compare is not None and len(self.targets) < 2:
            raise ValueError("compare: got one target, wanted at least two")
        if self.baseline is not None and self.baseline not in [target.name for target in self.targets]:
            known = names_to_choose(self.baseline, [target.name for target in self.targets])
            raise ValueError(f"baseline: got {self.baseline!r}, wanted {known}")
        return self

    @property
    def look_shares(self) -> Sequence[float]:
        """The share of the level of its rules that each run of the final examples may spend."""
        return [1 / self.final_looks] * self.final_looks if isinstance(self.final_looks, int) else self.final_looks

    def _check_names(self) -> None:
        own = [*self.judges, *(composite.name for composite in self.composites)]
        check_unique("targets", [target.name for target in self.targets])
        check_unique("evaluators", own)
        for name in own:
            if name in MEASURES:
                raise ValueError(
                    f"evaluators: {name!r} is a built-in measure of every run, wanted another name, such as "
                    f"{kept_apart(name)!r}"
                )

    def _check_evaluators(self) -> None:
        for metric, declared in self.metrics.items():
            if (most := max(declared.pass_k, default=0)) > self.repetitions:
                raise ValueError(f"metrics: {metric}: pass_k: got {most}, with repetitions {self.repetitions}")
        if sampled := next((each.metric for each in self.evaluators if each.resample), None):
            raise ValueError(f"evaluators: {sampled!r}: got resample, wanted it only for summary_evaluators")
        for evaluator in self.summary_evaluators:
            settings = {"tiers": evaluator.tiers, "a sample": evaluator.is_sampled, "timeout_s": evaluator.timeout_s}
            settings["needs"] = evaluator.needs
            settings |= {"repeats": evaluator.repeats > 1, "a panel": evaluator.panel, "bundle": evaluator.bundle}
            if unsupported := [name for name, value in settings.items() if value]:
                raise ValueError(
                    f"summary_evaluators: {evaluator.metric!r}: got {unsupported[0]}, wanted it only for evaluators"
                )

    def _check_bundles(self) -> None:
        for name, members in self.bundles.items():
            if len(members) == 1:
                raise ValueError(
                    f"evaluators: bundle {name!r}: got one judge, {members[0].metric}, wanted at least two"
                )
            for field, other in product(sorted(SHARED), members[1:]):
                values = [getattr(member, field) for member in (members[0], other)]
                if values[0] != values[1]:
                    who = f"{members[0].metric} and {other.metric}"
                    raise ValueError(
                        f"evaluators: bundle {name!r}: {field}: got {values[0]!r} and {values[1]!r} of {who}, wanted "
                        "the same for all"
                    )

    def _check_gates(self) -> None:
        names = [target.name for target in self.targets]
        check_unique("gates", [gate.name for gate in self.gates])
        if len({gate.batch for gate in self.gates}) > 1:
            raise ValueError(
                "gates: batch: got several values, wanted the same for all gates, which analyse the same runs"
            )
        for gate in self.gates:
            if gate.candidate is not None and gate.candidate not in names:
                raise ValueError(
                    f"gates: {gate.name}: candidate: got {gate.candidate!r}, wanted one of {', '.join(names)}"
                )
            is_approved = gate.compares and gate.production is None and self.baseline_target(gate) is None
            if not is_approved and (gate.approved_by or gate.signers):
                raise ValueError(
                    f"gates: {gate.name}: got approved_by or signers, wanted a comparison with an approved baseline"
                )
            if not self.candidates(gate):
                raise ValueError(f"gates: {gate.name}: the candidate is the baseline, {self.baseline_target(gate)!r}")

    def _check_quarantine(self) -> None:
        check_entries(self.quarantine)
        if why := next(filter(None, map(self.why_not_in_quarantine, self.gates)), None):
            raise ValueError(why)

    def why_not_in_quarantine(self, gate: GateSpec) -> str | None:
        """Return why a gate cannot decide with the quarantine; None if it can."""
        if self.quarantine and gate.production is not None:
            return f"quarantine: got gate {gate.name!r} against production, whose items have none"
        if gate.batch is not None and any(entry.weigh == "by_noise" for entry in self.quarantine):
            return f"quarantine: got by_noise and gate {gate.name!r} in batches, wanted not_at_all"
        return None

    @property
    def batch(self) -> int | None:
        """The number of examples between interim analyses; None if the gates decide only at the end."""
        return min((gate.batch for gate in self.gates if gate.batch is not None), default=None)

    def baseline_target(self, gate: GateSpec) -> str | None:
        """Return the target that a gate compares with; None if it is an approved baseline."""
        names = [target.name for target in self.targets]
        if gate.baseline is not None:
            return gate.baseline if gate.baseline in names else None
        return (self.baseline or names[0]) if len(names) > 1 else None

    def candidates(self, gate: GateSpec) -> list[str]:
        """Return the targets that a gate decides on: not the spec's own baseline, also if it compares with another."""
        names, base = [target.name for target in self.targets], self.baseline_target(gate)
        others = [name for name in names if name != base and gate.candidate in (None, name)]
        return [name for name in others if name != self.baseline] or others

    @property
    def is_trial(self) -> bool:
        """Whether it is marked as a trial, which is no baseline and which no gate decides on."""
        return TRIAL in self.tags

    @property
    def judges(self) -> list[str]:
        """The names of all evaluators."""
        return [evaluator.metric for evaluator in (*self.evaluators, *self.summary_evaluators)]

    @property
    def bundles(self) -> dict[str, list[EvaluatorSpec]]:
        """The judges that share their calls, by the name of the bundle."""
        found: dict[str, list[EvaluatorSpec]] = {}
        for evaluator in self.evaluators:
            if evaluator.bundle is not None:
                found.setdefault(evaluator.bundle, []).append(evaluator)
        return found

    @property
    def panel_members(self) -> frozenset[str]:
        """The metrics of the judges of panels, which are shown, but are neither planned nor tested."""
        return frozenset(metric for composite in self.composites for metric in composite.panel)

    @property
    def measures_used(self) -> frozenset[str]:
        """The built-in measures that gates, composites and `metrics` name."""
        of_gates = (metric_of(metric) for gate in self.gates for metric in gate.metrics)
        of_composites = (metric for composite in self.composites for metric in composite.metrics)
        return frozenset(MEASURES) & {base_metric(gate) for gate in (*of_gates, *of_composites, *self.metrics)}

    def direction(self, metric: str) -> MetricSpec:
        """Return the declared properties of a metric, with its direction filled in."""
        declared = self.metrics.get(metric, MetricSpec())
        return declared.model_copy(update={"higher_is_better": declared.is_higher_better(metric)})

    def experiment_name(self, target: str) -> str:
        """Return the name of a target's experiment."""
        return self.name if len(self.targets) == 1 else f"{self.name}-{target}"


def load_experiment(path: str | Path, changes: Sequence[str] = ()) -> ExperimentSpec:
    """Read a spec file (YAML), with changes such as `targets.0.model=gpt-4o` applied.

    Raise InputError, in one line, if the file is invalid.
    """
    return load_spec(ExperimentSpec, path, changes, wanted="name, dataset, targets, evaluators")


def change_experiment(spec: ExperimentSpec, changes: Sequence[str]) -> ExperimentSpec:
    """Return the spec with changes such as `budget_usd=10` applied. Raise InputError if the result is invalid."""
    return change_spec(spec, changes, f"experiment {spec.name!r}")
