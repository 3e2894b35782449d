"""Prepared experiments and comparisons: specs with everything they name resolved, and their evaluators bound.

Preparing writes prompts, shared connections and declared metrics into the spec, and makes no model calls. It happens
once, before a run, and serves checks, plans and the rows of an experiment. `prepared_evaluator.py` prepares one
evaluator; `running_experiment.py` and `running_comparison.py` make a prepared spec ready to run.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from evalflows.execution.preflight.connections import with_shared
from evalflows.execution.preflight.declared_metrics import with_metrics
from evalflows.execution.preflight.prompt_files import with_prompt, with_prompts
from evalflows.execution.prepared_evaluator import PreparedEvaluator, evaluator_version, prepare_evaluator
from evalflows.execution.resolve import composite_version
from evalflows.execution.votes import read_votes
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.evaluator import EvaluatorSpec, FallbackSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.reference import parts_of
from evalflows.specs.target import ChatTarget
from evalflows.specs.trace_evaluation import TraceEvaluationSpec
from evalflows.store.layout import Layout

SAMPLE = {"sample_rate", "sample_seed", "sample_by", "sample_rates"}
"""Fields of an evaluator that define its sample. They belong to the experiment, not to the evaluator's version."""

MAX_KEPT = 16
"""Most prepared specs that a process remembers until they have run; the oldest are dropped."""


@dataclass(frozen=True, kw_only=True)
class PreparedExperiment:
    """An experiment's spec, with its evaluators bound."""

    spec: ExperimentSpec
    evaluators: Sequence[PreparedEvaluator[EvaluatorSpec]]
    summary_evaluators: Sequence[PreparedEvaluator[EvaluatorSpec]]
    pairwise: Sequence[PreparedEvaluator[FallbackSpec]] = ()  # empty if prepared from an experiment's row

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
    evaluators: Sequence[PreparedEvaluator[FallbackSpec]]

    @cached_property
    def described(self) -> list[dict[str, Any]]:
        """The description of each evaluator, or of each metric of the votes, as stored with the comparison."""
        if self.spec.votes is not None:
            votes = read_votes(self.spec.votes)
            return [{"name": metric, "use": "votes", "version": votes.version} for metric in votes.metrics]
        return [described_evaluator(evaluator, self.spec) for evaluator in self.evaluators]


def described_evaluator(
    evaluator: PreparedEvaluator[FallbackSpec], owner: ExperimentSpec | ComparisonSpec | TraceEvaluationSpec
) -> dict[str, Any]:
    """Return the description of an evaluator as stored with what it judged."""
    return {
        "name": evaluator.name,
        "use": evaluator.spec.use,
        "version": evaluator_version(evaluator, owner.connections),
        "declared_version": evaluator.spec.version,
        "code": {name: digest for one in evaluator.all for name, digest in parts_of(one.bound.function).items()},
    }


def prepare_experiment(spec: ExperimentSpec) -> PreparedExperiment:
    """Prepare a spec as a user wrote it, so that a resumption elsewhere uses the same.

    Raise InputError for a prompt file that cannot be read, an evaluator that cannot be used, a broken file of shared
    connections, and an invalid declaration of metrics.
    """
    spec = with_prompts(spec)
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
    spec = spec.model_copy(update={"evaluators": [with_prompt(evaluator) for evaluator in spec.evaluators]})
    bound = bind_comparison(spec)
    connections = with_shared(spec.connections, connections_of(bound.evaluators))
    return PreparedComparison(spec=spec.model_copy(update={"connections": connections}), evaluators=bound.evaluators)


def bind_comparison(spec: ComparisonSpec) -> PreparedComparison:
    """Bind the evaluators of a spec that was prepared before and stored in a comparison's row."""
    return PreparedComparison(spec=spec, evaluators=_pairwise(spec.evaluators))


def connections_of(evaluators: Iterable[PreparedEvaluator[FallbackSpec]]) -> set[str]:
    """Return the connections of evaluators, with those of their tiers and fallbacks."""
    return {judge.connection for evaluator in evaluators for judge in evaluator.all if judge.connection}


def _pairwise(evaluators: Iterable[FallbackSpec]) -> list[PreparedEvaluator[FallbackSpec]]:
    return [prepare_evaluator(evaluator, "pair") for evaluator in evaluators]


Prepared = TypeVar("Prepared", PreparedExperiment, PreparedComparison)


class Preparations(Generic[Prepared]):
    """The specs that this process has prepared and checked but not yet run, by store and text of the spec."""

    def __init__(self, bind: Callable[[Any], Prepared]) -> None:
        self._bind: Callable[[Any], Prepared] = bind
        self._kept: OrderedDict[tuple[str, str], Prepared] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, prepared: Prepared) -> None:
        with self._lock:
            self._kept[_key(prepared.spec)] = prepared
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)

    def has(self, spec: ExperimentSpec | ComparisonSpec) -> bool:
        return _key(spec) in self._kept

    def of(self, spec: ExperimentSpec | ComparisonSpec) -> Prepared:
        """Return the prepared spec; if unknown, as on a worker, bind it but do not keep it: its code may change."""
        return self._kept.get(_key(spec)) or self._bind(spec)

    def forget(self, spec: ExperimentSpec | ComparisonSpec) -> None:
        with self._lock:
            self._kept.pop(_key(spec), None)


def _key(spec: ExperimentSpec | ComparisonSpec) -> tuple[str, str]:
    return Layout.at(None).root, spec.model_dump_json()


prepared_experiments: Preparations[PreparedExperiment] = Preparations(bind_experiment)
prepared_comparisons: Preparations[PreparedComparison] = Preparations(bind_comparison)
