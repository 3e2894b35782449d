"""An evaluator, tried on one row: checked, bound and called as in a run, with nothing kept but the calls it makes."""

from collections.abc import Mapping
from typing import Any

from evaluators.call import Level, offer_experiment, offer_run
from evaluators.subject import Evaluations, ExampleView, ItemResult, RunView
from llm import loop
from llm.budget import Budget
from llm.ledger import Ledger
from specs.errors import InputError
from specs.experiment import ExperimentSpec
from store.parquet import Store
from store.records import ExampleRow, new_id
from store.snapshots import to_examples
from store.spool import Spool
from targets import as_outputs
from tasks.check import check_spec
from tasks.connections import settled_connections
from tasks.declared import with_metrics
from tasks.experiment import Making, ReadyEvaluator
from tasks.judge import Fields, judged
from tasks.prompts import with_prompts
from tasks.subject import example_view
from tasks.workers import Workers


def try_evaluator(spec: ExperimentSpec, row: Mapping[str, Any], where: str, number: int = 1) -> list[Fields]:
    """What a spec's one evaluator makes of a row: fields of a score, one element a metric, what it cost at the first.

    The row's `outputs` are the answer; all else is as in the rows of a dataset: `inputs`, `reference_outputs`,
    `metadata`. A call that is paid goes into the ledger, under an id of this trial, and one that is there is not paid
    again; nothing else is kept. The spec's targets do not matter.

    Raises InputError, before anything is called, for a row of another shape and for whatever a run would refuse.
    """
    example, outputs = _example(row, where, number)
    spec = with_metrics(settled_connections(with_prompts(spec)))
    store = Store()
    check_spec(spec.model_copy(update={"targets": []}), [example], store)
    trial, level = new_id("trial"), _level(spec)
    (evaluator,) = spec.summary_evaluators or spec.evaluators
    ready = Making(spec, Ledger(store, trial), Budget()).judge(evaluator, level)
    offered = _offered(example_view(example), outputs, level)
    with Spool(store, trial, "trial") as spool:
        found = _judged(ready, offered, spool, trial)
    store.seal(trial, ["calls"])
    return found


def _example(row: Mapping[str, Any], where: str, number: int) -> tuple[ExampleRow, dict[str, Any]]:
    """The example of a row, and the answer to it."""
    if row.get("outputs") is None:
        got = ", ".join(map(str, row)) or "nothing"
        raise InputError(f"{where}:{number}: no outputs: got {got}, wanted 'outputs', the answer to judge")
    (example,) = to_examples([(number, {name: row[name] for name in row if name != "outputs"})], where)
    return example, as_outputs(row["outputs"])


def _level(spec: ExperimentSpec) -> Level:
    return "run" if spec.summary_evaluators else "item"


def _offered(example: ExampleView, outputs: dict[str, Any], level: Level) -> dict[str, Any]:
    """What is offered of one run: to whoever judges all runs at once, an experiment of it alone."""
    run = RunView(id="trial", inputs=example.inputs, outputs=outputs)
    if level == "item":
        return offer_run(example, run)
    return offer_experiment([ItemResult(item=example, output=outputs, evaluations=Evaluations(), run=run)])


def _judged(ready: ReadyEvaluator, offered: Mapping[str, Any], spool: Spool, trial: str) -> list[Fields]:
    found: list[Fields] = []

    async def work(what: Mapping[str, Any]) -> None:
        found.extend(await judged(ready, what, spool=spool, experiment_id=trial, subject_id=trial))

    loop.run(Workers(1).run(work, [offered], is_async=ready.bound.is_async))
    return found
