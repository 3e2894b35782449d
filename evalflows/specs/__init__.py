"""The specs: pydantic models shared by spec files, flows and the forms in Prefect's UI."""

from typing import TYPE_CHECKING

from evalflows.specs.late_names import lazy_names

if TYPE_CHECKING:
    from evalflows.specs.columns import AnswerColumns, ExampleColumns
    from evalflows.specs.connections import (
        AnthropicConnection,
        ConnectionSpec,
        EndpointConnection,
        GoogleConnection,
        LocalConnection,
    )
    from evalflows.specs.dataset import DatasetSpec, Expectation
    from evalflows.specs.errors import CallError, IncompleteError, InputError
    from evalflows.specs.evaluator import EvaluatorSpec
    from evalflows.specs.experiment import ExperimentSpec, load_experiment
    from evalflows.specs.gate import GateSpec
    from evalflows.specs.metrics import CompositeSpec, MetricSpec
    from evalflows.specs.protocols import Complete, Completion, Embed, Message
    from evalflows.specs.target import ChatTarget, HttpTarget, PythonTarget, RecordedTarget, TargetSpec

__all__ = [
    "AnswerColumns", "AnthropicConnection", "CallError", "ChatTarget", "Complete", "Completion", "CompositeSpec",
    "ConnectionSpec", "DatasetSpec", "Embed", "EndpointConnection", "EvaluatorSpec", "ExampleColumns", "Expectation",
    "ExperimentSpec", "GateSpec", "GoogleConnection", "HttpTarget", "IncompleteError", "InputError",
    "LocalConnection", "Message", "MetricSpec", "PythonTarget", "RecordedTarget", "TargetSpec", "load_experiment",
]  # fmt: skip


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "columns": ("AnswerColumns", "ExampleColumns"),
        "connections": (
            *("AnthropicConnection", "ConnectionSpec", "EndpointConnection", "GoogleConnection", "LocalConnection"),
        ),
        "dataset": ("DatasetSpec", "Expectation"),
        "errors": ("CallError", "IncompleteError", "InputError"),
        "evaluator": ("EvaluatorSpec",),
        "experiment": ("ExperimentSpec", "load_experiment"),
        "gate": ("GateSpec",),
        "metrics": ("CompositeSpec", "MetricSpec"),
        "protocols": ("Complete", "Completion", "Embed", "Message"),
        "target": ("ChatTarget", "HttpTarget", "PythonTarget", "RecordedTarget", "TargetSpec"),
    },
)
