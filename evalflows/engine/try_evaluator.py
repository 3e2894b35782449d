"""Try an evaluator on one row: check, bind and call it as an experiment does, and store only its model calls."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalflows.engine.judgement import judge_with
from evalflows.engine.preflight import check_spec
from evalflows.engine.prepare import prepare
from evalflows.engine.results import EvaluationResult
from evalflows.engine.running import EvaluatorFactory, RunnableEvaluator
from evalflows.engine.views import example_view
from evalflows.engine.workers import Workers
from evalflows.evaluators.binding import Scope
from evalflows.evaluators.views import Evaluations, ExampleView, ItemResult, RunView, offer_experiment, offer_run
from evalflows.llm import loop
from evalflows.llm.budget import Budget
from evalflows.llm.ledger import Ledger
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.attachments import FilesBeside
from evalflows.store.records import ExampleRow, new_id
from evalflows.store.snapshots import to_examples
from evalflows.store.spool import Spool
from evalflows.store.store import Store
from evalflows.targets import as_outputs

__all__ = ["try_evaluator"]


def try_evaluator(spec: ExperimentSpec, row: Mapping[str, Any], where: str, number: int = 1) -> list[EvaluationResult]:
    """Call a spec's one evaluator on a row, and return one result per metric; the first has the cost of all.

    The row's `outputs` are the answer; its other fields are those of a dataset row: `inputs`, `reference_outputs`,
    `metadata`. Paid model calls are stored in the ledger under an id of this trial, and cached ones are reused; nothing
    else is stored. The spec's targets are ignored.

    Raise InputError, before anything is called, for a row of another shape and for a spec that cannot be run.
    """
    example, outputs = _example(row, where, number)
    prepared = prepare(spec.model_copy(update={"targets": []}))
    store, trial = Store(), new_id("trial")
    check_spec(prepared, [example], store)
    (evaluator,) = prepared.of_runs
    runnable = EvaluatorFactory(prepared.spec, Ledger(store, trial), Budget()).judge(evaluator)
    arguments = _arguments(example_view(example), outputs, evaluator.scope)
    with Spool(store, trial, "trial") as spool:
        results = _judge(runnable, arguments, spool, trial)
    store.seal(trial, ["calls"])
    return results


def _example(row: Mapping[str, Any], where: str, number: int) -> tuple[ExampleRow, dict[str, Any]]:
    """Return the example of a row, and the answer to it."""
    if row.get("outputs") is None:
        got = ", ".join(map(str, row)) or "nothing"
        raise InputError(f"{where}:{number}: no outputs: got {got}, wanted 'outputs', the answer to judge")
    (example,) = to_examples(
        [(number, {name: row[name] for name in row if name != "outputs"})], where, FilesBeside(Path())
    )
    return example, as_outputs(row["outputs"])


def _arguments(example: ExampleView, outputs: dict[str, Any], scope: Scope) -> dict[str, Any]:
    """Return the arguments available for one run; for a run-level evaluator, an experiment of this run alone."""
    run = RunView(id="trial", inputs=example.inputs, outputs=outputs)
    if scope == "item":
        return offer_run(example, run)
    return offer_experiment([ItemResult(item=example, output=outputs, evaluations=Evaluations(), run=run)])


def _judge(
    evaluator: RunnableEvaluator, arguments: Mapping[str, Any], spool: Spool, trial: str
) -> list[EvaluationResult]:
    results: list[EvaluationResult] = []

    async def work(available: Mapping[str, Any]) -> None:
        results.extend(await judge_with(evaluator, available, spool=spool, experiment_id=trial, subject_id=trial))

    loop.run(Workers(1).run(work, [arguments], is_async=evaluator.bound.is_async))
    return results
