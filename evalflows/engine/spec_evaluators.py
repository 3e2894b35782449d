"""Evaluators of specs: bound to their code, with their tiers and fallback, and their versions.

To be called, an evaluator also needs what a run provides: see `RunnableEvaluator`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from inspect import isclass, signature
from typing import Any, Generic, TypeVar, cast

from evalflows import evaluators
from evalflows.engine.spec_targets import served
from evalflows.evaluators.binding import Bound, Scope, bind
from evalflows.evaluators.bundle import joined
from evalflows.evaluators.composite import combined
from evalflows.evaluators.declarations import declared_by, package_versions
from evalflows.evaluators.figures import FIGURES
from evalflows.evaluators.foreign import as_ours, evaluator_name
from evalflows.evaluators.named import load_named
from evalflows.evaluators.panel import panel_verdict
from evalflows.evaluators.scales import Combine
from evalflows.evaluators.settings import checked_count, checked_text
from evalflows.specs.code_versions import fault_text
from evalflows.specs.comparison import PairJudgeSpec
from evalflows.specs.connections import ConnectionSpec
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import EvaluatorSpec, FallbackSpec, JudgeSpec, TierSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.files import located
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import kept_apart
from evalflows.specs.metrics import CompositeSpec, MetricSpec
from evalflows.specs.reference import FILES, load, refer, version_of
from evalflows.specs.target import OF_REASONING
from evalflows.specs.traces import TraceEvaluationSpec

_BOUNDS = {"higher_is_better", "range"}

DEFAULT_CONNECTION = "openai"
"""Connection of an evaluator that asks for `complete` and names none."""

Kind = TypeVar("Kind", bound=FallbackSpec)
Spec = TypeVar("Spec", bound=FallbackSpec, covariant=True)


def bind_evaluator(spec: FallbackSpec, scope: Scope = "item") -> Bound:
    """Load and check an evaluator. Raise InputError if it does not exist, asks for unknown arguments or needs a package
    that is not installed.

    An evaluator of another project gets an adapter; its single score gets the spec's name if that differs.
    """
    loaded = load_named(spec.use)
    package_versions(loaded)
    spec, parameters = _without_parameters(spec, loaded)
    bound = _bound(spec, loaded, scope)
    if isinstance(spec, PairJudgeSpec) and spec.compares == "all":
        if is_ours(spec):
            raise InputError(f"evaluator {spec.metric!r}: compares: got all with {spec.use}, which judges pairs")
        bound = replace(bound, is_of_all=True)
    if bound.is_of_all and spec.timeout_s is not None:
        raise InputError(
            f"evaluator {spec.metric!r}: timeout_s: got it for an evaluator that compares all at once, wanted none"
        )
    return replace(bound, parameters=parameters) if parameters else bound


def _without_parameters(spec: FallbackSpec, function: Any) -> tuple[FallbackSpec, dict[str, Any]]:
    """Return the spec of a built-in judge without the parameters of reasoning models among its settings, and these.

    One that says how long it thinks has no temperature by default: such models refuse it. Raise InputError for a
    parameter that cannot be sent.
    """
    args = dict(spec.args)
    if not is_ours(spec) or args.keys().isdisjoint(OF_REASONING) or "temperature" not in signature(function).parameters:
        return spec, {}
    try:
        if (effort := args.pop("reasoning_effort", None)) is not None:
            checked_text("reasoning_effort", effort)
            args.setdefault("temperature", None)
        if (most := args.pop("max_completion_tokens", None)) is not None:
            checked_count("max_completion_tokens", most)
    except ValueError as error:
        raise InputError(f"evaluator {spec.metric!r}: {error}") from error
    parameters = {"reasoning_effort": effort, "max_completion_tokens": most}
    given = {name: value for name, value in parameters.items() if value is not None}
    return spec.model_copy(update={"args": args}), given


def _bound(spec: FallbackSpec, loaded: Any, scope: Scope) -> Bound:
    if spec.sees and not is_ours(spec):
        wanted = "it for a built-in judge; your own code gets files as data URLs"
        raise InputError(f"evaluator {spec.metric!r}: sees: got {spec.use}, wanted {wanted}")
    if is_ours(spec) and (scope == "pair") != (spec.use in evaluators.PAIRWISE):
        compares, other = "compares two answers, wanted it under compare", "judges one answer, wanted one that compares"
        wanted = f"{other} two: {', '.join(evaluators.PAIRWISE)}" if scope == "pair" else compares
        raise InputError(f"evaluator {spec.metric!r}: {spec.use} {wanted}")
    if scope == "item" and FIGURES in getattr(loaded, "__dict__", {}):
        raise InputError(
            f"evaluator {spec.metric!r}: {spec.use} judges all answers, wanted it under summary_evaluators"
        )
    if scope == "pair" and not isclass(loaded):
        return bind(loaded, name=spec.metric, settings=spec.args, scope=scope)
    renamed = bool(spec.name) and spec.name != evaluator_name(loaded)
    one_run = scope == "item"
    adapter = as_ours(loaded, name=spec.metric, settings=spec.args, renamed=renamed, one_run=one_run)
    if adapter is None and isclass(loaded):
        bound = bind(_instance(loaded, spec), name=spec.metric, scope=scope)
    else:
        bound = bind(adapter or loaded, name=spec.metric, settings={} if adapter else spec.args, scope=scope)
    if not isinstance(spec, EvaluatorSpec) or spec.repeats == 1:
        return bound
    settings = dict(bound.settings)
    if is_ours(spec) and "temperature" in signature(bound.function).parameters:
        settings.setdefault("temperature", 1.0)  # repeats at 0 would be equal
    return replace(bound, settings=settings, repeats=spec.repeats, combine=cast("Combine | None", spec.combine))


def _instance(kind: type, spec: FallbackSpec) -> Callable[..., object]:
    """Return an instance of a user's class, constructed with the settings; it judges by being called."""
    who = f"evaluator {spec.metric!r}"
    if "__call__" not in dir(kind) or kind.__call__ is type.__call__:
        raise InputError(
            f"{who}: {spec.use!r} is a class that cannot be called, wanted a function, or one with __call__"
        )
    try:
        instance: Callable[..., object] = kind(**spec.args)
    except Exception as error:  # whatever the user's constructor raises
        raise InputError(f"{who}: {spec.use!r} cannot be constructed with args: {fault_text(error)}") from error
    return instance


def is_ours(spec: FallbackSpec) -> bool:
    return spec.use in evaluators.SHORT_NAMES


def reference_to(function: Callable[..., object]) -> str:
    """Return how a spec names a function: the short name of one of ours, otherwise the result of `refer`."""
    short = evaluator_name(function)
    return short if getattr(evaluators, short, None) is function else refer(function)


def named_reference(function: Callable[..., object], name: str | None = None) -> dict[str, str]:
    """Return an evaluator function as fields of a spec; its name by default as other projects call its score."""
    return {"use": reference_to(function), "name": name or kept_apart(evaluator_name(function))}


def composite_version(composite: CompositeSpec, spec: ExperimentSpec | TraceEvaluationSpec) -> str:
    """Return a hash of a composite's weights and policy, and of the bounds of its parts."""
    if composite.panel:
        return version_of(panel_verdict, composite.panel, composite.combine)
    bounds = {metric: spec.direction(metric).model_dump(include=_BOUNDS) for metric in sorted(composite.metrics)}
    own = [version_of(load(composite.function))] if composite.function else []
    return version_of(combined, composite.model_dump(exclude={"name", "function", "panel", "combine"}), bounds, *own)


@dataclass(frozen=True, kw_only=True)
class PreparedEvaluator(Generic[Spec]):
    """A bound evaluator, with its tiers and its fallback."""

    spec: Spec
    scope: Scope
    bound: Bound  # for a cascade its first tier, never called under the cascade's name
    tiers: "tuple[PreparedEvaluator[TierSpec], ...]" = ()
    fallback: "PreparedEvaluator[FallbackSpec] | None" = None
    bundled: "tuple[PreparedEvaluator[Spec], ...]" = ()  # all judges of its bundle, as they are without it

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
    def in_bundle(self) -> "tuple[PreparedEvaluator[Spec], ...]":
        """All judges of its bundle, as they are in it; the first that asks pays for a call. None without a bundle."""
        return tuple(replace(one, bundled=self.bundled) for one in self.bundled)

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
        """The metrics that it declares, and unless it is ours the metric of its own name."""
        declared = [metric for metrics in self.declared_metrics for metric in metrics]
        return declared if self.is_ours and declared else [self.name, *declared]


def prepare_evaluator(spec: Kind, scope: Scope = "item") -> PreparedEvaluator[Kind]:
    """Bind an evaluator, its tiers and its fallback. Raise InputError if one cannot be used."""
    if not isinstance(spec, JudgeSpec):
        return PreparedEvaluator(spec=spec, scope=scope, bound=bind_evaluator(spec, scope))
    tiers = tuple(prepare_evaluator(tier, scope) for tier in spec.tiers)
    bound = _cascade(spec, [tier.bound for tier in tiers]) if tiers else bind_evaluator(spec, scope)
    fallback = None if spec.fallback is None else prepare_evaluator(spec.fallback, scope)
    return PreparedEvaluator(spec=spec, scope=scope, bound=bound, tiers=tiers, fallback=fallback)


def in_bundles(evaluators: Sequence[PreparedEvaluator[EvaluatorSpec]]) -> list[PreparedEvaluator[EvaluatorSpec]]:
    """Return evaluators with the judges of their bundles. Raise InputError for one that cannot share a call."""
    of_bundle: dict[str, list[PreparedEvaluator[EvaluatorSpec]]] = {}
    for evaluator in evaluators:
        if (bundle := evaluator.spec.bundle) is None:
            continue
        bound, who = evaluator.bound, f"evaluator {evaluator.name!r}: bundle {bundle!r}"
        if not bound.asks_for("complete") or not bound.is_async:
            raise InputError(
                f"{who}: got {evaluator.spec.use}, wanted a built-in judge, or an async function of yours "
                "that asks for complete"
            )
        if bound.asks_for("evaluations", "scores"):
            raise InputError(f"{who}: got a judge of scores, wanted one that does not ask for scores")
        of_bundle.setdefault(bundle, []).append(evaluator)
    members = {bundle: tuple(found) for bundle, found in of_bundle.items()}
    return [replace(each, bundled=members.get(each.spec.bundle or "", ())) for each in evaluators]


def evaluator_version(evaluator: PreparedEvaluator[FallbackSpec], connections: Mapping[str, ConnectionSpec]) -> str:
    """Return a hash of an evaluator's source, constants, settings, packages, model, endpoint and fallback."""
    spec, function = evaluator.spec, evaluator.bound.function
    if evaluator.tiers:
        decides = [tier.spec.model_dump(include={"decides", "decides_from", "decides_to"}) for tier in evaluator.tiers]
        return version_of(_cascade, decides, [evaluator_version(tier, connections) for tier in evaluator.tiers])
    judge = served(evaluator.connection, connections, spec.model)
    fallback = [evaluator_version(evaluator.fallback, connections)] if evaluator.fallback else []
    files = [located(spec.args[name]).read_bytes() for name in getattr(function, FILES, ()) if name in spec.args]
    repeats = [[bound.repeats, bound.combine]] if (bound := evaluator.bound).repeats > 1 else []
    packages, sees = package_versions(function), [sorted(spec.sees)] if spec.sees else []
    bundle = [version_of(joined, [evaluator_version(one, connections) for one in evaluator.bundled])]
    of_all = ["all"] if isinstance(spec, PairJudgeSpec) and spec.compares == "all" else []
    others = [*files, *of_all, *fallback, *repeats, *packages, *sees, *(bundle if evaluator.bundled else ())]
    return version_of(function, sorted(spec.args.items()), judge, *others)


def _cascade(spec: JudgeSpec, tiers: Sequence[Bound]) -> Bound:
    """Return a stand-in for all tiers: the first one, which is never called under this name."""
    return replace(tiers[0], name=spec.metric)


def connections_of(evaluators: Iterable[PreparedEvaluator[FallbackSpec]]) -> set[str]:
    """Return the connections of evaluators, with those of their tiers and fallbacks."""
    return {judge.connection for evaluator in evaluators for judge in evaluator.all if judge.connection}
