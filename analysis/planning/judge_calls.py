"""The planned calls of a spec's judges: on answers, on known-answer controls, on pairs, and at run level."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil

from evalflows.analysis.planning.dry_run import RecordedRequest, judge_requests, model_of
from evalflows.analysis.planning.target_calls import MAX_DRY_RUNS, CallKind, CallSize, PlanInputs, PlannedCalls, size_of
from evalflows.execution.evaluator_sample import draw
from evalflows.execution.planted_controls import control_pairs
from evalflows.execution.prepared_evaluator import PreparedEvaluator, evaluator_version
from evalflows.execution.resolve import is_ours
from evalflows.specs.comparison import CompareSpec
from evalflows.specs.connection import LocalConnection
from evalflows.specs.evaluator import EvaluatorSpec, FallbackSpec
from evalflows.store.queries.call_history import Asked, PastCalls, asked_by_judge, asked_by_pairwise, calls_of_judge
from evalflows.store.records import ExampleRow

Evaluator = PreparedEvaluator[FallbackSpec]

ANSWERS_PER_CONTROL = 3
"""Each control has a right answer, a wrong one, and a wrong one that asks to be accepted."""

OPEN = "at most: only what earlier tiers leave open"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judge:
    """A judge that calls a model, and the number and size of its calls."""

    name: str  # as in its scores
    connection: str
    model: str
    calls_per_judgement: float
    size: CallSize
    note: str | None


def calls_of_judges(inputs: PlanInputs) -> Iterator[PlannedCalls]:
    """Yield one line per judge that calls a model, with its controls; then summary evaluators and pairwise judges.

    Evaluators without a model have no line, nor do fallbacks, which are used only on failure.
    """
    for evaluator in inputs.prepared.evaluators:
        yield from _of_evaluator(inputs, evaluator)
    for evaluator in inputs.prepared.summary_evaluators:
        yield from _of_summary(inputs, evaluator)
    if inputs.spec.compare is not None:
        for judge in inputs.prepared.pairwise:
            yield from _of_pairwise(inputs, inputs.spec.compare, judge)


def _of_evaluator(inputs: PlanInputs, evaluator: PreparedEvaluator[EvaluatorSpec]) -> Iterator[PlannedCalls]:
    sample = draw(evaluator.spec, inputs.examples)
    judged = [example for example in inputs.examples if sample is None or example.example_id in sample.drawn]
    share, judge = len(judged) / len(inputs.examples), None
    for number, tier in enumerate(evaluator.judges):
        judge = _judge(inputs, tier, judged, evaluator)
        if judge is not None:
            notes = [judge.note, OPEN if number else None, None if share == 1 else f"a sample of {share:.0%}"]
            caller = judge.name if tier is evaluator else f"{judge.name}: {tier.name}"
            per_run = len(inputs.spec.targets) * share * judge.calls_per_judgement
            yield _line(inputs, judge, caller, per_run=per_run, note="; ".join(note for note in notes if note) or None)
    if evaluator.spec.controls and judge is not None:  # the controls of a cascade go to its last tier
        pairs = len(control_pairs(inputs.examples, evaluator.spec.controls))
        fixed = ceil(ANSWERS_PER_CONTROL * pairs * judge.calls_per_judgement)
        yield _line(inputs, judge, f"{judge.name}: controls", fixed=fixed, kind="controls")


def _of_summary(inputs: PlanInputs, evaluator: PreparedEvaluator[EvaluatorSpec]) -> Iterator[PlannedCalls]:
    if not evaluator.bound.asks_for("complete", "embed"):
        return
    judge = _judge(inputs, evaluator, [], evaluator)
    if judge is not None:
        fixed = ceil(len(inputs.spec.targets) * judge.calls_per_judgement)
        yield _line(inputs, judge, judge.name, fixed=fixed, kind="summary", note=judge.note)


def _of_pairwise(inputs: PlanInputs, compare: CompareSpec, judge: Evaluator) -> Iterator[PlannedCalls]:
    planned = _judge(inputs, judge, inputs.examples, judge)
    if planned is not None:
        targets = inputs.spec.targets
        pairs = len(list(combinations(targets, 2))) if compare.pairs == "all" else len(targets) - 1
        per_run = pairs * (2 if compare.both_orders else 1) * planned.calls_per_judgement
        yield _line(inputs, planned, planned.name, per_run=per_run, kind="pairwise", note=planned.note)


def _judge(inputs: PlanInputs, evaluator: Evaluator, judged: Sequence[ExampleRow], cascade: Evaluator) -> _Judge | None:
    """The judge, or None if it calls no model. `cascade` contains it as a tier; for other judges, it is the judge."""
    spec, name, is_tier = evaluator.spec, evaluator.connection, cascade is not evaluator
    version = evaluator_version(cascade, inputs.spec.connections)
    history, past = None, None  # those of a cascade say nothing about one tier
    if not is_tier:
        calls_per_judgement_of = asked_by_pairwise if cascade.scope == "pair" else asked_by_judge
        history = calls_per_judgement_of(inputs.store, cascade.name, version)
        past = calls_of_judge(inputs.store, cascade.name, version)
    if name is None:
        return None if is_tier else _with_own_client(cascade.name, history, past)
    connection, embeds = inputs.connection(name), not evaluator.bound.asks_for("complete")
    if embeds and isinstance(connection, LocalConnection):
        return None  # vectors are made in this process
    model = model_of(connection, spec.model or (spec.args.get("model") if embeds else None), embeds=embeds)
    measured, requests = _dry_run(inputs, evaluator, name, judged)
    assumed = history.calls_each if history else float(_repeats(spec))
    return _Judge(
        name=cascade.name,
        connection=name,
        model=model,
        calls_per_judgement=assumed if measured is None else measured,
        size=size_of(inputs, connection, model, past, requests, by="judge"),
        note=None if measured is not None else _note(history),
    )


def _with_own_client(name: str, history: Asked | None, past: PastCalls | None) -> _Judge | None:
    """A judge that calls a model with its own client; None if the store has no calls of it."""
    if history is None or not history.calls_each or past is None:
        return None
    basis = f"{past.calls} earlier calls of this judge"
    size = CallSize(tokens_in=past.tokens_in, tokens_out=past.tokens_out, usd=past.usd, basis=basis)
    return _Judge(
        name=name,
        connection="",
        model="",
        calls_per_judgement=history.calls_each,
        size=size,
        note=_note(history),
    )


def _dry_run(
    inputs: PlanInputs, evaluator: Evaluator, name: str, judged: Sequence[ExampleRow]
) -> tuple[float | None, list[RecordedRequest]]:
    """The calls per judgement of a built-in judge, and its requests; None if they cannot be known before the run."""
    spec, bound = evaluator.spec, evaluator.bound
    if not is_ours(spec) or not bound.is_async or not judged:
        return None, []
    step = -(-len(judged) // MAX_DRY_RUNS)
    by_example = judge_requests(bound, name, inputs.connection(name), spec.model, judged[::step])
    known = [requests for requests in by_example if requests is not None]
    requests = [request for requests in known for request in requests]
    return (len(requests) / len(known) if requests else None), requests


def _repeats(spec: FallbackSpec) -> int:
    repeats = spec.args.get("repeats", 1)
    return repeats if isinstance(repeats, int) else 1


def _note(history: Asked | None) -> str:
    if history is not None:
        return f"{history.calls_each:g} calls per judgement, as in {history.times} earlier judgements"
    return "assumed: one call per judgement"


def _line(
    inputs: PlanInputs,
    judge: _Judge,
    caller: str,
    *,
    per_run: float = 0.0,
    fixed: int = 0,
    kind: CallKind = "judge",
    note: str | None = None,
) -> PlannedCalls:
    return PlannedCalls(
        caller=caller,
        kind=kind,
        connection=judge.connection or None,
        model=judge.model or None,
        per_run=per_run,
        fixed=fixed,
        calls=fixed + ceil(round(per_run * inputs.runs, 6)),
        at_most=True,
        in_ledger=None,
        size=judge.size,
        note=note,
    )
