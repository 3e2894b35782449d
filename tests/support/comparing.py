"""Comparisons for tests: small experiments, evaluators that name them, and what a comparison of them gives."""

from typing import Any

import pytest
from matched import begun, compared, experiment, judgements, rows_of, spec_of
from store_rows import make_row

from evalflows.evaluators.views import RunView
from evalflows.specs.errors import InputError
from evalflows.store.records import JudgementRow
from evalflows.store.store import Store
from evalflows.tasks.finish import finish

Outputs = list[dict[str, Any]]
N = 12
NAMES = [f"q{i:02}" for i in range(N)]


def two(**fields: Any) -> tuple[str, str]:
    """An old experiment, whose answers are shorter for even numbers and longer for odd ones, and a new one."""
    rows = rows_of(NAMES, **fields)
    old = {name: "xx" if i % 2 == 0 else "xxxx" for i, name in enumerate(NAMES)}
    return experiment("old", old, place=0, rows=rows), experiment(
        "new", dict.fromkeys(NAMES, "yyy"), place=1, rows=rows
    )


def longer(outputs: Outputs) -> list[int]:
    return [len(one["answer"]) for one in outputs]


def judged(experiments: tuple[str, ...], *evaluators: Any, **changes: Any) -> list[JudgementRow]:
    """The rows of a comparison that has ended, without its verdicts."""
    run, row = begun(spec_of(experiments, *evaluators, **changes))
    finish.fn(run, [row])
    return judgements(row.comparison_id)


def said(rows: list[JudgementRow]) -> dict[str, Any]:
    """The winner of each example; of several orders, if they agree."""
    return {row.example_id: row.winner for row in rows}


def refused(experiments: tuple[str, ...], *evaluators: Any, **changes: Any) -> str:
    """The one line by which a comparison is refused, with nothing written of it."""
    with pytest.raises(InputError) as caught:
        compared(experiments, *evaluators, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def keep_score(owner: str, metric: str) -> None:
    """A score that an item evaluator gave."""
    of = {"judgement_id": f"{owner} {metric}", "experiment_id": owner, "metric": metric, "value": 1.0}
    Store().append("judgements", owner, "p", [make_row("judgements", status="scored", **of)])


def three() -> tuple[str, str, str]:
    """Answers by which each beats the next in two thirds of the examples: a circle."""
    ring = ["abc", "bca", "cab"]
    answers = [{f"q{i}": "x" * (1 + ring[i % 3].index(name)) for i in range(30)} for name in "abc"]
    a, b, c = (experiment(name, one, place=place) for place, (name, one) in enumerate(zip("abc", answers, strict=True)))
    return a, b, c


CALLS: list[tuple[str, ...]] = []
"""The experiments of each pair that `counted` was asked about."""


def counted(outputs: Outputs, runs: list[RunView]) -> list[int]:
    CALLS.append(tuple(sorted(str(run.experiment) for run in runs)))
    return longer(outputs)


def several(outputs: Outputs) -> list[dict[str, Any]]:
    return [{"key": name, "winner": "A" if outputs[0]["answer"] < outputs[1]["answer"] else "B"} for name in ("x", "y")]
