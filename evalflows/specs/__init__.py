"""The specs: pydantic models shared by spec files, flows and the forms in Prefect's UI."""

from typing import TYPE_CHECKING

from evalflows.specs.errors import lazy_names

if TYPE_CHECKING:
    from evalflows.specs.columns import AnswerColumns, ExampleColumns
    from evalflows.specs.dataset import DatasetSpec, Expectation
    from evalflows.specs.errors import CallError, Complete, Completion, Embed, IncompleteError, InputError, Message
    from evalflows.specs.evaluator import CompositeSpec, EvaluatorSpec, MetricSpec
    from evalflows.specs.experiment import ExperimentSpec, load_experiment
    from evalflows.specs.running import ConnectionSpec, EndpointConnection, LocalConnection
    from evalflows.specs.target import ChatTarget, HttpTarget, PythonTarget, RecordedTarget, TargetSpec

__all__ = [
    "AnswerColumns",
    "CallError",
    "ChatTarget",
    "Complete",
    "Completion",
    "CompositeSpec",
    "ConnectionSpec",
    "DatasetSpec",
    "Embed",
    "EndpointConnection",
    "EvaluatorSpec",
    "ExampleColumns",
    "Expectation",
    "ExperimentSpec",
    "HttpTarget",
    "IncompleteError",
    "InputError",
    "LocalConnection",
    "Message",
    "MetricSpec",
    "PythonTarget",
    "RecordedTarget",
    "TargetSpec",
    "load_experiment",
]


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "columns": (
            "AnswerColumns",
            "ExampleColumns",
        ),
        "running": (
            "ConnectionSpec",
            "EndpointConnection",
            "LocalConnection",
        ),
        "dataset": (
            "DatasetSpec",
            "Expectation",
        ),
        "errors": (
            "CallError",
            "IncompleteError",
            "InputError",
            "Complete",
            "Completion",
            "Embed",
            "Message",
        ),
        "evaluator": (
            "EvaluatorSpec",
            "CompositeSpec",
            "MetricSpec",
        ),
        "experiment": (
            "ExperimentSpec",
            "load_experiment",
        ),
        "target": (
            "ChatTarget",
            "HttpTarget",
            "PythonTarget",
            "RecordedTarget",
            "TargetSpec",
        ),
    },
)
