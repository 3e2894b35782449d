"""Prepare specs of experiments, comparisons and trace evaluations: what they name is resolved to code, and their
evaluators are bound.

Preparing writes prompts, shared connections and declared metrics into the spec, and makes no model calls. It happens
once, before a run, and serves checks, plans and the rows of an experiment; `running.py` makes a prepared spec ready to
run.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, TypeVar

from evalflows.engine.spec_evaluators import (
    SAMPLE,
    PreparedEvaluator,
    composite_version,
    connections_of,
    described_evaluator,
    prepare_evaluator,
)
from evalflows.engine.spec_texts import with_all_prompts, with_closed_modes, with_prompts
from evalflows.engine.votes import read_votes
from evalflows.llm.connections import shared
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec, JudgeSpec, MetricSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.running import ConnectionSpec
from evalflows.specs.target import ChatTarget
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.records import dependent_id

NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def id_of_run_key(kind: Literal["group", "cmp"], run_key: str) -> str:
    """Return the id of the run group, or of the comparison, of all starts with this run key."""
    return dependent_id(kind, NO_TIME, "run_key", run_key)


def experiment_id(group: str, target: str) -> str:
    """Return the id of the experiment of a target in a run group."""
    return dependent_id("exp", group, group, target)


def without_live_references(evaluators: str) -> list[dict[str, object]]:
    """Return the evaluators of a row without references to live functions.

    These differ between processes, though the versions are the same.
    """
    return [
        {name: value for name, value in evaluator.items() if not str(value).startswith("live:")}
        for evaluator in json.loads(evaluators)
    ]


def code_of_evaluators(evaluators: str) -> dict[str, str]:
    """Return a hash of each part of the user's code in the evaluators of a row."""
    return {name: digest for one in json.loads(evaluators) for name, digest in one.get("code", {}).items()}


def evaluator_labels(evaluators: str) -> set[str]:
    """Return name, version and sample of each evaluator of a row, for messages."""
    return {
        f"{evaluator['name']}@{evaluator['version']}" + (f" of {evaluator['sample']}" if "sample" in evaluator else "")
        for evaluator in json.loads(evaluators)
    }


def with_shared(own: Mapping[str, ConnectionSpec], named: set[str]) -> dict[str, ConnectionSpec]:
    """Return a spec's connections, with those it names from the shared file. Raise InputError for a broken file."""
    from_file = {name: connection for name, connection in shared().items() if name in named and name not in own}
    return {**own, **from_file}


AnySpec = TypeVar("AnySpec", ExperimentSpec, TraceEvaluationSpec)


def with_metrics(spec: AnySpec, evaluators: Iterable[PreparedEvaluator[EvaluatorSpec]]) -> AnySpec:
    """Return the spec with the metrics that its evaluators declare; the spec's own fields take precedence.

    Raise InputError for an invalid declaration.
    """
    declared: dict[str, MetricSpec] = {}
    for evaluator in evaluators:
        for metrics in evaluator.declared_metrics:
            _check_agreed(evaluator, metrics, declared, spec)
            declared = {**metrics, **declared}  # the first declaration of a metric counts
    merged = {
        name: spec.metrics[name].or_else(metric) if name in spec.metrics else metric
        for name, metric in declared.items()
    }
    return spec.model_copy(update={"metrics": {**spec.metrics, **merged}})


def _check_agreed(
    evaluator: PreparedEvaluator[EvaluatorSpec],
    metrics: Mapping[str, MetricSpec],
    before: Mapping[str, MetricSpec],
    spec: ExperimentSpec | TraceEvaluationSpec,
) -> None:
    """Raise InputError if tiers declare a metric differently, unless the spec declares it."""
    for metric in metrics.keys() & before.keys() - spec.metrics.keys():
        if evaluator.tiers and metrics[metric] != before[metric]:
            first, second = (f"{m.range} {m.is_higher_better(metric)}" for m in (before[metric], metrics[metric]))
            difference = f"range or higher_is_better: {first} and {second}"
            raise InputError(
                f"evaluator {evaluator.name!r}: its tiers differ in {difference}; wanted the same for all tiers"
            )


@dataclass(frozen=True, kw_only=True)
class PreparedExperiment:
    """An experiment's spec, with its evaluators bound."""

    spec: ExperimentSpec
    evaluators: Sequence[PreparedEvaluator[EvaluatorSpec]]
    summary_evaluators: Sequence[PreparedEvaluator[EvaluatorSpec]]
    pairwise: Sequence[PreparedEvaluator[JudgeSpec]] = ()  # empty if prepared from an experiment's row

    @property
    def of_runs(self) -> Sequence[PreparedEvaluator[EvaluatorSpec]]:
        """All evaluators except the pairwise ones."""
        return (*self.evaluators, *self.summary_evaluators)

    @cached_property
    def given_metrics(self) -> list[str] | None:
        """The metrics that the evaluators give; None if one is not ours, since it may name others."""
        if not all(evaluator.is_ours for evaluator in self.of_runs):
            return None
        return list(dict.fromkeys(metric for evaluator in self.of_runs for metric in evaluator.metrics))

    @cached_property
    def described(self) -> dict[str, dict[str, Any]]:
        """The description of each evaluator and composite as stored with the experiments, by name."""
        described = [self._described(evaluator) for evaluator in self.of_runs]
        described += [
            {"name": composite.name, "version": composite_version(composite, self.spec), "scope": "composite"}
            for composite in self.spec.composites
        ]
        return {description["name"]: description for description in described}

    def _described(self, evaluator: PreparedEvaluator[EvaluatorSpec]) -> dict[str, Any]:
        spec = evaluator.spec
        sample = {"sample": spec.model_dump(mode="json", include=SAMPLE)} if spec.is_sampled else {}
        return {**described_evaluator(evaluator, self.spec), "scope": evaluator.scope, **sample}


@dataclass(frozen=True, kw_only=True)
class PreparedComparison:
    """A comparison's spec, with its evaluators bound."""

    spec: ComparisonSpec
    evaluators: Sequence[PreparedEvaluator[JudgeSpec]]

    @cached_property
    def described(self) -> list[dict[str, Any]]:
        """The description of each evaluator, or of each metric of the votes, as stored with the comparison."""
        if self.spec.votes is not None:
            votes = read_votes(self.spec.votes)
            return [{"name": metric, "use": "votes", "version": votes.version} for metric in votes.metrics]
        return [described_evaluator(evaluator, self.spec) for evaluator in self.evaluators]


def prepare_experiment(spec: ExperimentSpec) -> PreparedExperiment:
    """Prepare a spec as a user wrote it, so that a resumption elsewhere uses the same.

    Raise InputError for a prompt file that cannot be read, an evaluator that cannot be used, a broken file of shared
    connections, and an invalid declaration of metrics.
    """
    spec = with_prompts(with_closed_modes(spec))
    bound = bind_experiment(spec)
    pairwise = _pairwise(spec.compare.evaluators if spec.compare else ())
    named = {target.connection for target in spec.targets if isinstance(target, ChatTarget)}
    named |= connections_of((*bound.of_runs, *pairwise))
    spec = spec.model_copy(update={"connections": with_shared(spec.connections, named)})
    return PreparedExperiment(
        spec=with_metrics(spec, bound.of_runs),
        evaluators=bound.evaluators,
        summary_evaluators=bound.summary_evaluators,
        pairwise=pairwise,
    )


def bind_experiment(spec: ExperimentSpec) -> PreparedExperiment:
    """Bind the evaluators of a spec that was prepared before and stored in an experiment's row."""
    return PreparedExperiment(
        spec=spec,
        evaluators=[prepare_evaluator(evaluator) for evaluator in spec.evaluators],
        summary_evaluators=[prepare_evaluator(evaluator, "run") for evaluator in spec.summary_evaluators],
    )


def prepare_comparison(spec: ComparisonSpec) -> PreparedComparison:
    """Prepare a comparison's spec as a user wrote it. Raise InputError as for an experiment."""
    spec = spec.model_copy(update={"evaluators": [with_all_prompts(evaluator) for evaluator in spec.evaluators]})
    bound = bind_comparison(spec)
    connections = with_shared(spec.connections, connections_of(bound.evaluators))
    return PreparedComparison(spec=spec.model_copy(update={"connections": connections}), evaluators=bound.evaluators)


def bind_comparison(spec: ComparisonSpec) -> PreparedComparison:
    """Bind the evaluators of a spec that was prepared before and stored in a comparison's row."""
    return PreparedComparison(spec=spec, evaluators=_pairwise(spec.evaluators))


def _pairwise(evaluators: Iterable[JudgeSpec]) -> list[PreparedEvaluator[JudgeSpec]]:
    return [prepare_evaluator(evaluator, "pair") for evaluator in evaluators]
