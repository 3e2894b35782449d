"""Experiments with given answers and scores, in the store as runs leave them, for what shows them."""

from collections.abc import Mapping, Sequence
from typing import Any

from matched import experiment

from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.records import JudgementRow, derived_id
from evalflows.store.store import Store

Given = float | str | None
"""A value, a label, or None: the evaluator failed."""


def answered(
    name: str,
    answers: Mapping[str, Any],
    scores: Mapping[str, Mapping[str, Given | Sequence[Given]]],
    *,
    place: int = 0,
    rows: Sequence[Mapping[str, Any]] = (),
    metrics: Mapping[str, Any] | None = None,
    **fields: Any,
) -> str:
    """Keep an experiment with these answers, and scores by metric and example; of repetitions, a list. Returns its id.

    `metrics` is what its spec declares of metrics.
    """
    spec = ExperimentSpec.model_validate(
        {
            "name": name,
            "dataset": {"rows": [{"id": "q", "inputs": "q?"}]},
            "targets": [{"kind": "python", "name": name, "function": "bot:answer"}],
            "metrics": dict(metrics or {}),
        }
    )
    given = {"target": name, "target_version": name, "spec": spec.model_dump_json()}
    identity = experiment(name, answers, place=place, rows=rows, **given | fields)
    made = [
        _score(identity, metric, example, repetition, one)
        for metric, by_example in scores.items()
        for example, some in by_example.items()
        for repetition, one in enumerate(some if isinstance(some, list) else [some])
    ]
    Store().append("judgements", identity, "p", made)
    return identity


def _score(owner: str, metric: str, example: str, repetition: int, given: Any) -> JudgementRow:
    run = derived_id(owner, example, repetition)
    became: dict[str, Any] = {"status": "failed", "error": f"no verdict on {example}"}
    if given is not None:
        became = {"status": "scored", "label" if isinstance(given, str) else "value": given}
        became["comment"] = f"{metric} says {given} of {example}"
    return JudgementRow(
        judgement_id=derived_id(run, None, metric, "v1"),
        subject_kind="run",
        subject_id=run,
        run_id=run,
        experiment_id=owner,
        example_id=example,
        repetition=repetition,
        metric=metric,
        evaluator=metric,
        evaluator_version="v1",
        data_type="CATEGORICAL" if isinstance(given, str) else "NUMERIC",
        judge_model="judge-model",
        **became,
    )
