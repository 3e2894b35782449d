"""Judge stored answers again: for gates and other flows, and for tasks."""

from collections.abc import Sequence
from typing import Any

from evalflows.engine.judging_again import GivenJudges, experiments_again
from evalflows.flows.run_experiment import run_experiment


def judge_again(
    experiments: Sequence[str],
    evaluators: Sequence[Any] | None = None,
    *,
    budget_usd: float | None = None,
    max_calls: int | None = None,
) -> list[str]:
    """Judge the answers of experiments again, without asking their targets, and return the ids of the new experiments.

    It runs `run_experiment` within the flow or the task that calls it. The new experiments are in the order of the old
    ones, with their snapshot and repetitions; they are one run group, decide no gate, and are no look at final
    examples.

    Args:
        experiments: Ids, names or run groups.
        evaluators: Specs of evaluators that stand in for those of the same metric. Default: the experiments' own, whose
            model calls are then made and paid again: nothing is taken from the ledger.
        budget_usd: What it may cost. Default: the budget of the experiments.
        max_calls: How many model calls it may make.

    Raise InputError, before anything is paid, if the experiments have not the same examples or a judge stands in for
    none, and IncompleteError if judgements could not be made.
    """
    judges = None if evaluators is None else GivenJudges(evaluators=evaluators, connections={})
    spec = experiments_again(experiments, judges)
    limits = {"budget_usd": budget_usd, "max_calls": max_calls}
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return run_experiment(spec.model_copy(update=given), final=True)
