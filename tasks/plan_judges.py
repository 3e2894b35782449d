"""The calls that the judges of a spec would make: on every answer, on planted ones, on pairs, on all at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil

from evaluators.call import Bound, Level
from specs.comparison import CompareSpec
from specs.connection import LocalConnection
from specs.evaluator import EvaluatorSpec, FallbackSpec
from store.call_history import Asked, asked_by_judge, asked_by_pairwise, calls_of_judge
from store.records import ExampleRow
from tasks.controls import control_pairs
from tasks.declared import judges_of
from tasks.plan_calls import TRIED, Kind, PlannedCalls, Planning, Size, size_of
from tasks.plan_requests import Heard, heard_of_judge, model_of
from tasks.resolve import bind_evaluator, connection_name, evaluator_version, is_ours
from tasks.sample import draw

CONTROLS_A_PAIR = 3
"""A right answer, a wrong one, and a wrong one that asks for another verdict."""

OPEN = "at most: what earlier tiers decide is not asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judge:
    """One that asks a model, and how often it would for one judgement."""

    name: str  # of its scores
    connection: str
    model: str
    each: float  # calls a judgement
    size: Size
    note: str | None


def calls_of_judges(planning: Planning) -> Iterator[PlannedCalls]:
    """A line each judge that asks a model, its controls beside it; then the summary evaluators and the pairwise ones.

    None for fallbacks, which are asked where another is down, and none for rules.
    """
    for evaluator in planning.spec.evaluators:
        yield from _of_evaluator(planning, evaluator)
    for evaluator in planning.spec.summary_evaluators:
        yield from _of_summary(planning, evaluator)
    if planning.spec.compare is not None:
        for judge in planning.spec.compare.evaluators:
            yield from _of_pairwise(planning, planning.spec.compare, judge)


def _of_evaluator(planning: Planning, evaluator: EvaluatorSpec) -> Iterator[PlannedCalls]:
    sample = draw(evaluator, planning.examples)
    judged = [one for one in planning.examples if sample is None or one.example_id in sample.drawn]
    share, judge = len(judged) / len(planning.examples), None
    for place, tier in enumerate(judges_of(evaluator)):
        judge = _judge(planning, tier, "item", judged, evaluator)
        if judge is not None:
            notes = [judge.note, OPEN if place else None, None if share == 1 else f"a sample of {share:.0%}"]
            who = judge.name if tier is evaluator else f"{judge.name}: {tier.metric}"
            per_run = len(planning.spec.targets) * share * judge.each
            yield _line(planning, judge, who, per_run=per_run, note="; ".join(n for n in notes if n) or None)
    if evaluator.controls and judge is not None:  # of a cascade, the last tier is tried
        pairs = len(control_pairs(planning.examples, evaluator.controls))
        fixed = ceil(CONTROLS_A_PAIR * pairs * judge.each)
        yield _line(planning, judge, f"{judge.name}: controls", fixed=fixed, kind="controls")


def _of_summary(planning: Planning, evaluator: EvaluatorSpec) -> Iterator[PlannedCalls]:
    bound = bind_evaluator(evaluator, "run")
    if not bound.asks_for("complete", "embed"):
        return
    judge = _judge(planning, evaluator, "run", [], evaluator)
    if judge is not None:
        fixed = ceil(len(planning.spec.targets) * judge.each)
        yield _line(planning, judge, judge.name, fixed=fixed, kind="summary", note=judge.note)


def _of_pairwise(planning: Planning, compare: CompareSpec, judge: FallbackSpec) -> Iterator[PlannedCalls]:
    found = _judge(planning, judge, "pair", planning.examples, judge)
    if found is not None:
        targets = planning.spec.targets
        pairs = len(list(combinations(targets, 2))) if compare.pairs == "all" else len(targets) - 1
        per_run = pairs * (2 if compare.both_orders else 1) * found.each
        yield _line(planning, found, found.name, per_run=per_run, kind="pairwise", note=found.note)


def _judge(
    planning: Planning, spec: FallbackSpec, level: Level, judged: Sequence[ExampleRow], whole: FallbackSpec
) -> _Judge | None:
    """None for one that asks no model. `whole` is the cascade that it is a tier of, or itself."""
    bound = bind_evaluator(spec, level)
    name, version = connection_name(spec, bound), evaluator_version(whole, bound, planning.spec.connections, level)
    asked = (asked_by_pairwise if level == "pair" else asked_by_judge)(planning.store, whole.metric, version)
    if name is None:
        return _by_itself(planning, whole.metric, version, asked) if whole is spec else None
    connection, embeds = planning.connection(name), not bound.asks_for("complete")
    if embeds and isinstance(connection, LocalConnection):
        return None  # vectors are made in this process
    model = model_of(connection, spec.model or (spec.args.get("model") if embeds else None), embeds=embeds)
    each, heard = _heard(planning, bound, name, spec, judged)
    past = calls_of_judge(planning.store, whole.metric, version) if whole is spec else None
    before = asked if whole is spec else None
    return _Judge(
        name=whole.metric,
        connection=name,
        model=model,
        each=each if each is not None else before.calls_each if before else float(_repeats(spec)),
        size=size_of(planning, connection, model, past, heard, by="judge"),
        note=_note(each, before),
    )


def _by_itself(planning: Planning, name: str, version: str, asked: Asked | None) -> _Judge | None:
    """One that asks a model by a client of its own, as far as the store knows of it."""
    past = calls_of_judge(planning.store, name, version)
    if asked is None or not asked.calls_each or past is None:
        return None
    basis = f"{past.calls} calls of this judge before"
    size = Size(tokens_in=past.tokens_in, tokens_out=past.tokens_out, usd=past.usd, basis=basis)
    return _Judge(name=name, connection="", model="", each=asked.calls_each, size=size, note=_note(None, asked))


def _heard(
    planning: Planning, bound: Bound, name: str, spec: FallbackSpec, judged: Sequence[ExampleRow]
) -> tuple[float | None, list[Heard]]:
    """How often one of ours asks for a judgement, and what; None where that is not seen before there are answers."""
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
        return f"{asked.calls_each:g} calls a judgement, as in {asked.times} before"
    return "taken to ask once a judgement"


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
