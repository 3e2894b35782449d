"""Prepare specs of experiments, comparisons and trace evaluations: what they name is resolved to code, their evaluators
are bound, and texts of files are written into them, so that versions and resumptions include these: prompts of targets
and judges, and taxonomies of failure modes with the rules on those that are closed."""

# Preparing writes prompts, shared connections and declared metrics into the spec, and makes no model calls. It happens
# once, before a run, and serves checks, plans and the rows of an experiment; `running.py` makes a prepared spec ready
# to run.

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from textwrap import indent
from typing import Any, Generic, Literal, TypeVar, cast

from evalflows.engine.spec_evaluators import (
    PreparedEvaluator,
    composite_version,
    connections_of,
    evaluator_version,
    in_bundles,
    is_ours,
    prepare_evaluator,
)
from evalflows.engine.votes import read_votes
from evalflows.evaluators.binding import Scope
from evalflows.llm.connections import shared
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.connections import ConnectionSpec
from evalflows.specs.dialogue import PromptFile, SimulatedUser
from evalflows.specs.errors import InputError
from evalflows.specs.evaluator import SAMPLE, EvaluatorSpec, FallbackSpec, JudgeSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.failure_modes import CLOSED_MODES, TaxonomySpec, load_taxonomy
from evalflows.specs.files import load_text, located, make_spec
from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import GateSpec
from evalflows.specs.metrics import CompositeSpec, MetricSpec
from evalflows.specs.reference import load, parts_of, version_of
from evalflows.specs.target import ChatTarget, ConversationTarget, TargetSpec
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.specs.watch import WatchSpec
from evalflows.store.described import DescribedEvaluator
from evalflows.store.records import dependent_id

NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)

Of = TypeVar("Of", bound=ExperimentSpec | ComparisonSpec | TraceEvaluationSpec)

Judge = TypeVar("Judge", bound=FallbackSpec)

PROMPT_SUFFIXES = (".md", ".txt")
"""Suffixes by which a prompt is taken as a file name."""


def id_of_run_key(kind: Literal["group", "cmp"], run_key: str) -> str:
    """Return the id of the run group, or of the comparison, of all starts with this run key."""
    return dependent_id(kind, NO_TIME, "run_key", run_key)


def experiment_id(group: str, target: str) -> str:
    """Return the id of the experiment of a target in a run group."""
    return dependent_id("exp", group, group, target)


@dataclass(frozen=True, kw_only=True)
class Prepared(Generic[Of]):
    """A spec with its evaluators bound."""

    spec: Of
    evaluators: Sequence[PreparedEvaluator[Any]]  # of JudgeSpec in a comparison, else of EvaluatorSpec
    summary_evaluators: Sequence[PreparedEvaluator[EvaluatorSpec]] = ()
    pairwise: Sequence[PreparedEvaluator[JudgeSpec]] = ()  # of an experiment that compares; empty if bound from its row

    @property
    def of_runs(self) -> Sequence[PreparedEvaluator[Any]]:
        """All evaluators except the pairwise ones."""
        return (*self.evaluators, *self.summary_evaluators)

    @cached_property
    def given_metrics(self) -> list[str] | None:
        """The metrics that the evaluators give; None if one is not ours, since it may name others."""
        if not all(evaluator.is_ours for evaluator in self.of_runs):
            return None
        return list(dict.fromkeys(metric for evaluator in self.of_runs for metric in evaluator.metrics))

    @property
    def by_name(self) -> dict[str, DescribedEvaluator]:
        """The descriptions by the name of the evaluator or composite."""
        return {evaluator.name: evaluator for evaluator in self.described}

    @cached_property
    def described(self) -> list[DescribedEvaluator]:
        """The evaluators, composites and mapper, or the metrics of the votes, as stored with what they judge."""
        spec = self.spec
        if isinstance(spec, ComparisonSpec) and spec.votes is not None:
            votes = read_votes(spec.votes)
            return [DescribedEvaluator(name=metric, use="votes", version=votes.version) for metric in votes.metrics]
        evaluators = [self._described(evaluator) for evaluator in self.of_runs]
        if isinstance(spec, ComparisonSpec):
            return evaluators
        composites = [
            DescribedEvaluator(name=composite.name, version=composite_version(composite, spec), scope="composite")
            for composite in spec.composites
        ]
        if isinstance(spec, ExperimentSpec):
            return [*evaluators, *composites]
        asking = [
            evaluator.name
            for evaluator in self.evaluators
            for j in evaluator.all
            if j.bound.asks_for("evaluations", "scores")
        ]
        judges = _with_parts(evaluators, composites, asking)
        if (mapper := spec.mapper) is None or (version := mapper_version(mapper)) is None:
            return judges
        code = parts_of(load(mapper)) if isinstance(mapper, str) else mapper
        return [*judges, DescribedEvaluator(name="mapper", version=version, scope="mapper", code=code)]

    def _described(self, evaluator: PreparedEvaluator[Any]) -> DescribedEvaluator:
        spec, is_experiment = evaluator.spec, isinstance(self.spec, ExperimentSpec)
        is_sampled = isinstance(self.spec, TraceEvaluationSpec) or (is_experiment and spec.is_sampled)
        return DescribedEvaluator(
            name=evaluator.name,
            use=spec.use,
            version=evaluator_version(evaluator, self.spec.connections),
            declared_version=spec.version,
            code={name: digest for part in evaluator.all for name, digest in parts_of(part.bound.function).items()},
            scope=evaluator.scope if is_experiment else None,
            sample=spec.model_dump(mode="json", include=SAMPLE) if is_sampled else None,
        )


PreparedExperiment = Prepared[ExperimentSpec]
PreparedComparison = Prepared[ComparisonSpec]
PreparedTraces = Prepared[TraceEvaluationSpec]


def prepare(spec: Of) -> Prepared[Of]:
    """Prepare a spec as a user wrote it, so that a resumption elsewhere uses the same.

    Raise InputError for a prompt file that cannot be read, an evaluator that cannot be used, a broken file of shared
    connections, and an invalid declaration of metrics.
    """
    spec = cast("Of", spec.model_copy(update=fields_with_texts(spec)))
    bound, pairwise, targets = bind(spec), list[PreparedEvaluator[JudgeSpec]](), list[TargetSpec]()
    if isinstance(spec, ExperimentSpec):
        pairwise = [prepare_evaluator(judge, "pair") for judge in (spec.compare.evaluators if spec.compare else ())]
        targets = spec.targets
    named = connections_of((*bound.of_runs, *pairwise))
    named |= {name for target in targets for name, _ in target.connections}
    written: dict[str, Any] = {"connections": with_shared(spec.connections, named)}
    for judge in bound.evaluators:
        connection = written["connections"].get(judge.connection) if judge.bundled else None
        if connection is not None and connection.answer_form == "text":
            got = f"connection {judge.connection!r} with answer_form: text"
            wanted = "json_schema or tool_call, since an answer per judge is an object"
            raise InputError(f"evaluator {judge.name!r}: bundle: got {got}, wanted {wanted}")
    if not isinstance(spec, ComparisonSpec):
        written["metrics"] = _metrics(spec, bound.of_runs)
    return replace(bound, spec=cast("Of", spec.model_copy(update=written)), pairwise=pairwise)


def bind(spec: Of) -> Prepared[Of]:
    """Bind the evaluators of a spec that was prepared before, and stored with an experiment or a comparison."""
    scope: Scope = "pair" if isinstance(spec, ComparisonSpec) else "item"
    summaries = spec.summary_evaluators if isinstance(spec, ExperimentSpec) else ()
    evaluators: list[PreparedEvaluator[Any]] = [prepare_evaluator(evaluator, scope) for evaluator in spec.evaluators]
    return Prepared(
        spec=spec,
        evaluators=in_bundles(evaluators) if isinstance(spec, ExperimentSpec) else evaluators,
        summary_evaluators=[prepare_evaluator(evaluator, "run") for evaluator in summaries],
    )


def with_shared(own: Mapping[str, ConnectionSpec], named: set[str]) -> dict[str, ConnectionSpec]:
    """Return a spec's connections, with those it names from the shared file. Raise InputError for a broken file."""
    from_file = {name: connection for name, connection in shared().items() if name in named and name not in own}
    return {**own, **from_file}


def _metrics(
    spec: ExperimentSpec | TraceEvaluationSpec, evaluators: Iterable[PreparedEvaluator[EvaluatorSpec]]
) -> dict[str, MetricSpec]:
    """Return a spec's metrics with those that its evaluators declare; the spec's own fields take precedence.

    Raise InputError for an invalid declaration.
    """
    declared: dict[str, MetricSpec] = {}
    for evaluator in evaluators:
        for metrics in evaluator.declared_metrics:
            _check_agreed(evaluator, metrics, declared, spec)
            declared = {**metrics, **declared}  # the first declaration of a metric counts
    for composite in spec.composites:
        if (of_panel := _declared_of(composite, declared, spec)) is not None:
            declared[composite.name] = of_panel
    merged = {
        name: spec.metrics[name].or_else(metric) if name in spec.metrics else metric
        for name, metric in declared.items()
    }
    return {**spec.metrics, **merged}


def _declared_of(
    composite: CompositeSpec, declared: Mapping[str, MetricSpec], spec: ExperimentSpec | TraceEvaluationSpec
) -> MetricSpec | None:
    """Return what the judges of a panel declare of their metrics; None if nothing, and if the composite is no panel.

    Raise InputError if they declare different ranges or directions, unless the spec declares the panel's metric.
    """
    found = [declared[metric] for metric in composite.panel if metric in declared]
    units = list(dict.fromkeys(f"{metric.range} {metric.is_higher_better('')}" for metric in found))
    if len(units) > 1 and composite.name not in spec.metrics:
        difference = f"range or higher_is_better: {units[0]} and {units[1]}"
        raise InputError(f"panel {composite.name!r}: its judges differ in {difference}; wanted the same for all")
    return found[0] if found else None


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


def _with_parts(
    evaluators: Sequence[DescribedEvaluator], composites: Sequence[DescribedEvaluator], asking: Collection[str]
) -> list[DescribedEvaluator]:
    """Return what judges items of production: versions of what is made of scores include those of their evaluators.

    Otherwise a changed evaluator would leave a composite of its old scores. `asking` are the evaluators that ask for
    scores; the `definition` of a composite is its version without its evaluators.
    """
    own = {evaluator.name: evaluator.version for evaluator in evaluators}
    judges = []
    for judge in evaluators:
        others = [version for name, version in own.items() if name != judge.name]
        is_asking = judge.name in asking
        judges.append(replace(judge, version=_version_of_all(judge.version, others)) if is_asking else judge)
    versions = [judge.version for judge in judges]
    return judges + [
        replace(composite, version=_version_of_all(composite.version, versions), definition=composite.version)
        for composite in composites
    ]


def _version_of_all(own: str, others: Iterable[str]) -> str:
    return hashlib.sha256(repr([own, sorted(others)]).encode()).hexdigest()[:16]


def mapper_version(given: str | dict[str, str] | None) -> str | None:
    """Return the version of a mapper, which is that of its code or its paths; None for the default.

    The same evaluator judges an item again if it sees it through another mapper.
    """
    from evalflows.telemetry.views import at_path  # late: only trace evaluations have mappers

    if given is None:
        return None
    return version_of(load(given)) if isinstance(given, str) else version_of(at_path, sorted(given.items()))


def fields_with_texts(spec: ExperimentSpec | ComparisonSpec | TraceEvaluationSpec) -> dict[str, Any]:
    """Return the fields of a spec with its prompts and taxonomies as texts, and with a rule for each mode that is now
    closed instead of `closed_modes` in gates and watch rules.

    Raise InputError for a file that cannot be read, and for a gate that has no rule then.
    """
    written: dict[str, Any] = {}
    if isinstance(spec, TraceEvaluationSpec):
        written["watch"] = [*_with_closed_modes_watched(spec.watch, spec.evaluators)]
    if isinstance(spec, ExperimentSpec):
        written["targets"] = [_with_prompts(target) for target in spec.targets]
        written["gates"] = [_with_closed_modes(gate, spec.evaluators) for gate in spec.gates]
        written["summary_evaluators"] = [_judge_with_texts(judge) for judge in spec.summary_evaluators]
        if spec.compare is not None:
            pairwise = [_judge_with_texts(judge) for judge in spec.compare.evaluators]
            written["compare"] = spec.compare.model_copy(update={"evaluators": pairwise})
    return {**written, "evaluators": [_judge_with_texts(judge) for judge in spec.evaluators]}


def _with_prompts(target: TargetSpec) -> TargetSpec:
    """Replace the files of a target's prompts by their texts. Raise InputError for a text that is the path of a file:
    sent as a prompt it would be no mistake that anybody sees."""
    if isinstance(target, ConversationTarget):
        user = target.user
        if isinstance(user, SimulatedUser):
            user = user.model_copy(update=_prompts(user, ("prompt",), f"target {target.name!r}: user"))
        return target.model_copy(update={"target": _with_prompts(target.target), "user": user})
    if not isinstance(target, ChatTarget):
        return target
    written = _prompts(target, ("system", "user", "messages"), f"target {target.name!r}")
    if not written:
        return target
    return make_spec(ChatTarget, target.model_dump() | written, [], f"target {target.name!r}")


def _prompts(holder: ChatTarget | SimulatedUser, names: Sequence[str], who: str) -> dict[str, Any]:
    """Return the texts of the prompts that are files, by the field."""
    written: dict[str, Any] = {}
    for name in names:
        given, where = getattr(holder, name), f"{who}: {name}"
        if isinstance(given, PromptFile):
            text = _text_of(given.file, f"{where}: file {given.file!r}").rstrip("\n")
            written[name] = _conversation(text, f"{where}: {given.file}") if name == "messages" else text
        elif isinstance(given, str) and _is_path(given):
            raise InputError(f"{where}: got the path of a file as the text, wanted {{file: {given}}}")
    return written


def _conversation(text: str, where: str) -> Any:
    """Return the messages of a file, in YAML or JSON. Raise InputError for anything else."""
    return load_text(f"messages:\n{indent(text, '  ')}", where, wanted="a list of {role, content}")["messages"]


def _is_path(text: str) -> bool:
    try:
        return "\n" not in text and Path(text).suffix != "" and located(text).is_file()
    except (InputError, OSError, ValueError):  # not to be named, too long for a path, or with a character that none has
        return False


def _text_of(path: str, where: str) -> str:
    try:
        return located(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{where}: cannot be read: {reason}") from error


def _judge_with_texts(judge: Judge) -> Judge:
    """Replace the file of the prompt of an evaluator, its fallback and its tiers by its text, and that of a taxonomy by
    what decides on its modes."""
    args, prompt, written = dict(judge.args), judge.args.get("prompt"), dict[str, Any]()
    if (taxonomy := _taxonomy(judge)) is not None:
        args["taxonomy"] = taxonomy.settings
    if is_ours(judge) and isinstance(prompt, str) and prompt.endswith(PROMPT_SUFFIXES) and "\n" not in prompt:
        args["prompt"] = _text_of(prompt, f"evaluator {judge.metric!r}: prompt {prompt!r}")
    if isinstance(judge, JudgeSpec):
        written["fallback"] = None if judge.fallback is None else _judge_with_texts(judge.fallback)
        written["tiers"] = [_judge_with_texts(tier) for tier in judge.tiers]
    return judge.model_copy(update={**written, "args": args})


def _taxonomy(judge: FallbackSpec) -> TaxonomySpec | None:
    """Return the taxonomy of an evaluator of failure modes; None of others. Raise InputError if it is invalid."""
    given = judge.args.get("taxonomy") if judge.use == "failure_modes" else None
    if isinstance(given, dict):
        return make_spec(TaxonomySpec, {**given}, [], f"evaluator {judge.metric!r}: taxonomy")
    return load_taxonomy(given) if isinstance(given, str) else None


def _closed_modes(judges: Sequence[FallbackSpec]) -> dict[str, date | None]:
    """Return since when modes are closed, by their metrics. Raise InputError for an invalid taxonomy."""
    return {metric: day for judge in judges if (found := _taxonomy(judge)) for metric, day in found.closed.items()}


def _with_closed_modes(gate: GateSpec, judges: Sequence[FallbackSpec]) -> GateSpec:
    if gate.closed_modes is None:
        return gate
    rules = dict.fromkeys(_closed_modes(judges), gate.closed_modes.at_most) | gate.confident_thresholds
    ruled = gate.model_copy(update={"closed_modes": None, "confident_thresholds": rules})
    if not ruled.metrics:
        raise InputError(f"gate {gate.name!r}: closed_modes: no failure mode is closed, wanted one, or another rule")
    return ruled


def _with_closed_modes_watched(rules: Sequence[WatchSpec], judges: Sequence[FallbackSpec]) -> Iterator[WatchSpec]:
    for rule in rules:
        if rule.metric != CLOSED_MODES:
            yield rule
            continue
        for metric, since in _closed_modes(judges).items():
            name = f"{rule.name} {metric}" if rule.name else ""
            yield rule.model_copy(update={"metric": metric, "name": name, "since": rule.since or since})
