"""What judging again may cost, by what it took before. A plan of experiments knows more of built-in judges."""

from dataclasses import dataclass
from math import ceil

from evalflows.analysis.two_judges import judged_by
from evalflows.engine.prepare import prepare
from evalflows.llm.connections import resolve
from evalflows.llm.local import LOCAL_MODEL
from evalflows.llm.prices import Tokens, price_of
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJudge:
    """A judge that calls a model, and its judgements, as many as before."""

    metric: str
    model: str
    judgements: int
    usd: float | None  # with the tokens of the judge before; None if these or the price are unknown


def planned_again(spec: ExperimentSpec | ComparisonSpec | TraceEvaluationSpec) -> list[PlannedJudge]:
    """Return what each judge that calls a model has to judge, and what that may cost. Nothing is called."""
    store, prepared = Store(), prepare(spec)
    before = {judge.metric: judge for judge in judged_by(store, spec)}
    found = []
    for evaluator in prepared.evaluators:
        if evaluator.connection is None:
            continue
        connection, was = resolve(evaluator.connection, prepared.spec.connections), before.get(evaluator.name)
        model = evaluator.spec.model or connection.model or LOCAL_MODEL
        price, usd = price_of(connection, model), None
        judgements = was.n_judged + was.n_failed if was else 0
        if price and was and was.tokens_in is not None and was.tokens_out is not None:
            each = price.cost(Tokens(ceil(was.tokens_in), None, ceil(was.tokens_out)))
            usd = None if each is None else each * judgements
        found.append(PlannedJudge(metric=evaluator.name, model=model, judgements=judgements, usd=usd))
    return found
