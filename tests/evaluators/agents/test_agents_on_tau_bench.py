"""Whole trajectories and repeated trials of tau-bench: gpt-4o in the airline's domain, 50 tasks of 4 trials."""

import gzip
import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from evalflows.evaluators.agents.tools import tool_arguments, tool_order
from evalflows.evaluators.agents.trajectory import read_trajectory
from evalflows.evaluators.score import Score
from evalflows.stats.pass_at_k import pass_at_k, pass_hat_k

ROOT = Path(__file__).parents[3]
PUBLISHED = Path(os.environ.get("EVALFLOWS_PUBLISHED_DATA", ROOT.parent / "shared" / "data")) / "tau_bench"
pytestmark = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="tau-bench is not there (EVALFLOWS_PUBLISHED_DATA)")

WRITING = ("book_", "cancel_", "send_", "update_")


@cache
def slim() -> list[dict[str, Any]]:
    with gzip.open(PUBLISHED / "gpt-4o-airline_slim.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@cache
def full() -> list[dict[str, Any]]:
    with gzip.open(PUBLISHED / "gpt-4o-airline_trajectories_full.json.gz", "rt", encoding="utf-8") as file:
        return list(json.load(file))


def sides(run: dict[str, Any], actions: list[dict[str, Any]] | None = None) -> tuple[None, Any, Any]:
    wanted = run["info"]["task"]["actions"] if actions is None else actions
    return None, {"messages": run["traj"]}, {"tool_calls": wanted}


def of_one(score: Score | list[Score] | None) -> float:
    assert isinstance(score, Score) and score.value is not None
    return float(score.value)


def test_pass_hat_1_to_4_are_as_published() -> None:
    solved = Counter(run["task_id"] for run in slim() if run["reward"] == 1)
    successes = [solved[task] for task in range(50)]
    shares = [f"{pass_hat_k(successes, 4, k).mean():.3f}" for k in (1, 2, 3, 4)]
    assert shares == ["0.420", "0.273", "0.220", "0.200"]  # the project's leaderboard
    assert pass_at_k(successes, 4, 4).mean() == 36 / 50 == sum(count > 0 for count in successes) / 50


def test_every_call_of_every_conversation_is_read_in_order() -> None:
    for run, short in zip(full(), slim(), strict=True):
        made = read_trajectory({"messages": run["traj"]}).tool_calls
        assert [(call.name, call.arguments) for call in made] == [
            (call["name"], json.loads(call["arguments"])) for call in short["tool_calls"]
        ]
    assert sum(len(run["tool_calls"]) for run in slim()) == 1164


def test_runs_that_solved_a_task_of_writing_actions_have_these_among_their_calls() -> None:
    """The reward compares the database, which only writing actions change: so all of them must have been called."""
    by_name, by_arguments = [], []
    for run in full():
        writing = [action for action in run["info"]["task"]["actions"] if action["name"].startswith(WRITING)]
        if run["reward"] == 1 and writing:
            by_name.append(of_one(tool_order(*sides(run, writing), mode="superset")))
            by_arguments.append(of_one(tool_arguments(*sides(run, writing), extra_calls="ignored")))
    assert by_name == [1.0] * 27
    # Task 5 in trial 1 gives each flight its origin and destination too, in one of three calls, and changes the same.
    assert Counter(by_arguments) == {1.0: 26, 2 / 3: 1}
