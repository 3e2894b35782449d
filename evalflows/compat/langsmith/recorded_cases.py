"""Experiments of what tests logged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evalflows.compat.langsmith import datasets
from evalflows.compat.langsmith.cases import PASS, Case
from evalflows.compat.langsmith.schemas import Fields
from evalflows.evaluators.declarations import declares
from evalflows.evaluators.views import ExampleView
from evalflows.llm.ledger import AnsweredCall, Recorder, current
from evalflows.specs.errors import InputError
from evalflows.specs.frozen import dataclass
from evalflows.store.queries.lookup import unique_name
from evalflows.store.records import CallRow, to_json
from evalflows.store.snapshots import current_snapshot
from evalflows.store.store import Store
from evalflows.targets import Answer

Cases = Mapping[str, Case]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A recorded suite: its experiment, and how many of its tests passed."""

    experiment: str
    passed: int
    tests: int


def record(suite: str, cases: Sequence[Case], name: str) -> Recorded:
    """Write the tests of a suite as an experiment, through the flow that runs all experiments.

    The suite is a dataset; tests that were not run keep their examples in it. Raise InputError if two tests have the
    same id.
    """
    import evalflows  # loads Prefect, which takes seconds

    by_id = {case.id: case for case in cases}
    if len(by_id) < len(cases):
        double = next(case for case in cases if by_id[case.id] is not case)
        raise InputError(f"{double.name}: id: got {double.id!r}, which another test has, wanted one for each test")
    store = Store()
    _keep_examples(store, suite, cases)
    dataset = datasets.find_dataset(store, suite, None)
    examples = [example for example in datasets.examples_of(store, dataset) if example.id in by_id]
    keys = dict.fromkeys(key for case in cases for key in case.notes)
    result = evalflows.evaluate(
        _target(by_id),
        datasets.as_data(store, examples),
        [_evaluator(key, by_id) for key in keys],
        experiment_prefix=name,
        metadata={key: value for case in cases for key, value in case.experiment_metadata.items()},
    )
    passed = sum(bool(case.notes[PASS].score) for case in cases)
    return Recorded(
        experiment=unique_name(result.experiment_name, result.experiment_id), passed=passed, tests=len(cases)
    )


def _keep_examples(store: Store, suite: str, cases: Sequence[Case]) -> None:
    rows = [_row(case) for case in cases]
    if current_snapshot(store, suite) is None:
        datasets.create(store, suite, "Tests", rows=rows)
    else:
        datasets.put(store, datasets.find_dataset(store, suite, None), rows)


def _row(case: Case) -> Fields:
    own = {
        "inputs": case.inputs or {"test": case.name},  # an example needs inputs
        "outputs": case.reference_outputs or None,
        "metadata": {"test": case.name, **case.metadata},
        "split": case.split,
    }
    return datasets.as_row({"id": case.id, **own})


def _target(cases: Cases) -> Callable[..., Answer]:
    """Return a target that gives what the tests logged, with the calls, steps and time that they took."""

    def tests(example_id: str) -> Answer:
        case, recorder = cases[example_id], current()
        if recorder is None:
            raise InputError("tests: called outside of an experiment, wanted evaluate")
        _replay(case.calls, recorder)
        totals = recorder.totals()
        return Answer(
            outputs=case.outputs,
            latency_s=case.latency_s,
            tokens_in=totals.tokens_in,
            tokens_out=totals.tokens_out,
            cost_usd=totals.cost_usd,
            steps=to_json(case.steps) if case.steps else None,
        )

    tests.version_parts = _versions(cases)  # type: ignore[attr-defined]
    return tests


def _evaluator(key: str, cases: Cases) -> Callable[..., Any]:
    """Return an evaluator that gives what the tests logged under a key; to tests without it, it does not apply."""

    def judge(example: ExampleView) -> Fields | None:
        note, recorder = cases[example.id].notes.get(key), current()
        if note is None:
            return None
        if recorder is not None:
            _replay(note.calls, recorder)
        return {"key": key} | {name: getattr(note, name) for name in ("score", "value", "comment", "metadata")}

    judge.__name__ = judge.__qualname__ = key
    judge.version_parts = _versions(cases)  # type: ignore[attr-defined]
    notes = [case.notes[key] for case in cases.values() if key in case.notes]
    declared: Fields = {"higher_is_better": all(note.higher_is_better for note in notes)}
    if len(ranges := {note.range for note in notes}) == 1:
        declared["range"] = ranges.pop()
    return declares(lambda name, settings: {name: declared})(judge)


def _replay(calls: Sequence[CallRow], recorder: Recorder) -> None:
    """Record calls that were made in a test as those of the current item."""
    experiment, subject, evaluator = recorder.experiment_id, recorder.subject_id, recorder.evaluator
    for call in calls:
        row = replace(call, experiment_id=experiment, subject_id=subject, evaluator=evaluator)
        recorder.store(row)
        if row.status == "ok":
            recorder.answered.append(AnsweredCall(row))
        else:
            recorder.failed.append(row)


def _versions(cases: Cases) -> dict[str, str]:
    return {case.name: case.version for case in cases.values()}
