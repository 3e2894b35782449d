"""Langfuse's evaluators, with the real package, through the flow give what calling them gives."""

from collections.abc import Iterator
from typing import Any

import pytest
from endpoint import Endpoint, serving
from foreign_evaluators import ANSWERS, ROWS, async_client, judged, kept, no_network, said, scores_of, verdict

from evalflows.evaluators.binding import bind
from evalflows.evaluators.views import Evaluation, Evaluations, ExampleView, ItemResult, RunView, offer_experiment
from evalflows.store import Store

langfuse = pytest.importorskip("langfuse", reason="langfuse comes with the extra `others`")
experiment = pytest.importorskip("langfuse.experiment", reason="langfuse comes with the extra `others`")
autoevals = pytest.importorskip("autoevals", reason="autoevals comes with the extra `others`")


@pytest.fixture(autouse=True)
def nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with no_network(monkeypatch):
        yield


def accuracy(*, input: Any, output: Any, expected_output: Any = None, metadata: Any = None, **kwargs: Any) -> Any:  # noqa: A002
    same = expected_output is not None and output.lower() == expected_output.lower()
    why = f"{output} for {expected_output}, asked {input}"
    return langfuse.Evaluation(
        name="accuracy", value=same, comment=why, metadata={"row": metadata}, data_type="BOOLEAN"
    )


def several(*, output: Any, **kwargs: Any) -> Any:
    size = "short" if len(output) < 6 else "long"
    return [
        langfuse.Evaluation(name="letters", value=len(output), config_id="config-1"),
        langfuse.Evaluation(name="size", value=size, data_type="CATEGORICAL"),
    ]


def in_a_dict(*, input: Any, output: Any, expected_output: Any, metadata: Any, **kwargs: Any) -> Any:  # noqa: A002
    return {"name": "asked", "value": input in ANSWERS, "comment": "in a dict"}


def total(*, input: Any, output: Any, expected_output: Any, metadata: Any, evaluations: Any) -> Any:  # noqa: A002
    """A composite: what was given before, by its name and its value."""
    values = {evaluation.name: evaluation.value for evaluation in evaluations}
    return langfuse.Evaluation(name="total", value=values["accuracy"] * values["letters"], comment=values["size"])


def mean_accuracy(*, item_results: Any, **kwargs: Any) -> Any:
    """A run evaluator, as their documents have it: an item is a dict, or it is an object."""
    values = [e.value for result in item_results for e in result.evaluations if e.name == "accuracy"]
    asked = [r.item["input"] if isinstance(r.item, dict) else r.item.input for r in item_results]
    wanted = [r.item.expected_output for r in item_results]
    assert all(result.trace_id for result in item_results)
    rights = sum(result.output == one for result, one in zip(item_results, wanted, strict=True))
    return langfuse.Evaluation(
        name="mean", value=sum(values) / len(values), comment=f"{len(asked)} items, {rights} exact"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("without_prefect")
def test_every_value_label_and_comment_is_that_of_a_direct_call() -> None:
    levenshtein = experiment.create_evaluator_from_autoevals(autoevals.Levenshtein())
    rows = [row for row in ROWS if "outputs" in row]
    with serving(Endpoint(answer=verdict)) as endpoint:
        asked = async_client(endpoint)

        async def polite(*, input: Any, output: Any, **kwargs: Any) -> Any:  # noqa: A002
            messages: Any = [{"role": "user", "content": f"{input}: {output}"}]
            shape: Any = {"type": "text"}
            answer = await asked.chat.completions.create(model="mock-1", messages=messages, response_format=shape)
            said = answer.choices[0].message.content or ""
            return langfuse.Evaluation(name="polite", value=float('"score": true' in said), comment=said)

        result = judged(
            [accuracy, several, in_a_dict, total, levenshtein, polite],
            rows=rows,
            summary_evaluators=[mean_accuracy],
            score_configs={"config-1": {"name": "letters"}},
        )
    for row in rows:
        given, wanted = ANSWERS[row["inputs"]["input"]], row["outputs"]["output"]
        call = {"input": row["inputs"]["input"], "output": given, "expected_output": wanted, "metadata": {}}
        direct = [accuracy(**call), *several(**call), experiment.Evaluation(**in_a_dict(**call)), levenshtein(**call)]
        for one in direct:
            label = one.value if isinstance(one.value, str) else None
            score = scores_of(result, one.name)[row["id"]]
            assert said(score) == (None if label else float(one.value), label, one.comment)
    assert {e: said(row)[0] for e, row in scores_of(result, "accuracy").items()} == {"right": 1, "wrong": 0, "near": 1}
    row = scores_of(result, "accuracy")["right"]
    assert (row.data_type, kept(row)) == ("BOOLEAN", {"row": {}})
    assert scores_of(result, "letters")["wrong"].config_id == "config-1"
    assert {e: said(row)[1] for e, row in scores_of(result, "size").items()} == (
        {"right": "short", "wrong": "long", "near": "short"}
    )
    assert {e: said(row)[0] for e, row in scores_of(result, "total").items()} == {"right": 5, "wrong": 0, "near": 5}
    assert {e: (said(r)[0], r.calls) for e, r in scores_of(result, "polite").items()} == (
        {"right": (1, 1), "wrong": (0, 1), "near": (1, 1)}
    )
    (mean,) = (s for s in Store().read("judgements", result.experiment_id) if s.subject_kind == "experiment")
    assert (mean.metric, mean.value, mean.comment) == ("mean", pytest.approx(2 / 3), "3 items, 1 exact")


def test_items_read_as_langfuses_do() -> None:
    item = ExampleView(id="e", inputs={"input": "q"}, reference_outputs={"output": "a"}, metadata={"k": 1})
    run = RunView(id="r", inputs=item.inputs, outputs={"output": "given"})
    result = ItemResult(
        item=item, output=run.outputs, evaluations=Evaluations([Evaluation(name="n", value=1)]), run=run
    )
    seen = bind(lambda item_results: item_results, scope="run").call(offer_experiment([result]))[0]
    assert (seen.output, seen.trace_id, seen.evaluations["n"].value) == ("given", "r", 1)
    assert (seen.item.input, seen.item["input"], seen.item["expected_output"], seen.item["metadata"]) == (
        *("q", "q", "a", {"k": 1}),
    )
    assert seen.item.get("expected_output") == seen.item.expected_output and seen.item.get("other", 7) == 7
    assert "input" in seen.item and "id" not in seen.item
    with pytest.raises(KeyError, match="wanted one of input, expected_output, metadata"):
        seen.item["inputs"]
