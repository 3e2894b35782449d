"""What evaluators get to see: examples, runs, and the judgements of others, as views and as arguments in LangSmith's
and in Langfuse's names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

_OF_AN_ITEM = ("input", "expected_output", "metadata")

LANGFUSE_FIELDS = {
    "input": ("inputs", "input"),
    "output": ("outputs", "output"),
    "expected_output": ("reference_outputs", "output"),
}
"""Langfuse's names: ours, and the key that is left off if it is the only one."""


@dataclass(slots=True, kw_only=True)
class ExampleView:
    """`example`, as frozen in the snapshot. `outputs` is LangSmith's name for the reference outputs.

    Langfuse's names `input`, `expected_output` and `metadata` work as attributes and as keys.
    """

    id: str
    inputs: dict[str, Any]
    reference_outputs: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    split: str | None = None
    cluster: str | None = None
    attachments: dict[str, Any] = field(default_factory=dict)

    @property
    def example_id(self) -> str:
        """The id, by the name that it has in the store."""
        return self.id

    @property
    def outputs(self) -> dict[str, Any] | None:
        return self.reference_outputs

    @property
    def input(self) -> Any:
        return unwrapped(self.inputs, "input")

    @property
    def expected_output(self) -> Any:
        return unwrapped(self.reference_outputs, "output")

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(f"{name!r}: wanted one of {', '.join(_OF_AN_ITEM)}")
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in _OF_AN_ITEM

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in _OF_AN_ITEM else default


@dataclass(slots=True, kw_only=True)
class RunView:
    """`run`: the target's answer to the example.

    `experiment` and `target` are names for evaluators that compare runs; elsewhere they can be empty.
    """

    id: str
    inputs: dict[str, Any]
    outputs: dict[str, Any] | None
    error: str | None = None
    repetition: int = 0
    steps: list[dict[str, Any]] = field(default_factory=list)
    latency_s: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    started_at: datetime | None = None
    experiment: str = ""
    target: str = ""


@dataclass(slots=True, kw_only=True)
class ItemResult:
    """One element of `item_results`, for run-level evaluators."""

    item: ExampleView
    output: Any
    evaluations: "Evaluations"
    run: RunView

    @property
    def trace_id(self) -> str:
        """The run's id; `trace_id` is Langfuse's name for it."""
        return self.run.id


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """An earlier score, for composites and run-level evaluators."""

    name: str
    value: float | str | None
    comment: str | None = None
    status: str = "scored"
    metadata: dict[str, Any] | None = None
    data_type: str | None = None
    config_id: str | None = None

    @property
    def score(self) -> float | str | None:
        return self.value

    @property
    def key(self) -> str:
        return self.name


class Evaluations(list[Evaluation]):
    """A list of scores with look-up by name: `scores["exact_match"]`, `scores.get("judge")`."""

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        evaluation = self.get(key)
        if evaluation is None:
            names = ", ".join(evaluation.name for evaluation in self)
            raise KeyError(f"{key!r}: " + (f"wanted one of {names}" if names else "there are no scores"))
        return evaluation

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None if isinstance(key, str) else super().__contains__(key)

    def get(self, name: str) -> Evaluation | None:
        return next((evaluation for evaluation in self if evaluation.name == name), None)


class Fields(dict[str, Any]):
    """A mapping whose fields are attributes too: `output["tool_calls"]` and `output.tool_calls`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{name!r}: wanted one of {', '.join(self)}") from None


class Conversation(list[Any]):
    """The messages of inputs that are nothing else: a list, whose name `messages` works too, as of a mapping."""

    @property
    def messages(self) -> list[Any]:
        return self

    def __getitem__(self, key: Any) -> Any:
        return self if key == "messages" else super().__getitem__(key)

    def get(self, name: str, default: Any = None) -> Any:
        return self if name == "messages" else default


def with_attributes(value: Any) -> Any:
    """Return a value whose mappings, at any depth, have their fields as attributes too."""
    if isinstance(value, dict):
        return Fields({name: with_attributes(item) for name, item in value.items()})
    return [with_attributes(item) for item in value] if isinstance(value, list) else value


def unwrapped(value: dict[str, Any] | None, only: str) -> Any:
    """Return a value as Langfuse has it: unwrapped if it is `{only: value}`."""
    return value[only] if value is not None and value.keys() == {only} else value


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


def names_of(runs: Sequence[RunView]) -> list[str]:
    """Return what tells runs of an example apart: their targets' names, else their experiments', else their ids."""
    for names in ([run.target for run in runs], [run.experiment for run in runs]):
        if all(names) and len({*names}) == len(names):
            return names
    return [run.id for run in runs]


def offer_pair(example: ExampleView, *runs: RunView) -> dict[str, Any]:
    """Return the arguments for a pairwise evaluator, in the order in which the two runs are shown; or for one of all
    candidates."""
    outputs = [run.outputs for run in runs]
    return {
        "inputs": example.inputs,
        "outputs": outputs,
        "candidates": dict(zip(names_of(runs), outputs, strict=True)),
        "reference_outputs": example.reference_outputs,
        "metadata": example.metadata,
        "runs": [*runs],
        "example": example,
        "attachments": example.attachments,
    }
