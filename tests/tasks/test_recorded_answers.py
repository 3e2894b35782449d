"""Recorded answers are looked up and judged by rules in one pass: the same rows, and each judgement once."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rule_rows import comparable, run_without_flow, stored

from evalflows.engine import quick_processes
from evalflows.engine.answer import look_up_rounds, pending_runs
from evalflows.engine.chunks import Rounds, rounds_of
from evalflows.engine.experiments import Answered, Context
from evalflows.engine.judge_chunk import Judging
from evalflows.specs import ExperimentSpec
from evalflows.store import snapshots
from evalflows.store.store import Store
from evalflows.tasks.snapshot import check_and_freeze
from evalflows.tasks.start import start_experiments
from evalflows.tasks.work_through import execute_rounds, judge

ROWS = [
    {"inputs": {"q": number}, "reference_outputs": {"answer": "yes"}, "metadata": {"said": "yes"} if number % 3 else {}}
    for number in range(30)
]

judged: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def nothing_judged() -> None:
    judged.clear()


def is_short(outputs: dict[str, str], example: Any) -> bool:
    judged[example.id] += 1
    return len(outputs) < 5


def spec_of(name: str, **changes: Any) -> ExperimentSpec:
    return ExperimentSpec.model_validate(
        {
            "name": name,
            "dataset": {"rows": ROWS},
            "targets": [{"kind": "recorded", "column": "said"}],
            "evaluators": ["exact_match", f"{__name__}:is_short"],
            "chunk_size": 10,
        }
        | changes
    )


def first_rounds(spec: ExperimentSpec) -> tuple[Context, list[str], Rounds]:
    """Start experiments; return the run, their ids and the first chunks."""
    run = check_and_freeze(spec)
    experiments = start_experiments.fn(run)
    rounds, *_ = rounds_of(experiments)
    return run, [row.experiment_id for row in experiments], rounds


@pytest.mark.parametrize("column", ["said", "reference_outputs"])
def test_the_rows_are_those_of_two_passes(column: str, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = {"targets": [{"kind": "recorded", "column": column}]}
    one = stored(run_without_flow(spec_of("one", **targets)))
    monkeypatch.setattr(quick_processes, "is_quick", lambda prepared: False)
    two = stored(run_without_flow(spec_of("two", **targets)))
    assert len(one["judgements"]) == 60
    for table in ("outputs", "judgements"):
        assert comparable(one[table]) == comparable(two[table])


def test_each_answer_is_judged_once_and_before_its_chunk_is_evaluated() -> None:
    run, (experiment_id,), rounds = first_rounds(spec_of("once"))
    execute_rounds.fn(run, rounds)
    answered = {row.example_id for row in Store().read("outputs", experiment_id) if row.status == "ok"}
    assert judged == dict.fromkeys(answered, 1)
    before = Store().read("judgements", experiment_id)
    judge.fn(run, rounds.chunks[0])
    assert judged == dict.fromkeys(answered, 1)
    assert Store().read("judgements", experiment_id) == before
    assert len(before) == 20


def test_what_was_answered_but_not_judged_is_judged_when_the_chunk_is_evaluated() -> None:
    run, (experiment_id,), rounds = first_rounds(spec_of("half"))
    look_up_rounds(run, rounds, [pending_runs(run, rounds)[0][:5]], judge=False)
    assert not judged
    execute_rounds.fn(run, rounds)
    assert 0 < judged.total() < 7
    judge.fn(run, rounds.chunks[0])
    answered = {row.example_id for row in Store().read("outputs", experiment_id) if row.status == "ok"}
    assert len(answered) > 5
    assert judged == dict.fromkeys(answered, 1)


def test_no_more_answers_are_in_memory_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if only the answers are long, which are recorded elsewhere than the examples."""
    at_once: list[int] = []

    async def judge(self: Judging, runs: list[Answered]) -> None:
        at_once.append(len(runs))

    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps([{"inputs": row["inputs"], "outputs": "x" * 3_000} for row in ROWS]))
    spec = spec_of("long", targets=[{"kind": "recorded", "path": str(answers)}], chunk_size=30)
    run, (experiment_id,), rounds = first_rounds(spec)
    monkeypatch.setattr(Judging, "judge", judge)
    monkeypatch.setattr(snapshots, "BLOCK_BYTES", 20_000)
    execute_rounds.fn(run, rounds)
    assert at_once == [4, 4, 4, 4, 4, 4, 4, 2]
    assert len(Store().read("outputs", experiment_id)) == 30


def test_a_round_begins_at_one_time_for_all_targets() -> None:
    targets = [{"kind": "recorded", "column": column, "name": column} for column in ("said", "reference_outputs")]
    spec = spec_of("rounds", targets=targets)
    run, experiments, rounds = first_rounds(spec)
    execute_rounds.fn(run, rounds)
    times = [{row.round_at for row in Store().read("outputs", each)} for each in experiments]
    assert times[0] == times[1]
    assert None not in times[0]
    assert {row.round_at for row in stored(run_without_flow(spec_of("alone")))["outputs"]} == {None}
