"""Langfuse's experiments: what tasks return is kept, names stand, and what is missing stays missing."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from catalog_rows import rows
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from pydantic import BaseModel

from evalflows.compat.langfuse import Evaluation, get_client
from evalflows.compat.langfuse.api import ScoreDataType
from evalflows.compat.langfuse.experiment import create_evaluator_from_autoevals
from evalflows.specs.errors import InputError
from evalflows.store import Store

pytestmark = pytest.mark.usefixtures("without_prefect")

CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"query": "tide"}'}}
MESSAGE = {"role": "assistant", "content": None, "tool_calls": [CALL]}
CHOICE = {"index": 0, "finish_reason": "tool_calls", "message": MESSAGE}


@dataclass
class Call:
    name: str


@dataclass
class Answer:
    text: str
    tool_calls: list[Call] = field(default_factory=list)


class Model(BaseModel):
    text: str
    calls: list[Call] = []
    note: str | None = None


RETURNED: dict[str, Any] = {
    "dataclass": Answer("a", [Call("search")]),
    "model": Model(text="a", calls=[Call("search")]),
    "message": ChatCompletionMessage.model_validate(MESSAGE),
    "completion": ChatCompletion.model_validate(
        {"id": "1", "created": 0, "model": "m", "object": "chat.completion", "choices": [CHOICE]}
    ),
    "mixed": {"message": ChatCompletionMessage.model_validate(MESSAGE), "calls": [Call("search")]},
    "output": {"output": 3},
    "list": [Answer("b")],
    "text": "plain",
    "nothing": None,
}
CHECKS: dict[str, Any] = {
    "dataclass": lambda o: (o.text, o.tool_calls[0].name, o["tool_calls"][0]["name"]) == ("a", "search", "search"),
    "model": lambda o: (o.calls[0].name, o["note"], o.note) == ("search", None, None),
    "message": lambda o: (
        o.tool_calls[0].function.name == o["tool_calls"][0]["function"]["name"] == "search"
        and o.content is None
        and json.loads(o["tool_calls"][0].function.arguments) == {"query": "tide"}
    ),
    "completion": lambda o: o.choices[0].message.tool_calls[0]["function"].name == "search",
    "mixed": lambda o: (o["message"].tool_calls[0].id, o.calls[0].name) == ("c1", "search"),
    "output": lambda o: o == {"output": 3} and o.output == 3,
    "list": lambda o: o[0].text == "b",
    "text": lambda o: o == "plain",
    "nothing": lambda o: o is None,
}


@pytest.mark.slow
def test_what_a_task_returns_is_kept_as_json_with_attributes_and_keys() -> None:
    async def task(*, item: Any, **kwargs: Any) -> Any:
        assert item.input == item["input"]
        return RETURNED[item["input"]]

    def seen(*, input: str, output: Any, expected_output: Any, metadata: Any) -> Evaluation:  # noqa: A002
        return Evaluation(name="seen", value=CHECKS[input](output), data_type="BOOLEAN")

    def combined(*, input: str, output: Any, expected_output: Any, metadata: Any, evaluations: Any) -> Any:  # noqa: A002
        return {"name": "combined", "value": CHECKS[input](output) and all(one.value for one in evaluations)}

    def whole(*, item_results: Any) -> Evaluation:
        right = sum(one.evaluations["seen"].value for one in item_results)
        return Evaluation(name="whole", value=right)

    result = get_client().run_experiment(
        name="kept",
        run_name="kept 1",
        data=[{"input": kind} for kind in RETURNED],
        task=task,
        evaluators=[seen],
        composite_evaluator=combined,
        run_evaluators=[whole],
    )
    for one in result.item_results:
        assert CHECKS[one.item.input](one.output), one.item.input
        assert {e.name: e.value for e in one.evaluations} == {"seen": True, "combined": True}, one.item.input
    assert [(one.name, one.value) for one in result.run_evaluations] == [("whole", len(RETURNED))]
    assert (result.name, result.run_name, len(result.item_evaluations)) == ("kept", "kept 1", len(RETURNED))
    assert rows("select name from experiments") == [("kept 1",)]


@pytest.mark.slow
def test_a_score_called_like_a_measure_has_its_name_and_no_row_twice(store: Store) -> None:
    def length(*, input: Any, output: Any, expected_output: Any, metadata: Any) -> Evaluation:  # noqa: A002
        return Evaluation(name="length", value=0.25, comment="short")

    def weighted(*, input: Any, output: Any, expected_output: Any, metadata: Any, evaluations: Any) -> Evaluation:  # noqa: A002
        return Evaluation(name="weighted", value=2 * evaluations["length"].value)

    result = get_client().run_experiment(
        name="named",
        data=[{"input": "a"}, {"input": "a"}, {"input": "b", "id": "own"}],
        task=lambda *, item: "a long answer",
        evaluators=[length],
        composite_evaluator=weighted,
    )
    assert len(result.item_results) == 3 and result.item_ids[2] == "own"
    for one in result.item_results:
        assert [(e.name, e.value, e.metadata) for e in one.evaluations] == [
            ("length", 0.25, None),
            ("weighted", 0.5, None),
        ]
    assert "  length: 0.250, 3 of 3 items" in result.format().splitlines()
    found = rows("select metric, scored, mean from metric_summary order by 1")
    assert [one for one in found if one[0] in ("answer_length", "length", "weighted")] == [
        ("answer_length", 3, 13.0),
        ("length", 3, 0.25),
        ("weighted", 3, 0.5),
    ]
    twice = "select subject_id, metric from staging.scores group by all having count(*) > 1"
    assert rows(twice) == []


@pytest.mark.slow
def test_what_is_missing_stays_missing(store: Store) -> None:
    def task(*, item: Any) -> str:
        if item["input"] == "unanswered":
            raise TimeoutError("no wind")
        return str(item["input"])

    def made(limit: int) -> Any:
        def judge(*, input: str, output: str, **kwargs: Any) -> Evaluation | list[Evaluation] | None:  # noqa: A002
            if output == "broken":
                raise ValueError("no tide")
            return None if output == "empty" else Evaluation(name=f"under {limit}", value=len(output) < limit)

        return judge

    def combined(*, input: Any, output: Any, expected_output: Any, metadata: Any, evaluations: Any) -> Evaluation:  # noqa: A002
        return Evaluation(name="combined", value=sum(one.value for one in evaluations))

    def mean(*, item_results: Any) -> Evaluation:
        return Evaluation(name="items", value=len(item_results))

    result = get_client().run_experiment(
        name="missing",
        data=[{"input": kind} for kind in ("fine", "broken", "empty", "unanswered")],
        task=task,
        evaluators=[made(5), made(3)],
        composite_evaluator=combined,
        run_evaluators=[mean],
    )
    assert [one.item.input for one in result.item_results] == ["fine", "broken", "empty"]
    assert [{e.name: e.value for e in one.evaluations} for one in result.item_results] == [
        {"under 5": 1.0, "under 3": 0.0, "combined": 1.0},
        {},
        {"combined": 0.0},
    ]
    assert len(result.failed_item_ids) == 1 and "3 items, 1 not answered" in result.format()
    assert [(one.name, one.value) for one in result.run_evaluations] == [("items", 3.0)]
    errors = rows("select error from staging.scores where evaluator = 'combined' and error_kind = 'raised'")
    assert [" has no score for this item" in error for (error,) in errors] == [True]
    judges = rows("select distinct evaluator from staging.scores where evaluator like 'judge%' order by 1")
    assert judges == [("judge",), ("judge_2",)]


@pytest.mark.slow
def test_runs_are_read_by_their_api_and_tasks_that_always_fail_give_no_items(store: Store) -> None:
    client = get_client()
    client.create_dataset(name="tides")
    for word in ("ebb", "flood"):
        client.create_dataset_item(dataset_name="tides", input=word, expected_output=word.upper(), metadata={"w": word})

    def right(*, output: str, expected_output: str, **kwargs: Any) -> list[Evaluation]:
        same = output == expected_output
        kind = ScoreDataType.BOOLEAN
        return [Evaluation(name="right", value=same, data_type=kind), Evaluation(name="tone", value="calm")]

    def count(*, item_results: Any, **kwargs: Any) -> Evaluation:
        return Evaluation(name="count", value=len(item_results))

    def broken(*, item_results: Any, **kwargs: Any) -> Evaluation:
        raise LookupError("no tide")

    tides = client.get_dataset("tides")
    first, second = (
        tides.run_experiment(name="Upper", run_name=run, task=lambda *, item: item.input.upper(), evaluators=[right])
        for run in ("upper 1", None)
    )
    assert first.dataset_run_id == first.experiment_id == first.item_results[0].dataset_run_id
    assert (second.dataset_run_id, second.run_name[:8]) == (second.experiment_id, "Upper - ")
    api = client.api
    for result in (first, second):
        run = api.datasets.get_run(dataset_name="tides", run_name=result.run_name)
        assert (run.id, run.name, run.dataset_id) == (result.experiment_id, result.run_name, tides.id)
        items = api.dataset_run_items.list(dataset_id=tides.id, run_name=result.run_name).data
        assert {one.trace_id for one in items} == {one.trace_id for one in result.item_results}
    assert [one.name for one in api.datasets.get_runs("tides").data] == ["Upper", "upper 1"]
    with pytest.raises(InputError, match=r"^run 'other': no experiment on the dataset 'tides'$"):
        api.datasets.get_run("tides", "other")

    trace = api.trace.get(first.item_results[0].trace_id)
    assert (trace.name, trace.input, trace.output) == ("experiment-item-run", "ebb", "EBB")
    assert trace.metadata == {
        "experiment_name": "Upper",
        "experiment_run_name": "upper 1",
        "w": "ebb",
        "dataset_id": tides.id,
        "dataset_item_id": tides.items[0].id,
    }
    assert [(one.name, one.value, one.string_value, one.data_type) for one in trace.scores] == [
        ("right", 1.0, None, "BOOLEAN"),
        ("tone", None, "calm", "CATEGORICAL"),
    ]

    def fails(*, item: Any) -> str:
        raise ValueError("no wind")

    failed = client.run_experiment(name="fails", data=[{"input": 1}, {"expected_output": 2}], task=fails)
    assert (failed.item_results, len(failed.failed_item_ids), failed.dataset_run_id) == ([], 1, None)
    empty = client.run_experiment(
        name="empty",
        data=[],
        task=lambda *, item: item,
        run_evaluators=[create_evaluator_from_autoevals(count), broken],
    )
    assert (empty.item_results, [(one.name, one.value) for one in empty.run_evaluations]) == ([], [("count", 0)])
