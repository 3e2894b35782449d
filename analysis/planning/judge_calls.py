"""The planned calls of a spec's judges: on answers, on known-answer controls, on pairs, and at run level."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil

from evalflows.analysis.planning.dry_run import Heard, heard_of_judge, model_of
from evalflows.analysis.planning.target_calls import TRIED, Kind, PlannedCalls, Planning, Size, size_of
from evalflows.execution.evaluator_sample import draw
from evalflows.execution.planted_controls import control_pairs
from evalflows.execution.prepared_evaluator import PreparedEvaluator, evaluator_version
from evalflows.execution.resolve import is_ours
from evalflows.specs.comparison import CompareSpec
from evalflows.specs.connection import LocalConnection
from evalflows.specs.evaluator import EvaluatorSpec, FallbackSpec
from evalflows.store.queries.call_history import Asked, asked_by_judge, asked_by_pairwise, calls_of_judge
from evalflows.store.records import ExampleRow

Evaluator = PreparedEvaluator[FallbackSpec]

CONTROLS_A_PAIR = 3
"""A right answer, a wrong one, and a wrong one that asks to be accepted."""

OPEN = "at most: only what earlier tiers leave open"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judge:
    """A judge that calls a model, and how often it does per judgement."""

    name: str  # of its scores
    connection: str
    model: str
    each: float  # calls a judgement
    size: Size
    note: str | None


def calls_of_judges(planning: Planning) -> Iterator[PlannedCalls]:
    """Yield one line per judge that calls a model, with its controls; then summary evaluators and pairwise judges.

    Fallbacks, which are used only on failure, and evaluators without a model have no line.
    """
    for evaluator in planning.prepared.evaluators:
        yield from _of_evaluator(planning, evaluator)
    for evaluator in planning.prepared.summary_evaluators:
        yield from _of_summary(planning, evaluator)
    if planning.spec.compare is not None:
        for judge in planning.prepared.pairwise:
            yield from _of_pairwise(planning, planning.spec.compare, judge)


def _of_evaluator(planning: Planning, evaluator: PreparedEvaluator[EvaluatorSpec]) -> Iterator[PlannedCalls]:
    sample = draw(evaluator.spec, planning.examples)
    judged = [one for one in planning.examples if sample is None or one.example_id in sample.drawn]
    share, judge = len(judged) / len(planning.examples), None
    for place, tier in enumerate(evaluator.judges):
        judge = _judge(planning, tier, judged, evaluator)
        if judge is not None:
            notes = [judge.note, OPEN if place else None, None if share == 1 else f"a sample of {share:.0%}"]
            who = judge.name if tier is evaluator else f"{judge.name}: {tier.name}"
            per_run = len(planning.spec.targets) * share * judge.each
            yield _line(planning, judge, who, per_run=per_run, note="; ".join(n for n in notes if n) or None)
    if evaluator.spec.controls and judge is not None:  # of a cascade, the last tier is tried
        pairs = len(control_pairs(planning.examples, evaluator.spec.controls))
        fixed = ceil(CONTROLS_A_PAIR * pairs * judge.each)
        yield _line(planning, judge, f"{judge.name}: controls", fixed=fixed, kind="controls")


def _of_summary(planning: Planning, evaluator: PreparedEvaluator[EvaluatorSpec]) -> Iterator[PlannedCalls]:
    if not evaluator.bound.asks_for("complete", "embed"):
        return
    judge = _judge(planning, evaluator, [], evaluator)
    if judge is not None:
        fixed = ceil(len(planning.spec.targets) * judge.each)
        yield _line(planning, judge, judge.name, fixed=fixed, kind="summary", note=judge.note)


def _of_pairwise(planning: Planning, compare: CompareSpec, judge: Evaluator) -> Iterator[PlannedCalls]:
    found = _judge(planning, judge, planning.examples, judge)
    if found is not None:
        targets = planning.spec.targets
        pairs = len(list(combinations(targets, 2))) if compare.pairs == "all" else len(targets) - 1
        per_run = pairs * (2 if compare.both_orders else 1) * found.each
        yield _line(planning, found, found.name, per_run=per_run, kind="pairwise", note=found.note)


def _judge(planning: Planning, evaluator: Evaluator, judged: Sequence[ExampleRow], whole: Evaluator) -> _Judge | None:
    """The judge, or None if it calls no model. `whole` is the cascade that contains it as a tier, or itself."""
    spec, name, is_whole = evaluator.spec, evaluator.connection, whole is evaluator
    version = evaluator_version(whole, planning.spec.connections)
    asked = (asked_by_pairwise if whole.scope == "pair" else asked_by_judge)(planning.store, whole.name, version)
    if name is None:
        return _by_itself(planning, whole.name, version, asked) if is_whole else None
    connection, embeds = planning.connection(name), not evaluator.bound.asks_for("complete")
    if embeds and isinstance(connection, LocalConnection):
        return None  # vectors are made in this process
    model = model_of(connection, spec.model or (spec.args.get("model") if embeds else None), embeds=embeds)
    each, heard = _heard(planning, evaluator, name, judged)
    past = calls_of_judge(planning.store, whole.name, version) if is_whole else None
    before = asked if is_whole else None
    return _Judge(
        name=whole.name,
        connection=name,
        model=model,
        each=each if each is not None else before.calls_each if before else float(_repeats(spec)),
        size=size_of(planning, connection, model, past, heard, by="judge"),
        note=_note(each, before),
    )


def _by_itself(planning: Planning, name: str, version: str, asked: Asked | None) -> _Judge | None:
    """A judge that calls a model with its own client, from the store's history; None without history."""
    past = calls_of_judge(planning.store, name, version)
    if asked is None or not asked.calls_each or past is None:
        return None
    basis = f"{past.calls} earlier calls of this judge"
    size = Size(tokens_in=past.tokens_in, tokens_out=past.tokens_out, usd=past.usd, basis=basis)
    return _Judge(name=name, connection="", model="", each=asked.calls_each, size=size, note=_note(None, asked))


def _heard(
    planning: Planning, evaluator: Evaluator, name: str, judged: Sequence[ExampleRow]
) -> tuple[float | None, list[Heard]]:
    """The calls per judgement of a built-in judge, and its requests; None if they cannot be known before the run."""
    spec, bound = evaluator.spec, evaluator.bound
    if not is_ours(spec) or not bound.is_async or not judged:
        return None, []
    step = -(-len(judged) // TRIED)
    found = heard_of_judge(bound, name, planning.connection(name), spec.model, judged[::step])
    known = [one for one in found if one is not None]
    heard = [call for one in known for call in one]
    return (len(heard) / len(known) if heard else None), heard


def _repeats(spec: FallbackSpec) -> int:
    repeats = spec.args.get("repeats", 1)
    return repeats if isinstance(repeats, int) else 1


def _note(each: float | None, asked: Asked | None) -> str | None:
    if each is not None:
        return None
    if asked is not None:
        return f"{asked.calls_each:g} calls per judgement, as in {asked.times} before"
    return "assumed: one call per judgement"


def _line(
    planning: Planning,
    judge: _Judge,
    who: str,
    *,
    per_run: float = 0.0,
    fixed: int = 0,
    kind: Kind = "judge",
    note: str | None = None,
) -> PlannedCalls:
    return PlannedCalls(
        who=who,
        kind=kind,
        connection=judge.connection or None,
        model=judge.model or None,
        per_run=per_run,
        fixed=fixed,
        calls=fixed + ceil(round(per_run * planning.runs, 6)),
        at_most=True,
        in_ledger=None,
        size=judge.size,
        note=note,
    )
