"""A finished experiment in a store, whole or with rows that are wrong."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from full_store import Filler, freeze_questions
from store_rows import make_row

from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.records import derived_id
from evalflows.store.schemas import EXPERIMENT_TABLES
from evalflows.store.store import Store

Rows = list[Any]
Change = Callable[[Rows, Rows], None]
"""Changes the outputs and the scores in place."""

QUESTIONS, REPETITIONS = 3, 2
START = datetime(2026, 1, 1, tzinfo=UTC)


def finished_experiment(store: Store, change: Change | None = None, identity: str = "exp-1", **fields: Any) -> None:
    """Write an experiment of three examples, two repetitions, and the evaluators exact, of every run, and tone, of a
    sample, and the summary evaluator total; then seal it."""
    filler = Filler(store, make_row)
    snapshot, examples = freeze_questions(store, "questions", QUESTIONS)
    spec = ExperimentSpec.model_validate(
        {
            "name": "support",
            "dataset": {"snapshot": snapshot},
            "targets": [{"kind": "recorded", "column": "answer"}],
            "evaluators": [{"use": "exact_match", "name": "exact"}, {"use": "contains", "name": "tone"}],
            "summary_evaluators": [{"use": "label_f1", "name": "total"}],
            "metrics": {"exact": {"range": [0, 1]}, "tone": {"range": [1, 5]}},
            "repetitions": REPETITIONS,
        }
    )
    row = {"state": "completed", "started_at": START, "ended_at": START, "spec": spec.model_dump_json()}
    filler.experiment(identity, snapshot, QUESTIONS, REPETITIONS, **{"name": "support", **row, **fields})
    outputs, scores = _rows(filler, identity, examples)
    if change is not None:
        change(outputs, scores)
    store.append("outputs", identity, "p", outputs)
    store.append("judgements", identity, "p", scores)
    store.seal(identity, EXPERIMENT_TABLES)


def _rows(filler: Filler, identity: str, examples: Sequence[str]) -> tuple[Rows, Rows]:
    """The rows as a run leaves them: the last output failed, and is missing to its evaluators."""
    runs = [(example, repetition) for example in examples for repetition in range(REPETITIONS)]
    failed = {"status": "failed", "error": "boom", "value": None}
    outputs, scores = [], []
    for example, repetition in runs:
        lost = (example, repetition) == runs[-1]
        answer = {"status": "failed", "error": "boom", "outputs": None, "latency_s": None} if lost else {}
        outputs.append(filler.output(identity, example, repetition, **answer))
        exact = failed if lost else {"status": "scored", "value": 1.0}
        scores.append(filler.score(identity, example, repetition, "exact", **exact))
        drawn = example == examples[0]
        tone = {"status": "scored", "value": 5.0} if drawn else {"status": "sampled_out"}
        scores.append(filler.score(identity, example, repetition, "tone", sampling_rate=1 / 3, **tone))
    return outputs, [*scores, _of_all_runs(identity)]


def _of_all_runs(identity: str) -> Any:
    subject = {"subject_kind": "experiment", "subject_id": identity, "experiment_id": identity}
    fields = {"judgement_id": derived_id(identity, "total"), "metric": "total", "evaluator": "total", "value": 3.0}
    return make_row("judgements", status="scored", evaluator_version="v1", **subject, **fields)
