"""Arguments that are offered to evaluators, in LangSmith's and in Langfuse's names."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evalflows.evaluators.views import (
    Conversation,
    Evaluations,
    ExampleView,
    ItemResult,
    RunView,
    unwrapped,
    with_attributes,
)

LANGFUSE_FIELDS = {
    "input": ("inputs", "input"),
    "output": ("outputs", "output"),
    "expected_output": ("reference_outputs", "output"),
}
"""Langfuse's names: ours, and the key that is left off if it is the only one."""


def offer_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given fields of a run, under LangSmith's and Langfuse's names.

    As in Langfuse, the `input` of a conversation is the list of its messages.
    """
    langfuse = {
        name: with_attributes(unwrapped(fields[source], only))
        for name, (source, only) in LANGFUSE_FIELDS.items()
        if source in fields
    }
    if (inputs := fields.get("inputs")) and inputs.keys() == {"messages"} and isinstance(inputs["messages"], list):
        langfuse["input"] = Conversation(langfuse["input"]["messages"])
    return {**fields, **langfuse}


def offer_run(example: ExampleView, run: RunView, evaluations: Evaluations | None = None) -> dict[str, Any]:
    """Return the arguments for an item-level evaluator, under LangSmith's and Langfuse's names."""
    evaluations = evaluations if evaluations is not None else Evaluations()
    return {
        **offer_fields(
            {
                "inputs": example.inputs,
                "outputs": run.outputs,
                "reference_outputs": example.reference_outputs,
                "metadata": example.metadata,
            }
        ),
        "example": example,
        "run": run,
        "root_run": run,
        "attachments": example.attachments,
        "evaluations": evaluations,
        "scores": evaluations,
    }


def offer_experiment(results: list[ItemResult]) -> dict[str, Any]:
    """Return the arguments for a run-level evaluator: lists in the order of the runs.

    As in Langfuse, the `output` of `item_results` is the target's return value before it was wrapped.
    """
    return {
        "inputs": [result.item.inputs for result in results],
        "outputs": [result.run.outputs for result in results],
        "reference_outputs": [result.item.reference_outputs for result in results],
        "runs": [result.run for result in results],
        "examples": [result.item for result in results],
        "item_results": [replace(result, output=unwrapped(result.run.outputs, "output")) for result in results],
    }


def offer_pair(example: ExampleView, first: RunView, second: RunView) -> dict[str, Any]:
    """Return the arguments for a pairwise evaluator, in the order in which the two runs are shown."""
    return {
        "inputs": example.inputs,
        "outputs": [first.outputs, second.outputs],
        "reference_outputs": example.reference_outputs,
        "metadata": example.metadata,
        "runs": [first, second],
        "example": example,
        "attachments": example.attachments,
    }
