"""Comparing experiments by functions: evaluate_comparative, its async twin and its arguments."""

import asyncio
from typing import Any

import pytest
from endpoint import Endpoint, Reply, Request, serving
from matched import asked, judgements
from pairwise_runs import NAMES, ROWS, N, Outputs, answered, by_length, conclusion, judged_by, longer, verdict

from evalflows import ComparativeResult, aevaluate, aevaluate_comparative, compare, evaluate, evaluate_comparative
from evalflows.specs import InputError
from evalflows.store import Store

pytestmark = pytest.mark.usefixtures("prefect_api", "short_pauses")


def short(question: str) -> str:
    return question[:2]


def long(question: str) -> str:
    return question * 3


@pytest.mark.slow
def test_evaluate_compares_finished_experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (evaluate(target, ROWS[:6]) for target in (short, long))
    found = evaluate((one, other), evaluators=[longer], both_orders=True)
    assert isinstance(found, ComparativeResult)
    assert (found.name, len(found)) == ("short vs long", 6)
    frame = found.to_pandas()
    assert list(frame.example_id) == NAMES[:6] and set(frame.metric) == {"longer"}
    assert (set(frame.winner), set(frame.shown_first), set(frame.outcome)) == ({"long"}, {"both"}, {"right"})
    assert (set(frame.left), set(frame.right)) == ({"short"}, {"long"})
    row = frame.iloc[2]
    assert (row["inputs.question"], row["left.output"], row["right.output"]) == ("q02?", "q0", "q02?q02?q02?")
    assert row["reference.answer"] == "q02"
    assert row.left_score < row.right_score
    (rate,) = found.win_rates().query("not length_controlled").to_dict("records")
    assert (rate["candidate"], rate["baseline"], rate["win_rate"], rate["wins"]) == ("long", "short", 1.0, 6)
    assert list(found.leaderboard().experiment) == ["long", "short"]
    assert repr(found) == f"ComparativeResult('short vs long', {found.comparison_id}, 6 pairs: longer)"
    assert str(found).startswith(f"short vs long ({found.comparison_id})\n") and "\npages: " in str(found)
    monkeypatch.setenv("EVALFLOWS_DASHBOARD_URL", "https://evals.example")
    assert found.url == f"https://evals.example/pairwise/{found.comparison_id}" and found.url in str(found)
    assert [pair["example_id"] for pair in found] == NAMES[:6]
    assert all(Store().is_sealed(table, found.comparison_id) for table in ("judgements", "comparison_sets"))


@pytest.mark.slow
def test_the_name_description_metadata_and_settings_of_a_comparison_are_stored() -> None:
    old, new = answered("old", "new")
    evaluate_comparative(
        (new, "old"),
        evaluators=[longer],
        experiment_prefix="nightly",
        description="before the release",
        metadata={"ticket": 7},
        max_concurrency=0,
        randomize_order=False,
        failed_output="left_out",
        seed=3,
    )
    ((row),) = asked(
        """select name, description, metadata ->> 'ticket', experiments, baseline_experiment_id, randomize_order,
                  failed_output_policy, seed, state, flow_run_id is not null from comparison_sets"""
    )
    assert row == ("nightly", "before the release", "7", [new, old], new, False, "left_out", 3, "completed", True)
    assert {one.shown_first for one in judgements(asked("select comparison_id from comparison_sets")[0][0])} == {
        "right"
    }


@pytest.mark.slow
def test_async_comparisons_run_concurrently_in_one_event_loop() -> None:
    old, new = answered("old", "new")

    async def judge(outputs: Outputs) -> str:
        await asyncio.sleep(0)
        first, second = longer(outputs)
        return "A" if first > second else "B"

    async def program() -> tuple[Any, Any]:
        return await asyncio.gather(
            aevaluate((old, new), evaluators=[judge]), aevaluate_comparative([new, old], [judge])
        )

    for found in asyncio.run(program()):
        assert {pair["winner"] for pair in found} == {"new"} and len(found) == N


def test_experiments_take_no_data_and_a_target_requires_data() -> None:
    wanted = "got experiments to compare, wanted no data, summary_evaluators or repetitions"
    one = {"evaluators": [longer]}
    for odd in ({"data": ROWS}, {"summary_evaluators": [longer]}, {"num_repetitions": 2}):
        with pytest.raises(InputError, match=wanted):
            evaluate(("old", "new"), **one, **odd)
    with pytest.raises(InputError, match="evaluate: got no data, wanted a file's path"):
        evaluate(short, evaluators=[])  # type: ignore[call-overload]
    with pytest.raises(InputError, match=r"evaluate_comparative: experiments: ") as few:
        evaluate((), **one)
    with pytest.raises(InputError, match=r"evaluate_comparative: evaluators: ") as none:
        evaluate(("old", "new"), evaluators=[])
    with pytest.raises(InputError, match=r"evaluate_comparative: repetitions: ") as unknown:
        evaluate(("old", "new"), **one, repetitions=2)
    assert not any("\n" in str(caught.value) for caught in (few, none, unknown))


def always_first(request: Request) -> Reply:
    return verdict(1)


@pytest.mark.slow
def test_a_fair_judge_decides_and_a_position_biased_judge_does_not() -> None:
    old, new = answered("old", "new", n=40)
    with serving(Endpoint(answer=by_length)) as endpoint:
        compare(judged_by(endpoint, [old, new], both_orders=True, name="fair"))
        assert conclusion("fair") == ("better", None)
    assert endpoint.calls == 80 + 1 and endpoint.repeated() == 0
    assert asked("select sum(calls), min(judge_model), max(judge_model) from comparisons") == [
        (endpoint.calls - 1, "mock-1", "mock-1")  # without the trial of the parameters
    ]
    with serving(Endpoint(answer=always_first)) as endpoint:
        compare(judged_by(endpoint, [new, old], both_orders=True, name="first"))
    found, reason = conclusion("first")
    assert found == "not_enough_evidence"
    assert str(reason).startswith("this judge has a position bias: it ")
    assert "in 100% [" in str(reason)
    biases = asked("select comparison, bias from judge_biases where passed = false order by bias")
    assert biases == [("first", "flip_share"), ("first", "position_preference")]
