# ruff: noqa: A002 Langfuse's names
"""Experiments on local items and on a dataset, with a task that calls tools."""

from dataclasses import dataclass, field

from evalflows.compat.langfuse import Evaluation, get_client

langfuse = get_client()

CAPITALS = {"France": "Paris", "Spain": "Madrid", "Italy": "Rome"}


@dataclass
class ToolCall:
    name: str
    arguments: dict


@dataclass
class Answer:
    text: str
    tool_calls: list[ToolCall] = field(default_factory=list)


def assistant(*, item, **kwargs):
    country = item["input"] if isinstance(item, dict) else item.input
    if country not in CAPITALS:
        return Answer(text="I do not know that.")
    return Answer(text=f"It is {CAPITALS[country]}.", tool_calls=[ToolCall("look_up", {"country": country})])


def accuracy(*, input, output, expected_output=None, metadata=None, **kwargs):
    return Evaluation(name="accuracy", value=expected_output in output.text, data_type="BOOLEAN")


def length(*, input, output, expected_output=None, metadata=None, **kwargs):
    return Evaluation(name="length", value=len(output["text"]))


async def tools(*, input, output, expected_output=None, metadata=None, **kwargs):
    calls = output.tool_calls
    return {"name": "tools", "value": len(calls), "comment": ", ".join(call["name"] for call in calls) or None}


def overall(*, input, output, expected_output, metadata, evaluations):
    values = {evaluation.name: evaluation.value for evaluation in evaluations}
    value = 0.7 * values["accuracy"] + 0.3 * (values["length"] < 15)
    return Evaluation(name="overall", value=value, metadata={"calls": len(output.tool_calls)})


def mean_accuracy(*, item_results, **kwargs):
    values = [e.value for result in item_results for e in result.evaluations if e.name == "accuracy"]
    return Evaluation(name="mean_accuracy", value=sum(values) / len(values), comment=f"{len(values)} items")


if __name__ == "__main__":
    local = [{"input": country, "expected_output": capital} for country, capital in CAPITALS.items()]
    local.append({"input": "Atlantis", "expected_output": "Atlantis", "metadata": {"is_real": False}})
    result = langfuse.run_experiment(
        name="Capitals",
        description="What an assistant knows",
        data=local,
        task=assistant,
        evaluators=[accuracy, length, tools],
        composite_evaluator=overall,
        run_evaluators=[mean_accuracy],
        max_concurrency=10,
        metadata={"model": "none"},
    )
    print(result.format(include_item_results=True))

    langfuse.create_dataset(name="capitals", description="Capitals of Europe", metadata={"owner": "geography"})
    for country, capital in CAPITALS.items():
        langfuse.create_dataset_item(dataset_name="capitals", input=country, expected_output=capital)
    dataset = langfuse.get_dataset("capitals")
    print(dataset.name, len(dataset.items), dataset.items[0].input, dataset.items[0].expected_output)
    again = dataset.run_experiment(
        name="Capitals of a dataset", task=assistant, evaluators=[accuracy, length], composite_evaluator=overall
    )
    print([(one.item.input, one.output.text, one.evaluations[0].value) for one in again.item_results])
    langfuse.flush()
