"""Prepared evaluators: an evaluator of a spec with its code bound, its metrics and its version, but not callable yet.

`prepared.py` prepares whole specs. To be called, an evaluator also needs what a run provides: see `RunnableEvaluator`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar

from evalflows.evaluators.call import Bound, Scope
from evalflows.evaluators.direction import declared_by
from evalflows.execution.resolve import bind_evaluator, is_ours, served
from evalflows.specs.connection import ConnectionSpec
from evalflows.specs.evaluator import EvaluatorSpec, FallbackSpec, TierSpec
from evalflows.specs.metric import MetricSpec
from evalflows.specs.paths import located
from evalflows.specs.reference import FILES, version_of

DEFAULT_CONNECTION = "openai"
"""Connection of an evaluator that asks for `complete` and names none."""

Kind = TypeVar("Kind", bound=FallbackSpec)
Spec = TypeVar("Spec", bound=FallbackSpec, covariant=True)


@dataclass(frozen=True, kw_only=True)
class PreparedEvaluator(Generic[Spec]):
    """A bound evaluator, with its tiers and its fallback."""

    spec: Spec
    scope: Scope
    bound: Bound  # for a cascade its first tier, never called under the cascade's name
    tiers: "tuple[PreparedEvaluator[TierSpec], ...]" = ()
    fallback: "PreparedEvaluator[FallbackSpec] | None" = None

    @property
    def name(self) -> str:
        return self.spec.metric

    @property
    def connection(self) -> str | None:
        """The connection that it uses, if any."""
        if self.tiers or not self.bound.asks_for("complete", "embed"):
            return None
        return self.spec.connection or DEFAULT_CONNECTION

    @property
    def judges(self) -> "Sequence[PreparedEvaluator[FallbackSpec]]":
        """The evaluators that judge: its tiers, or the evaluator itself."""
        return self.tiers or (self,)

    @property
    def all(self) -> "Iterator[PreparedEvaluator[FallbackSpec]]":
        """The evaluator, its tiers and its fallback."""
        yield self
        yield from self.tiers
        if self.fallback is not None:
            yield self.fallback

    @property
    def is_ours(self) -> bool:
        """Whether all its judges are ours. Ours declare their metrics; others may give any."""
        return all(is_ours(judge.spec) for judge in self.judges)

    @cached_property
    def declared_metrics(self) -> Sequence[Mapping[str, MetricSpec]]:
        """The metrics that it, or each of its tiers, declares. Raise InputError for an invalid declaration."""
        return [declared_by(judge.bound.function, self.name, judge.spec.args) for judge in self.judges]

    @property
    def metrics(self) -> list[str]:
        """The metric named like the evaluator, and the metrics that it declares."""
        return [self.name, *(metric for declared in self.declared_metrics for metric in declared)]


def prepare_evaluator(spec: Kind, scope: Scope = "item") -> PreparedEvaluator[Kind]:
    """Bind an evaluator, its tiers and its fallback. Raise InputError if one cannot be used."""
    if not isinstance(spec, EvaluatorSpec):
        return PreparedEvaluator(spec=spec, scope=scope, bound=bind_evaluator(spec, scope))
    tiers = tuple(prepare_evaluator(tier, scope) for tier in spec.tiers)
    bound = _cascade(spec, [tier.bound for tier in tiers]) if tiers else bind_evaluator(spec, scope)
    fallback = None if spec.fallback is None else prepare_evaluator(spec.fallback, scope)
    return PreparedEvaluator(spec=spec, scope=scope, bound=bound, tiers=tiers, fallback=fallback)


def evaluator_version(evaluator: PreparedEvaluator[FallbackSpec], connections: Mapping[str, ConnectionSpec]) -> str:
    """Return a hash of an evaluator's source, constants, settings, model and endpoint, and of its fallback."""
    spec, function = evaluator.spec, evaluator.bound.function
    if evaluator.tiers:
        decides = [tier.spec.model_dump(include={"decides", "decides_from", "decides_to"}) for tier in evaluator.tiers]
        return version_of(_cascade, decides, [evaluator_version(tier, connections) for tier in evaluator.tiers])
    judge = served(evaluator.connection, connections, spec.model)
    fallback = [evaluator_version(evaluator.fallback, connections)] if evaluator.fallback else []
    files = [located(spec.args[name]).read_bytes() for name in getattr(function, FILES, ()) if name in spec.args]
    return version_of(function, sorted(spec.args.items()), judge, *files, *fallback)


def _cascade(spec: EvaluatorSpec, tiers: Sequence[Bound]) -> Bound:
    """Return a stand-in for all tiers: the first one, which is never called under this name."""
    return replace(tiers[0], name=spec.metric)
