"""`--junit-examples`: beside its tests, pytest's JUnit report lists every answer of the experiments that they ran.

An answer that failed, or that a yes/no metric calls wrong, is listed as skipped with the reason, so that
a report has a failure exactly if a test failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from _pytest.junitxml import xml_key

Answer = tuple[str, float, list[tuple[str, str]], str | None]
"""The testcase's id, the seconds, the scores by metric, and what is wrong: values that xdist can send."""

SENT = "evalflows_answers"
"""What a worker of xdist sends to the process that writes, by experiment."""

_FROM_WORKERS = pytest.StashKey[dict[str, list[Answer]]]()


def finish(config: pytest.Config, experiments: Iterable[str]) -> None:
    """Add the answers of experiments to the report; in a worker of xdist, send them to the process that writes it."""
    answers = {experiment: _answers(experiment) for experiment in dict.fromkeys(experiments)}
    if (output := getattr(config, "workeroutput", None)) is not None:
        output[SENT] = answers
    else:
        report(config, config.stash.get(_FROM_WORKERS, {}) | answers)


def receive(config: pytest.Config, output: Mapping[str, Any]) -> None:
    """Keep what a worker sent. Workers share experiments, so each is there once."""
    config.stash[_FROM_WORKERS] = config.stash.get(_FROM_WORKERS, {}) | output.get(SENT, {})


def report(config: pytest.Config, answers: Mapping[str, Sequence[Answer]]) -> None:
    """Add a testcase for each answer."""
    xml = config.stash[xml_key]
    for name, seconds, scores, wrong in (answer for some in answers.values() for answer in some):
        outcome = "passed" if wrong is None else "skipped"
        case = pytest.TestReport(name, (name, None, name), {}, outcome, None, "call", user_properties=scores)  # type: ignore[arg-type]
        case.duration = seconds
        if wrong is not None:
            case.wasxfail = wrong
        xml.pytest_runtest_logreport(case)
        xml.finalize(case)


def _answers(experiment: str) -> list[Answer]:
    from evalflows import ExperimentResult
    from evalflows.store.queries.failures import failures_of_experiments
    from evalflows.store.store import Store

    store = Store()
    (row,) = store.read("experiments", experiment)
    wrong = {
        failure.id: "; ".join(failure.notes) or "wrong" for failure in failures_of_experiments(store, [experiment])
    }
    found: list[Answer] = []
    for result in ExperimentResult(experiment):
        repetition = f"[{result.output.repetition}]" if row.repetitions > 1 else ""
        scores = [
            (score.metric, str(score.label or score.status if score.value is None else score.value))
            for score in result.scores
        ]
        name = f"{row.name}::{result.row.example_id}{repetition}"
        found.append((name, result.output.latency_s or 0.0, scores, wrong.get(result.output.run_id)))
    return found
