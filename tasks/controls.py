"""Is a judge fit for use? It is tried on answers that are known to be right, and on some that are known to be wrong."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from evaluators.call import offer_run
from evaluators.subject import RunView
from llm import loop
from stats import Discrimination, discrimination
from store.parquet import Store
from store.records import CheckRow, ExampleRow, ExperimentRow, derived_id, to_json
from store.spool import Spool
from tasks.experiment import Experiment, ReadyEvaluator, experiment
from tasks.judge import Fields, judged
from tasks.subject import example_view

LEAST_DIFFERENCE = 0.5
"""A fit judge says right of right answers at least this much more often than of wrong ones; halfway from chance."""


@task(cache_policy=NO_CACHE, persist_result=False)
def try_judges(rows: list[ExperimentRow]) -> str | None:
    """Try every judge that has `controls`, and keep what was found in `checks`. Returns the batch, if there is one.

    The calls are paid by the first of the experiments that is to run; if none is, the judges were tried before.
    """
    row = next((row for row in rows if row.state == "running"), None)
    if row is None:
        return None
    ready = experiment(row.experiment_id)
    judges = [evaluator for evaluator in ready.evaluators if evaluator.spec.controls]
    if not judges:
        return None
    batch = controls_batch(row.run_group)
    ready.store.publish("checks", batch, [_tried(ready, judge, batch) for judge in judges])
    return batch


def controls_batch(run_group: str) -> str:
    return derived_id("controls", run_group)


def unfit_judges(store: Store, run_group: str) -> dict[str, str]:
    """The evaluators of a run group on which nothing may rest, and why."""
    rows: list[CheckRow] = store.read("checks", controls_batch(run_group))
    return {row.subject_id: row.message or "not checked" for row in rows if not row.passed}


def control_pairs(examples: Sequence[ExampleRow], count: int) -> list[tuple[ExampleRow, str]]:
    """Examples, drawn by their ids, each with another one's reference that differs from its own: a wrong answer."""
    drawn = [example for example in examples if example.reference_outputs is not None]
    drawn.sort(key=lambda example: hashlib.sha256(example.example_id.encode()).digest())
    pairs = []
    for place, example in enumerate(drawn):
        others = (drawn[(place + step) % len(drawn)].reference_outputs for step in range(1, len(drawn)))
        wrong = next((other for other in others if other != example.reference_outputs), None)
        if wrong is not None and example.reference_outputs is not None:
            pairs.append((example, wrong))
        if len(pairs) == count:
            break
    return pairs


def _tried(ready: Experiment, judge: ReadyEvaluator, batch: str) -> CheckRow:
    pairs = control_pairs(ready.examples, judge.spec.controls or 0)
    with Spool(ready.store, ready.row.experiment_id, f"controls-{judge.bound.name}") as spool:
        (right, wrong), errors = loop.run(_judge_all(ready, judge, pairs, spool))
    found = discrimination(right, wrong, level=ready.spec.level)
    fit = found.low is not None and found.low > 0 and (found.difference or 0.0) >= LEAST_DIFFERENCE
    return CheckRow(
        check_id=derived_id(batch, judge.bound.name),
        batch_id=batch,
        subject_kind="judge",
        subject_id=judge.bound.name,
        name="controls",
        passed=fit if found.low is not None else None,
        n_checked=len(right) + len(wrong),
        observed=to_json(asdict(found)),
        expected=to_json({"least_difference": LEAST_DIFFERENCE, "controls": judge.spec.controls}),
        message=_in_words(found) + (f" ({len(errors)} trials failed: {errors[0]})" if errors else ""),
    )


async def _judge_all(
    ready: Experiment, judge: ReadyEvaluator, pairs: Sequence[tuple[ExampleRow, str]], spool: Spool
) -> tuple[tuple[list[float], list[float]], list[str]]:
    """The scores that the judge gave to right and to wrong answers, and the errors of the trials that failed."""
    scores: tuple[list[float], list[float]] = ([], [])
    errors: list[str] = []

    async def judge_one(control: tuple[ExampleRow, str, int]) -> None:
        example, answer, side = control
        judgement = await _score(ready, judge, example, answer, spool)
        if judgement.get("value") is not None:
            scores[side].append(judgement["value"])
        elif judgement["status"] == "failed":
            errors.append(judgement["error"])

    controls = [
        (example, answer, side)
        for example, wrong in pairs
        for side, answer in enumerate((example.reference_outputs or "", wrong))
    ]
    await ready.judging.run(judge_one, controls, is_async=judge.bound.is_async)
    return scores, errors


async def _score(ready: Experiment, judge: ReadyEvaluator, example: ExampleRow, answer: str, spool: Spool) -> Fields:
    seen, fields = example_view(example), json.loads(answer)
    outputs: dict[str, Any] = {"output": next(iter(fields.values()))} if len(fields) == 1 else fields
    identity = derived_id("control", ready.row.experiment_id, example.example_id, answer)
    run = RunView(id=identity, inputs=seen.inputs, outputs=outputs)
    of = {"experiment_id": ready.row.experiment_id, "subject_id": identity}
    return (await judged(judge, offer_run(seen, run), spool=spool, **of))[0]


def _in_words(found: Discrimination) -> str:
    if found.difference is None or found.rate_right is None or found.rate_wrong is None:
        return f"this judge could not be tried: {found.reason}"
    said = (
        f"tried on planted answers, this judge said yes to {found.rate_right:.0%} of {found.n_right} right ones and to "
        f"{found.rate_wrong:.0%} of {found.n_wrong} wrong ones"
    )
    return said if found.low is not None else f"{said}; {found.reason}"
