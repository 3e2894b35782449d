"""run_batched_evaluation and its result: what a batch judged, what it did not, and how to go on."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from catalog_rows import rows
from made_traces import BEGAN, observation, traces, write

from evalflows import BatchEvaluationResult, EvaluatorInputs, run_batched_evaluation
from evalflows.api.batch_result import BatchEvaluationResumeToken
from evalflows.specs.errors import InputError
from evalflows.store import Store

runs_flows = pytest.mark.usefixtures("without_prefect")

judged: list[str] = []
"""The outputs that `length` has judged."""


@pytest.fixture(autouse=True)
def nothing_judged() -> None:
    judged.clear()


def length(*, input: Any, output: Any, expected_output: Any, metadata: Any) -> Any:  # noqa: A002 Langfuse's names
    judged.append(output)
    return {"name": "length", "value": len(output), "comment": f"of {output}"}


def odd(*, input: Any, output: Any, **kwargs: Any) -> Any:  # noqa: A002
    number = int(output.split()[-1])
    if number == 3:
        raise ValueError("three is neither")
    return None if number == 4 else number % 2 == 1


def both(*, output: Any, evaluations: Any, **kwargs: Any) -> Any:
    values = {one.name: one.value for one in evaluations}
    return {"name": "both", "value": values["length"] + values["odd"]}


def own(item: Any) -> EvaluatorInputs:
    return EvaluatorInputs(input=item.input, output=item.output)


def ids(result: BatchEvaluationResult) -> list[str]:
    return sorted(result.item_evaluations)


@pytest.mark.slow
@runs_flows
def test_every_field_of_the_result(store: Store) -> None:
    write(store, traces(6))
    result = run_batched_evaluation(
        mapper=own,
        evaluators=[length, odd],
        composite_evaluator=both,
        composite_evaluators=[{"name": "weighed", "weights": {"length": 1, "odd": 3}}],
        metadata={"release": "1.5"},
        max_items=6,
        metrics={"length": {"range": [0, 10]}, "odd": {"range": [0, 1]}},
    )
    assert (result.total_items_fetched, result.total_items_processed, result.total_items_failed) == (6, 6, 0)
    assert result.total_scores_created == 6 + 4  # odd: one raised, one does not apply
    assert result.total_composite_scores_created == 4 + 5  # weights leave out what does not apply
    assert result.total_evaluations_failed == 1
    assert [(one.name, one.total_runs, one.successful_runs, one.failed_runs) for one in result.evaluator_stats] == [
        ("length", 6, 6, 0),
        ("odd", 6, 5, 1),
    ]
    assert [one.total_scores_created for one in result.evaluator_stats] == [6, 4]
    assert (result.resume_token, result.completed, result.has_more_items) == (None, True, False)
    assert result.duration_seconds > 0
    assert (result.failed_item_ids, result.composites) == ([], {"both", "weighed"})
    assert result.error_summary["raised"] >= 1
    assert ids(result) == [f"t{n}" for n in range(6)]
    of_five = {one.name: (one.value, one.comment) for one in result.item_evaluations["t5"]}
    assert (of_five["length"], of_five["odd"][0], of_five["both"][0]) == ((8.0, "of answer 5"), 1.0, 9.0)
    assert of_five["weighed"][0] == pytest.approx((8 / 10 + 3 * 1) / 4)
    assert "odd" not in {one.name for one in result.item_evaluations["t3"]}
    ((spec,),) = rows("select distinct spec from source.watermarks")
    assert json.loads(spec)["metadata"] == {"release": "1.5"}
    shown = str(result)
    assert "items: 6 fetched, 6 processed, 0 failed" in shown and "odd: 5 of 6 judged, 4 scores" in shown
    assert result.batch_id in repr(result)


@pytest.mark.slow
@runs_flows
def test_a_composite_follows_its_evaluators(store: Store) -> None:
    write(store, traces(2))

    def combined(wide: float) -> BatchEvaluationResult:
        def size(output: str, *, times: float = wide) -> float:
            return len(output) * times

        def twice(evaluations: Sequence[Any]) -> dict[str, Any]:
            return {"name": "twice", "value": 2 * evaluations["size"].value}  # type: ignore[call-overload]

        weighed = {"name": "weighed", "weights": {"size": 1}}
        return run_batched_evaluation(
            evaluators=[size], composite_evaluators=[twice, weighed], metrics={"size": {"range": [0, 100]}}
        )

    for wide in (1, 2):
        values = {one.name: one.value for one in combined(wide).item_evaluations["t1"]}
        assert values == {"size": 8 * wide, "twice": 16 * wide, "weighed": pytest.approx(0.08 * wide)}


@pytest.mark.slow
@runs_flows
def test_a_second_run_pays_nothing_and_an_added_composite_combines_the_scores_there_are(store: Store) -> None:
    write(store, traces(3))
    given: dict[str, Any] = {"mapper": own, "evaluators": [length], "metrics": {"length": {"range": [0, 10]}}}
    first = run_batched_evaluation(**given)
    second = run_batched_evaluation(**given)
    assert (len(judged), first.total_scores_created, second.total_scores_created) == (3, 3, 0)
    assert second.total_items_fetched == 3
    assert (second.item_evaluations, second.evaluator_stats) == (first.item_evaluations, first.evaluator_stats)
    weighed = {"composite_evaluators": [{"name": "weighed", "weights": {"length": 1}}]}
    added, again = (run_batched_evaluation(**given, **weighed) for _ in range(2))
    assert (len(judged), added.total_scores_created) == (3, 0)
    assert (added.total_composite_scores_created, again.total_composite_scores_created) == (3, 0)
    assert again.item_evaluations == added.item_evaluations


@pytest.mark.slow
@runs_flows
def test_the_token_judges_the_rest_and_only_that(store: Store) -> None:
    others = [observation("other", name="health-check", began=BEGAN - timedelta(days=1))]
    write(store, [*traces(5), *others])
    only = '{"name": "user-query"}'
    first = run_batched_evaluation(mapper=own, evaluators=[length], filter=only, max_items=2)
    token = first.resume_token
    assert token is not None and first.has_more_items and first.completed
    assert (token.filter, token.items_processed, token.last_processed_id) == (only, 2, "t3")
    assert (token.last_processed_timestamp, token.last_page_ids) == ((BEGAN + timedelta(minutes=3)).isoformat(), None)
    token = BatchEvaluationResumeToken(**json.loads(json.dumps(vars(token))))
    write(store, [observation("late", output="answer 9", began=BEGAN + timedelta(days=1))])
    second = run_batched_evaluation(mapper=own, evaluators=[length], max_items=2, resume_from=token)
    assert (ids(first), ids(second)) == (["t3", "t4"], ["t1", "t2"])
    assert second.resume_token is not None and second.resume_token.items_processed == 4
    third = run_batched_evaluation(
        mapper=own, evaluators=[length], filter='{"name":"user-query"}', resume_from=second.resume_token
    )
    assert (ids(third), third.resume_token, third.total_scores_created) == (["t0"], None, 1)
    assert sorted(judged) == [f"answer {n}" for n in range(5)]
    with pytest.raises(InputError, match=r"^resume_from: got the filter .*, wanted none, or that of its batch$"):
        run_batched_evaluation(mapper=own, evaluators=[length], filter='{"name": "x"}', resume_from=token)


@pytest.mark.slow
@runs_flows
def test_items_that_cannot_be_mapped_or_judged_have_failed(store: Store) -> None:
    write(store, [*traces(3), observation("bare", output=None, began=BEGAN + timedelta(hours=1))])

    async def mapper(*, item: Any) -> dict[str, Any]:
        if item.id == "t1":
            raise LookupError("no berth")
        return {"input": item.input, "output": item.output}

    for _ in range(2):
        result = run_batched_evaluation(evaluators=[length], mapper=mapper)
        assert (result.total_items_fetched, result.total_items_processed, result.total_items_failed) == (4, 2, 2)
        assert sorted(result.failed_item_ids) == ["bare", "t1"]
        assert result.error_summary == {"no_output": 2}
        assert (result.evaluator_stats[0].failed_runs, result.total_evaluations_failed) == (2, 2)
        assert {one: len(found) for one, found in result.item_evaluations.items()} == {
            "bare": 0,
            "t0": 1,
            "t1": 0,
            "t2": 1,
        }
    errors = rows("select subject_id, error from staging.scores where status = 'failed' order by 1")
    assert [(one, "mapper: LookupError: no berth" in error) for one, error in errors] == [("bare", False), ("t1", True)]


@runs_flows
def test_items_are_judged_concurrently_up_to_a_limit(store: Store) -> None:
    write(store, traces(12))
    running, most = 0, 0

    async def slow(output: str) -> int:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        from asyncio import sleep

        await sleep(0.01)
        running -= 1
        return len(output)

    run_batched_evaluation(evaluators=[slow], mapper=own, max_concurrency=4, fetch_batch_size=5)
    assert most == 4


def no_argument() -> None:
    raise AssertionError("called")


@runs_flows
def test_wrong_settings_are_refused_in_one_line_before_anything_runs(store: Store) -> None:
    write(store, traces(1))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"evaluators": []}, "evaluators"),
        ({"evaluators": [length, length]}, "two are called 'length'"),
        ({"mapper": no_argument}, "mapper 'no_argument': got other parameters, wanted one item"),
        ({"mapper": {"outputs": "output"}}, "mapper: got 'outputs', wanted any of input, output"),
        ({"filter": '{"nmae": "x"}'}, "filter: got the column 'nmae'"),
        ({"filter": "{"}, "wanted JSON or a condition"),
        ({"max_items": 0}, "max_items"),
        ({"max_retries": -1}, "chunk_retries"),
        ({"composite_evaluators": [{"name": "c", "weights": {}}]}, "weights"),
        ({"unknown": 1}, "unknown"),
    ]
    for settings, said in wrong:
        with pytest.raises(InputError) as raised:
            run_batched_evaluation(**{"evaluators": [length], "mapper": own} | settings)
        assert said in str(raised.value) and "\n" not in str(raised.value), settings
    assert judged == []
    assert rows("select count(*) from staging.scores") == [(0,)]
